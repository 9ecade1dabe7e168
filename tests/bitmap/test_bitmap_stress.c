/*
 * Threads that write pages and set their bits, against one that harvests.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A page is a number that its writers count up.  The harvest copies each page
 * that it finds, and at the end every copy has to equal the page.
 * ThreadSanitizer checks the accesses, this test their results.
 */

#include "qemu/osdep.h"
#include "exec/page-bitmap.h"

#define PAGES (3 * PAGE_GROUP + 70)
#define SIZE (4 * PAGE_GROUP)
#define SETTERS 3
#define WRITES 400000

void (*atomic_step)(void);

static unsigned long *block;
static unsigned contents[PAGES];
static unsigned copies[PAGES];
static unsigned running;

static void *setter(void *seed)
{
    GRand *rand = g_rand_new_with_seed(GPOINTER_TO_UINT(seed));

    for (unsigned i = 0; i < WRITES; i++) {
        unsigned long page = g_rand_int_range(rand, 0, PAGES);

        __atomic_add_fetch(&contents[page], 1, __ATOMIC_RELAXED);
        qatomic_or(&block[BIT_WORD(page)], BIT_MASK(page));
        page_block_mark(block, SIZE, page, 1);
    }
    g_rand_free(rand);
    __atomic_sub_fetch(&running, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void harvest_range(PageBitmap *dest, unsigned long first,
                          unsigned long end)
{
    PageHarvest range = {
        .block = block,
        .size = SIZE,
        .first = first,
        .end = end,
        .dest = dest,
        .dest_first = first,
    };

    page_bitmap_harvest(&range);
}

/* The whole block, or the ranges of two RAMBlocks that share a group. */
static void harvest(PageBitmap *dest, bool parts)
{
    const unsigned long border = PAGE_GROUP + 128;

    if (parts) {
        harvest_range(dest, 0, border);
        harvest_range(dest, border, SIZE);
    } else {
        harvest_range(dest, 0, SIZE);
    }
}

static void copy(PageBitmap *dest)
{
    unsigned long page = 0;

    while ((page = page_bitmap_next(dest, PAGES, page)) < PAGES) {
        page_bitmap_test_and_clear(dest, page);
        copies[page] = __atomic_load_n(&contents[page], __ATOMIC_RELAXED);
    }
}

static void stress(bool parts)
{
    PageBitmap *dest = page_bitmap_new(SIZE);
    GThread *threads[SETTERS];

    block = page_block_new(SIZE);
    running = SETTERS;
    for (unsigned i = 0; i < SETTERS; i++) {
        threads[i] = g_thread_new("setter", setter, GUINT_TO_POINTER(i + 1));
    }
    while (__atomic_load_n(&running, __ATOMIC_ACQUIRE)) {
        harvest(dest, parts);
        copy(dest);
    }
    for (unsigned i = 0; i < SETTERS; i++) {
        g_thread_join(threads[i]);
    }
    harvest(dest, parts);
    copy(dest);
    g_assert_cmpmem(copies, sizeof(copies), contents, sizeof(contents));
    page_bitmap_free(dest);
    g_free(block);
}

static void test_whole(void)
{
    stress(false);
}

static void test_parts(void)
{
    stress(true);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/bitmap_stress/whole", test_whole);
    g_test_add_func("/bitmap_stress/parts", test_parts);
    return g_test_run();
}
