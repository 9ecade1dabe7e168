/*
 * The threads of a migration, which are there for longer than its state says.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "migration/misc.h"
#include "sysemu/dirty-tracking-release.h"
#include "migration.h"
#include "multifd.h"
#include "qemu-file.h"
#include "ram.h"
#include "threads.h"

bool migration_goes_on(void)
{
    return !migration_is_idle() ||
           migrate_get_current()->migration_thread_running;
}

bool migration_is_to_end(void)
{
    const MigrationState *s = migrate_get_current();

    return s->state == MIGRATION_STATUS_CANCELLING ||
           (s->state == MIGRATION_STATUS_FAILED && s->migration_thread_running);
}

bool migration_may_slow_vcpus(void)
{
    return !migration_is_idle() &&
           migrate_get_current()->state != MIGRATION_STATUS_CANCELLING;
}

static bool keeps(bool used, const char *name, int is, int wanted, Error **errp)
{
    if (!used || wanted == is) {
        return true;
    }
    error_setg(errp, "%s stays at %d until the migration is over", name, is);
    return false;
}

/* 9.1: no threads compress but those of multifd. */
static bool keeps_compressing(bool sends, const MigrationParameters *is,
                              const MigrationParameters *wanted, Error **errp)
{
#if QEMU_VERSION_MAJOR < 8
    return keeps(sends && migrate_use_compression(), "compress-threads",
                 is->compress_threads, wanted->compress_threads, errp) &&
           keeps(ram_decompresses(), "decompress-threads",
                 is->decompress_threads, wanted->decompress_threads, errp);
#else
    return true;
#endif
}

bool migration_keeps_threads(const MigrationParameters *wanted, Error **errp)
{
    const MigrationParameters *is = &migrate_get_current()->parameters;
    bool sends = migration_goes_on();

    return keeps((sends && migrate_multifd()) || multifd_recv_is_set_up(),
                 "multifd-channels", is->multifd_channels,
                 wanted->multifd_channels, errp) &&
           keeps_compressing(sends, is, wanted, errp);
}

#if QEMU_VERSION_MAJOR < 8
/* Later releases do so themselves. */
void migration_shut_down(MigrationState *s)
{
    bool ends = false;

    WITH_QEMU_LOCK_GUARD(&s->qemu_file_lock) {
        if (s->state == MIGRATION_STATUS_FAILED ||
            s->state == MIGRATION_STATUS_CANCELLING) {
            qemu_file_shutdown(s->to_dst_file);
        }
        if (s->rp_state.rp_thread_created) {
            ends = !s->rp_state.from_dst_file ||
                   qemu_file_shutdown(s->rp_state.from_dst_file) != -ENOSYS;
        }
    }
    if (ends) {
        qemu_sem_post(&s->postcopy_pause_rp_sem);
        qemu_thread_join(&s->rp_state.rp_thread);
        s->rp_state.rp_thread_created = false;
        /* If it did not wait, the next one must not take that for its own. */
        while (!qemu_sem_timedwait(&s->postcopy_pause_rp_sem, 0)) {
        }
    }
}
#else
/* A migration may come to the next of these meanwhile, but not go back. */
void migration_channel_failed(MigrationState *s)
{
    static const MigrationStatus states[] = {
        MIGRATION_STATUS_SETUP, MIGRATION_STATUS_ACTIVE,
        MIGRATION_STATUS_PRE_SWITCHOVER, MIGRATION_STATUS_DEVICE,
    };

    for (int i = 0; i < ARRAY_SIZE(states); i++) {
        migrate_set_state(&s->state, states[i], MIGRATION_STATUS_FAILED);
    }
    if (s->state == MIGRATION_STATUS_FAILED) {
        qemu_sem_post(&s->pause_sem);
    }
}
#endif
