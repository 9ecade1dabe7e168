/*
 * The mechanism "shared": KVM's own bitmap of each slot, mapped, and regions
 * that are write-protected at once.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "mechanism.h"

typedef struct SharedSlot {
    KvmDirtyRegions regions;    /* first: see mechanism.h */
    KvmDirtyMap map;
} SharedSlot;

static bool shared_enable(KvmDirty *kvmd, GError **error)
{
    return kvmd_map_enable(kvmd, kvmd_shared_ops.name, error);
}

static void shared_slot_start(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    slot->state = g_new0(SharedSlot, 1);
    kvmd_regions_init(kvmd, slot);
}

static void shared_slot_started(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    SharedSlot *shared = slot->state;

    kvmd_map_open(kvmd, slot, &shared->map);
}

static void shared_slot_stop(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    SharedSlot *shared = slot->state;

    (void)kvmd;
    kvmd_map_close(&shared->map);
    kvmd_regions_fini(slot);
    g_clear_pointer(&slot->state, g_free);
}

static int shared_harvest(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                          uint64_t pages)
{
    SharedSlot *shared = slot->state;

    return kvmd_map_harvest(kvmd, slot, &shared->map, first, pages,
                            kvmd_regions_found);
}

static int shared_sync_slot(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    return kvmd_regions_sync_slot(kvmd, slot, shared_harvest);
}

const KvmDirtyOps kvmd_shared_ops = {
    .name = "shared",
    .enable = shared_enable,
    .slot_start = shared_slot_start,
    .slot_started = shared_slot_started,
    .slot_stop = shared_slot_stop,
    .sync_slot = shared_sync_slot,
    .clear = kvmd_regions_rearm,
    .slot_gone = kvmd_regions_gone,
    .outlives_slot = true,
};
