/*
 * KVM's own bitmap of a slot, mapped.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A harvest needs no ioctl and no copy.  A bit of the summary stands for a
 * group of KVM_DIRTY_SUMMARY_PAGES pages: a harvest looks at one bit for each
 * group, and at the words of the groups that have a dirty page.  ordering.h
 * describes the order of these accesses, and why no page is missed.
 *
 * The mapping keeps the bitmap after KVM has removed the slot, so a harvest
 * then still finds the pages that were written up to the removal.
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

/* Whether @bits bits fit behind @offset in a mapping of @size bytes. */
static bool map_fits(uint64_t bits, uint64_t offset, uint64_t size)
{
    uint64_t bytes = kvmd_words(bits) * sizeof(uint64_t);

    return offset % sizeof(uint64_t) == 0 && bytes <= size &&
           offset <= size - bytes;
}

static uint64_t map_groups(const KvmDirty *kvmd, const KvmDirtySlot *slot)
{
    return (kvmd_slot_pages(kvmd, slot) + KVM_DIRTY_SUMMARY_PAGES - 1) /
        KVM_DIRTY_SUMMARY_PAGES;
}

/* Returns: where it is mapped, or NULL with errno set. */
static void *map_file(KvmDirty *kvmd, const KvmDirtySlot *slot, int fd,
                      const struct kvm_dirty_bitmap_fd *args)
{
    uint64_t size = args->bitmap_size + args->summary_size;
    void *base;

    if (size < args->bitmap_size ||
        !map_fits(kvmd_slot_pages(kvmd, slot), args->bitmap_offset, size) ||
        !map_fits(map_groups(kvmd, slot), args->summary_offset, size)) {
        errno = EPROTO;
        return NULL;
    }
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return base == MAP_FAILED ? NULL : base;
}

/* Returns: 0, or -errno with nothing mapped. */
static int map_bitmap(KvmDirty *kvmd, const KvmDirtySlot *slot,
                      KvmDirtyMap *map)
{
    struct kvm_dirty_bitmap_fd args = { .slot = slot->region.slot };
    int fd = kvmd_vm_ioctl(kvmd, KVM_GET_DIRTY_BITMAP_FD, &args);
    void *base;
    int err;

    if (fd < 0) {
        return fd;
    }
    base = map_file(kvmd, slot, fd, &args);
    err = errno;
    close(fd);
    if (!base) {
        return -err;
    }
    map->base = base;
    map->size = args.bitmap_size + args.summary_size;
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
    uint64_t words[GROUP_WORDS];
    size_t n;

    if (group >= map_groups(kvmd, slot)) {
        return;                 /* no KVM that is right says so */
    }
    n = MIN(GROUP_WORDS, kvmd_words(kvmd_slot_pages(kvmd, slot)) - first);
    for (size_t i = 0; i < n; i++) {
        words[i] = bitmap_take(&map->bitmap[first + i]);
    }
    found(kvmd, slot, first * KVMD_WORD_PAGES, words, n);
}

/*
 * Harvest a range, widened to whole words of the summary.  If KVM has removed
 * the slot, a bitmap that is not mapped has gone with it, and with what was
 * written since the harvest before the removal.
 */
int kvmd_map_harvest(KvmDirty *kvmd, KvmDirtySlot *slot, const KvmDirtyMap *map,
                     uint64_t first, uint64_t pages, KvmDirtyFound *found)
{
    uint64_t last = (first + pages - 1) / KVM_DIRTY_SUMMARY_PAGES;
    size_t i = first / KVM_DIRTY_SUMMARY_PAGES / KVMD_WORD_PAGES;

    if (!map->base) {
        return slot->gone ? -ENODATA : kvmd_fetch(kvmd, slot, found);
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
