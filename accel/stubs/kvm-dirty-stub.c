/*
 * Dirty page tracking in a QEMU built without KVM.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "sysemu/dirty-tracking.h"

/* Its caller asks kvm_enabled() first. */
DirtyTrackingInfo *kvm_dirty_tracking_info(void)
{
    g_assert_not_reached();
}
