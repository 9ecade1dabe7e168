/*
 * Page bitmaps against an array of bool, and harvests with something in
 * between.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "exec/page-bitmap.h"

void (*atomic_step)(void);

/* Ends within a word, a group and a word of the summary, and at each. */
static const unsigned long sizes[] = {
    1, 63, 64, 65, 448, 511, 512, 513, 576, 1024, 1500, 5000,
    64 * 512, 64 * 512 + 7, 65 * 512 - 1, 130 * 512 + 100,
};

static unsigned long any(unsigned long n)
{
    return (unsigned long)g_test_rand_int() % n;
}

/* The model */

typedef struct Model {
    unsigned long pages;
    bool *set;
    PageBitmap *map;
} Model;

static Model model_new(unsigned long pages)
{
    Model m = { pages, g_new0(bool, pages), page_bitmap_new(pages) };

    return m;
}

static void model_free(Model *m)
{
    page_bitmap_free(m->map);
    g_free(m->set);
}

static void model_fill(Model *m, unsigned long first, unsigned long pages,
                       bool value)
{
    memset(m->set + first, value, pages * sizeof(bool));
}

static unsigned long model_count(const Model *m, unsigned long first,
                                 unsigned long pages)
{
    unsigned long count = 0;

    for (unsigned long page = first; page < first + pages; page++) {
        count += m->set[page];
    }
    return count;
}

static unsigned long model_next(const Model *m, unsigned long end,
                                unsigned long start, bool value)
{
    while (start < end && m->set[start] != value) {
        start++;
    }
    return MIN(start, end);
}

static void model_check(const Model *m)
{
    for (unsigned long page = 0; page < m->pages; page++) {
        g_assert_cmpint(page_bitmap_test(m->map, page), ==, m->set[page]);
    }
    g_assert_cmpuint(page_bitmap_count(m->map, 0, m->pages), ==,
                     model_count(m, 0, m->pages));
}

/* What @m has and @other has not, from some word on. */
static void model_check_only(const Model *m, const Model *other)
{
    unsigned long first = any(m->pages) / BITS_PER_LONG * BITS_PER_LONG;
    unsigned long pages = any(m->pages - first + 1), count = 0;

    for (unsigned long page = first; page < first + pages; page++) {
        count += m->set[page] && !other->set[page];
    }
    g_assert_cmpuint(page_bitmap_count_only(m->map, other->map, first, pages),
                     ==, count);
}

/* Searches from @start, with an end that is often not the last page. */
static void model_check_next(const Model *m, unsigned long start)
{
    unsigned long end = any(2) ? m->pages : any(m->pages + 1);

    g_assert_cmpuint(page_bitmap_next(m->map, end, start), ==,
                     model_next(m, end, MIN(start, end), true));
    g_assert_cmpuint(page_bitmap_next_zero(m->map, end, start), ==,
                     model_next(m, end, MIN(start, end), false));
}

/* One thing at a time */

static void test_all(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        Model m = model_new(sizes[i]);

        model_check(&m);
        page_bitmap_set_all(m.map);
        model_fill(&m, 0, m.pages, true);
        model_check(&m);
        page_bitmap_clear_all(m.map);
        model_fill(&m, 0, m.pages, false);
        model_check(&m);
        model_free(&m);
    }
}

/* A page that leaves a full group takes no other with it. */
static void test_leave_full(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        Model m = model_new(sizes[i]);
        unsigned long page = any(m.pages);

        page_bitmap_set_all(m.map);
        model_fill(&m, 0, m.pages, true);
        g_assert_true(page_bitmap_test_and_clear(m.map, page));
        g_assert_false(page_bitmap_test_and_clear(m.map, page));
        m.set[page] = false;
        model_check(&m);
        model_free(&m);
    }
}

/* Clear as a migration does: no page is left, and none found. */
static void test_drain(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        PageBitmap *map = page_bitmap_new(sizes[i]);
        unsigned long page, n = 0;

        page_bitmap_set_all(map);
        for (page = page_bitmap_next(map, sizes[i], 0); page < sizes[i];
             page = page_bitmap_next(map, sizes[i], page)) {
            g_assert_cmpuint(page, ==, n++);
            g_assert_true(page_bitmap_test_and_clear(map, page));
        }
        g_assert_cmpuint(n, ==, sizes[i]);
        g_assert_cmpuint(page_bitmap_next(map, sizes[i], 0), ==, sizes[i]);
        g_assert_cmpuint(page_bitmap_next_zero(map, sizes[i], 0), ==, 0);
        page_bitmap_free(map);
    }
}

/* A group's words forget what they had before they were full or empty. */
static void test_old_words(void)
{
    PageBitmap *map = page_bitmap_new(2 * PAGE_GROUP);

    page_bitmap_test_and_set(map, 7);
    page_bitmap_clear_all(map);
    page_bitmap_test_and_set(map, 8);
    g_assert_false(page_bitmap_test(map, 7));
    page_bitmap_set_all(map);
    page_bitmap_test_and_clear(map, 9);
    g_assert_true(page_bitmap_test(map, 7));
    g_assert_cmpuint(page_bitmap_clear(map, 0, PAGE_GROUP), ==,
                     PAGE_GROUP - 1);
    page_bitmap_test_and_set(map, 10);
    g_assert_cmpuint(page_bitmap_count(map, 0, PAGE_GROUP), ==, 1);
    page_bitmap_free(map);
}

/* Everything, in any order */

static void step_one(Model *m)
{
    unsigned long page = any(m->pages);
    bool was = m->set[page];

    if (any(2)) {
        g_assert_cmpint(page_bitmap_test_and_set(m->map, page), ==, was);
        m->set[page] = true;
    } else {
        g_assert_cmpint(page_bitmap_test_and_clear(m->map, page), ==, was);
        m->set[page] = false;
    }
}

static void step_clear(Model *m)
{
    unsigned long first = any(m->pages);
    unsigned long pages = any(m->pages - first + 1);

    if (any(2)) {       /* whole groups */
        first -= first % PAGE_GROUP;
        pages = MIN(pages - pages % PAGE_GROUP + PAGE_GROUP, m->pages - first);
    }
    g_assert_cmpuint(page_bitmap_count(m->map, first, pages), ==,
                     model_count(m, first, pages));
    g_assert_cmpuint(page_bitmap_clear(m->map, first, pages), ==,
                     model_count(m, first, pages));
    model_fill(m, first, pages, false);
}

static void step_all(Model *m)
{
    bool value = any(2);

    if (value) {
        page_bitmap_set_all(m->map);
    } else {
        page_bitmap_clear_all(m->map);
    }
    model_fill(m, 0, m->pages, value);
}

static void step_assign(Model *m)
{
    unsigned long pages = any(m->pages + 1);
    unsigned long *bits = bitmap_new(pages + BITS_PER_LONG);
    unsigned long dense = any(4);

    for (unsigned long page = 0; page < pages; page++) {
        bool received = dense ? any(PAGE_GROUP) : !any(PAGE_GROUP);

        m->set[page] = !received;
        if (received) {
            set_bit(page, bits);
        }
    }
    bits[BIT_WORD(pages)] |= pages % BITS_PER_LONG ?
                             ~BITMAP_LAST_WORD_MASK(pages) & any(G_MAXUINT) : 0;
    for (unsigned long i = 0; i < BITS_TO_LONGS(pages); i++) {
        bits[i] = GULONG_TO_LE(bits[i]);
    }
    page_bitmap_assign_complement_le(m->map, bits, pages);
    g_free(bits);
}

static void block_set(unsigned long *block, unsigned long size,
                      unsigned long page)
{
    set_bit(page, block);
    page_block_mark(block, size, page, 1);
}

/* Nobody would find a set page whose group or block is not marked. */
static void block_check(unsigned long *block, unsigned long size)
{
    for (unsigned long page = 0; page < size; page++) {
        if (test_bit(page, block)) {
            g_assert_true(test_bit(page / PAGE_GROUP,
                                   page_block_summary(block, size)));
            g_assert_true(test_bit(0, page_block_any(block, size)));
        }
    }
}

/* A harvest of a part, which begins at a word, of a bitmap in use. */
static void step_harvest(Model *m)
{
    bool all = !any(3);
    unsigned long size = (m->pages / PAGE_GROUP + 4) * PAGE_GROUP;
    unsigned long *block = page_block_new(size), *left = bitmap_new(size);
    unsigned long dest = any(m->pages) / BITS_PER_LONG * BITS_PER_LONG;
    unsigned long first = any(2 * PAGE_GROUP / BITS_PER_LONG) * BITS_PER_LONG;
    unsigned long pages = any(m->pages - dest + 1), n = 0;
    Model added = model_new(m->pages), found = model_new(m->pages);
    PageHarvest harvest;

    if (all) {
        dest = 0;
        pages = m->pages;
    }
    for (unsigned long i = any(2000); i; i--) {
        block_set(block, size, any(size));
    }
    memcpy(left, block, BITS_TO_LONGS(size) * sizeof(unsigned long));
    for (unsigned long page = 0; page < pages; page++) {
        if (test_and_clear_bit(first + page, left)) {
            found.set[dest + page] = true;
            added.set[dest + page] = !m->set[dest + page];
            n += added.set[dest + page];
            m->set[dest + page] = true;
        }
    }
    harvest = (PageHarvest) {
        .block = block,
        .size = size,
        .first = first,
        .end = first + pages,
        .dest = m->map,
        .dest_first = dest,
        .added = added.map,
        .found = found.map,
    };
    g_assert_cmpuint(page_bitmap_harvest(&harvest), ==, n);
    model_check(&added);
    model_check(&found);
    model_free(&added);
    model_free(&found);
    g_assert_cmpmem(block, BITS_TO_LONGS(size) * sizeof(unsigned long),
                    left, BITS_TO_LONGS(size) * sizeof(unsigned long));
    block_check(block, size);
    g_free(block);
    g_free(left);
}

static void test_random(void)
{
    void (*const steps[])(Model *) = {
        step_one, step_one, step_one, step_clear, step_harvest, step_assign,
        step_all,
    };

    for (int round = 0; round < 60; round++) {
        Model m = model_new(sizes[any(G_N_ELEMENTS(sizes))]);
        Model other = model_new(m.pages);

        for (int i = 0; i < 40; i++) {
            steps[any(G_N_ELEMENTS(steps))](&m);
            steps[any(G_N_ELEMENTS(steps))](&other);
            model_check_next(&m, any(m.pages));
            model_check_only(&m, &other);
            model_check_only(&other, &m);
            if (!any(8)) {
                model_check(&m);
            }
        }
        model_check(&m);
        model_free(&m);
        model_free(&other);
    }
}

/* Harvests that are not alone */

#define RACE_PAGES (3 * PAGE_GROUP)

static struct {
    unsigned long *block;
    PageBitmap *dest;
    unsigned long page;
    unsigned long border;       /* two harvests, before it and after it */
    int countdown;
} race;

static void race_begin(void)
{
    race.block = page_block_new(RACE_PAGES);
    race.dest = page_bitmap_new(RACE_PAGES);
}

static void race_end(void)
{
    g_free(race.block);
    page_bitmap_free(race.dest);
}

static void race_set_page(unsigned long page)
{
    qatomic_or(&race.block[BIT_WORD(page)], BIT_MASK(page));
    page_block_mark(race.block, RACE_PAGES, page, 1);
}

static void race_set(void)
{
    race_set_page(race.page);
}

static void race_harvest_part(unsigned long first, unsigned long end)
{
    PageHarvest range = {
        .block = race.block,
        .size = RACE_PAGES,
        .first = first,
        .end = end,
        .dest = race.dest,
        .dest_first = first,
    };

    page_bitmap_harvest(&range);
}

static void race_harvest(void)
{
    if (race.border) {
        race_harvest_part(0, race.border);
    }
    race_harvest_part(race.border, RACE_PAGES);
}

static void race_step_set(void)
{
    if (race.countdown-- == 0) {
        atomic_step = NULL;
        race_set();
    }
}

static void race_step_harvest(void)
{
    if (race.countdown-- == 0) {
        atomic_step = NULL;
        race_harvest();
    }
}

/*
 * Others run @step in the middle of @whole, before its atomic step @when.
 * Returns: false if @whole had no such step.
 */
static bool race_run(void (*whole)(void), void (*step)(void), int when)
{
    bool happened;

    race.countdown = when;
    atomic_step = step;
    whole();
    happened = !atomic_step;
    atomic_step = NULL;
    race_harvest();
    g_assert_true(!happened || page_bitmap_test(race.dest, race.page));
    page_bitmap_clear_all(race.dest);
    return happened;
}

static const unsigned long borders[] = { 0, 128, PAGE_GROUP };

static void each_race(void (*test)(void))
{
    race_begin();
    for (size_t i = 0; i < G_N_ELEMENTS(borders); i++) {
        race.border = borders[i];
        for (race.page = 5; race.page < RACE_PAGES; race.page += 100) {
            test();
        }
    }
    race_end();
}

/* The page is set at any time during a harvest that finds others, or none. */
static void set_in_harvest(void)
{
    for (unsigned long other = 0; other <= RACE_PAGES; other += 60) {
        int when = 0;

        do {
            if (other < RACE_PAGES) {
                race_set_page(other);
            }
        } while (race_run(race_harvest, race_step_set, when++));
    }
}

static void test_set_in_harvest(void)
{
    each_race(set_in_harvest);
}

/* A harvest comes in the middle of setting a page in a marked group. */
static void harvest_in_set(void)
{
    for (int marked = 0; marked < 3; marked++) {
        int when = 0;

        do {
            if (marked) {
                page_block_mark(race.block, RACE_PAGES,
                                (race.page + marked * PAGE_GROUP) % RACE_PAGES,
                                1);
            }
        } while (race_run(race_set, race_step_harvest, when++));
    }
}

static void test_harvest_in_set(void)
{
    each_race(harvest_in_set);
}

/* In the middle of setting a page, another is set, and then harvested. */
static void race_step_other(void)
{
    if (race.countdown-- == 0) {
        atomic_step = NULL;
        race_set_page(race.page ^ 1);
        race_harvest();
        g_assert_true(page_bitmap_test(race.dest, race.page ^ 1));
    }
}

static void other_in_set(void)
{
    int when = 0;

    while (race_run(race_set, race_step_other, when)) {
        when++;
    }
    /* It tries all steps: three bits are set, the last two after a look. */
    g_assert_true(race.border || when == 5);
}

static void test_other_in_set(void)
{
    each_race(other_in_set);
}

/* A harvest of everything leaves nothing for the next one to look at. */
static void test_marks_are_cleared(void)
{
    unsigned long *summary;

    race_begin();
    summary = page_block_summary(race.block, RACE_PAGES);
    race.border = 0;
    race_set_page(700);
    g_assert_cmpuint(summary[0], ==, 2);
    g_assert_cmpuint(*page_block_any(race.block, RACE_PAGES), ==, 1);
    race_harvest();
    g_assert_cmpuint(summary[0], ==, 0);
    g_assert_cmpuint(*page_block_any(race.block, RACE_PAGES), ==, 0);
    race_end();
}

static void test_mark_pages(void)
{
    const unsigned long size = 65 * PAGE_GROUP;
    unsigned long *block = page_block_new(size);
    unsigned long *summary = page_block_summary(block, size);

    page_block_mark(block, size, 511, 2);
    g_assert_cmphex(summary[0], ==, 3);
    page_block_mark(block, size, 5 * PAGE_GROUP, PAGE_GROUP);
    g_assert_cmphex(summary[0], ==, 3 | 1 << 5);
    page_block_mark(block, size, 63 * PAGE_GROUP + 511, 1 + PAGE_GROUP);
    g_assert_cmphex(summary[0], ==, 3 | 1 << 5 | 1UL << 63);
    g_assert_cmphex(summary[1], ==, 1);
    g_assert_cmphex(summary[2], ==, 1);
    g_assert_true(&summary[2] == page_block_any(block, size));
    g_free(block);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/page_bitmap/all", test_all);
    g_test_add_func("/page_bitmap/leave-full", test_leave_full);
    g_test_add_func("/page_bitmap/drain", test_drain);
    g_test_add_func("/page_bitmap/old-words", test_old_words);
    g_test_add_func("/page_bitmap/mark-pages", test_mark_pages);
    g_test_add_func("/page_bitmap/marks-are-cleared", test_marks_are_cleared);
    g_test_add_func("/page_bitmap/set-in-harvest", test_set_in_harvest);
    g_test_add_func("/page_bitmap/harvest-in-set", test_harvest_in_set);
    g_test_add_func("/page_bitmap/other-in-set", test_other_in_set);
    g_test_add_func("/page_bitmap/random", test_random);
    return g_test_run();
}
