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
 * kvm_dirty_tracking_rounds: the rounds of this migration or the last one, for
 * a guest that runs under KVM; called with the BQL held.
 * Returns: to be freed with qapi_free_DirtyTrackingRoundList(); NULL for none.
 */
DirtyTrackingRoundList *kvm_dirty_tracking_rounds(void);

/*
 * dirty_tracking_populate: fill in what query-migrate says of it; called with
 * the BQL held.
 */
void dirty_tracking_populate(MigrationInfo *info);

/*
 * kvm_dirty_tracking_set: have KVM track dirty pages with @mechanism from now
 * on; called with the BQL held, while no migration is active.
 * Returns: false with @errp set, and all as it was, if that is not possible.
 */
bool kvm_dirty_tracking_set(DirtyTrackingMechanism mechanism, Error **errp);

/*
 * dirty_tracking_probe: memory_global_dirty_log_sync() for who counts dirty
 * pages and does not read them; called with the BQL held.  Where re-arming
 * would take write-protecting all memory, the pages are left un-armed until
 * somebody syncs to read them.
 */
void dirty_tracking_probe(void);

/* Whether the sync under way is a probe's; called with the BQL held. */
bool dirty_tracking_probing(void);

#endif
