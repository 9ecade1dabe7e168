/*
 * query-dirty-tracking, set-dirty-tracking and "info dirty-tracking"; and the
 * part of migration's commands and events that is about dirty tracking.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "exec/memory.h"
#include "migration/colo.h"
#include "migration/migration.h"
#include "migration/misc.h"
#include "migration/ram.h"
#include "migration/threads.h"
#include "monitor/hmp.h"
#include "monitor/monitor.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-dirty-tracking.h"
#include "qapi/qapi-events-migration.h"
#include "sysemu/dirty-tracking.h"
#include "sysemu/dirty-tracking-release.h"

static const DirtyTrackingOps *ops;

void dirty_tracking_register(const DirtyTrackingOps *accel_ops)
{
    ops = accel_ops;
}

DirtyTrackingInfo *qmp_query_dirty_tracking(Error **errp)
{
    if (!ops) {
        error_setg(errp, "query-dirty-tracking is for guests that run under "
                   "KVM, and this one does not");
        return NULL;
    }
    return ops->info();
}

void dirty_tracking_begin(void)
{
    if (ops) {
        ops->begin();
    }
}

void dirty_tracking_end(void)
{
    if (ops) {
        ops->end();
    }
}

void dirty_tracking_sync_ahead(bool stop)
{
    if (ops) {
        ops->sync_ahead(stop);
    }
}

void dirty_tracking_look(void)
{
    if (ops) {
        ops->look();
    }
}

bool dirty_tracking_looks(void)
{
    return ops != NULL;
}

void dirty_tracking_brake(void)
{
    if (ops) {
        ops->brake();
    }
}

bool dirty_tracking_vcpu_writes(CPUState *cpu, uint64_t *writes)
{
    return ops && ops->vcpu_writes(cpu, writes);
}

bool dirty_tracking_tells_writers(void)
{
    return ops && ops->tells_writers();
}

void dirty_tracking_round(void)
{
    if (ops) {
        ops->round();
    }
}

void dirty_tracking_send_pass(int64_t pass)
{
    DirtyTrackingRound *round = ops ? ops->last_round() : NULL;

    qapi_event_send_migration_pass(pass, OPTIONAL_ARGUMENT(round));
}

void dirty_tracking_populate(MigrationInfo *info)
{
    /* A background snapshot does not sync, and has the last migration's. */
    info->dirty_tracking_rounds =
        ops && migration_sync_count() ? ops->rounds() : NULL;
    info->has_dirty_tracking_rounds = info->dirty_tracking_rounds != NULL;
}

bool dirty_tracking_clear_publishes(void)
{
    return ops && ops->clear_publishes();
}

bool dirty_tracking_guessed(void)
{
    return ops && ops->guessed();
}

bool dirty_tracking_may_guess(void)
{
    return ops && ops->may_guess();
}

void qmp_set_dirty_tracking(DirtyTrackingMechanism mechanism, Error **errp)
{
    if (!ops) {
        error_setg(errp, "set-dirty-tracking is for guests that run under "
                   "KVM, and this one does not");
    } else if (migration_goes_on()) {
        error_setg(errp, "set-dirty-tracking is not possible while a "
                   "migration or snapshot is active: wait for it or cancel "
                   "it");
    } else if (migration_incoming_colo_enabled()) {
        error_setg(errp, "set-dirty-tracking is not possible on a COLO "
                   "secondary");
    } else if (memory_global_dirty_log_wanted() & (GLOBAL_DIRTY_DIRTY_RATE |
                                                   GLOBAL_DIRTY_LIMIT)) {
        error_setg(errp, "set-dirty-tracking is not possible while the dirty "
                   "page rate is measured or limited: wait for it or cancel "
                   "it");
    } else {
        ops->set(mechanism, errp);
    }
}

static void print_time(Monitor *mon, const char *name, uint64_t ns)
{
    monitor_printf(mon, "%s: %" PRIu64 ".%03u ms\n", name,
                   ns / SCALE_MS, (unsigned)(ns % SCALE_MS / SCALE_US));
}

static void print_rings(Monitor *mon, const DirtyTrackingInfo *info)
{
    monitor_printf(mon, "ring size: %" PRIu32 " entries per vCPU\n",
                   info->ring_size);
    monitor_printf(mon, "ring-full exits: %" PRIu64 "\n",
                   info->ring_full_exits);
    print_time(mon, "vCPU time lost to full rings", info->ring_full_time);
    monitor_printf(mon, "overflows: %" PRIu64 "\n", info->overflows);
    monitor_printf(mon, "reaps: %" PRIu64 "\n", info->reaps);
    print_time(mon, "reap interval", info->reap_interval);
}

static void print_split(Monitor *mon, const DirtyTrackingSplit *split)
{
    monitor_printf(mon, "eager split: %s%s, %" PRIu64 " of %" PRIu64
                   " MiB gone through\n", OnOffAuto_str(split->mode),
                   split->active ? " (active)" : "",
                   split->done / MiB, split->total / MiB);
    print_time(mon, "split time", split->time);
}

static void print_rounds(Monitor *mon, const DirtyTrackingRoundList *rounds)
{
    for (; rounds; rounds = rounds->next) {
        const DirtyTrackingRound *round = rounds->value;

        monitor_printf(mon, "round %" PRIu64 ": %" PRIu64 " pages, harvest %"
                       PRIu64 " us, re-arm %" PRIu64 " us, publish %" PRIu64
                       " us, BQL %" PRIu64 " us, full rings %" PRIu64
                       " us", round->round, round->pages,
                       round->harvest_time / SCALE_US,
                       round->rearm_time / SCALE_US,
                       round->publish_time / SCALE_US,
                       round->bql_hold_time / SCALE_US,
                       round->ring_full_time / SCALE_US);
        if (round->has_faults) {
            monitor_printf(mon, ", %" PRIu64 " faults, guest time lost %"
                           PRIu64 " us", round->faults,
                           round->guest_time_lost / SCALE_US);
        }
        monitor_printf(mon, "\n");
    }
}

static void print_convergence(Monitor *mon, const MigrationConvergence *now)
{
    monitor_printf(mon, "convergence: %s, %" PRIu64 " of %" PRIu64
                   " kbytes/s written again\n",
                   now->stalled ? "stalled" : now->converges ? "yes" : "no",
                   now->write_rate / KiB, now->bandwidth / KiB);
    monitor_printf(mon, "to converge: a downtime of %" PRIu64 " ms, or %"
                   PRIu64 " kbytes/s, or a throttle of %u%%\n",
                   now->downtime_needed, now->bandwidth_needed / KiB,
                   now->throttle_needed);
}

void dirty_tracking_print(Monitor *mon, const MigrationInfo *info)
{
    if (info->convergence) {
        print_convergence(mon, info->convergence);
    }
    if (info->hot_pages) {
        monitor_printf(mon, "hot pages: %" PRIu64 " waiting, %" PRIu64
                       " waits, %" PRIu64 " kbytes saved\n",
                       info->hot_pages->waiting, info->hot_pages->waits,
                       info->hot_pages->saved_bytes / KiB);
    }
    print_rounds(mon, info->dirty_tracking_rounds);
}

void hmp_info_dirty_tracking(Monitor *mon, const QDict *qdict)
{
    Error *err = NULL;
    DirtyTrackingInfo *info = qmp_query_dirty_tracking(&err);
    DirtyTrackingPassedOverList *over;

    if (hmp_handle_error(mon, err)) {
        return;
    }
    monitor_printf(mon, "mechanism: %s (%s)\n",
                   DirtyTrackingMechanism_str(info->mechanism),
                   info->reason);
    for (over = info->passed_over; over; over = over->next) {
        monitor_printf(mon, "not %s: %s\n",
                       DirtyTrackingMechanism_str(over->value->mechanism),
                       over->value->reason);
    }
    monitor_printf(mon, "logged slots: %" PRIu32 "\n", info->logged_slots);
    monitor_printf(mon, "pages: %" PRIu64 " in %" PRIu64 " harvests\n",
                   info->pages, info->harvests);
    print_time(mon, "harvest time", info->harvest_time);
    print_time(mon, "re-arm time", info->rearm_time);
    print_time(mon, "publish time", info->publish_time);
    print_time(mon, "BQL hold time of syncs", info->bql_hold_time);
    if (info->ring_size) {
        print_rings(mon, info);
    }
    if (info->has_faults) {
        monitor_printf(mon, "write faults: about %" PRIu64 "\n",
                       info->faults);
        print_time(mon, "vCPU time lost to faults and full rings",
                   info->guest_time_lost);
    }
    print_split(mon, info->eager_split);
    print_rounds(mon, info->rounds);
    qapi_free_DirtyTrackingInfo(info);
}
