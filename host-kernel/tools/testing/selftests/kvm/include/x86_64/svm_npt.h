/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Nested guests on SVM whose nested page tables the test builds, and that may
 * run on several vCPUs at once (the library keeps an L2's registers in globals).
 */
#ifndef SELFTEST_KVM_SVM_NPT_H
#define SELFTEST_KVM_SVM_NPT_H

#include "kvm_util.h"
#include "processor.h"
#include "svm_util.h"

#define NPT_FLAGS	(PTE_PRESENT_MASK | PTE_WRITABLE_MASK | PTE_USER_MASK)

/*
 * Maps [l2_gpa, l2_gpa + size) to l1_gpa in the tables below root, by pages of
 * that level.  The tables come out of slot 0.
 */
static inline void npt_map(struct kvm_vm *vm, vm_paddr_t root, uint64_t l2_gpa,
			   uint64_t l1_gpa, uint64_t size, int level)
{
	uint64_t page = PG_LEVEL_SIZE(level), offset, *entry;
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
				*entry = vm_alloc_page_table(vm) | NPT_FLAGS;
			TEST_ASSERT(!(*entry & PTE_LARGE_MASK), "mapped already");
			table = *entry & PHYSICAL_PAGE_MASK;
		}
		TEST_ASSERT(!*entry, "mapped already");
		*entry = (l1_gpa + offset) | NPT_FLAGS;
		if (level != PG_LEVEL_4K)
			*entry |= PTE_LARGE_MASK;
	}
}

/* The part of a memory map that every L2 of these tests needs: code, stacks. */
static inline vm_paddr_t npt_alloc_root(struct kvm_vm *vm)
{
	vm_paddr_t root = vm_alloc_page_table(vm);

	npt_map(vm, root, 0, 0, 16 * PG_SIZE_2M, PG_LEVEL_2M);
	return root;
}

/* What a vCPU needs for an L2, by the virtual addresses of the guest. */
struct nested_vcpu {
	struct svm_test_data *svm;
	vm_vaddr_t stack;	/* its end */
	vm_paddr_t npt;
};

#define NESTED_STACK_PAGES	2

static inline void nested_vcpu_alloc(struct kvm_vm *vm, vm_paddr_t npt,
				     struct nested_vcpu *nested)
{
	vm_vaddr_t svm;

	vcpu_alloc_svm(vm, &svm);
	nested->svm = (void *)svm;
	nested->stack = vm_vaddr_alloc_pages(vm, NESTED_STACK_PAGES) +
			NESTED_STACK_PAGES * PAGE_SIZE;
	nested->npt = npt;
}

/*
 * In L2: back to L1, which may run it on.  Neither of them has the registers of
 * the other saved for it, but for the stack pointer.
 */
void nested_leave(void);

extern char nested_entry[];
__asm__(
"	.pushsection .text\n"
"nested_entry:\n"
"	mov 8(%rsp), %rdi\n"
"	call *(%rsp)\n"
"	ud2\n"
"nested_leave:\n"
"	push %rbx\n"
"	push %rbp\n"
"	push %r12\n"
"	push %r13\n"
"	push %r14\n"
"	push %r15\n"
"	vmmcall\n"
"	pop %r15\n"
"	pop %r14\n"
"	pop %r13\n"
"	pop %r12\n"
"	pop %rbp\n"
"	pop %rbx\n"
"	ret\n"
"	.popsection\n"
);

/* In L1: have the next nested_run() call l2(arg), which must not return. */
static inline void nested_start(struct nested_vcpu *nested,
				void (*l2)(uint64_t arg), uint64_t arg)
{
	struct vmcb *vmcb = nested->svm->vmcb;
	uint64_t *stack = (uint64_t *)nested->stack;

	/* The argument, and below it where the function would return to. */
	stack[-1] = arg;
	stack[-2] = (uint64_t)l2;
	generic_svm_setup(nested->svm, nested_entry, &stack[-2]);
	vmcb->control.nested_ctl = SVM_NESTED_CTL_NP_ENABLE;
	vmcb->control.nested_cr3 = nested->npt;
	vmcb->save.rflags = X86_EFLAGS_FIXED;
}

/* In L1: runs L2 until it calls nested_leave(). */
static inline void nested_run(struct nested_vcpu *nested)
{
	struct vmcb *vmcb = nested->svm->vmcb;

	/* What is below the stack pointer is the compiler's. */
	asm volatile("lea -128(%%rsp), %%rsp\n\t"
		     "push %%rbp\n\t"
		     "vmload %%rax\n\t"
		     "vmrun %%rax\n\t"
		     "vmsave %%rax\n\t"
		     "pop %%rbp\n\t"
		     "lea 128(%%rsp), %%rsp"
		     : : "a" (nested->svm->vmcb_gpa)
		     : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10",
		       "r11", "r12", "r13", "r14", "r15", "cc", "memory");
	GUEST_ASSERT_2(vmcb->control.exit_code == SVM_EXIT_VMMCALL,
		       vmcb->control.exit_code, vmcb->control.exit_info_2);
	vmcb->save.rip += 3;
}

#endif /* SELFTEST_KVM_SVM_NPT_H */
