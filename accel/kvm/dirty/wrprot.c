/*
 * The mechanism "wrprot": a bitmap per slot, which KVM copies out without
 * touching the page tables, and regions that are write-protected at once.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "engine.h"

#include <linux/kvm_dirty_tracking.h>

bool kvmd_wrprot_enable(KvmDirty *kvmd, KvmDirtyMechanism wanted_by,
                        GError **error)
{
    if (!kvmd_protect_enable(kvmd, wanted_by, error)) {
        return false;
    }
    if (!kvmd->can_fetch) {
        kvmd->can_fetch = kvmd_protect_enable_cap(
            kvmd, wanted_by, KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
            "KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT", error);
    }
    return kvmd->can_fetch;
}

static bool wrprot_enable(KvmDirty *kvmd, GError **error)
{
    return kvmd_wrprot_enable(kvmd, KVMD_WRPROT, error);
}

/* KVM copies all of a slot, or nothing. */
int kvmd_wrprot_harvest(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                        uint64_t pages)
{
    size_t n = kvmd_words(kvmd_slot_pages(kvmd, slot));
    g_autofree uint64_t *words = g_new0(uint64_t, n);
    struct kvm_dirty_log log = {
        .slot = slot->region.slot,
        .padding1 = KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
        .dirty_bitmap = words,
    };
    int ret = kvmd_vm_ioctl(kvmd, KVM_GET_DIRTY_LOG, &log);

    (void)first, (void)pages;
    if (ret >= 0) {
        kvmd_protect_found(kvmd, slot, 0, words, n);
    }
    return ret;
}

const KvmDirtyOps kvmd_wrprot_ops = {
    .enable = wrprot_enable,
    .slot_start = kvmd_protect_slot_start,
    .slot_stop = kvmd_protect_slot_stop,
    .harvest = kvmd_wrprot_harvest,
    .sync_slot = kvmd_protect_sync_slot,
    .sync_all = kvmd_protect_sync_all,
    .clear = kvmd_protect_clear,
};
