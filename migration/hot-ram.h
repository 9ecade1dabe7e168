/*
 * Hot pages of the guest's RAM wait until the guest has stopped.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * hot-pages.h chooses the pages of one block; this file serves all blocks, and
 * decides for how many pages there is room.  Pages that wait may fill half of
 * what others than RAM leave of the downtime limit (converge_room()); the other
 * half is for the pages that the guest writes in the last round.  Pages
 * that wait count as pages that remain, so the limit holds.
 *
 * The locking is that of RAMBlock.bmap, unless a function says otherwise.
 */

#ifndef MIGRATION_HOT_RAM_H
#define MIGRATION_HOT_RAM_H

#include "exec/ramblock.h"
#include "qapi/qapi-types-migration.h"

/*
 * hot_ram_begin_sync:
 * A sync is about to end a round: what RAMBlock.bmap has now was not sent in
 * it, but for what RAMBlock.written has, which was added since.  Called in an
 * RCU critical section.
 */
void hot_ram_begin_sync(void);

/*
 * hot_ram_end_round:
 * A sync has ended a round: choose the pages that wait in the next round.  No
 * page waits before the migration stalls (converge.h), if the guest has
 * stopped, since it is time to send them all then, or if the parameter
 * hot-pages-wait is off.  Called in an RCU critical section.
 */
void hot_ram_end_round(void);

/*
 * hot_ram_end_pass:
 * Only the @pages that wait are left to send.  If they are more than may remain
 * when the guest stops, no page waits any longer: otherwise the migration would
 * send nothing more and never sync again.  This happens when the bandwidth
 * falls, when clearing a chunk finds more dirty pages, and when more of
 * something else is to be sent.  Called in an RCU critical section.
 */
void hot_ram_end_pass(uint64_t pages);

/*
 * hot_ram_next:
 * Returns: the first page of @rb from @start on, below @end, that is to be sent
 * in this round; @end if there is none.
 */
unsigned long hot_ram_next(const RAMBlock *rb, unsigned long end,
                           unsigned long start);

/* hot_ram_cleanup: The migration is over.  Called with the BQL held. */
void hot_ram_cleanup(void);

/* hot_ram_populate: Fill in what query-migrate says; with the BQL held. */
void hot_ram_populate(MigrationInfo *info);

#endif
