/*
 * query-dirty-tracking and "info dirty-tracking".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "monitor/hmp.h"
#include "monitor/monitor.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-dirty-tracking.h"
#include "sysemu/dirty-tracking.h"
#include "sysemu/kvm.h"

DirtyTrackingInfo *qmp_query_dirty_tracking(Error **errp)
{
    if (!kvm_enabled()) {
        error_setg(errp, "query-dirty-tracking is for guests that run under "
                   "KVM, and this one does not");
        return NULL;
    }
    return kvm_dirty_tracking_info();
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

void hmp_info_dirty_tracking(Monitor *mon, const QDict *qdict)
{
    Error *err = NULL;
    DirtyTrackingInfo *info = qmp_query_dirty_tracking(&err);

    if (hmp_handle_error(mon, err)) {
        return;
    }
    monitor_printf(mon, "mechanism: %s (%s)\n", info->mechanism,
                   info->reason);
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
    qapi_free_DirtyTrackingInfo(info);
}
