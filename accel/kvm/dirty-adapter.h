/*
 * Dirty page tracking of a KVM guest, as kvm-all.c calls it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * libkvmdirty (accel/kvm/dirty/kvmdirty.h) does the tracking; this adapter
 * connects it to KVMState, KVMSlot and the memory listener.  The caller holds
 * the BQL, unless a function says otherwise.
 */

#ifndef ACCEL_KVM_DIRTY_ADAPTER_H
#define ACCEL_KVM_DIRTY_ADAPTER_H

#include "sysemu/kvm_int.h"

/* Defined in kvm-all.c; only dirty-adapter.c uses it outside of that file. */
extern QemuMutex kml_slots_lock;

/* The accelerator's properties and their defaults. */
void kvm_dirty_class_init(ObjectClass *oc);
void kvm_dirty_instance_init(KVMState *s);
void kvm_dirty_instance_finalize(Object *obj);

/*
 * kvm_dirty_init: choose and enable a mechanism, once s->vmfd exists.
 * Returns: 0; or -errno after an error report, if the host does not offer what
 * the user asked for.
 */
int kvm_dirty_init(KVMState *s);

/*
 * kvm_dirty_cleanup: undo kvm_dirty_init(), if it was called, because KVM
 * turned out to be unusable.  To be called before s->vmfd is closed, and
 * before any vCPU or slot exists.
 */
void kvm_dirty_cleanup(KVMState *s);

/* Set the members of @kml's listener that harvest and re-arm. */
void kvm_dirty_listener_init(KVMState *s, KVMMemoryListener *kml);

/*
 * kvm_dirty_set_region: KVM_SET_USER_MEMORY_REGION with @mem, which describes
 * @slot; called with kml_slots_lock held.
 * Returns: what the ioctl returned; -errno on failure, and sets errno.
 */
int kvm_dirty_set_region(KVMState *s, const KVMSlot *slot,
                         const struct kvm_userspace_memory_region *mem);

/* Called on the vCPU's thread.  Returns: 0, or -1 with @errp set. */
int kvm_dirty_init_vcpu(CPUState *cpu, Error **errp);
void kvm_dirty_destroy_vcpu(CPUState *cpu);

/* Handle KVM_EXIT_DIRTY_RING_FULL, on the vCPU's thread, without the BQL. */
void kvm_dirty_ring_full(CPUState *cpu);

#endif
