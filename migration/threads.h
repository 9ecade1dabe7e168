/*
 * The threads of a migration, which are there for longer than its state says.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_THREADS_H
#define MIGRATION_THREADS_H

#include "qapi/qapi-types-migration.h"

/*
 * migration_goes_on: called with the BQL held.
 * Returns: whether a migration or snapshot is active, or has failed and its
 * thread, which notices later, still looks at memory.
 */
bool migration_goes_on(void);

/*
 * migration_is_to_end: called with the BQL held.
 * Returns: whether a migration is being cancelled, or has failed and its
 * thread is still there: it may be stuck in what it sends.
 */
bool migration_is_to_end(void);

/*
 * migration_may_slow_vcpus: called with the BQL held.
 * Returns: whether vCPUs that were slowed down for a migration may stay so.
 * The thread of one that has failed or is cancelled may be stuck, and so not
 * let them go.
 */
bool migration_may_slow_vcpus(void);

/*
 * migration_keeps_threads: @wanted are all parameters as they are about to be.
 * Threads are as many as the parameters said when they were made, at the
 * source and at the destination; their users count them by the parameters.
 * Called with the BQL held.
 * Returns: false, and sets @errp, if @wanted would change how many there are.
 */
bool migration_keeps_threads(const MigrationParameters *wanted, Error **errp);

/*
 * migration_channel_failed: A channel of multifd has failed, and the migration
 * with it, unless it is in postcopy or over.  If its thread waits for
 * migrate-continue, it waits no longer.  Called on the thread of that channel,
 * without the BQL.  QEMU 7.2 has no such state: it waits for all channels
 * before it stops the guest.
 */
void migration_channel_failed(MigrationState *s);

/*
 * migration_shut_down: The thread of the migration has ended.  If the migration
 * has failed or is cancelled, nothing more is sent: the destination may not
 * read it.  The thread that reads what the destination says is ended, too, also
 * where it waits for the recovery of a postcopy, which nobody can ask for any
 * more.  It is left alone if its channel cannot be shut down, as the other end
 * may wait until ours is closed.  Called without the BQL.  Only for QEMU 7.2.
 */
void migration_shut_down(MigrationState *s);

#endif
