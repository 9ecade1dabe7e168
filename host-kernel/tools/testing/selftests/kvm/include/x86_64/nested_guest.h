/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nested guests, by SVM or by VMX as the CPU has it.  The test builds their
 * nested page tables, and they may run on several vCPUs at once.  (The library
 * keeps an L2's registers in globals.)
 */
#ifndef SELFTEST_KVM_NESTED_GUEST_H
#define SELFTEST_KVM_NESTED_GUEST_H

#include "kvm_util.h"
#include "processor.h"

/*
 * An entry that leads to a table.  The same bits are present, writable and user
 * in nested page tables, and readable, writable and executable in EPT.
 */
#define NESTED_TABLE	7ULL

/* What a vCPU needs for an L2, by the virtual addresses of the guest. */
struct nested_vcpu {
	struct svm_test_data *svm;	/* one of the two is NULL */
	struct vmx_pages *vmx;
	vm_vaddr_t stack;		/* its end */
	vm_paddr_t root;		/* 0: without nested paging */
	bool started;
};

/* Whether KVM offers nested guests, and itself uses two-dimensional paging. */
bool nested_guests_supported(void);

/* Returns the bits, beside the address, of an entry that maps 4 KiB. */
uint64_t nested_page(void);

/*
 * Maps [@l2_gpa, @l2_gpa + @size) to @l1_gpa in the tables below @root, by pages
 * of @level (PG_LEVEL_*).  All three are in bytes and aligned to such a page, and
 * nothing may be mapped there yet.  The tables come out of slot 0.
 */
void nested_map_range(struct kvm_vm *vm, vm_paddr_t root, uint64_t l2_gpa,
		      uint64_t l1_gpa, uint64_t size, int level);

/*
 * Returns the root of new tables with what every L2 of these tests needs: code
 * and stacks.  They belong to the VM.
 */
vm_paddr_t nested_root_alloc(struct kvm_vm *vm);

/*
 * Allocates in the VM what a vCPU needs for an L2, and describes it in @nested.
 * @root is that of the L2's tables, or 0 for an L2 without nested paging.
 */
void nested_vcpu_alloc(struct kvm_vm *vm, vm_paddr_t root,
		       struct nested_vcpu *nested);

/*
 * In L2: back to L1, which may run it on.  Neither of them has the registers of
 * the other saved for it, but for the stack pointer.
 */
void nested_leave(struct nested_vcpu *nested);

/* In L1: have the next nested_run() call @l2(@arg), which must not return. */
void nested_start(struct nested_vcpu *nested, void (*l2)(uint64_t arg),
		  uint64_t arg);

/*
 * In L1: the tables at @root from the next nested_run() on.  The CPU uses
 * nothing any more that it has read of any tables before.
 */
void nested_use_root(struct nested_vcpu *nested, vm_paddr_t root);

/* In L1: runs L2 until it calls nested_leave(). */
void nested_run(struct nested_vcpu *nested);

#endif /* SELFTEST_KVM_NESTED_GUEST_H */
