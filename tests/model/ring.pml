/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A dirty ring that overflows (I8), as accel/kvm/dirty/ring.c has it: collect,
 * reset, look whether it was lapped, publish; and search a suspect ring.
 *
 * The vCPU fills the ring as fast as it likes, with no regard for how full it
 * is.  Of KVM's indices only the remainder matters: stock's does not look at how
 * far they are apart, and ours finds nothing marked beyond.  The engine's are
 * kept modulo twice the size.  There is no TLB: KVM_RESET_DIRTY_RINGS flushes at
 * its end, and here write-protects in one step then; order.pml has what is finer.
 * One page is looked at; the vCPU logs others as it likes, which is the same as
 * naming none.
 *
 * A reap may end after any batch, where the engine counts how many entries it
 * may still take; the last one goes on as the engine does when no vCPU runs.
 * Left out: signals, that is, resets that fail or fall short by themselves; the
 * soft limit and the way out of a ring that stays above it (ring_unstick()), which
 * lose no page; more than one ring, since each has a reset of its own.
 */

#ifndef SIZE
#define SIZE 2
#endif
#ifndef MOST
#define MOST 2                  /* entries in a batch */
#endif

/* What a run with -DPROBE= must be able to reach. */
#define COPIED          1       /* a page was published without an overflow */
#define OVERWRITTEN     2       /* the vCPU overwrote an entry nobody took */
#define FALL_SHORT      3       /* a reset did less than was collected */
#define GAP             4       /* an entry was filled while it was reset */
#define GAP_CLOSED      5       /* a gap was found and passed over */
#define CLEARED         6       /* a suspect ring was found to be good again */
#ifdef PROBE
#define reach(what, when)   assert(what != PROBE || !(when))
#else
#define reach(what, when)   skip
#endif

#define FREE    0
#define DIRTY   1
#define RESET   2               /* collected */

byte flags[SIZE];
bool ours[SIZE];                /* it names the page */

bool writable;
bool stale;                     /* the destination lacks what is in the page */

bool stop, stopped;

#define after(index, n) (((index) + (n)) % (2 * SIZE))
#define ahead()         ((fetch + 2 * SIZE - reset) % (2 * SIZE))
#define at(index)       ((index) % SIZE)

proctype vcpu()
{
    byte dirty;
    bool log, page;

    do
    :: !log && stop -> break
    :: atomic { !log && writable -> stale = true }
    :: atomic { !log && !writable -> writable = true; log = true; page = true }
    :: atomic { !log -> stale = true; log = true; page = true } /* KVM wrote */
    :: atomic { !log -> log = true }                        /* another page */
    :: atomic {
        log ->
        reach(OVERWRITTEN, flags[dirty] == DIRTY);
        ours[dirty] = page
       };
        atomic {
            flags[dirty] = DIRTY;
            dirty = (dirty + 1) % SIZE;
            page = false;
            log = false
        }
    od;
    stopped = true
}

/* KVM_RESET_DIRTY_RINGS.  kvm is where it stands, done how far it went. */
inline reset_ioctl()
{
    done = 0;
    do
    :: flags[kvm] == RESET ->
        page = ours[kvm];
        atomic {
            reach(GAP, flags[kvm] == DIRTY);
            flags[kvm] = FREE;
            kvm = (kvm + 1) % SIZE;
            done++;
            protect = protect || page;
            page = false
        }
    :: else -> break
    od;
    atomic {
        writable = writable && !protect;
        protect = false
    }
}

inline reset_collected()
{
    do
    :: fetch != reset ->
        reset_ioctl();
        atomic {
            if
            :: done > ahead() -> fetch = after(reset, done)
            :: else
            fi;
            reset = after(reset, done);
            whole = whole && fetch == reset
        };
        atomic {
            if
            :: !done ->
                assert(flags[at(reset)] == DIRTY);  /* or it would be owed */
                reach(FALL_SHORT, true);
                fetch = reset
            :: else
            fi;
            done = 0
        }
    :: else -> break
    od
}

inline look_if_lapped()
{
    atomic {
        lapped = (fetch + 2 * SIZE - batch_reset) % (2 * SIZE) == SIZE ||
                 flags[at(batch_reset + SIZE - 1)] == DIRTY
    }
}

/* How many entries from fetch on are not dirty, up to the limit. */
inline count_clean(limit)
{
    clean = 0;
    do
    :: atomic {
        clean < limit && flags[at(fetch + clean)] != DIRTY -> clean++
       }
    :: clean == limit || flags[at(fetch + clean)] == DIRTY -> break
    od
}

/* A suspect ring has a free entry at fetch. */
inline close_gap()
{
    count_clean(SIZE - ahead());
    if
    :: clean + ahead() == SIZE ->
        closed = false
    :: else ->
        most = clean;
        count_clean(most);
        most = 0;
        closed = true;
        do
        :: clean ->
            ours[at(fetch)] = false;
            atomic {
                reach(GAP_CLOSED, true);
                flags[at(fetch)] = RESET;
                fetch = after(fetch, 1);
                clean--
            }
        :: else -> break
        od
    fi;
    clean = 0
}

inline settle()
{
    if
    :: !found ->
        drained = fetch == reset
    :: found && drained ->
        look_if_lapped();
        atomic { reach(CLEARED, !lapped); suspect = lapped; lapped = false }
    :: else
    fi
}

inline collect()
{
    atomic {
        n = 0;
        batch_reset = reset;
        known = !suspect || drained;
        found = false
    };
    do
    :: ahead() == SIZE -> break
    :: atomic {
        ahead() < SIZE && flags[at(fetch)] == RESET -> fetch = after(fetch, 1)
       }
    :: ahead() < SIZE && flags[at(fetch)] != RESET && n == MOST -> break
    :: atomic {
        ahead() < SIZE && flags[at(fetch)] == DIRTY && n < MOST -> skip
       };
        page = ours[at(fetch)];
        atomic {
            batch = batch || page;
            page = false;
            flags[at(fetch)] = RESET;
            fetch = after(fetch, 1);
            n++;
            found = true
        }
    :: ahead() < SIZE && flags[at(fetch)] == FREE && n < MOST ->
        if
        :: suspect -> close_gap()
        :: else
        fi;
        if
        :: closed -> found = true; closed = false
        :: else ->
            if
            :: suspect -> settle()
            :: else
            fi;
            break
        fi
    od;
    atomic { good = !found || known; found = false; known = false }
}

inline publish()
{
    atomic {
        reach(COPIED, batch && good && stale);
        stale = stale && !batch;
        batch = false
    }
}

inline reap_batch()
{
    collect();
    whole = true;
    reset_collected();
    look_if_lapped();
    atomic {
        if
        :: !whole || lapped ->
            good = false;
            suspect = true;
            drained = false
        :: else
        fi;
        whole = false;
        lapped = false;
        batch_reset = 0
    };
    publish()
}

inline overflow()
{
    writable = false;
    stale = false
}

/* All of the reap's batches were good. */
inline reap()
{
    all_good = true;
    do
    :: reap_batch();
        atomic {
            again = n || (all_good && !good);
            all_good = all_good && good;
            n = 0;
            good = false
        };
        if
        :: atomic { again -> again = false }
        :: atomic { !again || !stopped -> again = false; break }
        fi
    od;
    if
    :: !all_good -> overflow()
    :: else
    fi;
    all_good = false
}

proctype engine()
{
    byte fetch, reset, batch_reset, kvm, n, clean, most, done;
    bool batch, page, protect;
    bool suspect, drained, known, found, good, all_good, whole, lapped, closed;
    bool again;

    do
    :: reap()
    :: stop = true; break
    od;
    stopped;
    reap();
    assert(!stale)
}

init {
    atomic {
        run vcpu();
        run engine()
    }
}
