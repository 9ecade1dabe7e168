/*
 * Whether a migration comes to its end, and what is done if it does not.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A migration stalls when more pages become dirty than
 * throttle-trigger-threshold percent of those that it sends meanwhile.  From
 * then on:
 *
 *  - dirty page tracking that costs a guest nothing costs it a write fault for
 *    each page that it writes again, as write-protection always does (the brake
 *    of dirty-tracking.h);
 *  - pages that are hot may wait for the stop (hot-ram.h);
 *  - with the capability auto-converge, those vCPUs that write are slowed down,
 *    each as much as it takes, and let go when it is no longer needed.
 *
 * With auto-converge a look asks dirty page tracking up to 20 times a second,
 * in the middle of a round and without the BQL, which pages were written.
 *
 * Without an accelerator that tracks dirty pages by itself, and with COLO,
 * there are no looks, and auto-converge is upstream's.
 *
 * All functions are called on the migration thread, unless a comment says
 * otherwise.
 */

#ifndef MIGRATION_CONVERGE_H
#define MIGRATION_CONVERGE_H

#include "qapi/qapi-types-migration.h"

/*
 * converge_end_sync: A sync has ended, of whatever kind.  If it was that of
 * converge_sync_locked(), a round has ended, too; the first one of all ends the
 * set-up of a migration.  Called with the BQL held, on any thread, or in COLO
 * while the guest stands still.
 */
void converge_end_sync(void);

/*
 * converge_sync_ahead: A sync that ends a round is about to follow.  Called
 * without the BQL.
 */
void converge_sync_ahead(void);

/*
 * converge_sync_locked: The BQL has been taken for that sync.
 */
void converge_sync_locked(void);

/*
 * converge_stop_size: @size bytes are sent in the downtime limit.
 * Returns: how many bytes may remain when the guest is to be stopped.
 */
uint64_t converge_stop_size(uint64_t size);

/*
 * converge_run: Look, if it is time, and act upon what was seen.  To be called
 * whenever something has been sent, without any lock.
 */
void converge_run(void);

/*
 * converge_forget: @pages of those that remain are not sent, as they have been
 * ejected.
 */
void converge_forget(uint64_t pages);

/*
 * converge_end: The migration is over: no vCPU is slowed down any longer.
 * Called without the BQL.
 */
void converge_end(void);

/*
 * converge_pending: @bytes remain of all that is to be sent, RAM and others.
 * To be called whenever QEMU has counted them for the next iteration.
 * @exact: it is no estimate.  A device may estimate nothing of what it has to
 *         send after the stop, so that less than the last exact number is not
 *         believed.
 */
void converge_pending(uint64_t bytes, bool exact);

/*
 * converge_room: Returns: of the bytes that may remain when the guest is
 * stopped, those that others than RAM leave to it.
 */
uint64_t converge_room(void);

/*
 * converge_crosses: @pages of RAM remain.  Returns: whether they have become
 * few enough for the guest to be stopped, and the last sync was long enough
 * ago: it is time to sync then.  If it was not, that of each iteration
 * follows, as in QEMU without this.
 */
bool converge_crosses(uint64_t pages);

/* Returns: whether converge_crosses() was true since the last call. */
bool converge_crossed(void);

/* converge_stalled: Returns: whether it has stalled since it began. */
bool converge_stalled(void);

/*
 * converge_replaces: Returns: whether upstream's auto-converge is not needed.
 */
bool converge_replaces(void);

/*
 * converge_populate: Fill in what query-migrate says; with the BQL held.  The
 * migration thread counts without it, so that one answer may have figures of
 * two periods.
 */
void converge_populate(MigrationInfo *info);

#endif
