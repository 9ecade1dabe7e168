// SPDX-License-Identifier: GPL-2.0-only
#include "test_util.h"
#include "kvm_util.h"
#include "processor.h"
#include "nested_svm.h"
#include "selftest_release.h"

__attribute__((naked)) void nested_svm_leave(void)
{
	asm("push %rbx\n\t"
	    "push %rbp\n\t"
	    "push %r12\n\t"
	    "push %r13\n\t"
	    "push %r14\n\t"
	    "push %r15\n\t"
	    "vmmcall\n\t"
	    "pop %r15\n\t"
	    "pop %r14\n\t"
	    "pop %r13\n\t"
	    "pop %r12\n\t"
	    "pop %rbp\n\t"
	    "pop %rbx\n\t"
	    "ret");
}

void nested_svm_use_root(struct svm_test_data *svm, vm_paddr_t root)
{
	svm->vmcb->control.nested_cr3 = root;
	svm->vmcb->control.tlb_ctl = TLB_CONTROL_FLUSH_ALL_ASID;
}

void nested_svm_start(struct svm_test_data *svm, void *rip, void *rsp,
		      vm_paddr_t root)
{
	struct vmcb *vmcb = svm->vmcb;

	generic_svm_setup(svm, rip, rsp);
	if (root)
		vmcb->control.nested_ctl = SVM_NESTED_CTL_NP_ENABLE;
	vmcb->control.nested_cr3 = root;
	vmcb->save.rflags = X86_EFLAGS_FIXED;
}

void nested_svm_run(struct svm_test_data *svm)
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
	GUEST_ASSERT_VALUES(vmcb->control.exit_code == SVM_EXIT_VMMCALL,
			    vmcb->control.exit_code, vmcb->control.exit_info_2);
	vmcb->save.rip += 3;
}
