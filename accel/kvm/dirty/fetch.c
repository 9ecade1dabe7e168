/*
 * A slot's bitmap, which KVM copies out without touching the page tables.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "mechanism.h"

#include <linux/kvm_dirty_tracking.h>

bool kvmd_fetch_enable(KvmDirty *kvmd, const char *wanted_by, GError **error)
{
    return kvmd_cap_need(kvmd, KVMD_CAP_PROTECT, wanted_by, error) &&
        kvmd_cap_need(kvmd, KVMD_CAP_FETCH, wanted_by, error);
}

int kvmd_fetch(KvmDirty *kvmd, KvmDirtySlot *slot, KvmDirtyFound *found)
{
    size_t n = kvmd_words(kvmd_slot_pages(kvmd, slot));
    g_autofree uint64_t *words = g_new0(uint64_t, n);
    struct kvm_dirty_log log = {
        .slot = slot->region.slot,
        .padding1 = KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
        .dirty_bitmap = words,
    };
    int ret = kvmd_vm_ioctl(kvmd, KVM_GET_DIRTY_LOG, &log);

    if (ret >= 0) {
        found(kvmd, slot, 0, words, n);
    }
    return ret;
}
