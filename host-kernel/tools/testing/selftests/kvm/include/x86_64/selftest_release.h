/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What differs between the selftests of the releases of Linux that these tests
 * join.  The names are those of the newest release, where it has one.
 */
#ifndef SELFTEST_KVM_SELFTEST_RELEASE_H
#define SELFTEST_KVM_SELFTEST_RELEASE_H

#include <linux/version.h>

#include "kvm_util.h"
#include "processor.h"
#include "test_util.h"

/*
 * clear_bit() of 6.12's tools/arch/x86 flips the bit instead, so that no test may
 * clear a bit that may be clear already.  __clear_bit() is right.
 */

/* 6.3: the vendor of the host's CPU is in variables. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
#define host_cpu_is_intel	is_intel_cpu()
#endif

/* 6.6: renamed. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 6, 0) && !defined(TEST_ASSERT_EQ)
#define TEST_ASSERT_EQ		ASSERT_EQ
#endif

/*
 * In a guest: fails with two values unless @condition holds; the host reports that
 * by REPORT_GUEST_ASSERT_VALUES().  6.6: the guest formats the message.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 6, 0)
#define GUEST_ASSERT_VALUES(condition, a, b)	GUEST_ASSERT_2(condition, a, b)
#define REPORT_GUEST_ASSERT_VALUES(uc)				\
	REPORT_GUEST_ASSERT_2(uc, "values: %#lx, %#lx")
#else
#define GUEST_ASSERT_VALUES(condition, a, b)			\
	__GUEST_ASSERT(condition, "values: %#lx, %#lx",		\
		       (unsigned long)(a), (unsigned long)(b))
#define REPORT_GUEST_ASSERT_VALUES(uc)	REPORT_GUEST_ASSERT(uc)
#endif

/* 6.8: a VM has a shape, its mode and its type. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
#define VM_SHAPE_DEFAULT	VM_MODE_DEFAULT
#endif

/*
 * 6.2: the library makes a VM without memory, and adds slot 0 and what it needs there
 * afterwards.  vm_has_memory() is for a slot 0 that is not the library's.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
static inline struct kvm_vm *vm_without_memory(void)
{
	return ____vm_create(VM_MODE_DEFAULT, 0);
}

static inline void vm_has_memory(struct kvm_vm *vm)
{
	vm_create_irqchip(vm);
}
#else
static inline struct kvm_vm *vm_without_memory(void)
{
	return ____vm_create(VM_SHAPE_DEFAULT);
}

static inline void vm_has_memory(struct kvm_vm *vm)
{
	ucall_init(vm, memslot2region(vm, 0)->region.memory_size);
	kvm_arch_vm_post_create(vm);
}
#endif

/*
 * 6.11: KVM_PRE_FAULT_MEMORY maps the pages of a range for a vCPU that does not
 * run.  Returns 0, or -1 with errno.
 */
#ifdef KVM_PRE_FAULT_MEMORY
static inline bool can_pre_fault(void)
{
	return kvm_has_cap(KVM_CAP_PRE_FAULT_MEMORY);
}

static inline int __vcpu_pre_fault(struct kvm_vcpu *vcpu, uint64_t gpa,
				   uint64_t size)
{
	struct kvm_pre_fault_memory range = { .gpa = gpa, .size = size };
	int ret;

	do
		ret = __vcpu_ioctl(vcpu, KVM_PRE_FAULT_MEMORY, &range);
	while (!ret && range.size);
	return ret;
}
#else
static inline bool can_pre_fault(void)
{
	return false;
}

static inline int __vcpu_pre_fault(struct kvm_vcpu *vcpu, uint64_t gpa,
				   uint64_t size)
{
	errno = ENOTTY;
	return -1;
}
#endif

/* 6.12: without this quirk a slot that goes takes only its own pages along. */
#ifndef KVM_X86_QUIRK_SLOT_ZAP_ALL
#define KVM_X86_QUIRK_SLOT_ZAP_ALL	(1 << 7)
#endif

#endif /* SELFTEST_KVM_SELFTEST_RELEASE_H */
