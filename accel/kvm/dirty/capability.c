/*
 * What KVM offers, and what the virtual machine has of it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "ground.h"

#include <errno.h>
#include <linux/kvm_dirty_tracking.h>

static const struct {
    uint32_t capability;
    const char *name;
} caps[KVMD_CAP__MAX] = {
#define CAP(capability) { capability, #capability }
    [KVMD_CAP_PROTECT] = CAP(KVM_CAP_WRITE_PROTECT_ALL_MEM),
    [KVMD_CAP_FETCH] = CAP(KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT),
    [KVMD_CAP_MAP] = CAP(KVM_CAP_DIRTY_BITMAP_FD),
    [KVMD_CAP_DIRTY_BITS] = CAP(KVM_CAP_DIRTY_BITS),
#undef CAP
};

int kvmd_check_extension(KvmDirty *kvmd, long capability)
{
    int ret = kvmd_vm_ioctl(kvmd, KVM_CHECK_EXTENSION, (void *)capability);

    return MAX(ret, 0);
}

int kvmd_enable_cap(KvmDirty *kvmd, uint32_t capability, uint64_t arg)
{
    struct kvm_enable_cap cap = { .cap = capability, .args = { arg } };

    return kvmd_vm_ioctl(kvmd, KVM_ENABLE_CAP, &cap);
}

/* Returns: what KVM_CHECK_EXTENSION says of @cap, or 0 with @error set. */
static int cap_enable(KvmDirty *kvmd, KvmDirtyCap cap, const char *wanted_by,
                      GError **error)
{
    const char *name = caps[cap].name;
    int has = kvmd_check_extension(kvmd, caps[cap].capability);
    int ret;

    if (!has) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_HOST,
                    "dirty-tracking=%s is not possible: this host's KVM lacks %s",
                    wanted_by, name);
        return 0;
    }
    ret = kvmd_enable_cap(kvmd, caps[cap].capability, 0);
    if (ret < 0) {
        g_set_error(error, KVMD_ERROR,
                    ret == -EBUSY ? KVMD_ERROR_STARTED : KVMD_ERROR_REFUSED,
                    "dirty-tracking=%s is not possible: KVM refuses %s (%s)%s",
                    wanted_by, name, g_strerror(-ret),
                    ret == -EBUSY ? "; it has to be enabled before the first "
                    "vCPU, as dirty-tracking=auto does" : "");
        return 0;
    }
    return has;
}

bool kvmd_cap_need(KvmDirty *kvmd, KvmDirtyCap cap, const char *wanted_by,
                   GError **error)
{
    if (!kvmd->enabled[cap]) {
        kvmd->enabled[cap] = cap_enable(kvmd, cap, wanted_by, error);
    }
    return kvmd->enabled[cap];
}
