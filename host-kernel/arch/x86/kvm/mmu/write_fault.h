/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What write-protection costs a guest: the time of its vCPUs in faults for
 * writes to what is mapped, but read-only.
 */
#ifndef __KVM_X86_MMU_WRITE_FAULT_H
#define __KVM_X86_MMU_WRITE_FAULT_H

#include <linux/kvm_host.h>
#include <linux/sched/clock.h>

#include "mmu.h"
#include "mmu_internal.h"
#include "write_protect.h"

/*
 * One in so many faults of a vCPU stands for all of them: to read the clock
 * twice, and to write to what all vCPUs share, costs a tenth of a fault.
 */
#define KVM_WRITE_FAULT_SAMPLE	64

/* Whether the next fault of the vCPU is one that timed_page_fault() is for. */
static inline bool kvm_times_write_fault(struct kvm_vcpu *vcpu, u64 error_code)
{
	const u64 read_only = PFERR_PRESENT_MASK | PFERR_WRITE_MASK;

	return kvm_write_protect_enabled(vcpu->kvm) &&
	       (vcpu->stat.pf_taken + 1) % KVM_WRITE_FAULT_SAMPLE == 0 &&
	       (error_code & read_only) == read_only;
}

/* kvm_mmu_do_page_fault(), out of the way of those that are not timed. */
static noinline int timed_page_fault(struct kvm_vcpu *vcpu, gpa_t cr2_or_gpa,
				     u32 error_code, int *emulation_type)
{
	struct kvm_vm_stat *stat = &vcpu->kvm->stat;
	u64 begin = local_clock();
	int r = kvm_mmu_do_page_fault(vcpu, cr2_or_gpa, error_code, false,
				      emulation_type);
	/* The clocks of two CPUs may differ, if the vCPU has slept. */
	s64 ns = max_t(s64, local_clock() - begin, 0);

	atomic64_add(KVM_WRITE_FAULT_SAMPLE, &stat->write_faults);
	atomic64_add(ns * KVM_WRITE_FAULT_SAMPLE, &stat->write_fault_ns);
	return r;
}

#endif
