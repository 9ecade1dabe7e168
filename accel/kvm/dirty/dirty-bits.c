/*
 * The mechanism "dirty-bits": the CPUs' own dirty bits, which KVM collects into
 * its bitmap of each slot; the bitmap is mapped, as with "shared".
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
 * kvmd_slot_clear() has therefore nothing to re-arm.  It collects all the same,
 * since it comes just before pages are read: what was written since the sync is
 * published then, and need not be read once more after the next sync.
 *
 * The capability is for the life of the VM: KVM no longer write-protects single
 * pages, and who does not collect sees no write.  "log" has KVM collect.
 */

#include "engine.h"

#include <linux/kvm_dirty_tracking.h>

/* More than a CPU can address. */
#define ALL_MEMORY (UINT64_C(1) << 52)

static bool dirty_bits_enable(KvmDirty *kvmd, GError **error)
{
    if (!kvmd_shared_enable(kvmd, KVMD_DIRTY_BITS, error)) {
        return false;
    }
    if (!kvmd->dirty_bits) {
        kvmd->dirty_bits = kvmd_protect_enable_cap(
            kvmd, KVMD_DIRTY_BITS, KVM_CAP_DIRTY_BITS, "KVM_CAP_DIRTY_BITS",
            error);
    }
    return kvmd->dirty_bits;
}

static int collect(KvmDirty *kvmd, uint64_t gpa, uint64_t size)
{
    struct kvm_collect_dirty_bits range = { .gpa = gpa, .size = size };

    return kvmd_vm_ioctl(kvmd, KVM_COLLECT_DIRTY_BITS, &range);
}

/* Collect, and take from the bitmap then. */
static int harvest(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                   uint64_t pages)
{
    int ret = collect(kvmd, slot->region.guest_phys_addr +
                      first * kvmd->page_size, pages * kvmd->page_size);

    return ret < 0 ? ret : kvmd_shared_harvest(kvmd, slot, first, pages);
}

static int dirty_bits_sync_slot(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    return kvmd_harvest_slot(kvmd, slot, harvest);
}

static int sync_collected_slot(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    return kvmd_harvest_slot(kvmd, slot, kvmd_shared_harvest);
}

/*
 * One collect for all slots: several show the same memory, and KVM takes what
 * has no dirty bit at a second look for idle.  If that fails, each slot has a
 * collect of its own to fail with.
 */
static int dirty_bits_sync_all(KvmDirty *kvmd)
{
    int64_t start = kvmd_now();
    int ret = collect(kvmd, 0, ALL_MEMORY);

    kvmd->stats.harvest_ns += kvmd_now() - start;
    return kvmd_slots_foreach_logged(kvmd, ret < 0 ? dirty_bits_sync_slot :
                                     sync_collected_slot);
}

/*
 * The slots of other address spaces show what was just collected for the first.
 * A bitmap that is copied would be copied whole.  If it fails, the pages are
 * armed as the sync left them, and the next finds what was written since.
 */
static int dirty_bits_clear(KvmDirty *kvmd, KvmDirtySlot *slot,
                            uint64_t first, uint64_t pages)
{
    if (kvmd_slot_space(slot) != 0 || !slot->map.base) {
        return 0;
    }
    return kvmd_harvest_range(kvmd, slot, first, pages, harvest);
}

const KvmDirtyOps kvmd_dirty_bits_ops = {
    .enable = dirty_bits_enable,
    .slot_started = kvmd_shared_slot_started,
    .slot_stop = kvmd_shared_slot_stop,
    .sync_slot = dirty_bits_sync_slot,
    .sync_all = dirty_bits_sync_all,
    .clear = dirty_bits_clear,
    .outlives_slot = true,
    .clear_publishes = true,
    .sees_dirty_bits = true,
};
