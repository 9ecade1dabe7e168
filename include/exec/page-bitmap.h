/*
 * Bitmaps of guest pages that cost what is set in them, not what they span.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Pages are taken in groups of PAGE_GROUP, whose words are one cache line.
 * A second level, the summary, has a bit for each group: 1 TiB of guest has
 * 32 MiB of words and 64 KiB of summary.  There are two kinds of bitmap, and a
 * function between them:
 *
 *  - a page block is for many threads that set bits while one takes them:
 *    ram_list.dirty_memory has them;
 *  - a PageBitmap is for one thread at a time: RAMBlock.bmap;
 *  - page_bitmap_harvest() takes bits out of the first into the second.
 */

#ifndef EXEC_PAGE_BITMAP_H
#define EXEC_PAGE_BITMAP_H

#include "qemu/atomic.h"
#include "qemu/bitmap.h"
#include "qemu/bitops.h"

#define PAGE_GROUP 512
#define PAGE_GROUP_WORDS (PAGE_GROUP / BITS_PER_LONG)

/* page_groups: Returns: how many groups @pages pages from 0 on are in. */
static inline unsigned long page_groups(unsigned long pages)
{
    return DIV_ROUND_UP(pages, PAGE_GROUP);
}

/*
 * A page block is an array: the words of its pages, whose number @size is a
 * multiple of PAGE_GROUP; the summary, a bit for each group; and one bit more
 * for all of the block, so that a clean one costs a single look.
 */
static inline unsigned long *page_block_summary(unsigned long *block,
                                                unsigned long size)
{
    return block + BIT_WORD(size);
}

static inline unsigned long *page_block_any(unsigned long *block,
                                            unsigned long size)
{
    return page_block_summary(block, size) + BITS_TO_LONGS(size / PAGE_GROUP);
}

/* page_block_new: Returns: a block with no page set, to be freed by g_free. */
static inline unsigned long *page_block_new(unsigned long size)
{
    return bitmap_new(size +
                      BITS_TO_LONGS(size / PAGE_GROUP) * BITS_PER_LONG + 1);
}

/* A look that has its place in the order that page_block_mark() tells of. */
static inline unsigned long page_block_look(const unsigned long *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static inline void page_block_set_unless_set(unsigned long *map,
                                             unsigned long bit)
{
    unsigned long *word = map + BIT_WORD(bit);

    if (!(page_block_look(word) & BIT_MASK(bit))) {
        qatomic_or(word, BIT_MASK(bit));
    }
}

/*
 * page_block_mark:
 * Tell those who take that @pages pages (> 0) of @block, from @first on, are
 * set.  To be called after their bits were set.
 *
 * This is all of the memory ordering.  Who sets does
 *
 *     set the bit of the page         then, unless it is set,
 *     set the bit of the group        then, unless it is set,
 *     set the bit of the block
 *
 * and who takes does
 *
 *     clear the bit of the block      then
 *     clear the bits of the groups    then
 *     take the bits of the pages
 *
 * all of it sequentially consistent, as qatomic_or(), bitmap_set_atomic() and
 * qatomic_fetch_and() are, and as the looks of both have to be.  So if
 * the setter finds an upper bit still set, the taker has yet to clear it, and
 * looks at the lower ones after that: it finds them.  Otherwise the setter
 * sets the upper bit, and the next who takes finds it.  Either way no page is
 * lost once the setter is done; an upper bit may stay behind that has nothing
 * below, which costs a look.
 *
 * The setter looks at the bit of the block even if that of the group is set:
 * who set that one may not have come to the next.
 *
 * Two of the levels are the dirty bitmap that KVM shares with userspace.
 */
static inline void page_block_mark(unsigned long *block, unsigned long size,
                                   unsigned long first, unsigned long pages)
{
    unsigned long *summary = page_block_summary(block, size);
    unsigned long last = (first + pages - 1) / PAGE_GROUP;

    for (unsigned long group = first / PAGE_GROUP; group <= last; group++) {
        page_block_set_unless_set(summary, group);
    }
    page_block_set_unless_set(page_block_any(block, size), 0);
}

/*
 * PageBitmap:
 * The caller serialises all calls, those that only look included.  Page
 * numbers are below the @pages it was made with.
 *
 * That all pages of a group are set is one bit, so that to set all pages, or
 * to find one of many, costs as little as if none were.  The words of a group
 * are written when the first of its pages changes.
 */
typedef struct PageBitmap PageBitmap;

/*
 * page_bitmap_new:
 * Returns: a bitmap of @pages pages with no page set, to be given to
 * page_bitmap_free().
 */
PageBitmap *page_bitmap_new(unsigned long pages);

/* page_bitmap_free: Free @map, which may be NULL. */
void page_bitmap_free(PageBitmap *map);

/* page_bitmap_set_all, page_bitmap_clear_all: Every page. */
void page_bitmap_set_all(PageBitmap *map);
void page_bitmap_clear_all(PageBitmap *map);

/* page_bitmap_test: Returns: whether @page is set. */
bool page_bitmap_test(const PageBitmap *map, unsigned long page);

/* These set or clear @page.  Returns: whether it was set before. */
bool page_bitmap_test_and_set(PageBitmap *map, unsigned long page);
bool page_bitmap_test_and_clear(PageBitmap *map, unsigned long page);

/* page_bitmap_count: Returns: how many of @pages from @first are set. */
unsigned long page_bitmap_count(const PageBitmap *map, unsigned long first,
                                unsigned long pages);

/*
 * page_bitmap_clear:
 * Clear @pages from @first on.
 * Returns: how many of them were set.
 */
unsigned long page_bitmap_clear(PageBitmap *map, unsigned long first,
                                unsigned long pages);

/*
 * page_bitmap_next, page_bitmap_next_zero:
 * Returns: the first page from @start on, below @end, that is set, or not;
 * @end if there is none.
 */
unsigned long page_bitmap_next(const PageBitmap *map, unsigned long end,
                               unsigned long start);
unsigned long page_bitmap_next_zero(const PageBitmap *map, unsigned long end,
                                    unsigned long start);

/*
 * page_bitmap_assign_complement_le:
 * Set those of the first @pages pages that @bits has not, and clear those that
 * it has.  @bits is a plain bitmap of little-endian words, as it is sent.
 */
void page_bitmap_assign_complement_le(PageBitmap *map,
                                      const unsigned long *bits,
                                      unsigned long pages);

/*
 * page_bitmap_harvest:
 * Take the bits of @pages pages from @first on out of @block, which has @size
 * pages, and set those pages in @dest, from @dest_first on.  Both begin at a
 * word's first bit.  Bits of @block may be set meanwhile, if page_block_mark()
 * follows, but only one may take them.  The pages of @dest that were not set
 * before are set in @added too, unless that is NULL.
 * Returns: how many pages of @dest were not set before.
 */
unsigned long page_bitmap_harvest(PageBitmap *dest, PageBitmap *added,
                                  unsigned long dest_first,
                                  unsigned long *block, unsigned long size,
                                  unsigned long first, unsigned long pages);

#endif
