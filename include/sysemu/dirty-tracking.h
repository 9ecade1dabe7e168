/*
 * What an operator sees of dirty page tracking.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSEMU_DIRTY_TRACKING_H
#define SYSEMU_DIRTY_TRACKING_H

#include "qapi/qapi-types-dirty-tracking.h"

/*
 * kvm_dirty_tracking_info: the figures of query-dirty-tracking, for a guest
 * that runs under KVM; called with the BQL held.
 * Returns: to be freed with qapi_free_DirtyTrackingInfo().
 */
DirtyTrackingInfo *kvm_dirty_tracking_info(void);

#endif
