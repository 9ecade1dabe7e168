// SPDX-License-Identifier: GPL-2.0-only
#include "test_util.h"
#include "kvm_util.h"
#include "processor.h"
#include "nested_vmx.h"
#include "selftest_release.h"

/* INVEPT of all tables. */
#define VMX_INVEPT_GLOBAL	2UL

void nested_vmx_leave(void)
{
	vmcall();
}

/* The bits of the pointer to the tables beside their address stay as they are. */
void nested_vmx_use_root(vm_paddr_t root)
{
	static const struct { uint64_t eptp, reserved; } all;

	GUEST_ASSERT(!vmwrite(EPT_POINTER,
			      root | (vmreadz(EPT_POINTER) & ~PHYSICAL_PAGE_MASK)));
	asm volatile("invept %0, %1"
		     : : "m" (all), "r" (VMX_INVEPT_GLOBAL)
		     : "cc", "memory");
}

void nested_vmx_start(struct vmx_pages *vmx, void *rip, void *rsp,
		      vm_paddr_t root)
{
	vmx->eptp_gpa = root;
	GUEST_ASSERT(prepare_for_vmx_operation(vmx));
	GUEST_ASSERT(load_vmcs(vmx));
	prepare_vmcs(vmx, rip, rsp);
}

/*
 * vmlaunch() and vmresume() use the stack below its pointer.  The compiler has
 * nothing there in a function that calls others, as this one does.
 */
void nested_vmx_run(bool resume)
{
	int failed = resume ? vmresume() : vmlaunch();

	GUEST_ASSERT_VALUES(!failed, vmreadz(VM_INSTRUCTION_ERROR), 0);
	GUEST_ASSERT_VALUES(vmreadz(VM_EXIT_REASON) == EXIT_REASON_VMCALL,
			    vmreadz(VM_EXIT_REASON),
			    vmreadz(GUEST_PHYSICAL_ADDRESS));
	GUEST_ASSERT(!vmwrite(GUEST_RIP, vmreadz(GUEST_RIP) +
					 vmreadz(VM_EXIT_INSTRUCTION_LEN)));
}
