/*
 * The mechanism "wrprot": a bitmap per slot, which KVM copies out without
 * touching the page tables, and regions that are write-protected at once.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "mechanism.h"

static bool wrprot_enable(KvmDirty *kvmd, GError **error)
{
    return kvmd_fetch_enable(kvmd, kvmd_wrprot_ops.name, error);
}

static void wrprot_slot_start(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    slot->state = g_new0(KvmDirtyRegions, 1);
    kvmd_regions_init(kvmd, slot);
}

static void wrprot_slot_stop(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    (void)kvmd;
    kvmd_regions_fini(slot);
    g_clear_pointer(&slot->state, g_free);
}

static int wrprot_harvest(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                          uint64_t pages)
{
    (void)first, (void)pages;
    return kvmd_fetch(kvmd, slot, kvmd_regions_found);
}

static int wrprot_sync_slot(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    return kvmd_regions_sync_slot(kvmd, slot, wrprot_harvest);
}

const KvmDirtyOps kvmd_wrprot_ops = {
    .name = "wrprot",
    .enable = wrprot_enable,
    .slot_start = wrprot_slot_start,
    .slot_stop = wrprot_slot_stop,
    .sync_slot = wrprot_sync_slot,
    .clear = kvmd_regions_rearm,
    .slot_gone = kvmd_regions_gone,
};
