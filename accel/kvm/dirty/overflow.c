/*
 * What is done when a dirty ring has overflowed (I8).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Which entries were overwritten cannot be known: any logged page may have
 * been written, and any harvested one may not have been re-armed.  So all of
 * them are re-armed, by KVM_WRITE_PROTECT_ALL_MEM or else by taking the log
 * flag from each slot and giving it back, which makes KVM write-protect the
 * whole slot; and then, in this order (I3), all of them are published.
 */

#include "engine.h"

#define CHUNK_WORDS 512

static int log_flag_toggle(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    int ret;

    if (slot->gone) {
        return 0;
    }
    ret = kvmd_slot_log_flag(kvmd, slot, false);
    return ret < 0 ? ret : kvmd_slot_log_flag(kvmd, slot, true);
}

static int rearm_everything(KvmDirty *kvmd)
{
    return kvmd->can_protect ? kvmd_protect_all(kvmd) :
        kvmd_slots_foreach_logged(kvmd, log_flag_toggle);
}

/* publish() takes whole words: a few pages before @first may come with them. */
void kvmd_publish_range(KvmDirty *kvmd, const KvmDirtySlot *slot,
                        uint64_t first, uint64_t pages)
{
    uint64_t end = first + pages;
    uint64_t ones[CHUNK_WORDS];

    for (size_t i = 0; i < CHUNK_WORDS; i++) {
        ones[i] = ~UINT64_C(0);
    }
    kvmd->guesses++;
    first -= first % KVMD_WORD_PAGES;
    while (first < end) {
        uint64_t n = MIN(end - first, CHUNK_WORDS * KVMD_WORD_PAGES);
        uint64_t tail = n % KVMD_WORD_PAGES;

        if (tail) {
            ones[n / KVMD_WORD_PAGES] =
                GUINT64_TO_LE((UINT64_C(1) << tail) - 1);
        }
        kvmd_publish(kvmd, slot, first, ones, kvmd_words(n));
        first += n;
    }
}

int kvmd_publish_whole(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    kvmd_publish_range(kvmd, slot, 0, kvmd_slot_pages(kvmd, slot));
    return 0;
}

void kvmd_overflow(KvmDirty *kvmd)
{
    int64_t start = kvmd_now(), armed;
    int ret;

    if (!kvmd->stats.overflows) {
        kvmd_warn(kvmd, "a dirty ring overflowed or could not be reset, so "
                  "that all memory is taken as dirty: a larger "
                  "dirty-ring-size makes overflows rarer");
    }
    ret = rearm_everything(kvmd);
    armed = kvmd_now();
    kvmd->stats.rearm_ns += armed - start;
    if (ret < 0 && !kvmd->rearm_failed) {
        kvmd_warn(kvmd, "write-protecting all memory after a dirty ring "
                  "overflowed failed (%s): all pages stay dirty",
                  g_strerror(-ret));
    }
    kvmd->rearm_failed = ret < 0;
    kvmd_slots_foreach_logged(kvmd, kvmd_publish_whole);
    kvmd->stats.publish_ns += kvmd_now() - armed;
    kvmd->stats.overflows++;
    if (kvmd->vmm.overflowed) {
        kvmd->vmm.overflowed(kvmd->opaque);
    }
}
