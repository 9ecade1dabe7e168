/*
 * Dirty page tracking in a QEMU built without KVM.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "sysemu/dirty-tracking.h"

/* Their callers ask kvm_enabled() first. */
DirtyTrackingInfo *kvm_dirty_tracking_info(void)
{
    g_assert_not_reached();
}

void kvm_dirty_tracking_round(void)
{
    g_assert_not_reached();
}

DirtyTrackingRound *kvm_dirty_tracking_last_round(void)
{
    g_assert_not_reached();
}

DirtyTrackingRoundList *kvm_dirty_tracking_rounds(void)
{
    g_assert_not_reached();
}

bool kvm_dirty_tracking_clear_publishes(void)
{
    g_assert_not_reached();
}

void kvm_dirty_tracking_begin(void)
{
    g_assert_not_reached();
}

void kvm_dirty_tracking_end(void)
{
    g_assert_not_reached();
}

bool kvm_dirty_tracking_guessed(void)
{
    g_assert_not_reached();
}

void kvm_dirty_tracking_sync_ahead(void)
{
    g_assert_not_reached();
}

bool kvm_dirty_tracking_set(DirtyTrackingMechanism mechanism, Error **errp)
{
    g_assert_not_reached();
}
