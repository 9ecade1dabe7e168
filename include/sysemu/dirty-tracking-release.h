/*
 * What differs between the releases of QEMU that dirty page tracking is for:
 * 7.2 and 10.0.  The code has today's names.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * scripts/lib/overlay.sh sees to the directories that have been renamed.
 */

#ifndef SYSEMU_DIRTY_TRACKING_RELEASE_H
#define SYSEMU_DIRTY_TRACKING_RELEASE_H

#include "qemu/main-loop.h"

#if QEMU_VERSION_MAJOR < 8

/* 8.0: an optional member that is a pointer, but no list, has no has_MEMBER. */
#define SET_OPTIONAL(object, member, value) do { \
        (object)->has_##member = true; \
        (object)->member = (value); \
    } while (0)
#define OPTIONAL_ARGUMENT(pointer) (pointer) != NULL, (pointer)

/* 8.1: the last sync of a migration is told from the others. */
#define LOG_SYNC_GLOBAL_PARAMETERS MemoryListener *listener

/* 8.1: statistics of a migration are Stat64, in migration-stats.h. */
#define migration_sync_count() (ram_counters.dirty_sync_count)

/* 8.1: capabilities are asked for by their names. */
#define migrate_colo() migrate_colo_enabled()
#define migrate_multifd() migrate_use_multifd()

/* 9.0: what was the lock of the iothread is the BQL. */
#define bql_lock() qemu_mutex_lock_iothread()
#define bql_unlock() qemu_mutex_unlock_iothread()
#define qemu_cond_wait_bql(cond) qemu_cond_wait_iothread(cond)
#define qemu_cond_timedwait_bql(cond, ms) qemu_cond_timedwait_iothread(cond, ms)

/* 9.1: block migration is gone; before, QEMU may be built without. */
#ifdef CONFIG_LIVE_BLOCK_MIGRATION
int blk_mig_bulk_active(void);
#define block_migration_is_bulk() blk_mig_bulk_active()
#else
#define block_migration_is_bulk() false
#endif

#else

#include "qapi/qapi-types-migration.h"
#include "migration/migration-stats.h"
#include "migration/options.h"

#define SET_OPTIONAL(object, member, value) ((object)->member = (value))
#define OPTIONAL_ARGUMENT(pointer) (pointer)
#define LOG_SYNC_GLOBAL_PARAMETERS MemoryListener *listener, bool last_stage
#define migration_sync_count() stat64_get(&mig_stats.dirty_sync_count)
#define block_migration_is_bulk() false
#define migration_is_idle() (!migration_is_running())

#endif

#endif
