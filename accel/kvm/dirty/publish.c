/*
 * Publishing: pages are handed to the VMM.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "ground.h"

#define CHUNK_WORDS 512

void kvmd_publish(KvmDirty *kvmd, const KvmDirtySlot *slot, uint64_t first,
                  const uint64_t *words, size_t n)
{
    kvmd->vmm.publish(kvmd->opaque, slot->tag, first, words, n);
}

/*
 * Of @n words of the bitmap of @slot, from page @first on, clear what is
 * behind its end: no KVM that is right sets it.
 */
static void publish_trim(const KvmDirty *kvmd, const KvmDirtySlot *slot,
                         uint64_t first, uint64_t *words, size_t n)
{
    uint64_t pages = kvmd_slot_pages(kvmd, slot) - first;

    if (n && pages < n * KVMD_WORD_PAGES) {
        words[n - 1] &= GUINT64_TO_LE(
            ~(~UINT64_C(0) << pages % KVMD_WORD_PAGES));
    }
}

void kvmd_publish_found(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                        uint64_t *words, size_t n)
{
    uint64_t pages;
    int64_t start;

    publish_trim(kvmd, slot, first, words, n);
    pages = kvmd_count_pages(words, n);
    if (!pages) {
        return;
    }
    start = kvmd_now();
    kvmd_publish(kvmd, slot, first, words, n);
    kvmd->stats.publish_ns += kvmd_now() - start;
    kvmd->stats.pages += pages;
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
