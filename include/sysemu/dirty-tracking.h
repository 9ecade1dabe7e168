/*
 * Dirty page tracking, as migration and the monitor see it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * An accelerator that tracks dirty pages itself registers a table of
 * operations.  Without a table the functions below do nothing, and return what
 * their comments say.
 */

#ifndef SYSEMU_DIRTY_TRACKING_H
#define SYSEMU_DIRTY_TRACKING_H

#include "hw/core/cpu.h"
#include "qapi/qapi-types-dirty-tracking.h"
#include "qapi/qapi-types-migration.h"

/*
 * The operations of an accelerator.  The comments of the functions below say
 * when each is called.  The BQL is held, unless an operation says otherwise.
 */
typedef struct DirtyTrackingOps {
    /*
     * Returns: the figures of query-dirty-tracking, to be freed with
     * qapi_free_DirtyTrackingInfo().
     */
    DirtyTrackingInfo *(*info)(void);

    /*
     * Have @mechanism track dirty pages from now on.  No migration is active.
     * Returns: false with @errp set if that is not possible; nothing has
     * changed then.
     */
    bool (*set)(DirtyTrackingMechanism mechanism, Error **errp);

    /* See dirty_tracking_begin() and dirty_tracking_end(). */
    void (*begin)(void);
    void (*end)(void);

    /*
     * See dirty_tracking_sync_ahead() and dirty_tracking_look(); without the
     * BQL.
     */
    void (*sync_ahead)(bool stop);
    void (*look)(void);

    /* See dirty_tracking_brake(); no lock is needed. */
    void (*brake)(void);

    /* See dirty_tracking_vcpu_writes(). */
    bool (*vcpu_writes)(CPUState *cpu, uint64_t *writes);

    /* See dirty_tracking_tells_writers(); no lock is needed. */
    bool (*tells_writers)(void);

    /* See dirty_tracking_round(). */
    void (*round)(void);

    /* Returns: the last of these rounds, borrowed; NULL for none. */
    DirtyTrackingRound *(*last_round)(void);

    /*
     * Returns: the rounds of this migration or the last one, to be freed with
     * qapi_free_DirtyTrackingRoundList(); NULL for none.
     */
    DirtyTrackingRoundList *(*rounds)(void);

    /* See dirty_tracking_clear_publishes(); no lock is needed. */
    bool (*clear_publishes)(void);

    /* See dirty_tracking_guessed() and dirty_tracking_may_guess(). */
    bool (*guessed)(void);
    bool (*may_guess)(void);
} DirtyTrackingOps;

/*
 * dirty_tracking_register:
 * @ops: the accelerator's operations, with all members set; or NULL, if the
 *       accelerator turns out to be unusable
 *
 * To be called while the accelerator is set up, before any migration.
 */
void dirty_tracking_register(const DirtyTrackingOps *ops);

/*
 * dirty_tracking_begin: a migration, which has yet to send every page, is
 * about to turn logging on, unless it is on already, and to make its first
 * sync.  Rounds are counted from here; huge pages are split from that sync on.
 * If clearing a chunk publishes what was written there, or with dirty rings,
 * the first sync has nothing to do and does nothing.  Called with the BQL
 * held, which the caller does not release before the sync.
 */
void dirty_tracking_begin(void);

/*
 * dirty_tracking_end: the migration is over, or none has begun.  Huge pages are
 * no longer split.  Called with the BQL held.
 */
void dirty_tracking_end(void);

/*
 * dirty_tracking_sync_ahead:
 * @stop: the guest is stopped before the sync, which is the migration's last
 *
 * A sync of all memory under the BQL is about to follow.  This function does
 * the part that needs no BQL.  It reaps the dirty rings, so that the sync finds
 * them nearly empty.  With dirty-bits it finds what the sync would, and sets
 * the bits in ram_list.dirty_memory.  A sync that @stop announces then finds
 * what was written meanwhile, and need not look at the rest of memory; any
 * other leaves what was written meanwhile to the sync after it.  Called without
 * the BQL, on a thread that is registered with RCU.
 */
void dirty_tracking_sync_ahead(bool stop);

/*
 * dirty_tracking_look: publish what was written up to now, in the middle of a
 * round.  Pages that are found are as after a sync: un-armed, but for rings and
 * dirty-bits.  Called without the BQL, on a thread that is registered with RCU.
 */
void dirty_tracking_look(void);

/*
 * dirty_tracking_looks: Returns: whether dirty_tracking_look() does anything.
 */
bool dirty_tracking_looks(void);

/*
 * dirty_tracking_brake: the guest writes faster than its pages are sent, and is
 * to pay a fault for its next write to each page that the next sync or look
 * finds.  With all mechanisms but dirty-bits it does so anyway.  To be called
 * before the dirty_tracking_sync_ahead() of a sync.  No lock is needed.
 */
void dirty_tracking_brake(void);

/*
 * dirty_tracking_vcpu_writes:
 * @writes: set to a number that grows by one with each page that @cpu writes
 *          after the page was armed; other faults may count, too
 *
 * Called with the BQL held.
 * Returns: false if that is not known.
 */
bool dirty_tracking_vcpu_writes(CPUState *cpu, uint64_t *writes);

/*
 * dirty_tracking_tells_writers: Returns: whether that number grows for each
 * vCPU that writes.  If not, pages may be logged that count for none.
 */
bool dirty_tracking_tells_writers(void);

/*
 * dirty_tracking_round: a sync has ended a round of a migration; record the
 * round's figures.  Called with the BQL held.
 */
void dirty_tracking_round(void);

/*
 * dirty_tracking_send_pass: send the event MIGRATION_PASS with the figures of
 * the last round; called with the BQL held.
 */
void dirty_tracking_send_pass(int64_t pass);

/*
 * dirty_tracking_populate: fill in the rounds that query-migrate returns;
 * called with the BQL held.
 */
void dirty_tracking_populate(MigrationInfo *info);

/*
 * dirty_tracking_print: print @info's hot pages and rounds, a line for each
 * round, for "info migrate".
 */
void dirty_tracking_print(Monitor *mon, const MigrationInfo *info);

/*
 * dirty_tracking_clear_publishes:
 * Returns: whether memory_region_clear_dirty_bitmap() gives pages that were
 * written before the call to cpu_physical_memory_publish(); false without
 * operations.  No lock is needed, since the answer does not change
 * while a migration is active.
 */
bool dirty_tracking_clear_publishes(void);

/*
 * dirty_tracking_guessed: to be asked once in each sync, after the bits of all
 * blocks were taken; called with the BQL held.
 * Returns: whether bits that the sync has just taken from
 * ram_list.dirty_memory may have been set on suspicion: see kvmd_guesses().
 * Such bits also cover memory that nobody wrote to, and memory that a
 * RamDiscardManager has discarded.  False without operations.
 */
bool dirty_tracking_guessed(void);

/*
 * dirty_tracking_may_guess:
 * Returns: whether bits in ram_list.dirty_memory may be set on suspicion, so
 * that dirty_tracking_guessed() will be true in the next sync.  Called between
 * two syncs, on their thread, without the BQL.  False without operations.
 */
bool dirty_tracking_may_guess(void);

/*
 * memory_global_dirty_log_wanted: called with the BQL held.
 * Returns: GLOBAL_DIRTY_XXX flags, what all memory is logged for; not what it
 * is only logged for until the guest runs again.
 */
unsigned int memory_global_dirty_log_wanted(void);

#endif
