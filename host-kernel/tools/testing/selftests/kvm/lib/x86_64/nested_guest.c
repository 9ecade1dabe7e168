// SPDX-License-Identifier: GPL-2.0-only
#include "test_util.h"
#include "nested_guest.h"
#include "nested_svm.h"
#include "nested_vmx.h"

/* An entry that maps a large page has the same bit in both kinds of tables. */
#define NESTED_LARGE		PTE_LARGE_MASK

#define NESTED_STACK_PAGES	2

bool nested_guests_supported(void)
{
	return (kvm_cpu_has(X86_FEATURE_SVM) || kvm_cpu_has(X86_FEATURE_VMX)) &&
	       kvm_is_tdp_enabled();
}

uint64_t nested_page(void)
{
	return NESTED_TABLE |
	       (kvm_cpu_has(X86_FEATURE_VMX) ? VMX_EPT_WRITE_BACK : 0);
}

void nested_map_range(struct kvm_vm *vm, vm_paddr_t root, uint64_t l2_gpa,
		      uint64_t l1_gpa, uint64_t size, int level)
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

vm_paddr_t nested_root_alloc(struct kvm_vm *vm)
{
	vm_paddr_t root = vm_alloc_page_table(vm);

	nested_map_range(vm, root, 0, 0, 16 * PG_SIZE_2M, PG_LEVEL_2M);
	return root;
}

void nested_vcpu_alloc(struct kvm_vm *vm, vm_paddr_t root,
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

void nested_leave(struct nested_vcpu *nested)
{
	if (nested->vmx)
		nested_vmx_leave();
	else
		nested_svm_leave();
}

/* Where an L2 begins: calls the function on the stack with its argument. */
static __attribute__((naked)) void nested_entry(void)
{
	asm("mov 8(%rsp), %rdi\n\t"
	    "call *(%rsp)\n\t"
	    "ud2");
}

void nested_start(struct nested_vcpu *nested, void (*l2)(uint64_t arg),
		  uint64_t arg)
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

void nested_use_root(struct nested_vcpu *nested, vm_paddr_t root)
{
	if (nested->vmx)
		nested_vmx_use_root(root);
	else
		nested_svm_use_root(nested->svm, root);
}

void nested_run(struct nested_vcpu *nested)
{
	if (nested->vmx)
		nested_vmx_run(nested->started);
	else
		nested_svm_run(nested->svm);
	nested->started = true;
}
