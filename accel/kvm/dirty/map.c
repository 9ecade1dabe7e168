/*
 * KVM's own bitmap of a slot, mapped.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A harvest is no ioctl and no copy.  A bit of the summary stands for
 * KVM_DIRTY_SUMMARY_PAGES pages: a harvest looks at one bit for each of those,
 * and at the words of those that have a dirty page.  ordering.h tells in which
 * order, and why no page is missed.
 *
 * The mapping keeps the bitmap when KVM has removed the slot: what was written
 * up to that moment is found as well.
 */

#include "mechanism.h"
#include "ordering.h"

#include <errno.h>
#include <linux/kvm_dirty_tracking.h>
#include <sys/mman.h>
#include <unistd.h>

#define GROUP_WORDS (KVM_DIRTY_SUMMARY_PAGES / KVMD_WORD_PAGES)

bool kvmd_map_enable(KvmDirty *kvmd, const char *wanted_by, GError **error)
{
    return kvmd_fetch_enable(kvmd, wanted_by, error) &&
        kvmd_cap_need(kvmd, KVMD_CAP_MAP, wanted_by, error);
}

/* Returns: 0, or -errno with nothing mapped. */
static int map_bitmap(KvmDirty *kvmd, const KvmDirtySlot *slot,
                      KvmDirtyMap *map)
{
    struct kvm_dirty_bitmap_fd args = { .slot = slot->region.slot };
    int fd = kvmd_vm_ioctl(kvmd, KVM_GET_DIRTY_BITMAP_FD, &args);
    size_t size = args.bitmap_size + args.summary_size;
    void *base;
    int err;

    if (fd < 0) {
        return fd;
    }
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    err = errno;
    close(fd);
    if (base == MAP_FAILED) {
        return -err;
    }
    map->base = base;
    map->size = size;
    map->bitmap = (void *)((char *)base + args.bitmap_offset);
    map->summary = (void *)((char *)base + args.summary_offset);
    return 0;
}

void kvmd_map_open(KvmDirty *kvmd, const KvmDirtySlot *slot, KvmDirtyMap *map)
{
    int ret = map_bitmap(kvmd, slot, map);

    if (ret < 0) {
        kvmd_warn(kvmd, "the dirty bitmap of slot 0x%x cannot be mapped (%s): "
                  "it is copied instead", slot->region.slot,
                  g_strerror(-ret));
    }
}

void kvmd_map_close(KvmDirtyMap *map)
{
    if (map->base) {
        munmap(map->base, map->size);
    }
}

static void map_harvest_group(KvmDirty *kvmd, KvmDirtySlot *slot,
                              const KvmDirtyMap *map, uint64_t group,
                              KvmDirtyFound *found)
{
    uint64_t first = group * GROUP_WORDS;
    size_t n = MIN(GROUP_WORDS,
                   kvmd_words(kvmd_slot_pages(kvmd, slot)) - first);
    uint64_t words[GROUP_WORDS];

    for (size_t i = 0; i < n; i++) {
        words[i] = bitmap_take(&map->bitmap[first + i]);
    }
    found(kvmd, slot, first * KVMD_WORD_PAGES, words, n);
}

/* By whole words of the summary. */
int kvmd_map_harvest(KvmDirty *kvmd, KvmDirtySlot *slot, const KvmDirtyMap *map,
                     uint64_t first, uint64_t pages, KvmDirtyFound *found)
{
    uint64_t last = (first + pages - 1) / KVM_DIRTY_SUMMARY_PAGES;
    size_t i = first / KVM_DIRTY_SUMMARY_PAGES / KVMD_WORD_PAGES;

    if (!map->base) {
        return slot->gone ? 0 : kvmd_fetch(kvmd, slot, found);
    }
    for (; i <= last / KVMD_WORD_PAGES; i++) {
        uint64_t bits = GUINT64_FROM_LE(bitmap_take(&map->summary[i]));

        for (; bits; bits &= bits - 1) {
            map_harvest_group(kvmd, slot, map,
                              i * KVMD_WORD_PAGES + __builtin_ctzll(bits),
                              found);
        }
    }
    return 0;
}
