/*
 * Pages that wait, rule by rule, and against arrays of bool and numbers.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "hot-pages.h"

#define ALL ULONG_MAX

void (*atomic_step)(void);

/* Ends within a word, a group and a word of groups, and at each. */
static const unsigned long sizes[] = {
    1, 63, 64, 65, 511, 512, 513, 1024, 1500, 5000,
    64 * 512, 64 * 512 + 7, 65 * 512 - 1, 130 * 512 + 100,
};

static unsigned long any(unsigned long n)
{
    return (unsigned long)g_test_rand_int() % n;
}

/* A guest of a few groups */

typedef struct Guest {
    unsigned long pages;
    unsigned long groups;
    PageBitmap *map;
    HotPages *hot;
} Guest;

static Guest guest_new(unsigned long pages)
{
    Guest g = {
        pages, DIV_ROUND_UP(pages, PAGE_GROUP), page_bitmap_new(pages),
        hot_pages_new(pages),
    };

    return g;
}

static void guest_free(Guest *g)
{
    page_bitmap_free(g->map);
    hot_pages_free(g->hot);
}

/* Write @pages of @group, from its first one on. */
static void guest_write(Guest *g, unsigned long group, unsigned long pages)
{
    for (unsigned long page = 0; page < pages; page++) {
        page_bitmap_test_and_set(g->map, group * PAGE_GROUP + page);
    }
}

/* Returns: how many pages were sent. */
static unsigned long guest_send(Guest *g)
{
    unsigned long page, sent = 0;

    for (page = hot_pages_next(g->hot, g->map, g->pages, 0); page < g->pages;
         page = hot_pages_next(g->hot, g->map, g->pages, page)) {
        g_assert_true(page_bitmap_test_and_clear(g->map, page));
        sent++;
    }
    return sent;
}

/* The round's end, and the next one, before it writes again. */
static unsigned long guest_round(Guest *g, unsigned long budget, bool crowded,
                                 bool *refused)
{
    unsigned long dirty = page_bitmap_count(g->map, 0, g->pages);
    unsigned long waiting;

    waiting = hot_pages_end_round(g->hot, g->map, g->pages, budget, crowded,
                                  refused);
    g_assert_cmpuint(waiting, <=, budget);
    g_assert_cmpuint(guest_send(g), ==, dirty - waiting);
    return waiting;
}

/* A round with room for @budget, in which no hot group is refused. */
static unsigned long guest_fits(Guest *g, unsigned long budget)
{
    bool refused = false;
    unsigned long waiting = guest_round(g, budget, false, &refused);

    g_assert_false(refused);
    return waiting;
}

/* A round in which a hot group is refused. */
static unsigned long guest_refused(Guest *g, unsigned long budget,
                                   bool crowded)
{
    bool refused = false;
    unsigned long waiting = guest_round(g, budget, crowded, &refused);

    g_assert_true(refused);
    return waiting;
}

/* A guest whose first round is over, with no page dirty. */
static Guest guest_idle(unsigned long groups)
{
    Guest g = guest_new(groups * PAGE_GROUP);

    g_assert_cmpuint(guest_fits(&g, ALL), ==, 0);
    return g;
}

/* One rule at a time */

/* All pages were sent in it, written or not. */
static void test_first_round(void)
{
    Guest g = guest_new(2 * PAGE_GROUP + 100);

    g_assert_cmpuint(guest_send(&g), ==, 0);
    guest_write(&g, 0, PAGE_GROUP);
    guest_write(&g, 2, 50);
    g_assert_cmpuint(guest_fits(&g, ALL), ==, 0);
    guest_write(&g, 0, PAGE_GROUP);
    guest_write(&g, 2, 24);
    g_assert_cmpuint(guest_fits(&g, ALL), ==, PAGE_GROUP);
    guest_free(&g);
}

static void test_half(void)
{
    static const struct {
        unsigned long sent, dirty;
        bool hot;
    } heats[] = {
        { 1, 1, true }, { 2, 1, true }, { 3, 1, false }, { 3, 2, true },
        { 100, 49, false }, { 100, 50, true }, { 100, 400, true },
        { 511, 255, false }, { 511, 256, true }, { 512, 255, false },
        { 512, 256, true }, { 512, 512, true },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(heats); i++) {
        Guest g = guest_idle(3);

        guest_write(&g, 1, heats[i].sent);
        g_assert_cmpuint(guest_fits(&g, ALL), ==, 0);
        guest_write(&g, 1, heats[i].dirty);
        g_assert_cmpuint(guest_fits(&g, ALL), ==,
                         heats[i].hot ? heats[i].dirty : 0);
        guest_free(&g);
    }
}

/* A round ends when little enough remains: that is not dirty again. */
static void test_unsent(void)
{
    static const struct {
        unsigned long dirty, sent, again;
        bool hot;
    } heats[] = {
        { 10, 0, 0, false }, { 10, 1, 0, false }, { 10, 1, 1, true },
        { 10, 4, 1, false }, { 10, 4, 2, true }, { 10, 9, 4, false },
        { 10, 9, 5, true }, { PAGE_GROUP, 0, 0, false },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(heats); i++) {
        Guest g = guest_idle(3);
        bool refused = false;

        guest_write(&g, 1, heats[i].dirty);
        hot_pages_end_round(g.hot, g.map, g.pages, ALL, false, &refused);
        page_bitmap_clear(g.map, PAGE_GROUP, heats[i].sent);
        hot_pages_end_pass(g.hot, g.map, NULL);
        guest_write(&g, 1, heats[i].again);
        g_assert_cmpuint(guest_fits(&g, ALL), ==,
                         heats[i].hot ? heats[i].dirty - heats[i].sent +
                         heats[i].again : 0);
        guest_free(&g);
    }
}

/* Pages that were sent, and found written before the round was over. */
static void test_unsent_but_added(void)
{
    Guest g = guest_idle(2);
    PageBitmap *added = page_bitmap_new(g.pages);

    guest_write(&g, 1, 10);
    g_assert_cmpuint(guest_fits(&g, ALL), ==, 0);
    for (unsigned long page = 0; page < 6; page++) {
        page_bitmap_test_and_set(added, PAGE_GROUP + page);
    }
    guest_write(&g, 1, 6);
    hot_pages_end_pass(g.hot, g.map, added);
    g_assert_cmpuint(guest_fits(&g, ALL), ==, 6);
    page_bitmap_free(added);
    guest_free(&g);
}

/* What was not sent is forgotten when the next round ends. */
static void test_unsent_once(void)
{
    Guest g = guest_idle(2);

    guest_write(&g, 1, 10);
    hot_pages_end_pass(g.hot, g.map, NULL);
    for (int round = 0; round < 2; round++) {
        g_assert_cmpuint(guest_fits(&g, ALL), ==, round ? 10 : 0);
        guest_write(&g, 1, 10);
    }
    guest_free(&g);
}

/* Neither the round before the last counts, nor an earlier one. */
static void test_previous_round(void)
{
    Guest g = guest_idle(2);

    for (int idle = 1; idle < 5; idle++) {
        guest_write(&g, 1, 10);
        for (int round = 0; round <= idle; round++) {
            g_assert_cmpuint(guest_fits(&g, ALL), ==, 0);
        }
    }
    guest_write(&g, 1, 10);
    g_assert_cmpuint(guest_fits(&g, ALL), ==, 0);
    guest_write(&g, 1, 10);
    g_assert_cmpuint(guest_fits(&g, ALL), ==, 10);
    guest_free(&g);
}

/* Not even if the number of rounds does not fit into 16 bits. */
static void test_many_rounds(void)
{
    Guest g = guest_idle(1);

    guest_write(&g, 0, 10);
    for (int round = 0; round <= 0x10000; round++) {
        g_assert_cmpuint(guest_fits(&g, ALL), ==, 0);
    }
    guest_write(&g, 0, 10);
    g_assert_cmpuint(guest_fits(&g, ALL), ==, 0);
    guest_write(&g, 0, 10);
    g_assert_cmpuint(guest_fits(&g, ALL), ==, 10);
    guest_free(&g);
}

/* A group that cooled down is measured by the pages that it had then. */
static void test_cools(void)
{
    Guest g = guest_idle(1);

    guest_write(&g, 0, 100);
    g_assert_cmpuint(guest_fits(&g, ALL), ==, 0);
    guest_write(&g, 0, 20);
    g_assert_cmpuint(guest_fits(&g, ALL), ==, 0);
    guest_write(&g, 0, 10);
    g_assert_cmpuint(guest_fits(&g, ALL), ==, 10);
    guest_free(&g);
}

/* Groups [0, @groups) of @pages each are hot and want to wait. */
static Guest guest_hot(unsigned long groups, unsigned long pages)
{
    Guest g = guest_idle(groups + 1);

    for (int round = 0; round < 2; round++) {
        if (round) {
            g_assert_cmpuint(guest_fits(&g, ALL), ==, 0);
        }
        for (unsigned long group = 0; group < groups; group++) {
            guest_write(&g, group, pages);
        }
    }
    return g;
}

static void test_budget(void)
{
    Guest g = guest_hot(3, 10);

    g_assert_cmpuint(guest_fits(&g, 30), ==, 30);
    guest_free(&g);

    g = guest_hot(3, 10);
    g_assert_cmpuint(guest_refused(&g, 29, false), ==, 20);
    guest_free(&g);

    g = guest_hot(3, 10);
    g_assert_cmpuint(guest_refused(&g, 0, false), ==, 0);
    guest_free(&g);
}

/* A group that does not fit keeps no later, smaller one from waiting. */
static void test_smaller_fits(void)
{
    Guest g = guest_hot(3, 10);

    guest_write(&g, 1, 20);
    g_assert_cmpuint(guest_refused(&g, 25, false), ==, 20);
    g_assert_false(page_bitmap_test(g.map, PAGE_GROUP));
    g_assert_true(page_bitmap_test(g.map, 2 * PAGE_GROUP));
    guest_free(&g);
}

/* A group that is not hot is sent, whatever room there is. */
static void test_not_refused(void)
{
    Guest g = guest_idle(2);
    bool refused = true;

    guest_write(&g, 0, 10);
    g_assert_cmpuint(guest_fits(&g, 0), ==, 0);
    guest_round(&g, ALL, false, &refused);
    g_assert_true(refused);     /* by another block */
    guest_free(&g);
}

/* A waiting group's pages stay dirty; it keeps its place if not written. */
static void test_waits_on(void)
{
    Guest g = guest_hot(1, 10);

    for (int round = 0; round < 3 * HOT_ROUNDS; round++) {
        g_assert_cmpuint(guest_fits(&g, 10), ==, 10);
    }
    guest_free(&g);
}

/* A page counts once, in however many rounds it waits. */
static void test_waited(void)
{
    Guest g = guest_hot(3, 10);

    g_assert_cmpuint(hot_pages_waited(g.hot), ==, 0);
    for (int round = 0; round < 3; round++) {
        g_assert_cmpuint(guest_fits(&g, 30), ==, 30);
        g_assert_cmpuint(hot_pages_waited(g.hot), ==, 30);
    }
    /* Pages that are written while others of their group wait count, too. */
    guest_write(&g, 1, 15);
    g_assert_cmpuint(guest_fits(&g, 35), ==, 35);
    g_assert_cmpuint(hot_pages_waited(g.hot), ==, 35);
    /* A page that ceased to wait was counted, and counts if it waits again. */
    g_assert_cmpuint(guest_fits(&g, 10), ==, 10);
    g_assert_cmpuint(hot_pages_waited(g.hot), ==, 35);
    guest_write(&g, 1, 15);
    g_assert_cmpuint(guest_fits(&g, 25), ==, 25);
    g_assert_cmpuint(hot_pages_waited(g.hot), ==, 50);
    guest_free(&g);

    g = guest_hot(1, PAGE_GROUP);
    for (int round = 0; round < 3; round++) {
        g_assert_cmpuint(guest_fits(&g, ALL), ==, PAGE_GROUP);
        g_assert_cmpuint(hot_pages_waited(g.hot), ==, PAGE_GROUP);
    }
    guest_free(&g);
}

static void test_growth(void)
{
    Guest g = guest_hot(3, 10);

    g_assert_cmpuint(guest_fits(&g, 40), ==, 30);
    guest_write(&g, 1, 20);
    g_assert_cmpuint(guest_fits(&g, 40), ==, 40);
    guest_write(&g, 0, 21);
    g_assert_cmpuint(guest_fits(&g, 40), ==, 31);
    g_assert_true(page_bitmap_test(g.map, 0));
    g_assert_false(page_bitmap_test(g.map, PAGE_GROUP));
    g_assert_true(page_bitmap_test(g.map, 2 * PAGE_GROUP));
    /* The group is looked at anew, by the 20 pages that it had. */
    guest_write(&g, 1, 9);
    g_assert_cmpuint(guest_fits(&g, 40), ==, 31);
    guest_write(&g, 1, 9);
    g_assert_cmpuint(guest_fits(&g, 40), ==, 40);
    guest_free(&g);
}

static void test_budget_shrinks(void)
{
    Guest g = guest_hot(3, 10);

    g_assert_cmpuint(guest_fits(&g, 30), ==, 30);
    g_assert_cmpuint(guest_fits(&g, 29), ==, 20);
    g_assert_cmpuint(guest_fits(&g, 0), ==, 0);
    guest_free(&g);
}

/* Groups that wait come before hot ones, also at a higher address. */
static void test_place(void)
{
    Guest g = guest_idle(2);

    for (int round = 0; round < 2; round++) {
        guest_write(&g, 1, 10);
        g_assert_cmpuint(guest_fits(&g, 10), ==, round ? 10 : 0);
    }
    guest_write(&g, 0, 10);
    g_assert_cmpuint(guest_fits(&g, 10), ==, 10);
    guest_write(&g, 0, 10);
    g_assert_cmpuint(guest_refused(&g, 10, false), ==, 10);
    g_assert_true(page_bitmap_test(g.map, PAGE_GROUP));
    guest_free(&g);
}

/* The first group waits; the second, which is as hot, comes after it. */
static void test_crowded(void)
{
    Guest g = guest_hot(2, 10);
    bool refused = false;

    g_assert_cmpuint(guest_refused(&g, 10, false), ==, 10);
    for (int waited = 1; waited < HOT_ROUNDS; waited++) {
        guest_write(&g, 1, 10);
        g_assert_cmpuint(guest_refused(&g, 10, true), ==, 10);
        g_assert_true(page_bitmap_test(g.map, 0));
    }
    guest_write(&g, 1, 10);
    g_assert_cmpuint(guest_round(&g, 10, true, &refused), ==, 10);
    g_assert_false(refused);
    g_assert_false(page_bitmap_test(g.map, 0));
    g_assert_true(page_bitmap_test(g.map, PAGE_GROUP));
    /* The group is looked at anew, by the 10 pages that it had. */
    guest_write(&g, 0, 5);
    g_assert_cmpuint(guest_refused(&g, 10, false), ==, 10);
    guest_free(&g);
}

/* Each group has its own time. */
static void test_crowded_later(void)
{
    Guest g = guest_hot(1, 10);

    g_assert_cmpuint(guest_fits(&g, ALL), ==, 10);
    for (int round = 0; round < 2; round++) {
        guest_write(&g, 1, 30);
        g_assert_cmpuint(guest_fits(&g, ALL), ==, round ? 40 : 10);
    }
    for (int waited = 3; waited < HOT_ROUNDS + 2; waited++) {
        bool refused = false;

        g_assert_cmpuint(guest_round(&g, ALL, true, &refused), ==,
                         waited < HOT_ROUNDS ? 40 : 30);
        g_assert_false(refused);
    }
    g_assert_cmpuint(guest_fits(&g, ALL), ==, 30);
    guest_free(&g);
}

/* Long waits end at once when room gets short, and only then. */
static void test_crowded_at_last(void)
{
    Guest g = guest_hot(1, 10);
    bool refused = false;

    for (int round = 0; round < 3 * HOT_ROUNDS; round++) {
        g_assert_cmpuint(guest_fits(&g, ALL), ==, 10);
    }
    g_assert_cmpuint(guest_round(&g, ALL, true, &refused), ==, 0);
    guest_write(&g, 0, 5);
    g_assert_cmpuint(guest_round(&g, ALL, true, &refused), ==, 5);
    g_assert_cmpuint(guest_round(&g, ALL, true, &refused), ==, 5);
    guest_free(&g);
}

/* A group that waited until then was not sent in the round before. */
static void test_release(void)
{
    Guest g = guest_hot(66, 10);

    g_assert_cmpuint(guest_fits(&g, ALL), ==, 660);
    g_assert_cmpuint(guest_send(&g), ==, 0);
    hot_pages_release(g.hot);
    g_assert_cmpuint(guest_send(&g), ==, 660);
    guest_write(&g, 0, 10);
    g_assert_cmpuint(guest_fits(&g, ALL), ==, 0);
    guest_write(&g, 0, 10);
    g_assert_cmpuint(guest_fits(&g, ALL), ==, 10);
    hot_pages_release(g.hot);
    g_assert_cmpuint(guest_send(&g), ==, 10);
    guest_free(&g);
}

/* Pages that a block does not have, or no longer has, are never sent. */
static void test_not_in_use(void)
{
    Guest g = guest_new(67 * PAGE_GROUP);
    unsigned long last = 65 * PAGE_GROUP, used = last + 100;
    bool refused = false;

    page_bitmap_set_all(g.map);
    hot_pages_end_round(g.hot, g.map, used, 0, false, &refused);
    g_assert_cmpuint(hot_pages_end_round(g.hot, g.map, used, used, false,
                                         &refused), ==, used);
    g_assert_false(refused);
    g_assert_cmpuint(hot_pages_next(g.hot, g.map, used, 0), ==, used);
    g_assert_cmpuint(hot_pages_next(g.hot, g.map, g.pages, used), ==,
                     last + PAGE_GROUP);

    hot_pages_end_round(g.hot, g.map, g.pages, ALL, false, &refused);
    g_assert_cmpuint(hot_pages_end_round(g.hot, g.map, g.pages, ALL, false,
                                         &refused), ==, g.pages);
    g_assert_cmpuint(hot_pages_end_round(g.hot, g.map, 1, ALL, false,
                                         &refused), ==, 1);
    hot_pages_release(g.hot);
    g_assert_cmpuint(hot_pages_next(g.hot, g.map, g.pages, last), ==, last);
    guest_free(&g);
}

static void test_free(void)
{
    hot_pages_free(NULL);
    hot_pages_free(hot_pages_new(1));
}

/* The model */

typedef struct Model {
    Guest g;
    bool *set;          /* of each page */
    int *dirty;         /* of each group, at the last end of a round */
    int *unsent;        /* of these, when the pass ended */
    int *waits;         /* rounds, from 1 on; 0: does not wait */
    bool *sent;         /* whether it did not wait at that end */
    int *most;          /* dirty while it waits */
    uint64_t waited;
} Model;

static Model model_new(unsigned long pages)
{
    Model m = { .g = guest_new(pages) };

    m.set = g_new0(bool, pages);
    m.dirty = g_new0(int, m.g.groups);
    m.unsent = g_new0(int, m.g.groups);
    m.waits = g_new0(int, m.g.groups);
    m.sent = g_new0(bool, m.g.groups);
    m.most = g_new0(int, m.g.groups);
    memset(m.sent, true, m.g.groups * sizeof(bool));
    return m;
}

static void model_free(Model *m)
{
    guest_free(&m->g);
    g_free(m->set);
    g_free(m->dirty);
    g_free(m->unsent);
    g_free(m->waits);
    g_free(m->sent);
    g_free(m->most);
}

static int model_count(const Model *m, unsigned long group)
{
    int count = 0;

    for (unsigned long page = group * PAGE_GROUP;
         page < MIN(m->g.pages, (group + 1) * PAGE_GROUP); page++) {
        count += m->set[page];
    }
    return count;
}

static unsigned long model_next(const Model *m, unsigned long end,
                                unsigned long start)
{
    while (start < end &&
           (!m->set[start] || m->waits[start / PAGE_GROUP])) {
        start++;
    }
    return MIN(start, end);
}

static unsigned long model_end_round(Model *m, unsigned long budget,
                                     bool crowded, bool *refused)
{
    int *dirty = g_new(int, m->g.groups);
    unsigned long used = 0;

    for (unsigned long i = 0; i < m->g.groups; i++) {
        dirty[i] = model_count(m, i);
        if (m->waits[i] &&
            ((crowded && m->waits[i] >= HOT_ROUNDS) ||
             used + dirty[i] > budget)) {
            m->waits[i] = 0;
        }
        if (m->waits[i]) {
            m->waits[i]++;
            used += dirty[i];
        }
    }
    for (unsigned long i = 0; i < m->g.groups; i++) {
        int sent = m->dirty[i] - m->unsent[i];
        bool hot = m->sent[i] && sent > 0 &&
                   2 * MAX(dirty[i] - m->unsent[i], 0) >= sent;

        if (hot && used + dirty[i] <= budget) {
            m->waits[i] = 1;
            used += dirty[i];
        } else if (hot) {
            *refused = true;
        }
    }
    for (unsigned long i = 0; i < m->g.groups; i++) {
        int before = m->waits[i] > 1 ? m->most[i] : 0;

        m->sent[i] = !m->waits[i];
        m->most[i] = m->waits[i] ? MAX(before, dirty[i]) : 0;
        m->waited += MAX(m->most[i] - before, 0);
    }
    memset(m->unsent, 0, m->g.groups * sizeof(int));
    g_free(m->dirty);
    m->dirty = dirty;
    return used;
}

static void model_check_next(const Model *m)
{
    for (int i = 0; i < 10; i++) {
        unsigned long start = any(m->g.pages + 1);
        unsigned long end = any(2) ? m->g.pages : any(m->g.pages + 1);

        g_assert_cmpuint(hot_pages_next(m->g.hot, m->g.map, end, start), ==,
                         start < end ? model_next(m, end, start) : end);
    }
}

/* Some groups are written most of the time, and some hardly ever. */
static void model_write(Model *m, unsigned long tempo)
{
    for (unsigned long i = 0; i < m->g.groups; i++) {
        unsigned long first = i * PAGE_GROUP;
        unsigned long pages = MIN(PAGE_GROUP, m->g.pages - first);
        unsigned long writes = any(pages + 1);

        if ((i * 7 + any(3)) % 5 > tempo) {
            continue;
        }
        if (!any(4)) {
            writes = any(4);
        }
        while (writes--) {
            unsigned long page = first + any(pages);

            page_bitmap_test_and_set(m->g.map, page);
            m->set[page] = true;
        }
    }
}

/* A guest gives memory back. */
static void model_discard(Model *m)
{
    unsigned long first = any(m->g.pages);
    unsigned long pages = any(m->g.pages - first + 1);

    page_bitmap_clear(m->g.map, first, pages);
    memset(m->set + first, false, pages * sizeof(bool));
}

/* Often only a part. */
static void model_send(Model *m)
{
    unsigned long end = any(2) ? m->g.pages : any(m->g.pages + 1);
    unsigned long page, next = 0;

    while ((page = hot_pages_next(m->g.hot, m->g.map, end, next)) < end) {
        g_assert_cmpuint(page, ==, model_next(m, end, next));
        page_bitmap_test_and_clear(m->g.map, page);
        m->set[page] = false;
        next = page;
    }
    g_assert_cmpuint(model_next(m, end, next), ==, end);
}

/* No more is sent; looks may have added what was written meanwhile. */
static void model_end_pass(Model *m)
{
    g_autofree bool *left = g_memdup2(m->set, m->g.pages * sizeof(bool));
    PageBitmap *added = any(2) ? page_bitmap_new(m->g.pages) : NULL;

    if (added) {
        model_write(m, any(6));
    }
    memset(m->unsent, 0, m->g.groups * sizeof(int));
    for (unsigned long page = 0; page < m->g.pages; page++) {
        if (m->set[page] && !left[page]) {
            page_bitmap_test_and_set(added, page);
        } else if (m->set[page] && !m->waits[page / PAGE_GROUP]) {
            m->unsent[page / PAGE_GROUP]++;
        }
    }
    hot_pages_end_pass(m->g.hot, m->g.map, added);
    page_bitmap_free(added);
}

static unsigned long any_budget(const Model *m)
{
    switch (any(8)) {
    case 0:
        return ALL;
    case 1:
        return any(20);
    case 2:         /* as many as are dirty, or nearly */
        return page_bitmap_count(m->g.map, 0, m->g.pages) + any(3) - 1;
    default:
        return any(m->g.pages + 1);
    }
}

static void model_round(Model *m)
{
    bool refused = any(2), model_refused = refused, crowded = any(2);
    unsigned long budget = any_budget(m);

    g_assert_cmpuint(hot_pages_end_round(m->g.hot, m->g.map, m->g.pages,
                                         budget, crowded, &refused), ==,
                     model_end_round(m, budget, crowded, &model_refused));
    g_assert_cmpint(refused, ==, model_refused);
    g_assert_cmpuint(hot_pages_waited(m->g.hot), ==, m->waited);
    model_check_next(m);
    model_send(m);
}

/* Sending the pages before the end of the round makes no difference. */
static void model_release(Model *m)
{
    hot_pages_release(m->g.hot);
    memset(m->waits, 0, m->g.groups * sizeof(int));
    model_check_next(m);
    if (any(2)) {
        model_send(m);
    }
}

static void test_random(void)
{
    for (int guest = 0; guest < 60; guest++) {
        Model m = model_new(sizes[guest % G_N_ELEMENTS(sizes)]);

        for (int round = 0; round < 40; round++) {
            if (any(3)) {
                model_end_pass(&m);
            }
            if (any(8)) {
                model_write(&m, any(6));
            }
            if (!any(10)) {
                model_discard(&m);
            }
            if (!any(20)) {
                model_release(&m);
            }
            model_round(&m);
        }
        model_free(&m);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/hot_pages/free", test_free);
    g_test_add_func("/hot_pages/first-round", test_first_round);
    g_test_add_func("/hot_pages/half", test_half);
    g_test_add_func("/hot_pages/unsent", test_unsent);
    g_test_add_func("/hot_pages/unsent-but-added", test_unsent_but_added);
    g_test_add_func("/hot_pages/unsent-once", test_unsent_once);
    g_test_add_func("/hot_pages/previous-round", test_previous_round);
    g_test_add_func("/hot_pages/many-rounds", test_many_rounds);
    g_test_add_func("/hot_pages/cools", test_cools);
    g_test_add_func("/hot_pages/budget", test_budget);
    g_test_add_func("/hot_pages/smaller-fits", test_smaller_fits);
    g_test_add_func("/hot_pages/not-refused", test_not_refused);
    g_test_add_func("/hot_pages/waits-on", test_waits_on);
    g_test_add_func("/hot_pages/waited", test_waited);
    g_test_add_func("/hot_pages/growth", test_growth);
    g_test_add_func("/hot_pages/budget-shrinks", test_budget_shrinks);
    g_test_add_func("/hot_pages/place", test_place);
    g_test_add_func("/hot_pages/crowded", test_crowded);
    g_test_add_func("/hot_pages/crowded-later", test_crowded_later);
    g_test_add_func("/hot_pages/crowded-at-last", test_crowded_at_last);
    g_test_add_func("/hot_pages/release", test_release);
    g_test_add_func("/hot_pages/not-in-use", test_not_in_use);
    g_test_add_func("/hot_pages/random", test_random);
    return g_test_run();
}
