/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ARCH_X86_KVM_DIRTY_TRACKING_H
#define ARCH_X86_KVM_DIRTY_TRACKING_H

#include <linux/kvm_host.h>

/*
 * Whether the VM has enabled KVM_CAP_DIRTY_BITS: the CPUs' dirty bits must be
 * on wherever they run on page tables of KVM's.  For the vendor modules, which
 * do not see the static key that kvm_dirty_bits_enabled() looks at first.
 */
static inline bool kvm_uses_dirty_bits(const struct kvm *kvm)
{
	return kvm->arch.dirty_tracking.dirty_bits;
}

/*
 * What x86's ioctls on a VM ask if they know no better.  What is not for this
 * file goes on to kvm_dirty_tracking_*().
 */
int kvm_arch_dirty_tracking_check_extension(struct kvm *kvm, long ext);
int kvm_arch_dirty_tracking_enable_cap(struct kvm *kvm,
				       const struct kvm_enable_cap *cap);
long kvm_arch_dirty_tracking_vm_ioctl(struct kvm *kvm, unsigned int ioctl,
				      unsigned long arg);

#endif
