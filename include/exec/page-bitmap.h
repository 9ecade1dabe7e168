/*
 * Bitmaps of guest pages that cost what is set in them, not what they span.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Pages are taken in groups of PAGE_GROUP, whose words are one cache line.
 * A second level, the summary, has a bit for each group: 1 TiB of guest has
 * 32 MiB of words and 64 KiB of summary, and only the summary is ever
 * searched.  There are two users, and a function between them:
 *
 *  - PageSummary is the second level alone, for a bitmap that many threads
 *    set bits of while one takes them: ram_list.dirty_memory;
 *  - PageBitmap is a bitmap for one thread at a time: RAMBlock.bmap;
 *  - page_bitmap_harvest() takes bits from the first into the second.
 */

#ifndef EXEC_PAGE_BITMAP_H
#define EXEC_PAGE_BITMAP_H

#include "qemu/atomic.h"
#include "qemu/bitmap.h"
#include "qemu/bitops.h"

#define PAGE_GROUP 512
#define PAGE_GROUP_WORDS (PAGE_GROUP / BITS_PER_LONG)

/*
 * page_summary_mark:
 * Tell those who take that group @group has a bit.  To be called after the
 * bit was set.
 *
 * This is all of the memory ordering.  Who sets does
 *
 *     set the bit of the page         and then, unless it is set,
 *     set the bit of the group
 *
 * and who takes does
 *
 *     clear the bit of the group      and then
 *     take the bits of the pages
 *
 * all of it sequentially consistent, as qatomic_or(), bitmap_set_atomic(),
 * qatomic_xchg() and qatomic_fetch_and() are, and as the look at the group's
 * bit here has to be.  So if the setter finds the group's bit still set, the
 * taker has yet to clear it, and looks at the pages after that: it finds the
 * page.  Otherwise the setter sets the group's bit, and the next who takes
 * finds the page.  Either way no page is lost; a group's bit may stay behind
 * that has no page, which costs a look.
 *
 * It is the protocol of the dirty bitmap that KVM shares with userspace.
 */
static inline void page_summary_mark(unsigned long *summary,
                                     unsigned long group)
{
    unsigned long *word = summary + BIT_WORD(group);
    unsigned long mask = BIT_MASK(group);

    if (!(__atomic_load_n(word, __ATOMIC_SEQ_CST) & mask)) {
        qatomic_or(word, mask);
    }
}

/* page_summary_mark_pages: The same for all groups of some @pages (> 0). */
static inline void page_summary_mark_pages(unsigned long *summary,
                                           unsigned long first,
                                           unsigned long pages)
{
    unsigned long last = (first + pages - 1) / PAGE_GROUP;

    for (unsigned long group = first / PAGE_GROUP; group <= last; group++) {
        page_summary_mark(summary, group);
    }
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
 * Take the bits of @pages pages from @first on out of @words, whose groups are
 * marked in @summary, and set those pages in @dest, from @dest_first on.  Both
 * begin at a word's first bit.  Bits of @words may be set meanwhile, as
 * page_summary_mark() says, but only one may take them.
 * Returns: how many pages of @dest were not set before.
 */
unsigned long page_bitmap_harvest(PageBitmap *dest, unsigned long dest_first,
                                  unsigned long *words,
                                  unsigned long *summary,
                                  unsigned long first, unsigned long pages);

#endif
