/*
 * PageBitmap: a bitmap of guest pages that costs what is set in it, not what it
 * spans; RAMBlock.bmap is one.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The caller serialises all calls, including those that only look.  Page
 * numbers are below the @pages that the bitmap was made with.
 *
 * One bit says that all pages of a group (PAGE_GROUP, page-block.h) are set.
 * So setting all pages, or finding one of many, costs as little as if none
 * were set.  The words of a group are written when the first of its pages
 * changes.
 *
 * QEMU's HBitmap (qemu/hbitmap.h) finds the next bit as quickly, but a
 * migration begins with all pages set, and clears each once: HBitmap would
 * allocate and write all words to begin with, and each level again as they are
 * cleared.  It cannot take bits that others set meanwhile, either, which is
 * what page_bitmap_harvest() does.
 */

#ifndef EXEC_PAGE_BITMAP_H
#define EXEC_PAGE_BITMAP_H

#include "exec/page-block.h"

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
 * page_bitmap_add_word: Set the pages of @bits, of the word that begins with
 * @page.
 * Returns: those of them that were not set before.
 */
unsigned long page_bitmap_add_word(PageBitmap *map, unsigned long page,
                                   unsigned long bits);

/*
 * page_bitmap_count_only:
 * Returns: how many of @pages from @first, the first of a word, are set in @map
 * and not in @other.
 */
unsigned long page_bitmap_count_only(const PageBitmap *map,
                                     const PageBitmap *other,
                                     unsigned long first, unsigned long pages);

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

/* What to take out of a page block, and where that goes. */
typedef struct PageHarvest {
    unsigned long *block;
    unsigned long size;         /* pages of the block */
    unsigned long first;        /* pages from this on, a word's first bit, */
    unsigned long end;          /* below that, are taken */
    PageBitmap *dest;
    unsigned long dest_first;   /* a word's first bit, too */
    PageBitmap *added;          /* what was not in @dest before, unless NULL */
    PageBitmap *found;          /* all of it, unless NULL */
} PageHarvest;

/*
 * page_bitmap_harvest:
 * Take the bits of a range out of a block, and set those pages in the bitmaps
 * of @harvest.  Bits of the block may be set meanwhile, if page_block_mark()
 * follows, but only one may take them.
 * Returns: how many pages of @dest were not set before.
 */
unsigned long page_bitmap_harvest(const PageHarvest *harvest);

#endif
