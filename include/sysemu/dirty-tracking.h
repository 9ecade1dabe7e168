/*
 * What an operator sees of dirty page tracking.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSEMU_DIRTY_TRACKING_H
#define SYSEMU_DIRTY_TRACKING_H

#include "qapi/qapi-types-dirty-tracking.h"
#include "qapi/qapi-types-migration.h"

/*
 * kvm_dirty_tracking_info: the figures of query-dirty-tracking, for a guest
 * that runs under KVM; called with the BQL held.
 * Returns: to be freed with qapi_free_DirtyTrackingInfo().
 */
DirtyTrackingInfo *kvm_dirty_tracking_info(void);

/*
 * kvm_dirty_tracking_last_round: the last of them, or NULL.  The caller does
 * not own it.
 */
DirtyTrackingRound *kvm_dirty_tracking_last_round(void);

/*
 * kvm_dirty_tracking_rounds: the rounds of this migration or the last one, for
 * a guest that runs under KVM; called with the BQL held.
 * Returns: to be freed with qapi_free_DirtyTrackingRoundList(); NULL for none.
 */
DirtyTrackingRoundList *kvm_dirty_tracking_rounds(void);

/*
 * kvm_dirty_tracking_round: a round of a migration has ended with a sync, and
 * its figures are to be noted; for a guest that runs under KVM.  Called with
 * the BQL held.
 */
void kvm_dirty_tracking_round(void);

/*
 * dirty_tracking_round: the same for any guest.
 */
void dirty_tracking_round(void);

/*
 * dirty_tracking_send_pass: send the event MIGRATION_PASS, with what the last
 * round cost; called with the BQL held.
 */
void dirty_tracking_send_pass(int64_t pass);

/*
 * dirty_tracking_populate: fill in what query-migrate says of it; called with
 * the BQL held.
 */
void dirty_tracking_populate(MigrationInfo *info);

/*
 * dirty_tracking_print: what "info migrate" says of @info's rounds, and of its
 * pages that wait for the stop; a line for each round.
 */
void dirty_tracking_print(Monitor *mon, const MigrationInfo *info);

/*
 * kvm_dirty_tracking_clear_publishes: for a guest that runs under KVM, whether
 * memory_region_clear_dirty_bitmap() sets bits in ram_list.dirty_memory, for
 * what was written before it was called.  No lock is needed, as this does not
 * change while a migration is active.
 */
bool kvm_dirty_tracking_clear_publishes(void);

/*
 * dirty_tracking_clear_publishes: the same for any guest.
 */
bool dirty_tracking_clear_publishes(void);

/*
 * kvm_dirty_tracking_begin: a migration that has all pages yet to send is about
 * to have logging turned on, unless it is on already, and then its first sync;
 * for a guest that runs under KVM.  Rounds count from here, and huge pages are
 * split from the sync on.  Where clearing a chunk publishes, the sync leaves it to that to
 * find what was written, so that it does not go through all memory.  Called
 * with the BQL held, which stays so until the sync.
 */
void kvm_dirty_tracking_begin(void);

/*
 * dirty_tracking_begin: the same for any guest.
 */
void dirty_tracking_begin(void);

/*
 * kvm_dirty_tracking_end: the migration is over, or there never was one; for a
 * guest that runs under KVM.  Huge pages are split no more.  Called with the
 * BQL held.
 */
void kvm_dirty_tracking_end(void);

/*
 * dirty_tracking_end: the same for any guest.
 */
void dirty_tracking_end(void);

/*
 * kvm_dirty_tracking_guessed: for a guest that runs under KVM, whether what
 * a sync has just taken from ram_list.dirty_memory may be there without
 * evidence, because a ring overflowed or a harvest failed: memory that nobody
 * wrote to is dirty then, or memory that there is not, which a
 * RamDiscardManager has discarded.  Asked once in each sync, after all blocks'
 * bits were taken; called with the BQL held.
 */
bool kvm_dirty_tracking_guessed(void);

/*
 * dirty_tracking_guessed: the same for any guest.
 */
bool dirty_tracking_guessed(void);

/*
 * kvm_dirty_tracking_sync_ahead: a sync of all memory is about to follow under
 * the BQL; for a guest that runs under KVM.  What of it needs no BQL, that is
 * reaping the dirty rings, is done here, so that the sync finds next to
 * nothing left.  Called without the BQL, on a thread that RCU knows.
 */
void kvm_dirty_tracking_sync_ahead(void);

/*
 * dirty_tracking_sync_ahead: the same for any guest.
 */
void dirty_tracking_sync_ahead(void);

/*
 * kvm_dirty_tracking_set: have KVM track dirty pages with @mechanism from now
 * on; called with the BQL held, while no migration is active.
 * Returns: false with @errp set, and all as it was, if that is not possible.
 */
bool kvm_dirty_tracking_set(DirtyTrackingMechanism mechanism, Error **errp);

#endif
