/*
 * The list of vCPUs.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "ground.h"

KvmDirtyVcpu *kvmd_vcpu_get(KvmDirty *kvmd, unsigned long id)
{
    for (guint i = 0; i < kvmd->vcpus->len; i++) {
        KvmDirtyVcpu *vcpu = g_ptr_array_index(kvmd->vcpus, i);

        if (vcpu->id == id) {
            return vcpu;
        }
    }
    return NULL;
}

KvmDirtyVcpu *kvmd_vcpu_new(KvmDirty *kvmd, unsigned long id)
{
    KvmDirtyVcpu *vcpu = g_new0(KvmDirtyVcpu, 1);

    vcpu->kvmd = kvmd;
    vcpu->id = id;
    g_ptr_array_add(kvmd->vcpus, vcpu);
    return vcpu;
}

void kvmd_vcpu_free(gpointer vcpu)
{
    kvmd_kvm_stats_close(((KvmDirtyVcpu *)vcpu)->kvm_stats);
    g_free(vcpu);
}
