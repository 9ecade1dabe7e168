/*
 * Pages that were harvested and not yet published.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Between a harvest and its publication lies the re-arm (I2, I3), so that the
 * pages have to be kept meanwhile.  They are kept as runs of words that
 * follow each other in a slot's bitmap and are not zero.
 */

#include "engine.h"

typedef struct Run {
    const KvmDirtySlot *slot;
    uint64_t first;             /* its first word in the slot's bitmap */
    size_t start;               /* and in the batch's words */
    size_t n;
} Run;

struct KvmDirtyBatch {
    GArray *runs;               /* Run */
    GArray *words;              /* uint64_t, little-endian as KVM's */
};

KvmDirtyBatch *kvmd_batch_new(void)
{
    KvmDirtyBatch *batch = g_new(KvmDirtyBatch, 1);

    batch->runs = g_array_new(FALSE, FALSE, sizeof(Run));
    batch->words = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    return batch;
}

void kvmd_batch_free(KvmDirtyBatch *batch)
{
    g_array_unref(batch->runs);
    g_array_unref(batch->words);
    g_free(batch);
}

bool kvmd_batch_empty(const KvmDirtyBatch *batch)
{
    return batch->runs->len == 0;
}

static Run *last_run(const KvmDirtyBatch *batch)
{
    return batch->runs->len ?
        &g_array_index(batch->runs, Run, batch->runs->len - 1) : NULL;
}

void kvmd_batch_add(KvmDirtyBatch *batch, const KvmDirtySlot *slot,
                    uint64_t index, uint64_t word)
{
    Run *last = last_run(batch);

    if (!word) {
        return;
    }
    if (last && last->slot == slot && last->first + last->n == index) {
        last->n++;
    } else {
        Run run = { slot, index, batch->words->len, 1 };

        g_array_append_val(batch->runs, run);
    }
    g_array_append_val(batch->words, word);
}

void kvmd_batch_publish(KvmDirty *kvmd, const KvmDirtyBatch *batch)
{
    const uint64_t *words = (const uint64_t *)batch->words->data;

    for (guint i = 0; i < batch->runs->len; i++) {
        const Run *run = &g_array_index(batch->runs, Run, i);

        kvmd_publish(kvmd, run->slot, run->first * KVMD_WORD_PAGES,
                     words + run->start, run->n);
    }
    if (!kvmd_batch_empty(batch)) {
        kvmd->stats.harvests++;
        kvmd->stats.pages += kvmd_count_pages(words, batch->words->len);
    }
}
