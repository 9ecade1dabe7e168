/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between the releases of Linux that fast dirty tracking joins, for
 * its own files, which are the same for all of them.  The names are those of the
 * newest release, where it has one.  No other file asks for the version.
 */
#ifndef __LINUX_KVM_DIRTY_RELEASE_H
#define __LINUX_KVM_DIRTY_RELEASE_H

#include <linux/version.h>

/*
 * 6.3: kvm.tdp_mmu cannot be changed any more while the module is loaded, so that
 * all VMs have the TDP MMU or none has.  kvm_tdp_mmu_is_on() is about VMs that
 * are created now.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
#define kvm_has_tdp_mmu(kvm)	is_tdp_mmu_enabled(kvm)
#else
#define kvm_has_tdp_mmu(kvm)	tdp_mmu_enabled
#define kvm_tdp_mmu_is_on()	tdp_mmu_enabled
#endif

/* 6.3: the flags of a VMA are changed by functions that take its lock. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
#define vm_flags_set(vma, flags)	((void)((vma)->vm_flags |= (flags)))
#define vm_flags_clear(vma, flags)	((void)((vma)->vm_flags &= ~(flags)))
#endif

/* 6.5: renamed. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
#define kvm_flush_remote_tlbs_range	kvm_flush_remote_tlbs_with_address
#endif

/* 6.8: a VM that has private memory has one address space, for want of SMM. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
#define kvm_arch_nr_memslot_as_ids(kvm)	KVM_ADDRESS_SPACE_NUM
#endif

/*
 * Count a page fault, and handle one that is not a prefetch.  6.11: the caller of
 * kvm_mmu_do_page_fault() counts, can ask for the level of the mapping, and passes
 * all 64 bits of the error code.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
#define kvm_mmu_count_fault(vcpu)	do { } while (0)
#define kvm_mmu_do_fault(vcpu, gpa, error_code, type)			\
	kvm_mmu_do_page_fault(vcpu, gpa, lower_32_bits(error_code), false, type)
#else
#define kvm_mmu_count_fault(vcpu)	((vcpu)->stat.pf_taken++)
#define kvm_mmu_do_fault(vcpu, gpa, error_code, type)			\
	kvm_mmu_do_page_fault(vcpu, gpa, error_code, false, type, NULL)
#endif

#endif
