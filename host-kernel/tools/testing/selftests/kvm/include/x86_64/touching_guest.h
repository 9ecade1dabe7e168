/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A guest that touches the pages it is told to.  Each vCPU does what its command
 * says, tells the host, and waits in the host for the next command.
 */
#ifndef SELFTEST_KVM_TOUCHING_GUEST_H
#define SELFTEST_KVM_TOUCHING_GUEST_H

#include "kvm_util.h"

#define GUEST_MAX_VCPUS		8
#define GUEST_LIST_MAX		512

enum guest_op {
	GUEST_READ,
	GUEST_WRITE,
	GUEST_EXPECT,
};

/* First the pages of the list are touched, and then those by the stride. */
struct guest_command {
	enum guest_op op;
	uint64_t gva;
	uint64_t value;		/* what is written, or expected, at the start of a page */
	uint64_t stride;	/* in bytes */
	uint64_t count;		/* of pages that are a stride apart, from gva */
	uint32_t listed;	/* of pages in list */
	uint32_t list[GUEST_LIST_MAX];	/* in pages from gva */
};

/* By the vCPU's id.  The host sees a VM's own copy: see guest_command(). */
extern struct guest_command guest_commands[GUEST_MAX_VCPUS];

/*
 * Identity maps [@gpa, @gpa + @size) for the guest.  It uses pages of 1 GiB if
 * @size (in bytes) is that large and the CPU has them, or else of 2 MiB, and
 * maps whole ones.
 */
void guest_map(struct kvm_vm *vm, uint64_t gpa, uint64_t size);

/*
 * In the guest: reads 8 bytes at @gva, writes @value there, or fails the test if it
 * reads something else than @value.
 */
void guest_touch(enum guest_op op, uint64_t gva, uint64_t value);

/* In the guest: the code of vCPU @id, which does its commands for ever. */
void guest_toucher(uint64_t id);

/*
 * Returns the command of the vCPU, for the host to write before vcpu_run().
 * It belongs to the VM.
 */
struct guest_command *guest_command(struct kvm_vcpu *vcpu);

/* Runs the vCPU until it has done its command.  Fails on any other exit. */
void guest_finish(struct kvm_vcpu *vcpu);

/*
 * Has the vCPU touch @count addresses, @stride bytes apart, from @gva on, and
 * waits for it.  @value is what a write writes, and what is expected.
 */
void guest_stride(struct kvm_vcpu *vcpu, enum guest_op op, uint64_t gva,
		  uint64_t stride, uint64_t count, uint64_t value);

/*
 * Has the vCPU touch the @count pages whose numbers, from @gva on, are in
 * @pages, and waits for it.  @count is at most GUEST_LIST_MAX.
 */
void guest_list(struct kvm_vcpu *vcpu, enum guest_op op, uint64_t gva,
		const uint32_t *pages, uint32_t count, uint64_t value);

/* Has the vCPU write @value to @gva, and waits for it. */
void guest_write(struct kvm_vcpu *vcpu, uint64_t gva, uint64_t value);

/*
 * Adds @nr_vcpus vCPUs with ids from 0 that run guest_toucher(), and stores them
 * in @vcpus.  They belong to the VM.
 */
void add_touchers(struct kvm_vm *vm, int nr_vcpus, struct kvm_vcpu **vcpus);

/*
 * Enables the @nr_caps capabilities @caps of a VM without vCPUs in order, and then
 * adds @nr_vcpus vCPUs as add_touchers() does.
 */
void add_touchers_with(struct kvm_vm *vm, const uint32_t *caps, int nr_caps,
		       int nr_vcpus, struct kvm_vcpu **vcpus);

/*
 * Creates a VM, and does what add_touchers_with() does.  The caller frees the VM
 * with kvm_vm_free().
 */
struct kvm_vm *toucher_vm(const uint32_t *caps, int nr_caps, int nr_vcpus,
			  struct kvm_vcpu **vcpus);

#endif /* SELFTEST_KVM_TOUCHING_GUEST_H */
