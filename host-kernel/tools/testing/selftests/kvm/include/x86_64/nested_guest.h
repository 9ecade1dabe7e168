/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nested guests, by SVM or by VMX as the CPU has it, whose nested page tables
 * the test builds, and that may run on several vCPUs at once (the library keeps
 * an L2's registers in globals).
 */
#ifndef SELFTEST_KVM_NESTED_GUEST_H
#define SELFTEST_KVM_NESTED_GUEST_H

#include "kvm_util.h"
#include "processor.h"
#include "nested_svm.h"
#include "nested_vmx.h"

/*
 * An entry that leads to a table.  The same bits are present, writable and user
 * in nested page tables, and readable, writable and executable in EPT.
 */
#define NESTED_TABLE	7ULL

/* And that it maps a large page is the same bit in both. */
#define NESTED_LARGE	PTE_LARGE_MASK

static inline bool nested_guests_supported(void)
{
	return (kvm_cpu_has(X86_FEATURE_SVM) || kvm_cpu_has(X86_FEATURE_VMX)) &&
	       kvm_is_tdp_enabled();
}

/* The bits of an entry that maps a page of 4 KiB. */
static inline uint64_t nested_page(void)
{
	return NESTED_TABLE |
	       (kvm_cpu_has(X86_FEATURE_VMX) ? VMX_EPT_WRITE_BACK : 0);
}

/*
 * Maps [l2_gpa, l2_gpa + size) to l1_gpa in the tables below root, by pages of
 * that level.  The tables come out of slot 0.
 */
static inline void nested_map_range(struct kvm_vm *vm, vm_paddr_t root,
				    uint64_t l2_gpa, uint64_t l1_gpa,
				    uint64_t size, int level)
{
	uint64_t page = PG_LEVEL_SIZE(level), bits = nested_page();
	uint64_t offset, *entry;
	vm_paddr_t table;
	int i;

	TEST_ASSERT(!((l2_gpa | l1_gpa | size) % page), "not aligned");
	for (offset = 0; offset < size; offset += page) {
		table = root;
		for (i = PG_LEVEL_512G; ; i--) {
			entry = addr_gpa2hva(vm, table);
			entry += ((l2_gpa + offset) >> PG_LEVEL_SHIFT(i)) % 512;
			if (i == level)
				break;
			if (!*entry)
				*entry = vm_alloc_page_table(vm) | NESTED_TABLE;
			TEST_ASSERT(!(*entry & NESTED_LARGE), "mapped already");
			table = *entry & PHYSICAL_PAGE_MASK;
		}
		TEST_ASSERT(!*entry, "mapped already");
		*entry = (l1_gpa + offset) | bits;
		if (level != PG_LEVEL_4K)
			*entry |= NESTED_LARGE;
	}
}

/* The part of a memory map that every L2 of these tests needs: code, stacks. */
static inline vm_paddr_t nested_root_alloc(struct kvm_vm *vm)
{
	vm_paddr_t root = vm_alloc_page_table(vm);

	nested_map_range(vm, root, 0, 0, 16 * PG_SIZE_2M, PG_LEVEL_2M);
	return root;
}

/* What a vCPU needs for an L2, by the virtual addresses of the guest. */
struct nested_vcpu {
	struct svm_test_data *svm;	/* one of the two is NULL */
	struct vmx_pages *vmx;
	vm_vaddr_t stack;		/* its end */
	vm_paddr_t root;		/* 0: without nested paging */
	bool started;
};

#define NESTED_STACK_PAGES	2

static inline void nested_vcpu_alloc(struct kvm_vm *vm, vm_paddr_t root,
				     struct nested_vcpu *nested)
{
	vm_vaddr_t data;

	memset(nested, 0, sizeof(*nested));
	if (kvm_cpu_has(X86_FEATURE_VMX)) {
		vcpu_alloc_vmx(vm, &data);
		nested->vmx = (void *)data;
	} else {
		vcpu_alloc_svm(vm, &data);
		nested->svm = (void *)data;
	}
	nested->stack = vm_vaddr_alloc_pages(vm, NESTED_STACK_PAGES) +
			NESTED_STACK_PAGES * PAGE_SIZE;
	nested->root = root;
}

/*
 * In L2: back to L1, which may run it on.  Neither of them has the registers of
 * the other saved for it, but for the stack pointer.
 */
static inline void nested_leave(struct nested_vcpu *nested)
{
	if (nested->vmx)
		nested_vmx_leave();
	else
		nested_svm_leave();
}

extern char nested_entry[];
__asm__(
"	.pushsection .text\n"
"nested_entry:\n"
"	mov 8(%rsp), %rdi\n"
"	call *(%rsp)\n"
"	ud2\n"
"	.popsection\n"
);

/* In L1: have the next nested_run() call l2(arg), which must not return. */
static inline void nested_start(struct nested_vcpu *nested,
				void (*l2)(uint64_t arg), uint64_t arg)
{
	uint64_t *stack = (uint64_t *)nested->stack;

	/* The argument, and below it where the function would return to. */
	stack[-1] = arg;
	stack[-2] = (uint64_t)l2;
	if (nested->vmx)
		nested_vmx_start(nested->vmx, nested_entry, &stack[-2],
				 nested->root);
	else
		nested_svm_start(nested->svm, nested_entry, &stack[-2],
				 nested->root);
}

/*
 * In L1: the tables at root from the next nested_run() on.  Nothing that was
 * read of any tables before is used any more.
 */
static inline void nested_use_root(struct nested_vcpu *nested, vm_paddr_t root)
{
	if (nested->vmx)
		nested_vmx_use_root(root);
	else
		nested_svm_use_root(nested->svm, root);
}

/* In L1: runs L2 until it calls nested_leave(). */
static inline void nested_run(struct nested_vcpu *nested)
{
	if (nested->vmx)
		nested_vmx_run(nested->started);
	else
		nested_svm_run(nested->svm);
	nested->started = true;
}

#endif /* SELFTEST_KVM_NESTED_GUEST_H */
