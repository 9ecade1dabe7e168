/*
 * The summary of ram_list.dirty_memory, so that a migration finds what was
 * written without a look at all of it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Each of its blocks is a page block, whose summary comes and goes with it.
 * Only the summary of DIRTY_MEMORY_MIGRATION is complete: who takes pages of
 * another client looks at a small part of it.
 *
 * Who clears bits need not clear the summary; only two do, one at a time:
 * cpu_physical_memory_sync_dirty_bitmap() and
 * cpu_physical_memory_take_cleared().
 */

#ifndef EXEC_DIRTY_MEMORY_H
#define EXEC_DIRTY_MEMORY_H

#include "exec/cpu-common.h"
#include "exec/page-bitmap.h"
#include "exec/ramlist.h"

struct RAMBlock;

/*
 * What new RAM is dirty for.  A migration begins with all pages, whether they
 * were written or not: it needs no bits to know of those that came before it.
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
 * Move what DIRTY_MEMORY_MIGRATION has of @rb to @rb->bmap.  Pages that were
 * harvested but not re-armed are noted in @rb->clear_bmap, or re-armed if
 * there is none.  Called with the BQL, in an RCU critical section, and with
 * whatever guards @rb->bmap.
 * Returns: how many pages were not in @rb->bmap before.
 */
uint64_t cpu_physical_memory_sync_dirty_bitmap(struct RAMBlock *rb,
                                               ram_addr_t start,
                                               ram_addr_t length);

/*
 * cpu_physical_memory_take_cleared:
 * memory_region_clear_dirty_bitmap() was called for the chunk that @page is in,
 * of those of @rb->clear_bmap.  If dirty page tracking has published what it
 * found by that (dirty_tracking_clear_publishes()), move what
 * DIRTY_MEMORY_MIGRATION has of the chunk to @rb->bmap.  Called with whatever
 * guards @rb->bmap, which keeps off syncs; neither the BQL nor RCU is needed.
 * Not in postcopy, where the other side knows what is yet to come.  It makes
 * @rb->written, to be given to page_bitmap_free() with @rb->bmap.
 * Returns: how many pages were not in @rb->bmap before.
 */
uint64_t cpu_physical_memory_take_cleared(struct RAMBlock *rb,
                                          unsigned long page);

/*
 * cpu_physical_memory_count_written:
 * Called after cpu_physical_memory_sync_dirty_bitmap() for all of @rb, which
 * returned @synced, and with what that is called with.
 * Returns: how many pages were added to @rb->bmap since the sync before, each
 * counted once whether a clear has found it, the sync, or both.
 */
uint64_t cpu_physical_memory_count_written(struct RAMBlock *rb,
                                           uint64_t synced);

/*
 * cpu_physical_memory_dirty_bits_cleared:
 * Bits of @length bytes from @start on, in one RAMBlock, were taken: see to it
 * that TCG sets them with the next write.
 */
void cpu_physical_memory_dirty_bits_cleared(ram_addr_t start,
                                            ram_addr_t length);

/*
 * memory_region_update_dirty_log_masks:
 * What memory_region_get_dirty_log_mask() depends on has changed: start and
 * stop logging accordingly.  Called with the BQL.
 */
void memory_region_update_dirty_log_masks(void);

#endif
