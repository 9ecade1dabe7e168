/*
 * Pages of the guest's RAM that wait for the stop.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * hot-pages.h has how they are chosen in a block; this is for all blocks, and
 * for how many there is room.  Half of what the downtime limit lets through at
 * the measured bandwidth may wait: the other half is for what is written in the
 * last round.  When a migration may end is decided as ever, and the pages that
 * wait count as pages that remain, so that the limit holds.
 *
 * The locking is that of RAMBlock.bmap, unless a function says otherwise.
 */

#ifndef MIGRATION_HOT_RAM_H
#define MIGRATION_HOT_RAM_H

#include "exec/ramblock.h"
#include "qapi/qapi-types-migration.h"

/*
 * hot_ram_end_round:
 * A sync has ended a round: choose the pages that wait in the next.  None do
 * if the guest stands still, as then it is time to send them, nor if the
 * parameter hot-pages-wait is off.  Called in an RCU critical section.
 */
void hot_ram_end_round(void);

/*
 * hot_ram_end_pass:
 * All has been sent but for @pages that wait.  If they are more than may remain
 * when the guest stops, no page waits any longer: else nothing would be sent any
 * more, and no sync would come.  A falling bandwidth brings that about, and
 * what is found dirty as a chunk is cleared.  Called in an RCU critical section.
 */
void hot_ram_end_pass(uint64_t pages);

/*
 * hot_ram_next:
 * Returns: the first page of @rb from @start on, below @end, that is to be sent
 * in this round; @end if there is none.
 */
unsigned long hot_ram_next(const RAMBlock *rb, unsigned long end,
                           unsigned long start);

/* hot_ram_cleanup: The migration is over. */
void hot_ram_cleanup(void);

/* hot_ram_populate: Fill in what query-migrate says; with the BQL held. */
void hot_ram_populate(MigrationInfo *info);

#endif
