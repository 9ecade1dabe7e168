/*
 * The mechanism "dirty-bits": the CPUs' own dirty bits, which KVM collects
 * into its bitmap of each slot; the bitmap is mapped, as with "shared".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A dirty bit that is set stays set until it is collected, and a page that is
 * written after that has it set again: KVM_COLLECT_DIRTY_BITS, which flushes
 * the TLBs before it returns, is harvest and re-arm in one.  So neither can
 * come before the other (I2); a page that is read after a collect is armed
 * (I3); and a collect that failed has taken nothing that the next would not
 * find.
 *
 * kvmd_slot_clear() has therefore nothing to re-arm.  It collects all the
 * same, since it comes just before pages are read: what was written since the
 * sync is published then, and need not be read once more after the next sync.
 *
 * The capability is for the life of the VM: KVM no longer write-protects
 * single pages, and a harvest without a collect finds no write.  With "log"
 * KVM collects by itself.
 */

#include "mechanism.h"

#include <linux/kvm_dirty_tracking.h>

/* More than a CPU can address. */
#define ALL_MEMORY (UINT64_C(1) << 52)

static bool dirty_bits_enable(KvmDirty *kvmd, GError **error)
{
    const char *name = kvmd_dirty_bits_ops.name;

    return kvmd_map_enable(kvmd, name, error) &&
        kvmd_cap_need(kvmd, KVMD_CAP_DIRTY_BITS, name, error);
}

static void dirty_bits_slot_start(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    (void)kvmd;
    slot->state = g_new0(KvmDirtyMap, 1);
}

static void dirty_bits_slot_started(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    kvmd_map_open(kvmd, slot, slot->state);
}

static void dirty_bits_slot_stop(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    (void)kvmd;
    kvmd_map_close(slot->state);
    g_clear_pointer(&slot->state, g_free);
}

static int dirty_bits_collect(KvmDirty *kvmd, uint64_t gpa, uint64_t size)
{
    struct kvm_collect_dirty_bits range = { .gpa = gpa, .size = size };

    return kvmd_vm_ioctl(kvmd, KVM_COLLECT_DIRTY_BITS, &range);
}

/* What KVM has collected is in the bitmap. */
static int dirty_bits_take(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                           uint64_t pages)
{
    return kvmd_map_harvest(kvmd, slot, slot->state, first, pages,
                            kvmd_publish_found);
}

/* Collect, and take from the bitmap then. */
static int dirty_bits_harvest(KvmDirty *kvmd, KvmDirtySlot *slot,
                              uint64_t first, uint64_t pages)
{
    int ret = dirty_bits_collect(kvmd, slot->region.guest_phys_addr +
                                 first * kvmd->page_size,
                                 pages * kvmd->page_size);

    return ret < 0 ? ret : dirty_bits_take(kvmd, slot, first, pages);
}

static int dirty_bits_sync_slot(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    return kvmd_harvest_slot(kvmd, slot, dirty_bits_harvest);
}

static int dirty_bits_sync_collected(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    return kvmd_harvest_slot(kvmd, slot, dirty_bits_take);
}

/*
 * One collect for all slots: several show the same memory, and KVM takes what
 * has no dirty bit at a second look for idle.  If that fails, each slot has a
 * collect of its own to fail with.
 */
static int dirty_bits_sync_all(KvmDirty *kvmd)
{
    int64_t start = kvmd_now();
    int ret = dirty_bits_collect(kvmd, 0, ALL_MEMORY);

    kvmd->stats.harvest_ns += kvmd_now() - start;
    return kvmd_slots_foreach_logged(kvmd, ret < 0 ? dirty_bits_sync_slot :
                                     dirty_bits_sync_collected);
}

/*
 * The slots of other address spaces show what was just collected for the
 * first.  A bitmap that is copied would be copied whole.  If it fails, the
 * pages are armed as the sync left them, and the next finds what was written
 * since.
 */
static int dirty_bits_clear(KvmDirty *kvmd, KvmDirtySlot *slot,
                            uint64_t first, uint64_t pages)
{
    const KvmDirtyMap *map = slot->state;

    if (kvmd_slot_space(slot) != 0 || !map->base) {
        return 0;
    }
    return kvmd_harvest_range(kvmd, slot, first, pages, dirty_bits_harvest);
}

const KvmDirtyOps kvmd_dirty_bits_ops = {
    .name = "dirty-bits",
    .enable = dirty_bits_enable,
    .slot_start = dirty_bits_slot_start,
    .slot_started = dirty_bits_slot_started,
    .slot_stop = dirty_bits_slot_stop,
    .sync_slot = dirty_bits_sync_slot,
    .sync_all = dirty_bits_sync_all,
    .clear = dirty_bits_clear,
    .outlives_slot = true,
    .clear_publishes = true,
    .sees_dirty_bits = true,
};
