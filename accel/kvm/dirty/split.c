/*
 * Splitting huge pages ahead of the guest's writes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * When a guest writes to a huge page of a logged slot for the first time, its
 * vCPU waits until KVM has split the page.  A thread of the VMM splits huge
 * pages before that, a chunk at a time, so that no other thread waits for long
 * and the splitting can end after any chunk.  KVM itself is told to split no
 * page when logging begins; otherwise logging would not begin in O(1).
 *
 * Splitting a page that the guest never writes is a waste.  KVMD_SPLIT_AUTO
 * therefore works ahead only of a guest that causes splits: the thread counts
 * the huge pages that disappear during a short time in which it splits none,
 * and then splits AHEAD times as much.  An idle guest keeps its huge pages;
 * the thread soon overtakes a guest that writes all over its memory.
 */

#include "mechanism.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/kvm_dirty_tracking.h>

#define SIZE_2M (UINT64_C(1) << 21)
#define PAGES_2M_IN_1G 512

/* How long the thread watches the guest. */
#define WATCH (10 * G_TIME_SPAN_MILLISECOND)

/*
 * Split 8 MiB for each page of 2 MiB that the guest's writes have split.  A
 * guest that writes all over its memory falls five times further behind with
 * each look.
 */
#define AHEAD 4

bool kvmd_split_set(KvmDirty *kvmd, KvmDirtySplit split, uint64_t size,
                    GError **error)
{
    struct kvm_enable_cap cap = {
        .cap = KVM_CAP_EAGER_PAGE_SPLIT,
        .args = { KVM_EAGER_PAGE_SPLIT_OFF, size },
    };
    int ret = -ENOTTY;

    if (!size || size % KVMD_SPLIT_UNIT) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_CONFIG,
                    "dirty-eager-split-chunk=%" PRIu64 " is not allowed: it "
                    "is a multiple of 2 MiB, and not 0", size);
        return false;
    }
    if (kvmd_check_extension(kvmd, KVM_CAP_EAGER_PAGE_SPLIT)) {
        ret = kvmd_vm_ioctl(kvmd, KVM_ENABLE_CAP, &cap);
    }
    if (ret < 0 && split != KVMD_SPLIT_AUTO) {
        g_set_error(error, KVMD_ERROR,
                    ret == -ENOTTY ? KVMD_ERROR_HOST : KVMD_ERROR_REFUSED,
                    "dirty-eager-split=%s is not possible: this host's KVM "
                    "%s KVM_CAP_EAGER_PAGE_SPLIT",
                    split == KVMD_SPLIT_ON ? "on" : "off",
                    ret == -ENOTTY ? "lacks" : "refuses");
        return false;
    }
    kvmd->split = ret < 0 ? KVMD_SPLIT_OFF : split;
    return true;
}

KvmDirtySplit kvmd_split(const KvmDirty *kvmd)
{
    return kvmd->split;
}

/*
 * KVM splits what all address spaces have at these addresses.  That of system
 * management mode is the first one once more, but for memory that only this
 * mode sees (TSEG), and hardly writes.
 */
static int split_add_range(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    struct kvm_split_huge_pages range = {
        .gpa = slot->region.guest_phys_addr,
        .size = slot->region.memory_size,
    };

    if (kvmd_slot_space(slot) != 0) {
        return 0;
    }
    g_array_append_val(kvmd->split_ranges, range);
    kvmd->stats.split_total += range.size;
    return 0;
}

/*
 * A slot may be removed during the splitting: KVM skips addresses without
 * memory.  Faults split the huge pages of a slot that is added.
 */
bool kvmd_split_begin(KvmDirty *kvmd)
{
    bool active;

    if (kvmd->split == KVMD_SPLIT_OFF) {
        return false;
    }
    g_mutex_lock(&kvmd->lock);
    g_clear_pointer(&kvmd->split_ranges, g_array_unref);
    kvmd->split_ranges = g_array_new(FALSE, FALSE,
                                     sizeof(struct kvm_split_huge_pages));
    kvmd->stats.split_done = kvmd->stats.split_total = 0;
    kvmd_slots_foreach_logged(kvmd, split_add_range);
    active = kvmd->stats.split_active = kvmd->stats.split_total > 0;
    g_mutex_unlock(&kvmd->lock);
    return active;
}

/* Split one chunk of @range, and leave the rest of the range in @range. */
static void split_chunk(KvmDirty *kvmd, struct kvm_split_huge_pages *range)
{
    uint64_t size = range->size;
    int64_t start, taken;
    int ret;

    g_mutex_unlock(&kvmd->lock);
    start = kvmd_now();
    ret = kvmd_vm_ioctl(kvmd, KVM_SPLIT_HUGE_PAGES, range);
    taken = kvmd_now() - start;
    g_mutex_lock(&kvmd->lock);
    if (ret >= 0 && range->size >= size) {
        ret = -EPROTO;          /* KVM did nothing, and never would */
    }
    if (ret < 0) {
        kvmd_warn(kvmd, "splitting huge pages ahead failed (%s): they are "
                  "split when they are written", g_strerror(-ret));
        kvmd->stats.split_active = false;
        return;
    }
    kvmd->stats.split_ns += taken;
    kvmd->stats.split_done += size - range->size;
}

/* Returns: how much memory huge pages map, in pages of 2 MiB. */
static uint64_t split_huge_pages(const KvmDirty *kvmd)
{
    uint64_t of_2m = 0, of_1g = 0;

    kvmd_kvm_stat(kvmd->kvm_stats, "pages_2m", &of_2m);
    kvmd_kvm_stat(kvmd->kvm_stats, "pages_1g", &of_1g);
    return of_2m + of_1g * PAGES_2M_IN_1G;
}

/*
 * Watch the guest until its own writes split pages.  Returns: how many bytes
 * to split ahead of it; 0 if no huge page is left, or after kvmd_split_stop().
 */
static uint64_t split_watch(KvmDirty *kvmd)
{
    uint64_t before = split_huge_pages(kvmd);

    while (kvmd->stats.split_active) {
        int64_t until = g_get_monotonic_time() + WATCH;
        uint64_t after;

        while (kvmd->stats.split_active &&
               g_cond_wait_until(&kvmd->split_wake, &kvmd->lock, until)) {
            continue;
        }
        after = split_huge_pages(kvmd);
        if (after < before) {
            return (before - after) * AHEAD * SIZE_2M;
        }
        if (!after) {
            break;
        }
        before = after;
    }
    return 0;
}

/* Split all ranges; with @wait, only as far ahead as split_watch() says. */
static void split_ranges(KvmDirty *kvmd, bool wait)
{
    uint64_t left = wait ? 0 : UINT64_MAX;

    for (guint i = 0; i < kvmd->split_ranges->len; i++) {
        struct kvm_split_huge_pages *range =
            &g_array_index(kvmd->split_ranges, struct kvm_split_huge_pages, i);

        while (range->size && kvmd->stats.split_active) {
            uint64_t done = kvmd->stats.split_done;

            left = left ? left : split_watch(kvmd);
            if (!left) {
                return;
            }
            split_chunk(kvmd, range);
            left -= MIN(left, kvmd->stats.split_done - done);
        }
    }
}

void kvmd_split_run(KvmDirty *kvmd)
{
    g_mutex_lock(&kvmd->lock);
    if (kvmd->split == KVMD_SPLIT_ON || kvmd->kvm_stats) {
        split_ranges(kvmd, kvmd->split == KVMD_SPLIT_AUTO);
    }
    kvmd->stats.split_active = false;
    g_mutex_unlock(&kvmd->lock);
}

void kvmd_split_stop(KvmDirty *kvmd)
{
    g_mutex_lock(&kvmd->lock);
    kvmd->stats.split_active = false;
    g_cond_signal(&kvmd->split_wake);
    g_mutex_unlock(&kvmd->lock);
}
