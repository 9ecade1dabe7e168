/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Dirty bits: leaves that stay writable, and a collect that takes what the CPUs
 * have noted in them.
 *
 * The words are shorter than those of host-kernel/arch/x86/kvm/mmu: to open an
 * entry is to make it writable, to close it is to wrprot it; "opened" is an
 * active region, "again" a mark for relog, and to note is to mark.
 *
 * The root table R has the entry r, which points to the table P, whose entry p
 * points to the table C of leaves, one of which is x.  All three have W, and x
 * has a dirty bit, d.  P and C have a spinlock.  The slot has three bits: dirty,
 * which userspace harvests, opened, and again.
 *
 * vCPUs write and fault for ever, in any order, needed or not; another thread
 * zaps the page, or its table, or takes its dirty bit away by ageing it; another
 * one write-protects all, or a range.  The migration thread collects, harvests
 * and copies as often as it likes.  Then all of them finish what they are at, and
 * after one more collect, harvest and copy the destination has to equal the
 * source.
 *
 * A vCPU sets the dirty bit in memory, by a locked operation, when it has no TLB
 * entry that says that it is set; it may find its way there by upper entries
 * that it has read long ago, until a flush, and each at another time (I10).  With
 * such a TLB entry it writes and sets nothing.  Contents and memory order are as
 * in order.pml.
 *
 * With BRAKE a collect may take W from x, together with d, and a fault gives it
 * back; a new x has it.
 *
 * With CLOSER, a collect flushes only if it has to; and a vCPU that is to read x,
 * and found it missing, maps it without W when another has mapped it meanwhile.  It
 * keeps d.  A CPU that holds a TLB entry from when x had W, and d was not set, then
 * sets d in an entry without W.
 *
 * With NOTIFIER nobody waits for who zaps.  It holds mmu_lock for write, and a collect
 * for read while it looks at tables; that vCPUs hold it for read is left out.  And
 * some harvests come without a collect.
 *
 * With BESIDE another slot, which nobody writes to, has a part of C, and its turn
 * comes first in each collect.
 *
 * Left out: huge pages that have a dirty bit, which their leaves inherit before
 * anybody sees them; shadow pages, of which no model has what a collect does; the
 * bitmap of entries that may be writable, which is in propagate.pml: here all of a
 * table are closed.
 */

#ifndef VCPUS
#define VCPUS 2
#endif

/* What a run with -DPROBE= must be able to reach. */
#define COPIED              1   /* the page was copied in a round */
#define QUIET               2   /* a collect closed what nobody wrote to */
#define LATE                3   /* a dirty bit was found under a closed entry */
#define AGAIN               4   /* a page was logged again */
#define STALE_TLB           5   /* written when the page was zapped */
#define CLEARED_TLB         6   /* written between a collect and its flush */
#define REOPENED            7   /* opened between a collect's first two steps */
#define LINKED              8   /* the same, by a new table */
#define ALL_BETWEEN         9   /* an entry was closed by opening r */
#define STALE_ENTRY         10  /* p was used as it was before it was closed */
#define BRAKED              11  /* BRAKE: a fault gave x its W back */
#define UNDER_WRPROT        12  /* CLOSER: d was set in an x without W */
#define UNFLUSHED           13  /* CLOSER: a collect had nothing to flush */
#define NO_COLLECT          14  /* NOTIFIER: a harvest without one had the page */
#ifdef PROBE
#define reach(what, when)   assert(what != PROBE || !(when))
#else
#define reach(what, when)   skip
#endif

/* A leaf, or an entry that points to a table; frozen until TLBs are flushed. */
#define NONE    0
#define FROZEN  1
#define PRESENT 2

/* All was copied once, and is armed. */
bool r_w = true, p_w, x_w = true;
byte p = PRESENT, x = PRESENT;
bool d;
bool p_lock, c_lock;            /* of the tables P and C */
#ifdef NOTIFIER
bool mmu_lock;
#define mmu_is_free     !mmu_lock
#define hold_mmu()      mmu_lock = true
#define leave_mmu()     mmu_lock = false
#define WAITED_FOR      (VCPUS + 1)
#else
#define mmu_is_free     true
#define hold_mmu()      skip
#define leave_mmu()     skip
#define WAITED_FOR      (VCPUS + 2)
#endif
bool slots_lock;

bool opened, again, dirty;
#ifdef BESIDE
bool opened_beside;
#define note_opened()   opened = true; opened_beside = true
#else
#define note_opened()   opened = true
#endif

bool stale;                     /* the destination lacks what is in the page */
bool tlb[VCPUS];                /* an entry that says that d is set */
bool r_seen[VCPUS];             /* what it has kept of r has W */
bool p_seen[VCPUS];
bool looking;                   /* a collect has taken the bit of opened */

#ifdef CLOSER
bool tlb_w[VCPUS];              /* an entry with W, from when d was not set */
bool to_flush;                  /* a collect has to */
#define has_to_flush(when)  to_flush = to_flush || (when)
#else
#define has_to_flush(when)  skip
#endif

bool quiet;                     /* nothing new from now on */
byte running = WAITED_FOR;

#define lock(l)     atomic { !l -> l = true }
#define unlock(l)   l = false

inline flush(v)
{
    v = 0;
    do
    :: atomic {
        v < VCPUS ->
        tlb[v] = false;
#ifdef CLOSER
        tlb_w[v] = false;
#endif
        r_seen[v] = false;
        p_seen[v] = false;
        v++
       }
    :: atomic { v == VCPUS -> v = 0; break }
    od
}

inline note_again()
{
    again = true;
    opened = true
}

/* Opens r; what is below it is closed first. */
inline open_r()
{
    lock(p_lock);
    if
    :: !r_w ->
        lock(c_lock);
        atomic { reach(ALL_BETWEEN, p_w); p_w = false };
        unlock(c_lock);
        flush(v);
        r_w = true
    :: else
    fi;
    unlock(p_lock)
}

inline open_p()
{
    lock(c_lock);
    if
    :: p == PRESENT && !p_w ->
        note_opened();
        atomic {
            if
            :: p == PRESENT -> reach(REOPENED, looking); p_w = true
            :: else
            fi
        }
    :: else
    fi;
    unlock(c_lock)
}

/* An empty table, or one of a huge page that was closed, and is split. */
inline link()
{
    lock(p_lock);
    note_opened();
    atomic {
        if
        :: p == NONE ->
            reach(LINKED, looking);
            p = PRESENT;
            p_w = true;
            if
            :: x = PRESENT
            :: skip
            fi
        :: else
        fi
    };
    unlock(p_lock)
}

inline map()
{
    if
    :: atomic { p == PRESENT && x == NONE -> x = PRESENT; d = true };
        dirty = true;
        note_again()
    :: else
    fi
}

/* Without a lock; what is above is opened before, and may be closed since. */
inline fix_leaf()
{
    if
    :: atomic { x == PRESENT && !x_w -> reach(BRAKED, true); x_w = true };
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
        reach(STALE_TLB, x != PRESENT);
        reach(CLEARED_TLB, x == PRESENT && !d);
        stale = true
       }
    :: atomic { r_w -> r_seen[id] = true }
    :: atomic { p_w -> p_seen[id] = true }
    :: atomic {
        r_seen[id] && p_seen[id] && x == PRESENT && x_w ->
        reach(STALE_ENTRY, !p_w);
        d = true;
        tlb[id] = true
       }
#ifdef CLOSER
    :: atomic {
        r_seen[id] && p_seen[id] && x == PRESENT && x_w && !d ->
        tlb_w[id] = true
       }
    :: atomic {
        tlb_w[id] && x == PRESENT ->
        reach(UNDER_WRPROT, !x_w);
        d = true;
        tlb[id] = true
       }
    :: atomic { x == PRESENT -> x_w = false }   /* mapped again; d stays */
#endif
    :: atomic { !r_w -> skip };
        open_r()
    :: atomic { p == PRESENT && !p_w -> skip };
        open_p()
    :: atomic { p == NONE -> skip };
        link()
    :: atomic { x == NONE -> skip };
        map()
    :: atomic { x == PRESENT && !x_w -> skip };
        fix_leaf()
    od;
    running--
}

inline log_lost()
{
    if
    :: lost ->
        note_again();
        dirty = true;
        lost = false
    :: else
    fi
}

proctype zapper()
{
    byte v;
    bool lost;

    do
    :: quiet -> break
    :: atomic { x == PRESENT && mmu_is_free ->
                hold_mmu(); x = FROZEN; x_w = true; lost = d; d = false };
        log_lost();
        flush(v);
        atomic { x = NONE; leave_mmu() }
    :: atomic { p == PRESENT && mmu_is_free ->
                hold_mmu(); p = FROZEN; p_w = false };
        if
        :: atomic { x == PRESENT -> x = FROZEN; x_w = true; lost = d; d = false }
        :: else
        fi;
        log_lost();
        flush(v);
        x = NONE;
        atomic { p = NONE; leave_mmu() }
    :: atomic { x == PRESENT && mmu_is_free ->
                hold_mmu(); lost = d; d = false };  /* no flush */
        log_lost();
        leave_mmu()
    od;
#ifndef NOTIFIER
    running--
#endif
}

inline write_protect_all()
{
    lock(slots_lock);
    lock(p_lock);
    r_w = false;
    unlock(p_lock);
    flush(v);
    unlock(slots_lock)
}

/* p alone, whatever r is. */
inline write_protect_range()
{
    lock(slots_lock);
    lock(p_lock);
    lock(c_lock);
    p_w = false;
    unlock(c_lock);
    unlock(p_lock);
    flush(v);
    unlock(slots_lock)
}

proctype protector()
{
    byte v;

    do
    :: quiet -> break
    :: write_protect_all()
    :: write_protect_range()
    od;
    running--
}

inline look()
{
    lock(p_lock);
    if
    :: p == PRESENT ->
        lock(c_lock);
        open = p_w;
        if
        :: atomic { d -> reach(LATE, !open); d = false; found = true };
            dirty = true
#ifdef BRAKE
        :: atomic { d -> d = false; x_w = false; found = true };
            dirty = true
#endif
        :: else
        fi;
        if
        :: atomic { open && !found -> reach(QUIET, true); p_w = false }
        :: else
        fi;
        has_to_flush(open || found);
        unlock(c_lock)
    :: else
    fi;
    unlock(p_lock)
}

#ifdef BESIDE
/* A table that is closed, and looked at again, is flushed at once. */
inline look_beside()
{
    lock(p_lock);
    if
    :: p == PRESENT ->
        lock(c_lock);
        open = p_w;
        p_w = false;
        flush(v);
        unlock(c_lock)
    :: else
    fi;
    unlock(p_lock)
}

inline collect_beside()
{
    if
    :: opened_beside ->
        opened_beside = false;
        atomic { mmu_is_free -> hold_mmu() };
        look_beside();
        leave_mmu();
        if
        :: atomic { open -> open = false };
            opened_beside = true
        :: else
        fi
    :: else
    fi
}
#else
#define collect_beside()    skip
#endif

inline collect()
{
    lock(slots_lock);
    collect_beside();
    if
    :: opened ->
        atomic { opened = false; looking = true };
        if
        :: atomic { again -> reach(AGAIN, true); again = false };
            dirty = true;
            has_to_flush(true)
        :: else
        fi;
        atomic { mmu_is_free -> hold_mmu() };
        look();
        atomic { leave_mmu(); looking = false; found = false };
        if
        :: atomic { open -> open = false };
            opened = true
        :: else
        fi
    :: else
    fi;
#ifdef CLOSER
    if
    :: to_flush -> flush(v); to_flush = false
    :: else -> reach(UNFLUSHED, true)
    fi;
#else
    flush(v);
#endif
    unlock(slots_lock)
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
    byte v;
    bool harvested, found, open;

    do
    :: collect();
        harvest();
        reach(COPIED, harvested);
        copy()
#ifdef NOTIFIER
    :: harvest();
        reach(NO_COLLECT, harvested);
        copy()
#endif
    :: quiet = true;
        break
    od;
    running == 0;
    collect();
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
        run zapper();
        run protector();
        run migration()
    }
}
