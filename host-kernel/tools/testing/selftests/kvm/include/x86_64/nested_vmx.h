/* SPDX-License-Identifier: GPL-2.0-only */
/* How nested_guest.h runs an L2 by VMX. */
#ifndef SELFTEST_KVM_NESTED_VMX_H
#define SELFTEST_KVM_NESTED_VMX_H

#include "vmx.h"

/* The memory type of an entry of EPT that maps a page. */
#define VMX_EPT_WRITE_BACK	(6 << 3)

/*
 * In L2: exits to L1, and returns when L1 runs L2 again.  It keeps the registers
 * that a function has to keep.
 */
void nested_vmx_leave(void);

/*
 * In L1: has the next nested_vmx_run() use the page tables at @root, and flushes
 * what is cached of any.
 */
void nested_vmx_use_root(vm_paddr_t root);

/*
 * In L1: enters VMX operation, and has the next nested_vmx_run() begin an L2 at
 * @rip, with the stack pointer @rsp and the page tables at @root, or none if
 * @root is 0.
 */
void nested_vmx_start(struct vmx_pages *vmx, void *rip, void *rsp,
		      vm_paddr_t root);

/*
 * In L1: runs L2 until nested_vmx_leave().  @resume says whether this VMCS has
 * run before.  Any other exit fails the test.
 */
void nested_vmx_run(bool resume);

#endif /* SELFTEST_KVM_NESTED_VMX_H */
