/*
 * Page blocks: bitmaps of guest pages in which many threads set bits while one
 * takes them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Pages are taken in groups of PAGE_GROUP, whose words are one cache line.
 * A second level, the summary, has a bit for each group: 1 TiB of guest has
 * 32 MiB of words and 64 KiB of summary.  So to take what is set costs what is
 * set, not what the block spans.  ram_list.dirty_memory has its pages in such
 * blocks.
 *
 * QEMU's HBitmap (qemu/hbitmap.h) has levels, too, but is for one thread at a
 * time: to set a bit it reads and writes each level without an atomic access.
 * vCPUs, the reaper of dirty rings and devices set bits here, without a lock.
 */

#ifndef EXEC_PAGE_BLOCK_H
#define EXEC_PAGE_BLOCK_H

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
 * Tell the thread that takes bits that @pages pages (> 0) of @block, from
 * @first on, are set.  To be called after their bits were set.
 *
 * This is all of the memory ordering.  A thread that sets bits does
 *
 *     set the bit of the page         then, unless it is set,
 *     set the bit of the group        then, unless it is set,
 *     set the bit of the block
 *
 * and the thread that takes them does
 *
 *     clear the bit of the block      then
 *     clear the bits of the groups    then
 *     take the bits of the pages
 *
 * all of it sequentially consistent, as qatomic_or(), bitmap_set_atomic() and
 * qatomic_fetch_and() are, and as the looks of both have to be.  So if
 * the setter finds an upper bit still set, the taker has yet to clear it, and
 * looks at the lower ones after that: it finds them.  Otherwise the setter
 * sets the upper bit, and the next thread that takes finds it.  Either way no
 * page is lost once the setter is done; an upper bit may stay behind that has
 * nothing below, which costs a look.
 *
 * The setter looks at the bit of the block even if that of the group is set:
 * another setter may have set that one and not have come to the next.
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

#endif
