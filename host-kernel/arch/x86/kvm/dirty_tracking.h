/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ARCH_X86_KVM_DIRTY_TRACKING_H
#define ARCH_X86_KVM_DIRTY_TRACKING_H

#include <linux/kvm_host.h>

/*
 * Whether the VM has enabled KVM_CAP_DIRTY_BITS, so that the CPU must set dirty
 * bits in all page tables that KVM has made.  For vendor modules, which cannot
 * use kvm_dirty_bits_enabled() as its static key is not exported.
 */
static inline bool kvm_uses_dirty_bits(const struct kvm *kvm)
{
	return kvm->arch.dirty_tracking.dirty_bits;
}

/*
 * Called by x86's ioctls on a VM for capabilities and ioctls that they do not
 * know.  Those that are not x86's own are passed on to kvm_dirty_tracking_*().
 */
int kvm_arch_dirty_tracking_check_extension(struct kvm *kvm, long ext);
int kvm_arch_dirty_tracking_enable_cap(struct kvm *kvm,
				       const struct kvm_enable_cap *cap);
long kvm_arch_dirty_tracking_vm_ioctl(struct kvm *kvm, unsigned int ioctl,
				      unsigned long arg);

#endif
