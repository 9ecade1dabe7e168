/*
 * The RAMBlocks of a migration, some of which a guest may eject meanwhile.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * QEMU refuses to unplug memory while it migrates.  But a guest may have been
 * asked before, and eject a DIMM or a PCI device with a ROM at any time.  Such
 * a block is no longer migratable: nothing more of it is sent.  What was about
 * to be sent of it, by the migration thread or by another one, still needs its
 * memory and its name.  So a migration holds on to its blocks until all its
 * threads have ended.  A background snapshot has all of them as they were when
 * it began, and so has to save the rest of one that is ejected, too.
 */

#ifndef MIGRATION_RAM_BLOCKS_H
#define MIGRATION_RAM_BLOCKS_H

#include "exec/ramblock.h"

/*
 * ram_block_is_held: Called with the BQL held.
 * Returns: whether a migration holds @rb, which may be NULL.
 */
static inline bool ram_block_is_held(const RAMBlock *rb)
{
    return rb && rb->held;
}

/*
 * ram_block_stays_migratable: @rb, which a background snapshot may have to
 * save, is ejected.  Called with the BQL held.
 * Returns: whether that is so; it ceases to be migratable at the end.
 */
bool ram_block_stays_migratable(RAMBlock *rb);

/* ram_block_hold: A migration of @rb begins.  Called with the BQL held. */
void ram_block_hold(RAMBlock *rb);

/*
 * ram_blocks_let_go: The migration is over, and its bitmaps and threads are
 * gone.  The owner of a block that was ejected may be freed now.  Called with
 * the BQL held.
 */
void ram_blocks_let_go(void);

/*
 * ram_blocks_changed: ram_list has changed since the last call, or a block is
 * no longer migratable.
 * @remaining: the pages that remain to be sent, to be corrected
 * Called by the migration thread, with RAMState.bitmap_mutex held, in an RCU
 * critical section.
 */
void ram_blocks_changed(uint64_t *remaining);

#endif
