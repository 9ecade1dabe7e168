/*
 * Re-arming by write-protecting a whole region at once, just in time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A harvest publishes the pages that it finds and leaves them un-armed.  The
 * thread that reads a page calls kvmd_slot_clear() first, which write-protects
 * the region of the page (I3).  KVM does so through the one page-table entry
 * that maps the region, whichever of its pages were written.  Until then the
 * guest writes to the pages without a fault, and a page that is written
 * between its harvest and its turn to be read is not harvested once more.
 *
 * Re-arming a region harvests nothing (I2): pages that were written in it
 * since the harvest stay in KVM's log for the next harvest.
 */

#include "mechanism.h"

#include <linux/kvm_dirty_tracking.h>

/* KVM_WRITE_PROTECT_RANGE widens each range to a multiple of this. */
#define REGION_SIZE (UINT64_C(2) << 20)

/* Regions are aligned in guest memory, so a slot may begin within one. */
static uint64_t region_of(const KvmDirty *kvmd, const KvmDirtySlot *slot,
                          uint64_t page)
{
    uint64_t gpa = slot->region.guest_phys_addr;

    return (gpa + page * kvmd->page_size) / REGION_SIZE - gpa / REGION_SIZE;
}

static uint64_t regions_of(const KvmDirty *kvmd, const KvmDirtySlot *slot)
{
    return region_of(kvmd, slot, kvmd_slot_pages(kvmd, slot) - 1) + 1;
}

static uint64_t *region_word(const KvmDirtySlot *slot, uint64_t region)
{
    const KvmDirtyRegions *regions = slot->state;

    return &regions->unarmed[region / 64];
}

static uint64_t region_bit(uint64_t region)
{
    return UINT64_C(1) << region % 64;
}

static bool region_is_unarmed(const KvmDirtySlot *slot, uint64_t region)
{
    return *region_word(slot, region) & region_bit(region);
}

static void regions_leave(const KvmDirty *kvmd, KvmDirtySlot *slot,
                          uint64_t first, uint64_t pages)
{
    uint64_t last = region_of(kvmd, slot, first + pages - 1);

    for (uint64_t i = region_of(kvmd, slot, first); i <= last; i++) {
        *region_word(slot, i) |= region_bit(i);
    }
}

/* KVM write-protects all of a slot when its logging begins. */
void kvmd_regions_init(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    KvmDirtyRegions *regions = slot->state;

    regions->unarmed = g_new0(uint64_t, kvmd_words(regions_of(kvmd, slot)));
}

void kvmd_regions_fini(KvmDirtySlot *slot)
{
    KvmDirtyRegions *regions = slot->state;

    g_free(regions->unarmed);
}

void kvmd_regions_found(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                        uint64_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t page = first + i * KVMD_WORD_PAGES;

        if (words[i]) {
            regions_leave(kvmd, slot, page,
                          MIN(KVMD_WORD_PAGES,
                              kvmd_slot_pages(kvmd, slot) - page));
        }
    }
    kvmd_publish_found(kvmd, slot, first, words, n);
}

int kvmd_regions_sync_slot(KvmDirty *kvmd, KvmDirtySlot *slot,
                           KvmDirtyHarvest *harvest)
{
    int ret = kvmd_harvest_slot(kvmd, slot, harvest);

    if (ret < 0) {
        regions_leave(kvmd, slot, 0, kvmd_slot_pages(kvmd, slot));
    }
    return ret;
}

/* The first region in [@region, @end) that is un-armed, or that is armed. */
static uint64_t region_find(const KvmDirtySlot *slot, uint64_t region,
                            uint64_t end, bool unarmed)
{
    while (region < end && region_is_unarmed(slot, region) != unarmed) {
        region++;
    }
    return region;
}

/* Re-arm the regions [@region, @end), which are un-armed. */
static int regions_protect(KvmDirty *kvmd, KvmDirtySlot *slot,
                           uint64_t region, uint64_t end)
{
    uint64_t base = slot->region.guest_phys_addr / REGION_SIZE;
    struct kvm_write_protect_range range = {
        .gpa = (base + region) * REGION_SIZE,
        .size = (end - region) * REGION_SIZE,
    };
    int ret = kvmd_vm_ioctl(kvmd, KVM_WRITE_PROTECT_RANGE, &range);

    for (; ret >= 0 && region < end; region++) {
        *region_word(slot, region) &= ~region_bit(region);
    }
    return ret;
}

static int regions_protect_unarmed(KvmDirty *kvmd, KvmDirtySlot *slot,
                                   uint64_t region, uint64_t end)
{
    int ret = 0;

    while (ret >= 0 &&
           (region = region_find(slot, region, end, true)) < end) {
        uint64_t armed = region_find(slot, region, end, false);

        ret = regions_protect(kvmd, slot, region, armed);
        region = armed;
    }
    return ret;
}

/*
 * The guest can write to a region that KVM fails to re-arm, and KVM does not
 * log these writes.  So the region is published again, and read again once it
 * can be re-armed.
 */
int kvmd_regions_rearm(KvmDirty *kvmd, KvmDirtySlot *slot,
                       uint64_t first, uint64_t pages)
{
    int64_t start = kvmd_now();
    int ret;

    ret = regions_protect_unarmed(
        kvmd, slot, region_of(kvmd, slot, first),
        region_of(kvmd, slot, first + pages - 1) + 1);
    kvmd->stats.rearm_ns += kvmd_now() - start;
    if (ret < 0) {
        kvmd_publish_range(kvmd, slot, first, pages);
    }
    return ret;
}

/* The first page of @region in @slot, which may begin within the region. */
static uint64_t region_first(const KvmDirty *kvmd, const KvmDirtySlot *slot,
                             uint64_t region)
{
    uint64_t gpa = slot->region.guest_phys_addr;

    return region ?
        (region * REGION_SIZE - gpa % REGION_SIZE) / kvmd->page_size : 0;
}

/*
 * Memory that moves is not where the thread that reads looks for it: QEMU's
 * map may change before its slots do, and then kvmd_slot_clear() is not
 * called.  The page that was read may have been written after that, until KVM
 * removed the slot, without a fault.
 */
void kvmd_regions_gone(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    uint64_t end = regions_of(kvmd, slot), armed = 0, region;

    while ((region = region_find(slot, armed, end, true)) < end) {
        uint64_t first = region_first(kvmd, slot, region);

        armed = region_find(slot, region, end, false);
        kvmd_publish_range(kvmd, slot, first,
                           (armed < end ? region_first(kvmd, slot, armed) :
                            kvmd_slot_pages(kvmd, slot)) - first);
    }
}
