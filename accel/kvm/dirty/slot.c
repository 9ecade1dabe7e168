/*
 * The table of memory slots, and what surrounds a change to one.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "engine.h"

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

static void slot_put(KvmDirty *kvmd, uint32_t slot_id, KvmDirtySlot *slot)
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

static void slot_start(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    if (kvmd->ops->slot_start) {
        kvmd->ops->slot_start(kvmd, slot);
    }
    if (kvmd->stats.logged_slots++ == 0) {
        kvmd_reaper_kick(kvmd);
    }
}

static void slot_started(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    if (kvmd->ops->slot_started) {
        kvmd->ops->slot_started(kvmd, slot);
    }
}

static void slot_stop(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    kvmd->stats.logged_slots--;
    if (kvmd->ops->slot_stop) {
        kvmd->ops->slot_stop(kvmd, slot);
    }
}

static int region_set(KvmDirty *kvmd,
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
    return region_set(kvmd, &region);
}

static void sync_for(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    if (!kvmd->ops->sync_slot) {
        kvmd->ops->sync_all(kvmd);
    } else if (kvmd_slot_logged(slot)) {
        kvmd->ops->sync_slot(kvmd, slot);
    }
}

/*
 * I7.  A vCPU may write, and KVM log it, until KVM has removed the slot.  Ring
 * entries name the slot, so that the rings are taken once more while @slot
 * still tells what the entries mean, and before its id can come to mean
 * another; a shared bitmap stays mapped.  "log" and "wrprot" have their pages
 * in a bitmap that goes with the slot.
 */
static int slot_remove(KvmDirty *kvmd, KvmDirtySlot *slot,
                       const struct kvm_userspace_memory_region *region)
{
    int ret;

    sync_for(kvmd, slot);
    ret = region_set(kvmd, region);
    if (ret < 0) {
        return ret;
    }
    if (kvmd->ops->outlives_slot) {
        slot->gone = true;
        sync_for(kvmd, slot);
    }
    if (kvmd_slot_logged(slot)) {
        slot_stop(kvmd, slot);
    }
    slot_put(kvmd, region->slot, NULL);
    g_free(slot);
    return ret;
}

/*
 * KVM may log a page as soon as it has the region: the slot is in the table
 * before.
 */
static int slot_add(KvmDirty *kvmd,
                    const struct kvm_userspace_memory_region *region,
                    uint64_t tag)
{
    KvmDirtySlot *slot = g_new0(KvmDirtySlot, 1);
    int ret;

    slot->region = *region;
    slot->tag = tag;
    slot_put(kvmd, region->slot, slot);
    if (kvmd_slot_logged(slot)) {
        slot_start(kvmd, slot);
    }
    ret = region_set(kvmd, region);
    if (ret >= 0 && kvmd_slot_logged(slot)) {
        slot_started(kvmd, slot);
    } else if (ret < 0) {
        if (kvmd_slot_logged(slot)) {
            slot_stop(kvmd, slot);
        }
        slot_put(kvmd, region->slot, NULL);
        g_free(slot);
    }
    return ret;
}

static int slot_change(KvmDirty *kvmd, KvmDirtySlot *slot,
                       const struct kvm_userspace_memory_region *region)
{
    bool was = kvmd_slot_logged(slot);
    bool will = region->flags & KVM_MEM_LOG_DIRTY_PAGES;
    int ret;

    if (!was && will) {
        slot_start(kvmd, slot);
    }
    ret = region_set(kvmd, region);
    if (ret >= 0) {
        slot->region = *region;
    }
    if ((was || will) && !kvmd_slot_logged(slot)) {
        slot_stop(kvmd, slot);
    } else if (!was && will) {
        slot_started(kvmd, slot);
    }
    return ret;
}

int kvmd_slot_set(KvmDirty *kvmd,
                  const struct kvm_userspace_memory_region *region,
                  uint64_t tag)
{
    KvmDirtySlot *slot;
    int ret;

    g_mutex_lock(&kvmd->lock);
    slot = kvmd_slot_get(kvmd, region->slot);
    if (slot && region->memory_size) {
        ret = slot_change(kvmd, slot, region);
    } else if (slot) {
        ret = slot_remove(kvmd, slot, region);
    } else if (region->memory_size) {
        ret = slot_add(kvmd, region, tag);
    } else {
        ret = region_set(kvmd, region);
    }
    g_mutex_unlock(&kvmd->lock);
    return ret;
}

static int slot_rearm(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    sync_for(kvmd, slot);
    return kvmd_clears(kvmd) ?
        kvmd->ops->clear(kvmd, slot, 0, kvmd_slot_pages(kvmd, slot)) : 0;
}

int kvmd_slots_rearm(KvmDirty *kvmd)
{
    return kvmd_slots_foreach_logged(kvmd, slot_rearm);
}

static int slot_pause(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    kvmd_slot_log_flag(kvmd, slot, false);
    slot_stop(kvmd, slot);
    return 0;
}

static int slot_resume(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    slot_start(kvmd, slot);
    kvmd_slot_log_flag(kvmd, slot, true);
    slot_started(kvmd, slot);
    return kvmd_publish_whole(kvmd, slot);
}

/*
 * Should the log flag be refused, KVM has no bitmap that a harvest could find:
 * it fails, and publishes all of the slot each time.
 */
void kvmd_slots_pause(KvmDirty *kvmd)
{
    kvmd_slots_foreach_logged(kvmd, slot_pause);
}

void kvmd_slots_resume(KvmDirty *kvmd)
{
    kvmd_slots_foreach_logged(kvmd, slot_resume);
}

void kvmd_slots_free(KvmDirty *kvmd)
{
    for (guint as = 0; as < kvmd->spaces->len; as++) {
        GPtrArray *slots = g_ptr_array_index(kvmd->spaces, as);

        for (guint n = 0; n < slots->len; n++) {
            KvmDirtySlot *slot = g_ptr_array_index(slots, n);

            if (slot && kvmd_slot_logged(slot)) {
                slot_stop(kvmd, slot);
            }
            g_free(slot);
        }
        g_ptr_array_unref(slots);
    }
    g_ptr_array_unref(kvmd->spaces);
}
