/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The cost of write-protection to a guest: the time that its vCPUs spend in
 * faults for writes to pages that are mapped read-only.
 */
#ifndef __KVM_X86_MMU_WRITE_FAULT_H
#define __KVM_X86_MMU_WRITE_FAULT_H

#include <linux/kvm_host.h>

#include "write_protect.h"

/*
 * One fault in so many of a vCPU is timed, and stands for all of them: reading
 * the clock twice and writing to a counter that all vCPUs share costs a tenth
 * of a fault.
 */
#define KVM_WRITE_FAULT_SAMPLE	64

/* Whether timed_page_fault() is to handle the vCPU's next fault. */
static inline bool kvm_times_write_fault(struct kvm_vcpu *vcpu, u64 error_code)
{
	const u64 read_only = PFERR_PRESENT_MASK | PFERR_WRITE_MASK;

	return kvm_write_protect_enabled(vcpu->kvm) &&
	       (vcpu->stat.pf_taken + 1) % KVM_WRITE_FAULT_SAMPLE == 0 &&
	       (error_code & read_only) == read_only;
}

/*
 * kvm_mmu_do_page_fault() for a fault that is not a prefetch, with its time
 * added to the VM's statistics.  A function of its own, so that faults that are
 * not timed do not pay for it.
 */
int timed_page_fault(struct kvm_vcpu *vcpu, gpa_t cr2_or_gpa, u64 error_code,
		     int *emulation_type);

#endif
