/*
 * Harvesting: pages are taken from KVM, and the time that this needs is told
 * apart from that of publishing them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "ground.h"

int kvmd_harvest_range(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                       uint64_t pages, KvmDirtyHarvest *harvest)
{
    uint64_t found = kvmd->stats.pages, published = kvmd->stats.publish_ns;
    int64_t start = kvmd_now();
    int ret = harvest(kvmd, slot, first, pages);

    published = kvmd->stats.publish_ns - published;
    kvmd->stats.harvest_ns += kvmd_now() - start - published;
    kvmd->stats.harvests += kvmd->stats.pages != found;
    return ret;
}

static void harvest_failed(KvmDirty *kvmd, KvmDirtySlot *slot, int error)
{
    if (!slot->failure_told) {
        kvmd_warn(kvmd, "harvesting the dirty pages of slot 0x%x failed (%s): "
                  "all its pages are taken as dirty", slot->region.slot,
                  g_strerror(-error));
    }
    slot->failure_told = true;
    kvmd_publish_whole(kvmd, slot);
}

int kvmd_harvest_slot(KvmDirty *kvmd, KvmDirtySlot *slot,
                      KvmDirtyHarvest *harvest)
{
    int ret = kvmd_harvest_range(kvmd, slot, 0, kvmd_slot_pages(kvmd, slot),
                                 harvest);

    if (ret < 0) {
        harvest_failed(kvmd, slot, ret);
    }
    return ret;
}
