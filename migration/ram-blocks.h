/*
 * The RAMBlocks of a migration, some of which a guest may eject meanwhile.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * QEMU refuses to unplug memory while it migrates.  But a guest may have been asked
 * before, and eject a DIMM or a PCI device with a ROM at any time.  Such a block is
 * no longer migratable: nothing more of it is sent.  What was about to be sent
 * of it, by the migration thread or by a channel of multifd, still needs its memory
 * and its name.  So a migration holds on to its blocks, which then have a clear_bmap,
 * until it is over.
 */

#ifndef MIGRATION_RAM_BLOCKS_H
#define MIGRATION_RAM_BLOCKS_H

#include "exec/ramblock.h"

/* ram_block_is_held: Returns: whether a migration holds @rb, which may be NULL. */
static inline bool ram_block_is_held(const RAMBlock *rb)
{
    return rb && rb->clear_bmap;
}

/*
 * ram_block_hold: A migration begins, and @rb has got its bitmaps.
 * Called with the BQL held.
 */
void ram_block_hold(RAMBlock *rb);

/*
 * ram_block_let_go: The migration is over; the bitmaps of @rb, if it has any, are
 * about to be freed, and its hot pages are now.  If it was ejected, its owner may be freed, and @rb be taken
 * off ram_list.  The caller may go on to the next block: RCU frees @rb later, with
 * the BQL.  Called with the BQL held.
 */
void ram_block_let_go(RAMBlock *rb);

/*
 * ram_blocks_changed: ram_list has changed since the last call, or a block is no
 * longer migratable.
 * @remaining: the pages that remain to be sent, to be corrected
 * Called by the migration thread, with RAMState.bitmap_mutex held, in an RCU
 * critical section.
 */
void ram_blocks_changed(uint64_t *remaining);

#endif
