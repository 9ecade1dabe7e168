/* SPDX-License-Identifier: GPL-2.0-only */
/* How nested_guest.h runs an L2 by VMX. */
#ifndef SELFTEST_KVM_NESTED_VMX_H
#define SELFTEST_KVM_NESTED_VMX_H

#include "vmx.h"

/* The memory type of an entry of EPT that maps a page. */
#define VMX_EPT_WRITE_BACK	(VMX_BASIC_MEM_TYPE_WB << 3)

/* INVEPT of all tables. */
#define VMX_INVEPT_GLOBAL	2UL

static inline void nested_vmx_leave(void)
{
	vmcall();
}

/* What the pointer to the tables has beside their address stays as it is. */
static inline void nested_vmx_use_root(vm_paddr_t root)
{
	static const struct { uint64_t eptp, reserved; } all;

	GUEST_ASSERT(!vmwrite(EPT_POINTER,
			      root | (vmreadz(EPT_POINTER) & ~PHYSICAL_PAGE_MASK)));
	asm volatile("invept %0, %1"
		     : : "m" (all), "r" (VMX_INVEPT_GLOBAL)
		     : "cc", "memory");
}

static inline void nested_vmx_start(struct vmx_pages *vmx, void *rip, void *rsp,
				    vm_paddr_t root)
{
	vmx->eptp_gpa = root;
	GUEST_ASSERT(prepare_for_vmx_operation(vmx));
	GUEST_ASSERT(load_vmcs(vmx));
	prepare_vmcs(vmx, rip, rsp);
}

/*
 * The library's instructions use the stack below its pointer.  There the compiler
 * has nothing, as this calls functions.
 */
static inline void nested_vmx_run(bool resume)
{
	int failed = resume ? vmresume() : vmlaunch();

	GUEST_ASSERT_1(!failed, vmreadz(VM_INSTRUCTION_ERROR));
	GUEST_ASSERT_2(vmreadz(VM_EXIT_REASON) == EXIT_REASON_VMCALL,
		       vmreadz(VM_EXIT_REASON),
		       vmreadz(GUEST_PHYSICAL_ADDRESS));
	GUEST_ASSERT(!vmwrite(GUEST_RIP, vmreadz(GUEST_RIP) +
					 vmreadz(VM_EXIT_INSTRUCTION_LEN)));
}

#endif /* SELFTEST_KVM_NESTED_VMX_H */
