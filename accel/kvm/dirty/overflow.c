/*
 * The answer to a dirty ring that has overflowed (I8).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Nobody can know which entries were overwritten.  Any page of a logged slot
 * may have been written, and any harvested page may not have been re-armed.
 * So we first re-arm all pages and then publish all of them, in this order
 * (I3).  KVM_WRITE_PROTECT_ALL_MEM re-arms them; without it we take the log
 * flag from each slot and give it back, which makes KVM write-protect the
 * whole slot.
 */

#include "mechanism.h"

#include <linux/kvm_dirty_tracking.h>

static int overflow_toggle_log(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    int ret;

    if (slot->gone) {
        return 0;
    }
    ret = kvmd_slot_log_flag(kvmd, slot, false);
    return ret < 0 ? ret : kvmd_slot_log_flag(kvmd, slot, true);
}

static int overflow_rearm(KvmDirty *kvmd)
{
    return kvmd_cap_enabled(kvmd, KVMD_CAP_PROTECT) ?
        kvmd_vm_ioctl(kvmd, KVM_WRITE_PROTECT_ALL_MEM, NULL) :
        kvmd_slots_foreach_logged(kvmd, overflow_toggle_log);
}

void kvmd_overflow(KvmDirty *kvmd, bool *unarmed)
{
    int64_t start = kvmd_now(), armed;
    int ret;

    if (!kvmd->stats.overflows) {
        kvmd_warn(kvmd, "a dirty ring overflowed or could not be reset, so "
                  "that all memory is taken as dirty: a larger "
                  "dirty-ring-size makes overflows rarer");
    }
    ret = overflow_rearm(kvmd);
    armed = kvmd_now();
    kvmd->stats.rearm_ns += armed - start;
    if (ret < 0 && !*unarmed) {
        kvmd_warn(kvmd, "write-protecting all memory after a dirty ring "
                  "overflowed failed (%s): all pages stay dirty",
                  g_strerror(-ret));
    }
    *unarmed = ret < 0;
    kvmd_slots_foreach_logged(kvmd, kvmd_publish_whole);
    kvmd->stats.publish_ns += kvmd_now() - armed;
    kvmd->stats.overflows++;
    if (kvmd->vmm.overflowed) {
        kvmd->vmm.overflowed(kvmd->opaque);
    }
}
