/*
 * The table of memory slots.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "ground.h"

static GPtrArray *space_get(KvmDirty *kvmd, uint32_t slot_id)
{
    guint as = slot_id >> KVMD_SLOT_ID_BITS;

    while (kvmd->spaces->len <= as) {
        g_ptr_array_add(kvmd->spaces, g_ptr_array_new());
    }
    return g_ptr_array_index(kvmd->spaces, as);
}

/* Runs for every ring entry; entries may name anything after an overflow. */
KvmDirtySlot *kvmd_slot_get(KvmDirty *kvmd, uint32_t slot_id)
{
    guint as = slot_id >> KVMD_SLOT_ID_BITS;
    guint n = slot_id & ((1u << KVMD_SLOT_ID_BITS) - 1);
    GPtrArray *slots;

    if (as >= kvmd->spaces->len) {
        return NULL;
    }
    slots = g_ptr_array_index(kvmd->spaces, as);
    return n < slots->len ? g_ptr_array_index(slots, n) : NULL;
}

void kvmd_slot_put(KvmDirty *kvmd, uint32_t slot_id, KvmDirtySlot *slot)
{
    guint n = slot_id & ((1u << KVMD_SLOT_ID_BITS) - 1);
    GPtrArray *slots = space_get(kvmd, slot_id);

    if (slots->len <= n) {
        g_ptr_array_set_size(slots, n + 1);
    }
    g_ptr_array_index(slots, n) = slot;
}

int kvmd_slots_foreach_logged(KvmDirty *kvmd,
                              int (*func)(KvmDirty *, KvmDirtySlot *))
{
    int first_error = 0;

    for (guint as = 0; as < kvmd->spaces->len; as++) {
        GPtrArray *slots = g_ptr_array_index(kvmd->spaces, as);

        for (guint n = 0; n < slots->len; n++) {
            KvmDirtySlot *slot = g_ptr_array_index(slots, n);
            int ret = slot && kvmd_slot_logged(slot) ? func(kvmd, slot) : 0;

            first_error = first_error ? first_error : ret;
        }
    }
    return first_error;
}

int kvmd_slot_region_set(KvmDirty *kvmd,
                         const struct kvm_userspace_memory_region *region)
{
    struct kvm_userspace_memory_region copy = *region;

    return kvmd_vm_ioctl(kvmd, KVM_SET_USER_MEMORY_REGION, &copy);
}

int kvmd_slot_log_flag(KvmDirty *kvmd, const KvmDirtySlot *slot, bool on)
{
    struct kvm_userspace_memory_region region = slot->region;

    region.flags &= ~KVM_MEM_LOG_DIRTY_PAGES;
    region.flags |= on ? KVM_MEM_LOG_DIRTY_PAGES : 0;
    return kvmd_slot_region_set(kvmd, &region);
}

void kvmd_slots_free(KvmDirty *kvmd)
{
    for (guint as = 0; as < kvmd->spaces->len; as++) {
        GPtrArray *slots = g_ptr_array_index(kvmd->spaces, as);

        g_ptr_array_set_free_func(slots, g_free);
        g_ptr_array_unref(slots);
    }
    g_ptr_array_unref(kvmd->spaces);
}
