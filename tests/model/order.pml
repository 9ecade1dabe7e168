/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Harvest, re-arm, copy, on page tables without a hierarchy (I1, I2, I3).
 *
 * vCPUs write pages for ever, through TLB entries or faults; the host (a VMM,
 * a device) writes them too; the migration thread does as many rounds as it
 * likes, stops all of them and copies what is left.  Then the destination has
 * to equal the source.
 *
 * Of a page's contents only "written since it was last copied" is kept: that
 * is all there is to know about whether the destination has them, and makes
 * the number of writes and of rounds unbounded.  A write through a TLB entry
 * is one step, since a flush waits until the vCPU is between instructions.  A
 * read that fills a writable TLB entry is the same as the first half of a
 * write.  A vCPU may fault although it need not have, which real ones do too.
 * Memory is sequentially consistent: all that matters here are locked
 * operations of x86, or writes that a TLB flush follows.
 */

#ifndef VCPUS
#define VCPUS 2
#endif
#ifndef PAGES
#define PAGES 2
#endif

/* What a run with -DPROBE= must be able to reach. */
#define COPIED              1   /* a page was copied in a round */
#define LATE_BIT            2   /* a dirty bit came after its page's re-arm */
#define WRITTEN_UNLOGGED    3   /* written by a vCPU before another logged it */
#define STALE_TLB           4   /* written between write-protect and flush */
#define WRITTEN_IN_COPY     5   /* a page was dirty again when copied */
#define LAST_COPY           6   /* something was left for the last copy */
#ifdef PROBE
#define reach(what, when)   assert(what != PROBE || !(when))
#else
#define reach(what, when)   skip
#endif

/* All was copied once, and is armed. */
bool stale[PAGES];              /* the destination lacks what is written here */
bool writable[PAGES];           /* the SPTE's W */
bool dirty[PAGES];
bool tlb[VCPUS * PAGES];        /* a writable entry, of each vCPU */

bool stop;
byte running = VCPUS + 1;

#define cached  tlb[id * PAGES + page]

proctype vcpu(byte id)
{
    byte page;

    do
    :: stop -> break
    :: !stop ->
        select(page : 0 .. PAGES - 1);
        if
        :: atomic {
            cached;
            reach(STALE_TLB, !writable[page]);
            reach(WRITTEN_UNLOGGED, writable[page] && !dirty[page]);
            stale[page] = true
           }
        :: atomic { !cached && writable[page] -> cached = true }
        :: atomic { !cached && !writable[page] -> writable[page] = true };
            atomic {
                reach(LATE_BIT, !writable[page]);
                dirty[page] = true
            }
        fi
    od;
    running--
}

proctype host()
{
    byte page;

    do
    :: stop -> break
    :: !stop ->
        select(page : 0 .. PAGES - 1);
        stale[page] = true;
        dirty[page] = true
    od;
    running--
}

#define each(i, n)  i : 0 .. (n) - 1

inline harvest()
{
    for (each(i, PAGES)) {
        atomic { got[i] = dirty[i]; dirty[i] = false }
    }
}

inline protect()
{
    for (each(i, PAGES)) {
        if
        :: got[i] -> writable[i] = false
        :: else
        fi
    }
}

inline flush()
{
    for (each(i, VCPUS)) {
        atomic {
            for (each(j, PAGES)) {
                tlb[i * PAGES + j] = false
            }
        }
    }
}

inline copy()
{
    for (each(i, PAGES)) {
        atomic {
            if
            :: got[i] ->
                reach(WRITTEN_IN_COPY, dirty[i]);
                reach(COPIED, !stop);
                reach(LAST_COPY, stop);
                stale[i] = false
            :: else
            fi
        }
    }
}

proctype migration()
{
    byte i, j;
    bool got[PAGES];

    do
    :: harvest();
        protect();
        flush();
        copy()
    :: stop = true;
        break
    od;
    running == 0;
    harvest();
    copy();
    atomic {
        for (each(i, PAGES)) {
            assert(!stale[i])
        }
    }
}

init {
    atomic {
        byte v;

        for (v : 0 .. VCPUS - 1) {
            run vcpu(v)
        }
        run host();
        run migration()
    }
}
