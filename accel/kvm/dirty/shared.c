/*
 * The mechanism "shared": KVM's own bitmap of each slot, mapped, and regions
 * that are write-protected at once.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A harvest is no ioctl and no copy.  A bit of the summary stands for
 * KVM_DIRTY_SUMMARY_PAGES pages: what is looked at is one bit for each of
 * those, and the words of those that have a dirty page.  ordering.h tells in
 * which order, and why no page is missed.  "dirty-bits" harvests likewise.
 *
 * The mapping keeps the bitmap when KVM has removed the slot, so that what was
 * written up to that moment is found as well.
 */

#include "engine.h"
#include "ordering.h"

#include <errno.h>
#include <linux/kvm_dirty_tracking.h>
#include <sys/mman.h>
#include <unistd.h>

#define GROUP_WORDS (KVM_DIRTY_SUMMARY_PAGES / KVMD_WORD_PAGES)

bool kvmd_shared_enable(KvmDirty *kvmd, KvmDirtyMechanism wanted_by,
                        GError **error)
{
    if (!kvmd_wrprot_enable(kvmd, wanted_by, error)) {
        return false;
    }
    if (!kvmd->can_map) {
        kvmd->can_map = kvmd_protect_enable_cap(
            kvmd, wanted_by, KVM_CAP_DIRTY_BITMAP_FD,
            "KVM_CAP_DIRTY_BITMAP_FD", error);
    }
    return kvmd->can_map;
}

static bool shared_enable(KvmDirty *kvmd, GError **error)
{
    return kvmd_shared_enable(kvmd, KVMD_SHARED, error);
}

/* Whether @bits bits fit behind @offset in a mapping of @size bytes. */
static bool fits(uint64_t bits, uint64_t offset, uint64_t size)
{
    uint64_t bytes = kvmd_words(bits) * sizeof(uint64_t);

    return offset % sizeof(uint64_t) == 0 && bytes <= size &&
           offset <= size - bytes;
}

static uint64_t groups_of(const KvmDirty *kvmd, const KvmDirtySlot *slot)
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
        !fits(kvmd_slot_pages(kvmd, slot), args->bitmap_offset, size) ||
        !fits(groups_of(kvmd, slot), args->summary_offset, size)) {
        errno = EPROTO;
        return NULL;
    }
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return base == MAP_FAILED ? NULL : base;
}

/* Returns: 0, or -errno with nothing mapped. */
static int map(KvmDirty *kvmd, KvmDirtySlot *slot)
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
    slot->map.base = base;
    slot->map.size = args.bitmap_size + args.summary_size;
    slot->map.bitmap = (void *)((char *)base + args.bitmap_offset);
    slot->map.summary = (void *)((char *)base + args.summary_offset);
    return 0;
}

void kvmd_shared_slot_started(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    int ret = map(kvmd, slot);

    if (ret < 0) {
        kvmd_warn(kvmd, "the dirty bitmap of slot 0x%x cannot be mapped (%s): "
                  "it is copied instead", slot->region.slot,
                  g_strerror(-ret));
    }
}

void kvmd_shared_slot_stop(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    kvmd_protect_slot_stop(kvmd, slot);
    if (slot->map.base) {
        munmap(slot->map.base, slot->map.size);
        slot->map.base = NULL;
    }
}

static void harvest_group(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t group)
{
    uint64_t first = group * GROUP_WORDS;
    uint64_t words[GROUP_WORDS];
    size_t n;

    if (group >= groups_of(kvmd, slot)) {
        return;                 /* no KVM that is right says so */
    }
    n = MIN(GROUP_WORDS, kvmd_words(kvmd_slot_pages(kvmd, slot)) - first);
    for (size_t i = 0; i < n; i++) {
        words[i] = bitmap_take(&slot->map.bitmap[first + i]);
    }
    kvmd_protect_found(kvmd, slot, first * KVMD_WORD_PAGES, words, n);
}

/* By whole words of the summary. */
int kvmd_shared_harvest(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                        uint64_t pages)
{
    uint64_t last = (first + pages - 1) / KVM_DIRTY_SUMMARY_PAGES;
    size_t i = first / KVM_DIRTY_SUMMARY_PAGES / KVMD_WORD_PAGES;

    if (!slot->map.base) {
        return slot->gone ? 0 :
            kvmd_wrprot_harvest(kvmd, slot, first, pages);
    }
    for (; i <= last / KVMD_WORD_PAGES; i++) {
        uint64_t bits = GUINT64_FROM_LE(bitmap_take(&slot->map.summary[i]));

        for (; bits; bits &= bits - 1) {
            harvest_group(kvmd, slot,
                          i * KVMD_WORD_PAGES + __builtin_ctzll(bits));
        }
    }
    return 0;
}

const KvmDirtyOps kvmd_shared_ops = {
    .enable = shared_enable,
    .slot_start = kvmd_protect_slot_start,
    .slot_started = kvmd_shared_slot_started,
    .slot_stop = kvmd_shared_slot_stop,
    .harvest = kvmd_shared_harvest,
    .sync_slot = kvmd_protect_sync_slot,
    .sync_all = kvmd_protect_sync_all,
    .clear = kvmd_protect_clear,
    .outlives_slot = true,
};
