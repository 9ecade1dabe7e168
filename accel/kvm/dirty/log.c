/*
 * The mechanism "log": a bitmap per slot, which KVM copies out.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * With KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, KVM_GET_DIRTY_LOG only copies the
 * bitmap, and KVM_CLEAR_DIRTY_LOG re-arms pages just before they are read,
 * chunk by chunk.  A harvest is then published before its re-arm, and the
 * reader calls kvmd_slot_clear() first (I3).  Without the capability,
 * KVM_GET_DIRTY_LOG re-arms the pages itself.
 */

#include "mechanism.h"

typedef struct LogVm {
    bool manual_protect;        /* re-armed by KVM_CLEAR_DIRTY_LOG */
} LogVm;

typedef struct LogSlot {
    /*
     * Pages that were harvested and not yet re-armed.  As long as no bit is
     * set here that was not published, KVM_CLEAR_DIRTY_LOG cannot lose a page.
     */
    uint64_t *harvested;
    /* How many these are: the next harvest finds them again. */
    uint64_t unarmed;
} LogSlot;

static void log_begin(KvmDirty *kvmd)
{
    int caps = kvmd_check_extension(kvmd, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2);
    LogVm *vm = g_new0(LogVm, 1);

    kvmd->state = vm;
    caps &= KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE | KVM_DIRTY_LOG_INITIALLY_SET;
    if (caps & KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE) {
        vm->manual_protect =
            kvmd_enable_cap(kvmd, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
                            caps) == 0;
    }
}

static bool log_leaves_unarmed(const KvmDirty *kvmd)
{
    const LogVm *vm = kvmd->state;

    return vm->manual_protect;
}

static void log_end(KvmDirty *kvmd)
{
    if (log_leaves_unarmed(kvmd)) {
        kvmd_enable_cap(kvmd, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, 0);
    }
    g_clear_pointer(&kvmd->state, g_free);
}

static void log_slot_start(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    LogSlot *log = g_new0(LogSlot, 1);

    log->harvested = g_new0(uint64_t, kvmd_words(kvmd_slot_pages(kvmd, slot)));
    slot->state = log;
}

static void log_slot_stop(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    LogSlot *log = slot->state;

    (void)kvmd;
    g_free(log->harvested);
    g_clear_pointer(&slot->state, g_free);
}

/* @found pages were counted, of which the harvest before has some already. */
static void log_count_once(KvmDirty *kvmd, LogSlot *log, uint64_t found)
{
    kvmd->stats.pages -= MIN(log->unarmed, found);
    log->unarmed = log_leaves_unarmed(kvmd) ? found : 0;
}

/* KVM copies the bitmap of a whole slot, never a part of it. */
static int log_harvest(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                       uint64_t pages)
{
    LogSlot *state = slot->state;
    struct kvm_dirty_log log = {
        .slot = slot->region.slot,
        .dirty_bitmap = state->harvested,
    };
    int ret = kvmd_vm_ioctl(kvmd, KVM_GET_DIRTY_LOG, &log);
    uint64_t before = kvmd->stats.pages;

    (void)first, (void)pages;
    if (ret < 0) {
        return ret;
    }
    kvmd_publish_found(kvmd, slot, 0, state->harvested,
                       kvmd_words(kvmd_slot_pages(kvmd, slot)));
    log_count_once(kvmd, state, kvmd->stats.pages - before);
    return 0;
}

static int log_sync_slot(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    return kvmd_harvest_slot(kvmd, slot, log_harvest);
}

/* The bits [first, first + pages) of @word, which begins with page @base. */
static uint64_t log_word_mask(uint64_t base, uint64_t first, uint64_t pages)
{
    uint64_t mask = ~UINT64_C(0);

    if (base < first) {
        mask &= ~UINT64_C(0) << (first - base);
    }
    if (base + KVMD_WORD_PAGES > first + pages) {
        mask &= ~UINT64_C(0) >> (base + KVMD_WORD_PAGES - first - pages);
    }
    return GUINT64_TO_LE(mask);
}

/*
 * KVM takes a range of whole words, or one up to the slot's end.  Only pages
 * that were harvested may be cleared, and in the words at either end only
 * pages of the range: clearing any other bit loses a write.
 */
static int log_clear(KvmDirty *kvmd, KvmDirtySlot *slot,
                     uint64_t first, uint64_t pages)
{
    uint64_t w0 = first / KVMD_WORD_PAGES;
    size_t n = kvmd_words(first + pages) - w0;
    LogSlot *state = slot->state;
    g_autofree uint64_t *clear = NULL;
    struct kvm_clear_dirty_log log;
    uint64_t cleared;
    int64_t start;
    int ret;

    clear = g_new(uint64_t, n);
    for (size_t i = 0; i < n; i++) {
        clear[i] = state->harvested[w0 + i] &
            log_word_mask((w0 + i) * KVMD_WORD_PAGES, first, pages);
    }
    cleared = kvmd_count_pages(clear, n);
    if (!cleared) {
        return 0;
    }
    log = (struct kvm_clear_dirty_log) {
        .slot = slot->region.slot,
        .first_page = w0 * KVMD_WORD_PAGES,
        .num_pages = MIN(n * KVMD_WORD_PAGES,
                         kvmd_slot_pages(kvmd, slot) - w0 * KVMD_WORD_PAGES),
        .dirty_bitmap = clear,
    };
    start = kvmd_now();
    ret = kvmd_vm_ioctl(kvmd, KVM_CLEAR_DIRTY_LOG, &log);
    kvmd->stats.rearm_ns += kvmd_now() - start;
    if (ret < 0) {
        return ret;
    }
    for (size_t i = 0; i < n; i++) {
        state->harvested[w0 + i] &= ~clear[i];
    }
    state->unarmed -= MIN(cleared, state->unarmed);
    return 0;
}

const KvmDirtyOps kvmd_log_ops = {
    .name = "log",
    .begin = log_begin,
    .end = log_end,
    .slot_start = log_slot_start,
    .slot_stop = log_slot_stop,
    .sync_slot = log_sync_slot,
    .clear = log_clear,
    .clears = log_leaves_unarmed,
    .may_not_fault = true,
    .sees_dirty_bits = true,
};
