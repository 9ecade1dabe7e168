/* SPDX-License-Identifier: GPL-2.0-only */
/* What KVM and the host count, page faults and page tables above all. */
#ifndef SELFTEST_KVM_MMU_STATS_H
#define SELFTEST_KVM_MMU_STATS_H

#include "kvm_util.h"

/* Whether KVM has a statistic of VMs with this name. */
bool vm_has_stat(struct kvm_vm *vm, const char *name);

/* Returns a statistic of the vCPU, which KVM must have. */
uint64_t vcpu_stat(struct kvm_vcpu *vcpu, const char *name);

/* Returns how many page faults of the vCPU KVM has handled, spurious ones too. */
uint64_t vcpu_page_faults(struct kvm_vcpu *vcpu);

/* Returns the KiB of that line of /proc/meminfo, or ~0 if there is none. */
uint64_t meminfo_kib(const char *name);

/*
 * Returns the KiB that KVM has allocated for the page tables of all VMs, or ~0
 * if the host does not say.
 */
uint64_t page_table_kib(void);

#endif /* SELFTEST_KVM_MMU_STATS_H */
