/*
 * Bitmaps of guest pages that cost what is set in them, not what they span.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A group is in one of three states, which are two bits side by side:
 *
 *           its pages              its words
 *   EMPTY   none is set            mean nothing
 *   FULL    all are set            mean nothing
 *   MIXED   some, maybe all, are   one bit for each page
 *
 * One store changes both bits: what one function takes for set is never what
 * another takes for clear.  There is no fourth state; if there were, all would
 * take its pages for set.
 *
 * Words that mean nothing were perhaps never written: they are not zeroed in
 * advance, and the host gives no memory for what stays untouched.  Past the
 * last page the words of the last group have zeros.
 */

#include "qemu/osdep.h"
#include "exec/page-bitmap.h"

struct PageBitmap {
    unsigned long pages;
    unsigned long *words;
    unsigned long *states;      /* STATE_BITS for each group */
};

#define STATE_BITS 2UL

enum { EMPTY = 0, MIXED = 1, FULL = 3 };

/* In a word of states: what FULL has and MIXED has not. */
#define FULL_BITS (~0UL / FULL * (FULL & ~MIXED))

/* The part of a range of pages that lies in one group. */
typedef struct Part {
    unsigned long group;
    unsigned long first;        /* in the group */
    unsigned long pages;
} Part;

static Part part_at(unsigned long page, unsigned long end)
{
    unsigned long first = page % PAGE_GROUP;

    return (Part) {
        .group = page / PAGE_GROUP,
        .first = first,
        .pages = MIN(PAGE_GROUP - first, end - page),
    };
}

static unsigned long *words_of(const PageBitmap *map, unsigned long group)
{
    return map->words + group * PAGE_GROUP_WORDS;
}

static unsigned long *state_word(const PageBitmap *map, unsigned long group)
{
    return map->states + BIT_WORD(group * STATE_BITS);
}

static unsigned state_of(const PageBitmap *map, unsigned long group)
{
    return *state_word(map, group) >> group * STATE_BITS % BITS_PER_LONG &
           FULL;
}

static void set_state(PageBitmap *map, unsigned long group,
                      unsigned long state)
{
    unsigned long *word = state_word(map, group);
    unsigned shift = group * STATE_BITS % BITS_PER_LONG;

    *word = (*word & ~((unsigned long)FULL << shift)) | state << shift;
}

static bool is_empty(const PageBitmap *map, unsigned long group)
{
    return state_of(map, group) == EMPTY;
}

static bool is_full(const PageBitmap *map, unsigned long group)
{
    return state_of(map, group) > MIXED;
}

PageBitmap *page_bitmap_new(unsigned long pages)
{
    PageBitmap *map = g_new(PageBitmap, 1);
    unsigned long groups = page_groups(pages);

    map->pages = pages;
    map->words = g_new(unsigned long, groups * PAGE_GROUP_WORDS);
    map->states = bitmap_new(groups * STATE_BITS);
    return map;
}

void page_bitmap_free(PageBitmap *map)
{
    if (map) {
        g_free(map->words);
        g_free(map->states);
        g_free(map);
    }
}

void page_bitmap_set_all(PageBitmap *map)
{
    bitmap_set(map->states, 0, page_groups(map->pages) * STATE_BITS);
}

void page_bitmap_clear_all(PageBitmap *map)
{
    bitmap_zero(map->states, page_groups(map->pages) * STATE_BITS);
}

/* Give the words of @group a meaning, before one of them changes. */
static unsigned long *open_group(PageBitmap *map, unsigned long group)
{
    unsigned long *words = words_of(map, group);

    if (is_empty(map, group)) {
        bitmap_zero(words, PAGE_GROUP);
        set_state(map, group, MIXED);
    } else if (is_full(map, group)) {
        bitmap_zero(words, PAGE_GROUP);
        bitmap_set(words, 0, part_at(group * PAGE_GROUP, map->pages).pages);
        set_state(map, group, MIXED);
    }
    return words;
}

/* After bits of @group were cleared. */
static void close_group(PageBitmap *map, unsigned long group)
{
    if (bitmap_empty(words_of(map, group), PAGE_GROUP)) {
        set_state(map, group, EMPTY);
    }
}

bool page_bitmap_test(const PageBitmap *map, unsigned long page)
{
    unsigned long group = page / PAGE_GROUP;

    return !is_empty(map, group) &&
           (is_full(map, group) ||
            test_bit(page % PAGE_GROUP, words_of(map, group)));
}

bool page_bitmap_test_and_set(PageBitmap *map, unsigned long page)
{
    unsigned long group = page / PAGE_GROUP;

    return is_full(map, group) ||
           test_and_set_bit(page % PAGE_GROUP, open_group(map, group));
}

bool page_bitmap_test_and_clear(PageBitmap *map, unsigned long page)
{
    unsigned long group = page / PAGE_GROUP;
    unsigned long *words;

    if (is_empty(map, group)) {
        return false;
    }
    words = open_group(map, group);
    if (!test_and_clear_bit(page % PAGE_GROUP, words)) {
        return false;
    }
    if (!words[BIT_WORD(page % PAGE_GROUP)]) {
        close_group(map, group);
    }
    return true;
}

static unsigned long count_part(const PageBitmap *map, Part part)
{
    if (is_empty(map, part.group)) {
        return 0;
    }
    if (is_full(map, part.group)) {
        return part.pages;
    }
    return bitmap_count_one_with_offset(words_of(map, part.group),
                                        part.first, part.pages);
}

static void clear_part(PageBitmap *map, Part part)
{
    if (!is_empty(map, part.group)) {
        bitmap_clear(open_group(map, part.group), part.first, part.pages);
        close_group(map, part.group);
    }
}

/* Returns: a mask of the bits of [@first, @end) in the word that has @bit. */
static unsigned long word_mask(unsigned long bit, unsigned long first,
                               unsigned long end)
{
    unsigned long base = bit - bit % BITS_PER_LONG;
    unsigned long from = MAX(first, base), to = MIN(end, base + BITS_PER_LONG);

    return from < to ? MAKE_64BIT_MASK(from - base, to - from) : 0;
}

/* Clear whole groups, a word of states at a time.  Returns: their pages. */
static unsigned long clear_groups(PageBitmap *map, unsigned long group,
                                  unsigned long end)
{
    const unsigned long per_word = BITS_PER_LONG / STATE_BITS;
    unsigned long count = 0;

    while (group < end) {
        unsigned long base = group - group % per_word;
        unsigned long mask = word_mask(group * STATE_BITS, group * STATE_BITS,
                                       end * STATE_BITS);
        unsigned long *states = state_word(map, group);
        unsigned long full = *states & mask & FULL_BITS;
        unsigned long mixed = *states & mask & ~FULL_BITS & ~(full >> 1);

        count += ctpopl(full) * PAGE_GROUP;
        for (; mixed; mixed &= mixed - 1) {
            count += bitmap_count_one(
                words_of(map, base + ctzl(mixed) / STATE_BITS), PAGE_GROUP);
        }
        *states &= ~mask;
        group = base + per_word;
    }
    return count;
}

/* Returns: the first group from @group on, below @end, that is not EMPTY. */
static unsigned long next_not_empty(const PageBitmap *map, unsigned long end,
                                    unsigned long group)
{
    return find_next_bit(map->states, end * STATE_BITS, group * STATE_BITS) /
           STATE_BITS;
}

/* The same for FULL. */
static unsigned long next_not_full(const PageBitmap *map, unsigned long end,
                                   unsigned long group)
{
    return find_next_zero_bit(map->states, end * STATE_BITS,
                              group * STATE_BITS) / STATE_BITS;
}

unsigned long page_bitmap_count(const PageBitmap *map, unsigned long first,
                                unsigned long pages)
{
    unsigned long end = first + pages;
    unsigned long count = 0;

    while ((first = page_bitmap_next(map, end, first)) < end) {
        Part part = part_at(first, end);

        count += count_part(map, part);
        first += part.pages;
    }
    return count;
}

/* Returns: the pages of one word; past the last page they may be set. */
static unsigned long word_at(const PageBitmap *map, unsigned long page)
{
    unsigned long group = page / PAGE_GROUP;

    if (is_empty(map, group)) {
        return 0;
    }
    return is_full(map, group) ? ~0UL :
        words_of(map, group)[BIT_WORD(page % PAGE_GROUP)];
}

unsigned long page_bitmap_count_only(const PageBitmap *map,
                                     const PageBitmap *other,
                                     unsigned long first, unsigned long pages)
{
    unsigned long end = first + pages;
    unsigned long count = 0;

    for (; first < end; first += BITS_PER_LONG) {
        count += ctpopl(word_at(map, first) & ~word_at(other, first) &
                        word_mask(first, first, end));
    }
    return count;
}

unsigned long page_bitmap_clear(PageBitmap *map, unsigned long first,
                                unsigned long pages)
{
    unsigned long end = first + pages;
    unsigned long count = 0;

    while (first < end) {
        Part part = part_at(first, end);

        if (part.pages == PAGE_GROUP) {
            unsigned long groups = (end - first) / PAGE_GROUP;

            count += clear_groups(map, part.group, part.group + groups);
            first += groups * PAGE_GROUP;
        } else {
            count += count_part(map, part);
            clear_part(map, part);
            first += part.pages;
        }
    }
    return count;
}

/* Like page_bitmap_next(), within the group that @start is in. */
static unsigned long next_in_group(const PageBitmap *map, unsigned long end,
                                   unsigned long start)
{
    Part part = part_at(start, end);

    if (is_empty(map, part.group)) {
        return start + part.pages;
    }
    if (is_full(map, part.group)) {
        return start;
    }
    return start - part.first +
           find_next_bit(words_of(map, part.group),
                         part.first + part.pages, part.first);
}

unsigned long page_bitmap_next(const PageBitmap *map, unsigned long end,
                               unsigned long start)
{
    while (start < end) {
        unsigned long group = start / PAGE_GROUP;
        unsigned long page = next_in_group(map, end, start);

        if (page < end && page / PAGE_GROUP == group) {
            return page;
        }
        group = next_not_empty(map, page_groups(end), group + 1);
        start = group * PAGE_GROUP;
    }
    return end;
}

static unsigned long next_zero_in_group(const PageBitmap *map,
                                        unsigned long end, unsigned long start)
{
    Part part = part_at(start, end);

    if (is_empty(map, part.group)) {
        return start;
    }
    if (is_full(map, part.group)) {
        return start + part.pages;
    }
    return start - part.first +
           find_next_zero_bit(words_of(map, part.group),
                              part.first + part.pages, part.first);
}

unsigned long page_bitmap_next_zero(const PageBitmap *map, unsigned long end,
                                    unsigned long start)
{
    while (start < end) {
        unsigned long group = start / PAGE_GROUP;
        unsigned long page = next_zero_in_group(map, end, start);

        if (page < end && page / PAGE_GROUP == group) {
            return page;
        }
        group = next_not_full(map, page_groups(end), group + 1);
        start = group * PAGE_GROUP;
    }
    return end;
}

void page_bitmap_assign_complement_le(PageBitmap *map,
                                      const unsigned long *bits,
                                      unsigned long pages)
{
    page_bitmap_clear(map, 0, pages);
    for (unsigned long page = 0; page < pages; page += BITS_PER_LONG) {
        unsigned long word = ~GULONG_FROM_LE(bits[BIT_WORD(page)]);

        if (pages - page < BITS_PER_LONG) {
            word &= BITMAP_LAST_WORD_MASK(pages);
        }
        if (word) {
            open_group(map, page / PAGE_GROUP)
                [BIT_WORD(page % PAGE_GROUP)] |= word;
        }
    }
}

unsigned long page_bitmap_add_word(PageBitmap *map, unsigned long page,
                                   unsigned long bits)
{
    unsigned long group = page / PAGE_GROUP;
    unsigned long *word, old;

    if (is_full(map, group)) {
        return 0;
    }
    word = open_group(map, group) + BIT_WORD(page % PAGE_GROUP);
    old = *word;
    *word |= bits;
    return bits & ~old;
}

/* Returns: how many of the pages of one word were not set in the target. */
static unsigned long give_word(const PageHarvest *harvest, unsigned long page,
                               unsigned long bits)
{
    unsigned long added = page_bitmap_add_word(harvest->dest, page, bits);

    if (added && harvest->added) {
        page_bitmap_add_word(harvest->added, page, added);
    }
    if (harvest->found) {
        page_bitmap_add_word(harvest->found, page, bits);
    }
    return ctpopl(added);
}

/* The last word of the range may also have bits of pages beyond the range. */
static unsigned long take_word(const PageHarvest *harvest, unsigned long page)
{
    unsigned long *word = harvest->block + BIT_WORD(page);
    unsigned long mask = ~0UL;

    if (harvest->end - page < BITS_PER_LONG) {
        mask = BITMAP_LAST_WORD_MASK(harvest->end);
    }
    if (!(page_block_look(word) & mask)) {
        return 0;
    }
    return qatomic_fetch_and(word, ~mask) & mask;
}

static unsigned long take_group(const PageHarvest *harvest, unsigned long group)
{
    unsigned long page = MAX(group * PAGE_GROUP, harvest->first);
    unsigned long end = MIN((group + 1) * PAGE_GROUP, harvest->end);
    unsigned long count = 0;

    for (; page < end; page += BITS_PER_LONG) {
        unsigned long bits = take_word(harvest, page);

        if (bits) {
            count += give_word(harvest,
                               page - harvest->first + harvest->dest_first,
                               bits);
        }
    }
    return count;
}

static unsigned long harvest_groups(const PageHarvest *harvest)
{
    unsigned long *summary = page_block_summary(harvest->block, harvest->size);
    unsigned long first = harvest->first / PAGE_GROUP;
    unsigned long end = page_groups(harvest->end);
    unsigned long group = first - first % BITS_PER_LONG;
    unsigned long count = 0;

    for (; group < end; group += BITS_PER_LONG) {
        unsigned long *word = summary + BIT_WORD(group);
        unsigned long touched, whole;

        if (!page_block_look(word)) {
            continue;
        }
        touched = word_mask(group, first, end);
        whole = word_mask(group, page_groups(harvest->first),
                          harvest->end / PAGE_GROUP);
        touched &= qatomic_fetch_and(word, ~whole);
        for (; touched; touched &= touched - 1) {
            count += take_group(harvest, group + ctzl(touched));
        }
    }
    return count;
}

/*
 * The summary bit of a group or a block that is only partly in the range must
 * stay: it may stand for pages outside the range.
 */
unsigned long page_bitmap_harvest(const PageHarvest *harvest)
{
    unsigned long *any = page_block_any(harvest->block, harvest->size);

    if (!page_block_look(any)) {
        return 0;
    }
    if (harvest->end - harvest->first == harvest->size) {
        qatomic_fetch_and(any, 0UL);
    }
    return harvest_groups(harvest);
}
