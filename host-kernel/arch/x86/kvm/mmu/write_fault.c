// SPDX-License-Identifier: GPL-2.0-only
/* Timing of the write faults that dirty tracking causes. */

#include <linux/kvm_dirty_release.h>
#include <linux/kvm_host.h>
#include <linux/sched/clock.h>

#include "mmu.h"
#include "mmu_internal.h"
#include "write_fault.h"

int timed_page_fault(struct kvm_vcpu *vcpu, gpa_t cr2_or_gpa, u64 error_code,
		     int *emulation_type)
{
	struct kvm_vm_stat *stat = &vcpu->kvm->stat;
	u64 begin = local_clock();
	int r = kvm_mmu_do_fault(vcpu, cr2_or_gpa, error_code, emulation_type);
	/* The clocks of two CPUs may differ, if the vCPU has slept. */
	s64 ns = max_t(s64, local_clock() - begin, 0);

	kvm_mmu_count_fault(vcpu);
	atomic64_add(KVM_WRITE_FAULT_SAMPLE, &stat->write_faults);
	atomic64_add(ns * KVM_WRITE_FAULT_SAMPLE, &stat->write_fault_ns);
	return r;
}
