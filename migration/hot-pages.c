/*
 * The pages of a block that wait, dirty, until the guest has stopped.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The end of a round looks at the groups that are dirty or wait, and searches
 * two bitmaps that have a bit for each group.  The record of a group has the
 * round that it was made in, so that old records need not be cleared, and the
 * host has no memory for groups that are never written.
 */

#include "qemu/osdep.h"
#include "hot-pages.h"

/* 34 bits of rounds do not wrap. */
typedef struct Group {
    uint64_t pages:10;         /* dirty at the end of @round, then to be sent */
    uint64_t unsent:10;        /* of these, at the end of the pass */
    uint64_t waited:10;        /* if it waits: the most that were dirty */
    uint64_t round:34;         /* if it waits: the last before it did */
} Group;

struct HotPages {
    unsigned long max_pages;
    unsigned long pages;        /* at the end of the last round */
    uint64_t round;             /* how many are over */
    uint64_t waited;            /* hot_pages_waited() */
    unsigned long *waits;
    Group *groups;
};

HotPages *hot_pages_new(unsigned long max_pages)
{
    HotPages *hot = g_new(HotPages, 1);

    hot->max_pages = max_pages;
    hot->pages = 0;
    hot->round = 0;
    hot->waited = 0;
    hot->waits = bitmap_new(page_groups(max_pages));
    hot->groups = g_new0(Group, page_groups(max_pages));
    return hot;
}

void hot_pages_free(HotPages *hot)
{
    if (hot) {
        g_free(hot->waits);
        g_free(hot->groups);
        g_free(hot);
    }
}

static unsigned long pages_in(const HotPages *hot, unsigned long group)
{
    return MIN(PAGE_GROUP, hot->pages - group * PAGE_GROUP);
}

static unsigned long count_dirty(const HotPages *hot, const PageBitmap *map,
                                 unsigned long group)
{
    return page_bitmap_count(map, group * PAGE_GROUP, pages_in(hot, group));
}

/*
 * @dirty pages of @group are dirty.  Returns: whether at least one part in
 * HOT_PART of those are that were dirty when the round that is over began, and
 * sent in it.
 */
static bool is_hot(const HotPages *hot, unsigned long group,
                   unsigned long dirty)
{
    const Group *known = &hot->groups[group];
    unsigned long again = dirty - MIN(dirty, known->unsent);
    unsigned long sent = known->pages - MIN(known->pages, known->unsent);

    return known->round == hot->round - 1 && sent && again * HOT_PART >= sent;
}

/* In the next round @dirty pages of @group will be sent. */
static void send_group(HotPages *hot, unsigned long group, unsigned long dirty)
{
    clear_bit(group, hot->waits);
    hot->groups[group] = (Group) { .pages = dirty, .round = hot->round };
}

/*
 * @dirty pages of @group wait.  None of them is sent, so the number that began
 * to wait is that by which @dirty exceeds all earlier ones.
 */
static void count_waiting(HotPages *hot, unsigned long group,
                          unsigned long dirty)
{
    Group *known = &hot->groups[group];

    if (dirty > known->waited) {
        hot->waited += dirty - known->waited;
        known->waited = dirty;
    }
}

/* No page of @group will be sent, unless the group is released meanwhile. */
static void hold_group(HotPages *hot, unsigned long group, unsigned long dirty)
{
    set_bit(group, hot->waits);
    hot->groups[group] = (Group) { .pages = 0, .round = hot->round };
    count_waiting(hot, group, dirty);
}

static bool take_budget(unsigned long *left, unsigned long pages)
{
    if (pages > *left) {
        return false;
    }
    *left -= pages;
    return true;
}

/* Returns: the part of @left that groups which go on waiting do not need. */
static unsigned long look_at_waiting(HotPages *hot, const PageBitmap *map,
                                     unsigned long left, bool crowded)
{
    unsigned long end = page_groups(hot->pages);
    unsigned long group = find_next_bit(hot->waits, end, 0);

    for (; group < end; group = find_next_bit(hot->waits, end, group + 1)) {
        unsigned long dirty = count_dirty(hot, map, group);
        uint64_t waited = hot->round - hot->groups[group].round;

        if ((crowded && waited >= HOT_ROUNDS) || !take_budget(&left, dirty)) {
            send_group(hot, group, dirty);
        } else {
            count_waiting(hot, group, dirty);
        }
    }
    return left;
}

/*
 * This also looks at groups that have just ceased to wait.  They are not hot,
 * since none of their pages was sent.
 * Returns: the part of @left that groups which begin to wait do not need.
 */
static unsigned long look_at_others(HotPages *hot, const PageBitmap *map,
                                    unsigned long left, bool *refused)
{
    unsigned long page = hot_pages_next(hot, map, hot->pages, 0);

    while (page < hot->pages) {
        unsigned long group = page / PAGE_GROUP;
        unsigned long dirty = count_dirty(hot, map, group);
        bool wants = is_hot(hot, group, dirty);

        if (wants && take_budget(&left, dirty)) {
            hold_group(hot, group, dirty);
        } else {
            *refused |= wants;
            send_group(hot, group, dirty);
        }
        page = hot_pages_next(hot, map, hot->pages, (group + 1) * PAGE_GROUP);
    }
    return left;
}

/* Returns: how many pages of @group are in @map and not in @added. */
static unsigned long count_unsent(const HotPages *hot, const PageBitmap *map,
                                  const PageBitmap *added, unsigned long group)
{
    return added ?
        page_bitmap_count_only(map, added, group * PAGE_GROUP,
                               pages_in(hot, group)) :
        count_dirty(hot, map, group);
}

void hot_pages_end_pass(HotPages *hot, const PageBitmap *map,
                        const PageBitmap *added)
{
    unsigned long page = hot_pages_next(hot, map, hot->pages, 0);

    while (page < hot->pages) {
        unsigned long group = page / PAGE_GROUP;

        hot->groups[group].unsent = count_unsent(hot, map, added, group);
        page = hot_pages_next(hot, map, hot->pages, (group + 1) * PAGE_GROUP);
    }
}

unsigned long hot_pages_end_round(HotPages *hot, const PageBitmap *map,
                                  unsigned long pages, unsigned long budget,
                                  bool crowded, bool *refused)
{
    unsigned long left;

    hot->pages = pages;
    hot->round++;
    left = look_at_waiting(hot, map, budget, crowded);
    left = look_at_others(hot, map, left, refused);
    return budget - left;
}

unsigned long hot_pages_next(const HotPages *hot, const PageBitmap *map,
                             unsigned long end, unsigned long start)
{
    unsigned long page = page_bitmap_next(map, end, start);

    while (page < end && test_bit(page / PAGE_GROUP, hot->waits)) {
        start = find_next_zero_bit(hot->waits, page_groups(end),
                                   page / PAGE_GROUP + 1) * PAGE_GROUP;
        page = page_bitmap_next(map, end, start);
    }
    return page;
}

uint64_t hot_pages_waited(const HotPages *hot)
{
    return hot->waited;
}

void hot_pages_release(HotPages *hot)
{
    bitmap_zero(hot->waits, page_groups(hot->max_pages));
}
