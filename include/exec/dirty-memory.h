/*
 * The summary of ram_list.dirty_memory, by which a migration finds the pages
 * that were written without looking at the whole bitmap.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Each block of ram_list.dirty_memory is a page block, which includes its
 * summary.  Only the summary of DIRTY_MEMORY_MIGRATION is complete; code that
 * takes pages of another client looks at a small part of the bitmap anyway.
 *
 * A function that clears bits need not clear the summary.  Only two functions
 * do, one at a time: cpu_physical_memory_sync_dirty_bitmap() and
 * cpu_physical_memory_take_published().
 */

#ifndef EXEC_DIRTY_MEMORY_H
#define EXEC_DIRTY_MEMORY_H

#include "exec/cpu-common.h"
#include "exec/page-bitmap.h"
#include "exec/ramlist.h"

struct RAMBlock;

/*
 * The clients for which new RAM is dirty.  A migration begins with all pages,
 * written or not, so it needs no bits for pages that existed before it began.
 */
#define DIRTY_CLIENTS_NEW_RAM \
    ((1 << DIRTY_MEMORY_VGA) | (1 << DIRTY_MEMORY_CODE))

/* dirty_memory_block_new: Returns: a block of ram_list.dirty_memory, clean. */
static inline unsigned long *dirty_memory_block_new(void)
{
    return page_block_new(DIRTY_MEMORY_BLOCK_SIZE);
}

/*
 * dirty_memory_mark:
 * To be called after the bits of @pages pages (> 0), from @first on, were set
 * in @block of DIRTY_MEMORY_MIGRATION.
 */
static inline void dirty_memory_mark(unsigned long *block,
                                     unsigned long first, unsigned long pages)
{
    page_block_mark(block, DIRTY_MEMORY_BLOCK_SIZE, first, pages);
}

/*
 * cpu_physical_memory_sync_dirty_bitmap:
 * Move the bits of @rb in DIRTY_MEMORY_MIGRATION to @rb->bmap.  Pages that
 * were harvested but not re-armed are marked in @rb->clear_bmap, or re-armed
 * if there is no such bitmap.  Called with the BQL, or in COLO while the guest
 * stands still, in an RCU critical section, and with the lock that guards
 * @rb->bmap.
 * Returns: how many pages were not in @rb->bmap before.
 */
uint64_t cpu_physical_memory_sync_dirty_bitmap(struct RAMBlock *rb,
                                               ram_addr_t start,
                                               ram_addr_t length);

/*
 * cpu_physical_memory_publish:
 * Make pages dirty for all clients, as cpu_physical_memory_set_dirty_lebitmap()
 * does: @pages pages from @start on, of which @words has a bit for each, in
 * words of little endian.  They are in one RAMBlock.  Those that
 * cpu_physical_memory_clear_and_take() finds in its own, on the same thread,
 * go to RAMBlock.bmap instead of DIRTY_MEMORY_MIGRATION.
 */
void cpu_physical_memory_publish(unsigned long *words, ram_addr_t start,
                                 ram_addr_t pages);

/*
 * cpu_physical_memory_clear_shift:
 * @shift: x-clear-bitmap-shift
 * Returns: RAMBlock.clear_bmap_shift, the binary logarithm of the pages that
 * have a bit in RAMBlock.clear_bmap: 512 or fewer where a clear publishes.
 */
uint8_t cpu_physical_memory_clear_shift(uint8_t shift);

/*
 * cpu_physical_memory_clear_and_take:
 * @runs: whether the guest may still write here
 *
 * Call memory_region_clear_dirty_bitmap() for [@start, @start + @length) of
 * @rb, whose bit in @rb->clear_bmap the caller has just cleared.  Where it
 * publishes (dirty_tracking_clear_publishes()), the call is for what follows,
 * too, up to 1 GiB, as far as its bits are set: the more, the sooner that is
 * sent.  These bits are cleared.  Pages of @rb that are published go to
 * @rb->bmap, unless the bit there was clear before: these may have been sent
 * since the last sync, and are left to the next one, as is what QEMU itself
 * has written.  If the guest does not run, nothing is done: the last sync has
 * found all, and in postcopy the destination knows which pages are still to
 * come.
 * Called with the lock that guards @rb->bmap; neither the BQL nor RCU is
 * needed.  Allocates @rb->written, which has to be given to page_bitmap_free()
 * when @rb->bmap is.
 * Returns: how many pages were not in @rb->bmap before.
 */
uint64_t cpu_physical_memory_clear_and_take(struct RAMBlock *rb,
                                            ram_addr_t start,
                                            ram_addr_t length, bool runs);

/*
 * cpu_physical_memory_take_published:
 * Move the bits of all of @rb in DIRTY_MEMORY_MIGRATION to @rb->bmap, and,
 * unless a harvest re-arms (dirty_tracking_clear_publishes()), mark in
 * @rb->clear_bmap that pages are to be re-armed.  For accelerators that
 * publish by themselves: TCG's vCPUs would not set the bits again.  Called
 * with the lock that guards @rb->bmap, in an RCU critical section; the BQL is
 * not needed.  Allocates @rb->written and @rb->looked, which have to be given
 * to page_bitmap_free() when @rb->bmap is.
 * Returns: how many pages were not in @rb->bmap before.
 */
uint64_t cpu_physical_memory_take_published(struct RAMBlock *rb);

/*
 * cpu_physical_memory_forget:
 * The guest has said that it does not use [@first, @first + @pages) of @rb:
 * these pages need not be sent.  It may have taken some back since it said so,
 * and written them, and no later sync would find those that were taken
 * meanwhile.  So they stay in @rb->bmap: all that
 * cpu_physical_memory_take_published() has taken since the last sync, and what
 * cpu_physical_memory_clear_and_take() has added.  Of what a clear finds of
 * pages that were in @rb->bmap before nobody knows whether it is older: in the
 * first round that sends, that may be all that the guest has ever written, and
 * no free page could be left out.  Called with the lock that guards @rb->bmap.
 * Returns: how many pages were in @rb->bmap and are no longer; 0 for memory
 * that is not sent, or was ejected.
 */
uint64_t cpu_physical_memory_forget(struct RAMBlock *rb, unsigned long first,
                                    unsigned long pages);

/*
 * cpu_physical_memory_count_written:
 * Called after cpu_physical_memory_sync_dirty_bitmap() for all of @rb, which
 * returned @synced, under the same locks.
 * Returns: how many pages were added to @rb->bmap since the sync before, each
 * counted once whether a clear has found it, the sync, or both.
 */
uint64_t cpu_physical_memory_count_written(struct RAMBlock *rb,
                                           uint64_t synced);

/*
 * memory_region_update_dirty_log_masks:
 * Start and stop logging after a change to something that
 * memory_region_get_dirty_log_mask() depends on.  Called with the BQL.
 */
void memory_region_update_dirty_log_masks(void);

#endif
