/*
 * Threads that write pages and set their bits, against one that harvests.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A page is a number that its writers count up.  Whoever harvests a page
 * copies it; at the end every copy has to be the page.  ThreadSanitizer looks
 * at the accesses, this at what becomes of them.
 */

#include "qemu/osdep.h"
#include "exec/page-bitmap.h"

#define PAGES (3 * PAGE_GROUP + 70)
#define GROUPS DIV_ROUND_UP(PAGES, PAGE_GROUP)
#define SETTERS 3
#define WRITES 400000

void (*atomic_step)(void);

static unsigned long words[PAGES / PAGE_GROUP * PAGE_GROUP_WORDS +
                           PAGE_GROUP_WORDS];
static unsigned long summary[DIV_ROUND_UP(GROUPS, BITS_PER_LONG)];
static unsigned contents[PAGES];
static unsigned copies[PAGES];
static unsigned running;

static void *setter(void *seed)
{
    GRand *rand = g_rand_new_with_seed(GPOINTER_TO_UINT(seed));

    for (unsigned i = 0; i < WRITES; i++) {
        unsigned long page = g_rand_int_range(rand, 0, PAGES);

        __atomic_add_fetch(&contents[page], 1, __ATOMIC_RELAXED);
        qatomic_or(&words[BIT_WORD(page)], BIT_MASK(page));
        page_summary_mark(summary, page / PAGE_GROUP);
    }
    g_rand_free(rand);
    __atomic_sub_fetch(&running, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Each RAMBlock has a range of its own; two of them share a group. */
static void harvest(PageBitmap *dest)
{
    const unsigned long border = PAGE_GROUP + 128;

    page_bitmap_harvest(dest, 0, words, summary, 0, border);
    page_bitmap_harvest(dest, border, words, summary, border, PAGES - border);
}

static void copy(PageBitmap *dest)
{
    unsigned long page = 0;

    while ((page = page_bitmap_next(dest, PAGES, page)) < PAGES) {
        page_bitmap_test_and_clear(dest, page);
        copies[page] = __atomic_load_n(&contents[page], __ATOMIC_RELAXED);
    }
}

static void test_stress(void)
{
    PageBitmap *dest = page_bitmap_new(PAGES);
    GThread *threads[SETTERS];

    running = SETTERS;
    for (unsigned i = 0; i < SETTERS; i++) {
        threads[i] = g_thread_new("setter", setter, GUINT_TO_POINTER(i + 1));
    }
    while (__atomic_load_n(&running, __ATOMIC_ACQUIRE)) {
        harvest(dest);
        copy(dest);
    }
    for (unsigned i = 0; i < SETTERS; i++) {
        g_thread_join(threads[i]);
    }
    harvest(dest);
    copy(dest);
    g_assert_cmpmem(copies, sizeof(copies), contents, sizeof(contents));
    page_bitmap_free(dest);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/bitmap_stress/stress", test_stress);
    return g_test_run();
}
