/*
 * Dirty page tracking of a KVM guest: what kvm-all.c calls.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The tracking itself is libkvmdirty's (accel/kvm/dirty/kvmdirty.h); this is
 * its adapter to KVMState, KVMSlot and the memory listener.  The BQL is held
 * by the caller, unless a function says otherwise.
 */

#ifndef ACCEL_KVM_DIRTY_ADAPTER_H
#define ACCEL_KVM_DIRTY_ADAPTER_H

#include "sysemu/kvm_int.h"

/* kvm-all.c's; outside of it for dirty-adapter.c only. */
extern QemuMutex kml_slots_lock;

/* The accelerator's properties and their defaults. */
void kvm_dirty_class_init(ObjectClass *oc);
void kvm_dirty_instance_init(KVMState *s);
void kvm_dirty_instance_finalize(Object *obj);

/*
 * kvm_dirty_init: choose and enable a mechanism, once s->vmfd is there.
 * Returns: 0; or -errno, having told the user, if what was asked for is not to
 * be had.
 */
int kvm_dirty_init(KVMState *s);

/*
 * kvm_dirty_cleanup: undo kvm_dirty_init(), if it was called, when KVM cannot
 * be used after all; before s->vmfd is closed, with no vCPU and no slot made.
 */
void kvm_dirty_cleanup(KVMState *s);

/* The log_* members of @kml's listener that read and re-arm the log. */
void kvm_dirty_listener_init(KVMState *s, KVMMemoryListener *kml);

/*
 * kvm_dirty_set_region: KVM_SET_USER_MEMORY_REGION with @mem, which describes
 * @slot; called with kml_slots_lock held.
 * Returns: what the ioctl returned, -errno on failure.
 */
int kvm_dirty_set_region(KVMState *s, const KVMSlot *slot,
                         const struct kvm_userspace_memory_region *mem);

/* On the vCPU's thread. 0, or -1 with @errp set. */
int kvm_dirty_init_vcpu(CPUState *cpu, Error **errp);
void kvm_dirty_destroy_vcpu(CPUState *cpu);

/* KVM_EXIT_DIRTY_RING_FULL; on the vCPU's thread, without the BQL. */
void kvm_dirty_ring_full(CPUState *cpu);

#endif
