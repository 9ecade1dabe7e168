/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Hierarchical write-protect (I4, I5, I6, and the order of the bits that say
 * which entries may be writable).
 *
 * To open an entry is to make it writable, to close it is to wrprot it.
 *
 * Three levels: the root table R has the entry r, which points to the table T,
 * whose entry p points to the table C of leaf entries, one of which is x.
 * Each entry has W; each table has a spinlock, and a bitmap of the entries
 * that may be writable.
 *
 * vCPUs write and fault for ever, the migration thread re-arms as often as it
 * likes.  Then it stops re-arming, the vCPUs finish what they are at, and when
 * all is copied, the destination has to equal the source.  With LAST_WRITE
 * there is one more write meanwhile, by a vCPU that does just what it must, and
 * has to get through (I6).  It is not always there, since it would log the page
 * that another lost.
 *
 * The steps of a fault are taken by the vCPUs in any order and number, needed
 * or not: that includes a fault that was overtaken by a re-arm, one for
 * another page under the same tables, and a read fault that installs a
 * writable leaf under a closed path.  Contents, TLB entries and memory order
 * are as in order.pml.
 *
 * Of r and of p a CPU keeps the W that it has seen until a flush (I10), each on
 * its own: it may have read p on the way to a read, when r was closed.  A TLB
 * entry is what all levels allowed when it was made.
 *
 * Left out: a second entry in each table, as loops treat entries one by one
 * and nothing connects these but the lock of the table; entries that come, go
 * or are split, which link.pml has; host writes, which meet no page table.
 */

#ifndef VCPUS
#define VCPUS 2
#endif

/* What a run with -DPROBE= must be able to reach. */
#define COPIED              1   /* the page was copied in a round */
#define CLOSED_CHILD        2   /* a propagation found a writable leaf */
#define OVERTAKEN           3   /* p was opened when r was closed again */
#define ALL_WAITED          4   /* a re-arm met r while it was being opened */
#define RANGE_WAITED        5   /* one met p while it was being opened */
#define UNDER_CLOSED        6   /* a leaf made writable under a closed path */
#define STALE_ENTRY         7   /* p was used as it was before it was closed */
#define WRITTEN_UNLOGGED    8   /* written by a vCPU before another logged it */
#define BIT_MISSED          9   /* a leaf stayed writable for want of its bit */
#define LAST_OPENED         10  /* the last write had to open the whole path */
#define LAST_SPURIOUS       11  /* it faulted, and found nothing to do */
#ifdef PROBE
#define reach(what, when)   assert(what != PROBE || !(when))
#else
#define reach(what, when)   skip
#endif

/* All was copied once, and is armed. */
bool r_w, p_w, x_w;
bool r_bit, p_bit, x_bit;       /* in the bitmaps of R, T and C */
bool r_lock, t_lock, c_lock;    /* of the tables R, T and C */

bool stale;                     /* the destination lacks what is in the page */
bool dirty;
bool tlb[VCPUS];                /* a writable entry, of each vCPU */
bool r_seen[VCPUS];             /* what it has kept of r has W */
bool p_seen[VCPUS];

bool quiet;                     /* no re-arm from now on */
#ifdef LAST_WRITE
byte running = VCPUS + 1;
#else
byte running = VCPUS;
#endif

#define lock(l)     atomic { !l -> l = true }
#define unlock(l)   l = false

inline flush()
{
    v = 0;
    do
    :: atomic {
        v < VCPUS ->
        tlb[v] = false;
        r_seen[v] = false;
        p_seen[v] = false;
        v++
       }
    :: atomic { v == VCPUS -> v = 0; break }
    od
}

/*
 * Close an entry, with the lock of its table held.  W is looked at only with
 * the child's lock: one that is not writable may be about to be opened.
 */
inline close(w, bit_, child_lock)
{
    lock(child_lock);
    bit_ = false;
    if
    :: atomic { w -> w = false }
    :: !w -> bit_ = true
    fi;
    unlock(child_lock)
}

inline close_leaves()
{
    if
    :: atomic { x_bit -> x_bit = false };
        atomic { reach(CLOSED_CHILD, x_w); x_w = false }
    :: atomic { !x_bit -> reach(BIT_MISSED, x_w) }
    fi
}

inline close_table()
{
    if
    :: p_bit -> close(p_w, p_bit, c_lock)
    :: else
    fi
}

inline open_r()
{
    lock(t_lock);
    if
    :: !r_w ->
        r_bit = true;
        close_table();
        flush();
        r_w = true
    :: else
    fi;
    unlock(t_lock)
}

inline open_p()
{
    lock(c_lock);
    if
    :: !p_w ->
        p_bit = true;
        close_leaves();
        atomic { reach(OVERTAKEN, !r_w); p_w = true }
    :: else
    fi;
    unlock(c_lock)
}

inline fix_leaf()
{
    if
    :: atomic { !x_w -> reach(UNDER_CLOSED, !r_w || !p_w); x_w = true };
        x_bit = true;
        dirty = true
    :: else
    fi
}

proctype vcpu(byte id)
{
    byte v;

    do
    :: quiet -> break
    :: atomic {
        tlb[id] ->
        reach(WRITTEN_UNLOGGED, x_w && !dirty);
        stale = true
       }
    :: atomic { r_w -> r_seen[id] = true }
    :: atomic { p_w -> p_seen[id] = true }
    :: atomic {
        !tlb[id] && r_seen[id] && p_seen[id] && x_w ->
        reach(STALE_ENTRY, !p_w);
        tlb[id] = true
       }
    :: atomic { !r_w -> skip };
        open_r()
    :: atomic { !p_w -> skip };
        open_p()
    :: atomic { !x_w -> skip };
        fix_leaf()
    od;
    running--
}

inline look()
{
    good = r_w;
    good = good && p_w;
    good = good && x_w
}

/* A write by a vCPU whose TLB is empty.  With no re-arm, nothing empties it. */
proctype last_write()
{
    byte faults, v;
    bool good;

    quiet;
    do
    :: look();
        if
        :: good -> break
        :: else
        fi;
        faults++;
        assert(faults == 1);    /* the handler leaves nothing to be done */
        look();
        if
        :: good -> reach(LAST_SPURIOUS, true)
        :: else ->
            reach(LAST_OPENED, !r_w && !p_w && !x_w);
            open_r();
            open_p();
            fix_leaf()
        fi
    od;
    stale = true;
    running--
}

inline harvest()
{
    atomic { harvested = dirty; dirty = false }
}

inline write_protect_all()
{
    lock(r_lock);
    if
    :: r_bit ->
        atomic { reach(ALL_WAITED, !r_w && t_lock); skip };
        close(r_w, r_bit, t_lock)
    :: else
    fi;
    unlock(r_lock);
    flush()
}

inline write_protect_range()
{
    lock(t_lock);
    atomic { reach(RANGE_WAITED, !p_w && c_lock); skip };
    close(p_w, p_bit, c_lock);
    unlock(t_lock);
    flush()
}

inline copy()
{
    if
    :: harvested -> stale = false; harvested = false
    :: else
    fi
}

proctype migration()
{
    byte v;
    bool harvested;

    do
    :: harvest();
        if
        :: true -> write_protect_all()
        :: true -> write_protect_range()
        fi;
        reach(COPIED, harvested);
        copy()
    :: quiet = true;
        break
    od;
    running == 0;
    harvest();
    copy();
    assert(!stale)
}

init {
    atomic {
        byte n;

        for (n : 0 .. VCPUS - 1) {
            run vcpu(n)
        }
        n = 0;
#ifdef LAST_WRITE
        run last_write();
#endif
        run migration()
    }
}
