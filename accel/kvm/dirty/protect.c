/*
 * Re-arming by write-protecting a whole region at once, just in time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A harvest publishes what it finds and leaves it un-armed; whoever reads a
 * page calls kvmd_slot_clear() first, and that write-protects the regions it
 * is in (I3).  KVM does so through the one entry of a page table that a region
 * has, whatever was written in it.  Until then the guest writes to the pages
 * without a fault; and a page that is written between the harvest and its turn
 * to be read is not harvested once more.
 *
 * Nothing is harvested when a region is re-armed (I2): what was written in it
 * since stays in KVM's log, for the next harvest.
 */

#include "engine.h"

#include <errno.h>
#include <linux/kvm_dirty_tracking.h>

/* What KVM_WRITE_PROTECT_RANGE widens every range to. */
#define REGION_SIZE (UINT64_C(2) << 20)

bool kvmd_protect_enable_cap(KvmDirty *kvmd, KvmDirtyMechanism wanted_by,
                             uint32_t capability, const char *name,
                             GError **error)
{
    int ret;

    if (!kvmd_check_extension(kvmd, capability)) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_HOST,
                    "dirty-tracking=%s is not possible: this host's KVM lacks %s",
                    kvmd_mechanism_name(wanted_by), name);
        return false;
    }
    ret = kvmd_enable_cap(kvmd, capability, 0);
    if (ret < 0) {
        g_set_error(error, KVMD_ERROR,
                    ret == -EBUSY ? KVMD_ERROR_STARTED : KVMD_ERROR_REFUSED,
                    "dirty-tracking=%s is not possible: KVM refuses %s (%s)%s",
                    kvmd_mechanism_name(wanted_by), name, g_strerror(-ret),
                    ret == -EBUSY ? "; it has to be enabled before the first "
                    "vCPU, as dirty-tracking=auto does" : "");
        return false;
    }
    return true;
}

bool kvmd_protect_enable(KvmDirty *kvmd, KvmDirtyMechanism wanted_by,
                         GError **error)
{
    if (!kvmd->can_protect) {
        kvmd->can_protect = kvmd_protect_enable_cap(
            kvmd, wanted_by, KVM_CAP_WRITE_PROTECT_ALL_MEM,
            "KVM_CAP_WRITE_PROTECT_ALL_MEM", error);
    }
    return kvmd->can_protect;
}

int kvmd_protect_all(KvmDirty *kvmd)
{
    return kvmd_vm_ioctl(kvmd, KVM_WRITE_PROTECT_ALL_MEM, NULL);
}

/* A slot may begin within a region: its regions are those of the guest. */
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

static uint64_t *word_of(const KvmDirtySlot *slot, uint64_t region)
{
    return &slot->unarmed[region / 64];
}

static uint64_t bit_of(uint64_t region)
{
    return UINT64_C(1) << region % 64;
}

static bool is_unarmed(const KvmDirtySlot *slot, uint64_t region)
{
    return *word_of(slot, region) & bit_of(region);
}

static void leave_unarmed(const KvmDirty *kvmd, KvmDirtySlot *slot,
                          uint64_t first, uint64_t pages)
{
    uint64_t last = region_of(kvmd, slot, first + pages - 1);

    for (uint64_t i = region_of(kvmd, slot, first); i <= last; i++) {
        *word_of(slot, i) |= bit_of(i);
    }
}

/* KVM write-protects all of a slot when its logging begins. */
void kvmd_protect_slot_start(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    slot->unarmed = g_new0(uint64_t, kvmd_words(regions_of(kvmd, slot)));
}

void kvmd_protect_slot_stop(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    (void)kvmd;
    g_clear_pointer(&slot->unarmed, g_free);
}

static void leave_words_unarmed(const KvmDirty *kvmd, KvmDirtySlot *slot,
                                uint64_t first, const uint64_t *words,
                                size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t page = first + i * KVMD_WORD_PAGES;

        if (words[i]) {
            leave_unarmed(kvmd, slot, page,
                          MIN(KVMD_WORD_PAGES,
                              kvmd_slot_pages(kvmd, slot) - page));
        }
    }
}

void kvmd_protect_found(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                        uint64_t *words, size_t n)
{
    uint64_t pages;
    int64_t start;

    kvmd_trim(kvmd, slot, first, words, n);
    pages = kvmd_count_pages(words, n);
    if (!pages) {
        return;
    }
    if (slot->unarmed) {
        leave_words_unarmed(kvmd, slot, first, words, n);
    }
    start = kvmd_now();
    kvmd_publish(kvmd, slot, first, words, n);
    kvmd->stats.publish_ns += kvmd_now() - start;
    kvmd->stats.pages += pages;
}

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

int kvmd_harvest_slot(KvmDirty *kvmd, KvmDirtySlot *slot,
                      KvmDirtyHarvest *harvest)
{
    uint64_t pages = kvmd_slot_pages(kvmd, slot);
    int ret = kvmd_harvest_range(kvmd, slot, 0, pages, harvest);

    if (ret < 0) {
        if (slot->unarmed) {
            leave_unarmed(kvmd, slot, 0, pages);
        }
        kvmd_harvest_failed(kvmd, slot, ret);
    }
    return ret;
}

int kvmd_protect_sync_slot(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    return kvmd_harvest_slot(kvmd, slot, kvmd->ops->harvest);
}

int kvmd_protect_sync_all(KvmDirty *kvmd)
{
    return kvmd_slots_foreach_logged(kvmd, kvmd_protect_sync_slot);
}

/* The first region from @region on, below @end, that is un-armed, or is not. */
static uint64_t find(const KvmDirtySlot *slot, uint64_t region, uint64_t end,
                     bool unarmed)
{
    while (region < end && is_unarmed(slot, region) != unarmed) {
        region++;
    }
    return region;
}

/* Re-arm the regions [@region, @end), which are un-armed. */
static int rearm(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t region,
                 uint64_t end)
{
    uint64_t base = slot->region.guest_phys_addr / REGION_SIZE;
    struct kvm_write_protect_range range = {
        .gpa = (base + region) * REGION_SIZE,
        .size = (end - region) * REGION_SIZE,
    };
    int ret = kvmd_vm_ioctl(kvmd, KVM_WRITE_PROTECT_RANGE, &range);

    for (; ret >= 0 && region < end; region++) {
        *word_of(slot, region) &= ~bit_of(region);
    }
    return ret;
}

static int rearm_some(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t region,
                      uint64_t end)
{
    int ret = 0;

    while (ret >= 0 && (region = find(slot, region, end, true)) < end) {
        uint64_t armed = find(slot, region, end, false);

        ret = rearm(kvmd, slot, region, armed);
        region = armed;
    }
    return ret;
}

/*
 * What cannot be re-armed is written and nobody is told: it is published again,
 * to be read again when it can be.
 */
int kvmd_protect_clear(KvmDirty *kvmd, KvmDirtySlot *slot,
                       uint64_t first, uint64_t pages)
{
    int64_t start = kvmd_now();
    int ret;

    ret = rearm_some(kvmd, slot, region_of(kvmd, slot, first),
                     region_of(kvmd, slot, first + pages - 1) + 1);
    kvmd->stats.rearm_ns += kvmd_now() - start;
    if (ret < 0) {
        kvmd_publish_range(kvmd, slot, first, pages);
    }
    return ret;
}
