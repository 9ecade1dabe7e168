/* SPDX-License-Identifier: GPL-2.0-only */
/* How nested_guest.h runs an L2 by SVM. */
#ifndef SELFTEST_KVM_NESTED_SVM_H
#define SELFTEST_KVM_NESTED_SVM_H

#include "svm_util.h"

void nested_svm_leave(void);

__asm__(
"	.pushsection .text\n"
"nested_svm_leave:\n"
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

static inline void nested_svm_use_root(struct svm_test_data *svm,
				       vm_paddr_t root)
{
	svm->vmcb->control.nested_cr3 = root;
	svm->vmcb->control.tlb_ctl = TLB_CONTROL_FLUSH_ALL_ASID;
}

static inline void nested_svm_start(struct svm_test_data *svm, void *rip,
				    void *rsp, vm_paddr_t root)
{
	struct vmcb *vmcb = svm->vmcb;

	generic_svm_setup(svm, rip, rsp);
	if (root)
		vmcb->control.nested_ctl = SVM_NESTED_CTL_NP_ENABLE;
	vmcb->control.nested_cr3 = root;
	vmcb->save.rflags = X86_EFLAGS_FIXED;
}

static inline void nested_svm_run(struct svm_test_data *svm)
{
	struct vmcb *vmcb = svm->vmcb;

	/* What is below the stack pointer is the compiler's. */
	asm volatile("lea -128(%%rsp), %%rsp\n\t"
		     "push %%rbp\n\t"
		     "vmload %%rax\n\t"
		     "vmrun %%rax\n\t"
		     "vmsave %%rax\n\t"
		     "pop %%rbp\n\t"
		     "lea 128(%%rsp), %%rsp"
		     : : "a" (svm->vmcb_gpa)
		     : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10",
		       "r11", "r12", "r13", "r14", "r15", "cc", "memory");
	GUEST_ASSERT_2(vmcb->control.exit_code == SVM_EXIT_VMMCALL,
		       vmcb->control.exit_code, vmcb->control.exit_info_2);
	vmcb->save.rip += 3;
}

#endif /* SELFTEST_KVM_NESTED_SVM_H */
