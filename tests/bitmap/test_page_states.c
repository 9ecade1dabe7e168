/*
 * All that a PageBitmap's functions say of a group agrees, whatever its state.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * If one of them takes a page for set, and so does not set it, the others have
 * to find it.  The states are forged, the one that never occurs included.
 */

#include "page-bitmap.c"

#define GROUPS 3
#define PAGES ((GROUPS - 1) * PAGE_GROUP + 70)
#define STATES (1UL << STATE_BITS)

void (*atomic_step)(void);

static PageBitmap *forged(unsigned long states)
{
    PageBitmap *map = page_bitmap_new(PAGES);

    bitmap_zero(map->words, GROUPS * PAGE_GROUP);
    for (unsigned long page = 0; page < PAGES; page += 1 + page % 5) {
        set_bit(page, map->words);
    }
    map->states[0] = states;
    return map;
}

/* Returns: the answer for one page, which is then set, found and cleared. */
static bool check_page(PageBitmap *map, unsigned long page)
{
    bool is = page_bitmap_test(map, page);

    g_assert_cmpuint(page_bitmap_next(map, page + 1, page), ==,
                     is ? page : page + 1);
    g_assert_cmpuint(page_bitmap_next_zero(map, page + 1, page), ==,
                     is ? page + 1 : page);
    g_assert_cmpuint(page_bitmap_count(map, page, 1), ==, is);
    g_assert_cmpint(page_bitmap_test_and_set(map, page), ==, is);
    g_assert_cmpuint(page_bitmap_next(map, PAGES, page), ==, page);
    g_assert_true(page_bitmap_test_and_clear(map, page));
    g_assert_false(page_bitmap_test(map, page));
    return is;
}

static unsigned long count_by_page(const PageBitmap *map)
{
    unsigned long count = 0;

    for (unsigned long page = 0; page < PAGES; page++) {
        count += page_bitmap_test(map, page);
    }
    return count;
}

static unsigned long count_by_search(const PageBitmap *map)
{
    unsigned long count = 0, page = 0;

    while ((page = page_bitmap_next(map, PAGES, page)) < PAGES) {
        unsigned long end = page_bitmap_next_zero(map, PAGES, page);

        count += end - page;
        page = end;
    }
    return count;
}

static void test_agree(void)
{
    for (unsigned long states = 0; states < 1UL << GROUPS * STATE_BITS;
         states++) {
        PageBitmap *map = forged(states);
        unsigned long count = count_by_page(map);

        g_assert_cmpuint(count_by_search(map), ==, count);
        g_assert_cmpuint(page_bitmap_count(map, 0, PAGES), ==, count);
        for (unsigned long page = 0; page < PAGES; page++) {
            if (page % PAGE_GROUP == 0) {
                g_assert_cmpuint(count_by_search(map), ==, count);
            }
            count -= check_page(map, page);
        }
        g_assert_cmpuint(count, ==, 0);
        g_assert_cmpuint(count_by_search(map), ==, 0);
        page_bitmap_free(map);

        map = forged(states);
        count = count_by_page(map);
        g_assert_cmpuint(page_bitmap_clear(map, 0, PAGES), ==, count);
        g_assert_cmpuint(count_by_page(map), ==, 0);
        g_assert_cmpuint(count_by_search(map), ==, 0);
        page_bitmap_free(map);
    }
}

/* Only one state has no page: in a wrong state, pages are sent once more. */
static void test_dirty_by_default(void)
{
    for (unsigned long state = 0; state < STATES; state++) {
        PageBitmap *map = forged(state);

        g_assert_cmpint(page_bitmap_count(map, 0, PAGE_GROUP) > 0, ==,
                        state != EMPTY);
        g_assert_cmpint(page_bitmap_next(map, PAGES, 0) == 0, ==,
                        state != EMPTY);
        page_bitmap_free(map);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/page_states/agree", test_agree);
    g_test_add_func("/page_states/dirty-by-default", test_dirty_by_default);
    return g_test_run();
}
