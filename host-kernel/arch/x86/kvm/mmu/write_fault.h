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
#include "write_protect.h"

/*
 * One in so many faults of a vCPU stands for all of them: to read the clock
 * twice, and to write to what all vCPUs share, costs a twentieth of a fault.
 */
#define KVM_WRITE_FAULT_SAMPLE	16

/* Returns what kvm_write_fault_end() wants; 0 if this fault does not count. */
static inline u64 kvm_write_fault_begin(struct kvm_vcpu *vcpu, u64 error_code)
{
	const u64 read_only = PFERR_PRESENT_MASK | PFERR_WRITE_MASK;

	if (!kvm_write_protect_enabled(vcpu->kvm) ||
	    (error_code & read_only) != read_only ||
	    vcpu->stat.pf_taken % KVM_WRITE_FAULT_SAMPLE)
		return 0;
	return local_clock();
}

static inline void kvm_write_fault_end(struct kvm_vcpu *vcpu, u64 begin)
{
	struct kvm_vm_stat *stat = &vcpu->kvm->stat;
	s64 ns;

	if (!begin)
		return;

	/* Clocks of two CPUs may differ, if this one has slept. */
	ns = max_t(s64, local_clock() - begin, 0);
	atomic64_add(KVM_WRITE_FAULT_SAMPLE, &stat->write_faults);
	atomic64_add(ns * KVM_WRITE_FAULT_SAMPLE, &stat->write_fault_ns);
}

#endif
