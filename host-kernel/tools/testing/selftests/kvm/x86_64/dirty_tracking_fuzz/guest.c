// SPDX-License-Identifier: GPL-2.0-only
#include <linux/kvm.h>
#include <sys/ioctl.h>

#include "processor.h"
#include "svm.h"
#include "guest.h"

uint64_t top_gpa;
bool has_svm;

/*
 * rdi: where its pages are; rsi: their number - 1; rcx: how many to touch; rbx:
 * the bits of the random number in rdx that make it write; r8 and r9 make the
 * next of these.
 */
asm(
	".pushsection .rodata\n"
	".global fuzz_guest, fuzz_guest_nests, fuzz_guest_end\n"
	"fuzz_guest:\n"
	"1:	imul %r8, %rdx\n"
	"	add %r9, %rdx\n"
	"	mov %rdx, %rax\n"
	"	shr $33, %rax\n"
	"	and %rsi, %rax\n"
	"	shl $12, %rax\n"
	"	test %rbx, %rdx\n"
	"	jz 2f\n"
	"	mov %rdx, (%rdi, %rax)\n"
	"	jmp 3f\n"
	"2:	mov (%rdi, %rax), %rax\n"
	"3:	loop 1b\n"
	"	out %al, $0x10\n"
	"	hlt\n"
	"fuzz_guest_nests:\n"
	"	vmrun\n"
	"	out %al, $0x10\n"
	"	hlt\n"
	"fuzz_guest_end:\n"
	".popsection\n"
);

static void *code_page(enum code_page page)
{
	return (void *)(CODE_BASE + page * PAGE);
}

/* Where the guest sees what is at this address; only the ends are mapped. */
static uint64_t guest_va(uint64_t gpa)
{
	if (gpa < MAPPED_BY_ONE)
		return gpa;
	return gpa - (top_gpa - MAPPED_BY_ONE) + MAPPED_BY_ONE;
}

static void make_page_tables(void)
{
	const uint64_t user = 7;	/* present, writable, for nested paging too */
	uint64_t *pml4 = code_page(PAGE_PML4);
	uint64_t *low = code_page(PAGE_LOW), *top = code_page(PAGE_TOP);
	int i;

	pml4[0] = code_gpa(PAGE_LOW) | user;
	pml4[1] = code_gpa(PAGE_TOP) | user;
	for (i = 0; i < 512; i++) {
		low[i] = i * GIB | user | 0x80;
		top[i] = (top_gpa - MAPPED_BY_ONE + i * GIB) | user | 0x80;
	}
}

static void set_segment(struct vmcb_seg *seg, uint16_t attributes)
{
	seg->selector = 8;
	seg->attrib = attributes;
	seg->limit = ~0U;
}

/* The same guest once more, with nested page tables that are its own. */
static void make_vmcb(void)
{
	struct vmcb *vmcb = code_page(PAGE_VMCB);
	const uint16_t data = 0xc93, code = 0xa9b;

	set_segment(&vmcb->save.es, data);
	set_segment(&vmcb->save.ss, data);
	set_segment(&vmcb->save.ds, data);
	set_segment(&vmcb->save.cs, code);
	vmcb->save.efer = EFER_SVME | EFER_LME | EFER_LMA;
	vmcb->save.cr0 = X86_CR0_PE | X86_CR0_PG | X86_CR0_WP | X86_CR0_ET;
	vmcb->save.cr3 = code_gpa(PAGE_PML4);
	vmcb->save.cr4 = X86_CR4_PAE;
	vmcb->save.dr6 = 0xffff0ff0;
	vmcb->save.dr7 = 0x400;
	vmcb->save.rflags = 2;
	vmcb->save.rip = code_gpa(PAGE_CODE);
	vmcb->save.g_pat = 0x7040600070406ULL;
	vmcb->control.intercept = 1ULL << INTERCEPT_VMRUN |
				  1ULL << INTERCEPT_SHUTDOWN;
	vmcb->control.asid = 1;
	vmcb->control.nested_ctl = SVM_NESTED_CTL_NP_ENABLE;
	vmcb->control.nested_cr3 = code_gpa(PAGE_PML4);
}

void make_guest(void)
{
	map_memory(CODE_BASE, CODE_SIZE, PROT_READ | PROT_WRITE);
	memcpy(code_page(PAGE_CODE), fuzz_guest, fuzz_guest_end - fuzz_guest);
	make_page_tables();
	make_vmcb();
}

static void set_system_registers(int vcpu)
{
	struct kvm_segment code = {
		.limit = ~0U, .selector = 8, .type = 11, .present = 1,
		.s = 1, .l = 1, .g = 1,
	};
	struct kvm_segment data = {
		.limit = ~0U, .selector = 8, .type = 3, .present = 1,
		.s = 1, .db = 1, .g = 1,
	};
	struct kvm_sregs sregs;

	if (ioctl(vcpu, KVM_GET_SREGS, &sregs))
		return;
	sregs.cs = code;
	sregs.ds = data;
	sregs.es = data;
	sregs.ss = data;
	sregs.cr0 = X86_CR0_PE | X86_CR0_PG | X86_CR0_WP | X86_CR0_ET;
	sregs.cr3 = code_gpa(PAGE_PML4);
	sregs.cr4 = X86_CR4_PAE;
	sregs.efer = EFER_LME | EFER_LMA | (has_svm ? EFER_SVME : 0);
	ioctl(vcpu, KVM_SET_SREGS, &sregs);
}

void set_msr(int vcpu, uint32_t index, uint64_t data)
{
	struct {
		struct kvm_msrs msrs;
		struct kvm_msr_entry entry;
	} one = { { .nmsrs = 1 }, { .index = index, .data = data } };

	ioctl(vcpu, KVM_SET_MSRS, &one);
}

/* Out of a nested guest that a signal has interrupted. */
static void leave_nested(int vcpu)
{
	struct kvm_nested_state state = {
		.flags = KVM_STATE_NESTED_GIF_SET,
		.format = KVM_STATE_NESTED_FORMAT_SVM,
		.size = sizeof(state),
	};

	ioctl(vcpu, KVM_SET_NESTED_STATE, &state);
}

static void set_smm(int vcpu, bool smm)
{
	struct kvm_vcpu_events events;

	if (ioctl(vcpu, KVM_GET_VCPU_EVENTS, &events))
		return;
	events.flags |= KVM_VCPUEVENT_VALID_SMM;
	events.smi.smm = smm;
	ioctl(vcpu, KVM_SET_VCPU_EVENTS, &events);
}

void set_guest(int vcpu, enum guest_mode mode, uint64_t gpa, uint64_t npages,
	       uint64_t count, uint64_t random)
{
	struct kvm_regs regs = {
		.rflags = 2,
		.rip = code_gpa(PAGE_CODE),
		.rax = code_gpa(PAGE_VMCB),
		.rdi = guest_va(gpa),
		.rsi = npages - 1,
		.rcx = count,
		.rdx = random,
		.rbx = 3ULL << 40,
		.r8 = 0x5851f42d4c957f2dULL,
		.r9 = 0x14057b7ef767814fULL,
	};

	if (mode == GUEST_NESTED)
		regs.rip += fuzz_guest_nests - fuzz_guest;
	if (has_svm)
		leave_nested(vcpu);
	set_smm(vcpu, mode == GUEST_IN_SMM);
	set_system_registers(vcpu);
	ioctl(vcpu, KVM_SET_REGS, &regs);
}
