/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ARCH_X86_KVM_DIRTY_TRACKING_H
#define ARCH_X86_KVM_DIRTY_TRACKING_H

#include <linux/kvm_host.h>

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
