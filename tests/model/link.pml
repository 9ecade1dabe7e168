/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Hierarchical write-protect of entries that come, go and are split (I4, I5).
 *
 * Two levels: the root table T has the entry p.  That is nothing, or a huge
 * page, or points to a table of leaf entries, one of which is x.  Each table
 * has a bitmap of entries that may be writable, and a lock.  The upper levels
 * are as in propagate.pml: who holds T's lock to open what points to T does
 * what the migration thread does here.
 *
 * Before the page was logged, a huge page was mapped writable.  It may be split
 * or zapped at any time; after that huge pages are mapped read-only.  An entry
 * that points to a table is zapped with mmu_lock held for write, while all but
 * the lockless fix of a leaf hold it for read.  Without that, bit first does
 * not do for a new table: the bit may be taken away together with the W of
 * another table, which is zapped in time for the new one to be linked.
 * (Turning off the log of a slot zaps tables with mmu_lock held for read.  Who
 * is linking one then has done so before the log is turned on: that is what
 * SRCU waits for.)
 *
 * Tables are used once, TABLES of them: RCU keeps the real ones until nobody
 * looks at them.  A table that was taken out can still be written to, though
 * KVM freezes its entries, and zapping does not flush; both only add to what
 * may happen.  The rest is as in propagate.pml.
 */

#ifndef VCPUS
#define VCPUS 2
#endif
#ifndef TABLES
#define TABLES 2
#endif

/* What a run with -DPROBE= must be able to reach. */
#define COPIED              1   /* the page was copied in a round */
#define RESTORED            2   /* a closer put back a bit that it had taken */
#define CLOSED_OTHER        3   /* it made a table read-only where it had seen
                                   a huge page */
#define SPLIT_WRITABLE      4   /* a writable huge page was split */
#define SPLIT_READ_ONLY     5   /* and one that was not */
#define SPLIT_FAILED        6   /* it was made read-only meanwhile */
#define OPENED              7   /* p was made writable again */
#define LINKED_BEHIND       8   /* a table was linked during a re-arm */
#define TAKEN_OUT           9   /* a table was zapped */
#ifdef PROBE
#define reach(what, when)   assert(what != PROBE || !(when))
#else
#define reach(what, when)   skip
#endif

#define NONE    TABLES
#define HUGE    (TABLES + 1)

byte p = HUGE;                  /* that, or the table that it points to */
bool p_w = true;
bool p_bit = true;
bool t_lock;                    /* of T */

byte readers;                   /* of mmu_lock */

bool x_w[TABLES], x_bit[TABLES], lock_of[TABLES];
byte used;                      /* tables */

bool stale = true;              /* the destination lacks what is in the page */
bool dirty = true;
bool tlb[VCPUS] = true;
bool walk[VCPUS];               /* it walks, and p was writable */

bool stop;
byte running = VCPUS;

#define lock(l)     atomic { !l -> l = true }
#define unlock(l)   l = false
#define read_unlock readers--

/* Take away the bit together with W, or not at all. */
inline close_and_forget()
{
    p_bit = false;
    if
    :: atomic { p_w -> reach(CLOSED_OTHER, p != seen); p_w = false }
    :: atomic { !p_w -> reach(RESTORED, true) };
        p_bit = true
    fi
}

/* Close p, with T's lock held. */
inline close()
{
    do
    :: seen = p;
        if
        :: seen == NONE ->
            break
        :: seen == HUGE ->
            close_and_forget();
            break
        :: seen < TABLES ->
            lock(lock_of[seen]);
            if
            :: p == seen ->
                close_and_forget();
                unlock(lock_of[seen]);
                break
            :: p != seen ->
                unlock(lock_of[seen])
            fi
        fi
    od;
    seen = NONE
}

/* Open p if it points to the table that was seen there. */
inline open()
{
    lock(lock_of[seen]);
    if
    :: p == seen && !p_w ->
        p_bit = true;
        if
        :: atomic { x_bit[seen] -> x_bit[seen] = false };
            x_w[seen] = false
        :: !x_bit[seen]
        fi;
        if
        :: atomic { p == seen -> reach(OPENED, true); p_w = true }
        :: p != seen
        fi
    :: else
    fi;
    unlock(lock_of[seen])
}

inline fix_leaf()
{
    if
    :: atomic { !x_w[seen] -> x_w[seen] = true };
        x_bit[seen] = true;
        dirty = true
    :: else
    fi
}

/* Nobody sees what is in a table until it is linked, all in one step. */
inline use_table(writable)
{
    reach(LINKED_BEHIND, t_lock);
    x_w[used] = writable;
    x_bit[used] = writable;
    p = used;
    p_w = true;
    used++
}

inline link()
{
    p_bit = true;
    if
    :: atomic { p == NONE && used < TABLES -> use_table(false) }
    :: p != NONE || used == TABLES
    fi
}

inline split()
{
    p_bit = true;
    if
    :: atomic {
        p == HUGE && p_w == saw_w && used < TABLES ->
        reach(SPLIT_WRITABLE, p_w);
        reach(SPLIT_READ_ONLY, !p_w);
        use_table(saw_w)
       }
    :: atomic {
        p != HUGE || p_w != saw_w || used == TABLES ->
        reach(SPLIT_FAILED, p == HUGE && saw_w && used < TABLES)
       }
    fi
}

proctype vcpu(byte id)
{
    byte seen = NONE;
    bool saw_w;

    do
    :: stop -> break
    :: atomic { tlb[id] -> stale = true }
    :: atomic { !tlb[id] && p == HUGE && p_w -> tlb[id] = true }
    :: atomic { !tlb[id] && p < TABLES && p_w -> seen = p; walk[id] = true };
        atomic {
            tlb[id] = walk[id] && x_w[seen];
            walk[id] = false;
            seen = NONE
        }
    :: atomic { p < TABLES && !p_w -> seen = p; readers++ };
        open();
        atomic { seen = NONE; read_unlock }
    :: atomic { p < TABLES -> seen = p };
        fix_leaf();
        seen = NONE
    :: atomic { p == NONE -> readers++ };
        link();
        read_unlock
    :: atomic { p == NONE -> p = HUGE }
    :: atomic { p == HUGE -> saw_w = p_w; readers++ };
        split();
        atomic { saw_w = false; read_unlock }
    :: atomic {
        p == HUGE || (p < TABLES && !readers) ->
        reach(TAKEN_OUT, p < TABLES);
        p = NONE;
        p_w = false
       }
    od;
    running--
}

inline write_protect()
{
    readers++;
    lock(t_lock);
    if
    :: p_bit -> close()
    :: else
    fi;
    unlock(t_lock);
    read_unlock
}

inline flush()
{
    v = 0;
    do
    :: atomic { v < VCPUS -> tlb[v] = false; walk[v] = false; v++ }
    :: atomic { v == VCPUS -> v = 0; break }
    od
}

inline harvest()
{
    atomic { harvested = dirty; dirty = false }
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
    byte v, seen = NONE;
    bool harvested;

    do
    :: harvest();
        write_protect();
        flush();
        reach(COPIED, harvested);
        copy()
    :: stop = true;
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
        run migration()
    }
}
