/*
 * Changes to memory slots, and the harvest and re-arm that each requires.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "engine.h"

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

static void slot_gone(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    if (kvmd->ops->slot_gone) {
        kvmd->ops->slot_gone(kvmd, slot);
    }
}

static int slot_stop(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    kvmd->stats.logged_slots--;
    if (kvmd->ops->slot_stop) {
        kvmd->ops->slot_stop(kvmd, slot);
    }
    return 0;
}

static void slot_sync(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    if (!kvmd->ops->sync_slot) {
        kvmd->ops->sync_all(kvmd);
    } else if (kvmd_slot_logged(slot)) {
        kvmd->ops->sync_slot(kvmd, slot);
    }
}

/*
 * I7.  A vCPU may write, and KVM log it, until KVM has removed the slot.  Ring
 * entries name the slot: the rings are taken once more while @slot still tells
 * what the entries mean, and before its id can come to mean another.  A shared
 * bitmap stays mapped.  "log" and "wrprot" have their pages in a bitmap that
 * goes with the slot.
 */
static int slot_remove(KvmDirty *kvmd, KvmDirtySlot *slot,
                       const struct kvm_userspace_memory_region *region)
{
    int ret;

    slot_sync(kvmd, slot);
    ret = kvmd_slot_region_set(kvmd, region);
    if (ret < 0) {
        return ret;
    }
    if (kvmd->ops->outlives_slot) {
        slot->gone = true;
        slot_sync(kvmd, slot);
    }
    if (kvmd_slot_logged(slot)) {
        slot_gone(kvmd, slot);
        slot_stop(kvmd, slot);
    }
    kvmd_slot_put(kvmd, region->slot, NULL);
    g_free(slot);
    return ret;
}

/*
 * KVM may log a page as soon as it has the region, so the slot enters the table
 * first.
 */
static int slot_add(KvmDirty *kvmd,
                    const struct kvm_userspace_memory_region *region,
                    uint64_t tag)
{
    KvmDirtySlot *slot = g_new0(KvmDirtySlot, 1);
    int ret;

    slot->region = *region;
    slot->tag = tag;
    kvmd_slot_put(kvmd, region->slot, slot);
    if (kvmd_slot_logged(slot)) {
        slot_start(kvmd, slot);
    }
    ret = kvmd_slot_region_set(kvmd, region);
    if (ret >= 0 && kvmd_slot_logged(slot)) {
        slot_started(kvmd, slot);
    } else if (ret < 0) {
        if (kvmd_slot_logged(slot)) {
            slot_stop(kvmd, slot);
        }
        kvmd_slot_put(kvmd, region->slot, NULL);
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
    ret = kvmd_slot_region_set(kvmd, region);
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
        ret = kvmd_slot_region_set(kvmd, region);
    }
    g_mutex_unlock(&kvmd->lock);
    return ret;
}

static int slot_rearm(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    slot_sync(kvmd, slot);
    return kvmd_wants_clear(kvmd) ?
        kvmd->ops->clear(kvmd, slot, 0, kvmd_slot_pages(kvmd, slot)) : 0;
}

int kvmd_slots_rearm(KvmDirty *kvmd)
{
    return kvmd_slots_foreach_logged(kvmd, slot_rearm);
}

static int slot_pause(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    kvmd_slot_log_flag(kvmd, slot, false);
    return slot_stop(kvmd, slot);
}

static int slot_resume(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    slot_start(kvmd, slot);
    kvmd_slot_log_flag(kvmd, slot, true);
    slot_started(kvmd, slot);
    return kvmd_publish_whole(kvmd, slot);
}

/*
 * If KVM refuses the log flag, it has no bitmap to harvest.  Each harvest then
 * fails, and publishes every page of the slot.
 */
void kvmd_slots_pause(KvmDirty *kvmd)
{
    kvmd_slots_foreach_logged(kvmd, slot_pause);
}

void kvmd_slots_resume(KvmDirty *kvmd)
{
    kvmd_slots_foreach_logged(kvmd, slot_resume);
}

void kvmd_slots_stop(KvmDirty *kvmd)
{
    kvmd_slots_foreach_logged(kvmd, slot_stop);
}
