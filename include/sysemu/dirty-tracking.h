/*
 * Dirty page tracking, as migration and the monitor see it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * An accelerator that tracks dirty pages by itself registers a table of
 * operations.  Under any other accelerator there is none, and the functions
 * below do nothing, or return what they say.
 */

#ifndef SYSEMU_DIRTY_TRACKING_H
#define SYSEMU_DIRTY_TRACKING_H

#include "qapi/qapi-types-dirty-tracking.h"
#include "qapi/qapi-types-migration.h"

/*
 * What an accelerator does.  Each is called with the BQL held, unless it says
 * otherwise; the functions below tell when.
 */
typedef struct DirtyTrackingOps {
    /*
     * Returns: the figures of query-dirty-tracking, to be freed with
     * qapi_free_DirtyTrackingInfo().
     */
    DirtyTrackingInfo *(*info)(void);

    /*
     * Have @mechanism track dirty pages from now on, while no migration is
     * active.
     * Returns: false with @errp set, and all as it was, if that is not
     * possible.
     */
    bool (*set)(DirtyTrackingMechanism mechanism, Error **errp);

    /* See dirty_tracking_begin() and dirty_tracking_end(). */
    void (*begin)(void);
    void (*end)(void);

    /* See dirty_tracking_sync_ahead(); without the BQL. */
    void (*sync_ahead)(void);

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

    /* See dirty_tracking_guessed(). */
    bool (*guessed)(void);
} DirtyTrackingOps;

/*
 * dirty_tracking_register:
 * @ops: the accelerator's, with all members set; or NULL, if it cannot be used
 *       after all
 *
 * To be called while the accelerator is set up, before there is a migration.
 */
void dirty_tracking_register(const DirtyTrackingOps *ops);

/*
 * dirty_tracking_begin: a migration that has all pages yet to send is about to
 * have logging turned on, unless it is on already, and then its first sync.
 * Rounds count from here, and huge pages are split from the sync on.  Where
 * clearing a chunk publishes, the sync leaves it to that to find what was
 * written, so that it does not go through all memory.  Called with the BQL
 * held, which stays so until the sync.
 */
void dirty_tracking_begin(void);

/*
 * dirty_tracking_end: the migration is over, or there never was one.  Huge
 * pages are split no more.  Called with the BQL held.
 */
void dirty_tracking_end(void);

/*
 * dirty_tracking_sync_ahead: a sync of all memory is about to follow under the
 * BQL.  The part that needs no BQL, which is to reap the dirty rings, is done
 * here, so that the sync finds next to nothing left.  Called without the BQL,
 * on a thread that RCU knows.
 */
void dirty_tracking_sync_ahead(void);

/*
 * dirty_tracking_round: a round of a migration has ended with a sync, and its
 * figures are to be noted.  Called with the BQL held.
 */
void dirty_tracking_round(void);

/*
 * dirty_tracking_send_pass: send the event MIGRATION_PASS, with what the last
 * round cost; called with the BQL held.
 */
void dirty_tracking_send_pass(int64_t pass);

/*
 * dirty_tracking_populate: fill in what query-migrate says of the rounds;
 * called with the BQL held.
 */
void dirty_tracking_populate(MigrationInfo *info);

/*
 * dirty_tracking_print: what "info migrate" says of @info's rounds, and of its
 * pages that wait for the stop; a line for each round.
 */
void dirty_tracking_print(Monitor *mon, const MigrationInfo *info);

/*
 * dirty_tracking_clear_publishes:
 * Returns: whether memory_region_clear_dirty_bitmap() sets bits in
 * ram_list.dirty_memory, for what was written before it was called; false
 * without operations.  No lock is needed, as this does not change while a
 * migration is active.
 */
bool dirty_tracking_clear_publishes(void);

/*
 * dirty_tracking_guessed: asked once in each sync, after all blocks' bits were
 * taken; called with the BQL held.
 * Returns: whether what the sync has just taken from ram_list.dirty_memory may
 * be there without evidence, because a ring overflowed or a harvest failed:
 * memory that nobody wrote to is dirty then, or memory that there is not, which
 * a RamDiscardManager has discarded.  False without operations.
 */
bool dirty_tracking_guessed(void);

#endif
