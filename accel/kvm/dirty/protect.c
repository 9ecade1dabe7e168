/*
 * Re-arming by write-protecting all memory, or all of a slot, at once.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * KVM_WRITE_PROTECT_ALL_MEM costs the same whatever was written and however
 * much memory there is, but every page that the guest goes on writing to
 * faults once more.  So it is for who wants all pages: a sync of one slot,
 * which is what a display does thirty times a second, write-protects that
 * slot, and a probe, which only wants to count, nothing at all.
 *
 * The order is the same for all of them: harvest (I2), re-arm, and publish
 * when KVM has flushed the TLBs (I3).  The pages of a probe are published
 * un-armed; whoever reads them syncs first, and that re-arms them.
 */

#include "engine.h"

#include <errno.h>
#include <linux/kvm_dirty_tracking.h>

bool kvmd_protect_enable_cap(KvmDirty *kvmd, KvmDirtyMechanism wanted_by,
                             uint32_t capability, const char *name,
                             GError **error)
{
    int ret;

    if (!kvmd_check_extension(kvmd, capability)) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_HOST,
                    "dirty-tracking=%s is not possible: this host's KVM lacks %s",
                    kvmd_mechanism_name(wanted_by), name);
        return false;
    }
    ret = kvmd_enable_cap(kvmd, capability, 0);
    if (ret < 0) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_HOST,
                    "dirty-tracking=%s is not possible: KVM refuses %s (%s)%s",
                    kvmd_mechanism_name(wanted_by), name, g_strerror(-ret),
                    ret == -EBUSY ? "; it has to be enabled before the first "
                    "vCPU, as dirty-tracking=auto does" : "");
        return false;
    }
    return true;
}

bool kvmd_protect_enable(KvmDirty *kvmd, KvmDirtyMechanism wanted_by,
                         GError **error)
{
    if (!kvmd->can_protect) {
        kvmd->can_protect = kvmd_protect_enable_cap(
            kvmd, wanted_by, KVM_CAP_WRITE_PROTECT_ALL_MEM,
            "KVM_CAP_WRITE_PROTECT_ALL_MEM", error);
    }
    return kvmd->can_protect;
}

int kvmd_protect_all(KvmDirty *kvmd)
{
    return kvmd_vm_ioctl(kvmd, KVM_WRITE_PROTECT_ALL_MEM, NULL);
}

static int protect_slot(KvmDirty *kvmd, const KvmDirtySlot *slot)
{
    struct kvm_write_protect_range range = {
        .gpa = slot->region.guest_phys_addr,
        .size = slot->region.memory_size,
    };

    return kvmd_vm_ioctl(kvmd, KVM_WRITE_PROTECT_RANGE, &range);
}

static int harvest(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    int64_t start = kvmd_now();
    int ret = kvmd->ops->harvest(kvmd, slot);

    kvmd->stats.harvest_ns += kvmd_now() - start;
    return ret;
}

/* Nobody can write to a slot that is gone. */
static int rearm_slot(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    int64_t start = kvmd_now();
    int ret = slot->gone ? 0 : protect_slot(kvmd, slot);

    kvmd->stats.rearm_ns += kvmd_now() - start;
    slot->unarmed = false;
    return ret;
}

static int armed(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    (void)kvmd;
    slot->unarmed = false;
    return 0;
}

static int rearm_all(KvmDirty *kvmd)
{
    int64_t start = kvmd_now();
    int ret = kvmd_protect_all(kvmd);

    kvmd->stats.rearm_ns += kvmd_now() - start;
    kvmd_slots_foreach_logged(kvmd, armed);
    return ret;
}

static int left_unarmed(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    (void)kvmd;
    slot->unarmed = true;
    return 0;
}

static int is_unarmed(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    (void)kvmd;
    return slot->unarmed;
}

/*
 * Publish what the sync found; or, if @ret says that a harvest or the re-arm
 * failed, all of @slot or, if NULL, of every slot.  Pages that may be neither
 * armed nor known stay so until all memory has been re-armed.
 */
static void publish(KvmDirty *kvmd, KvmDirtySlot *slot, int ret)
{
    int64_t start = kvmd_now();

    if (ret < 0 && !kvmd->rearm_failed) {
        kvmd_warn(kvmd, "finding or re-arming the dirty pages failed (%s): "
                  "all pages are taken as dirty until it succeeds",
                  g_strerror(-ret));
    }
    if (ret == 0 && !kvmd->rearm_failed) {
        kvmd_batch_publish(kvmd, kvmd->batch);
    } else if (slot) {
        kvmd_publish_whole(kvmd, slot);
    } else {
        kvmd_slots_foreach_logged(kvmd, kvmd_publish_whole);
    }
    kvmd->stats.publish_ns += kvmd_now() - start;
}

static void begin(KvmDirty *kvmd)
{
    kvmd->batch = kvmd_batch_new();
}

static void end(KvmDirty *kvmd)
{
    g_clear_pointer(&kvmd->batch, kvmd_batch_free);
}

int kvmd_protect_sync_slot(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    int ret, rearmed = 0;

    begin(kvmd);
    ret = harvest(kvmd, slot);
    if (!kvmd_batch_empty(kvmd->batch) || slot->unarmed) {
        rearmed = rearm_slot(kvmd, slot);
    }
    ret = ret ? ret : rearmed;
    publish(kvmd, slot, ret);
    kvmd->rearm_failed |= ret < 0;
    end(kvmd);
    return ret;
}

int kvmd_protect_sync_all(KvmDirty *kvmd)
{
    bool wanted = kvmd->rearm_failed;
    int ret, rearmed = 0;

    begin(kvmd);
    ret = kvmd_slots_foreach_logged(kvmd, harvest);
    if (wanted || !kvmd_batch_empty(kvmd->batch) ||
        kvmd_slots_foreach_logged(kvmd, is_unarmed)) {
        rearmed = rearm_all(kvmd);
    }
    ret = ret ? ret : rearmed;
    publish(kvmd, NULL, ret);
    kvmd->rearm_failed = ret < 0;
    end(kvmd);
    return ret;
}

/* A page that is published un-armed is not found again by the next probe. */
int kvmd_protect_probe_all(KvmDirty *kvmd)
{
    int ret;

    begin(kvmd);
    ret = kvmd_slots_foreach_logged(kvmd, harvest);
    if (!kvmd_batch_empty(kvmd->batch)) {
        kvmd_slots_foreach_logged(kvmd, left_unarmed);
    }
    publish(kvmd, NULL, ret);
    kvmd->rearm_failed |= ret < 0;
    end(kvmd);
    return ret;
}
