/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the operations of an episode work on, all threads at once and without
 * locks: any of it may be gone, or be another, by the time it is used.
 */
#ifndef SELFTEST_KVM_FUZZ_WORLD_H
#define SELFTEST_KVM_FUZZ_WORLD_H

#include <stdio.h>

#include "kvm_util.h"
#include "guest.h"
#include "rng.h"

#define NR_VMS		2
#define NR_VCPUS	3
#define NR_SPACES	2
#define NR_SLOTS	4

/* What a slot was told to be last. */
struct slot {
	uint32_t flags;
	uint64_t gpa;
	uint64_t npages;
	uint64_t hva;
};

struct vm {
	int fd;
	int vcpus[NR_VCPUS];
	struct slot slots[NR_SPACES][NR_SLOTS];
};

/* A dirty bitmap's file; bitmap_base() has where it is mapped. */
struct bitmap {
	int fd;
};

extern int kvm_fd;
extern struct vm vms[NR_VMS];
extern struct bitmap bitmaps[NR_BITMAPS];

/* One operation that a thread is in. */
struct op_call {
	struct rng rng;
	int thread;
	int index;
	int vm;
};

extern bool verbose;

/* What an operation does, for who reads a sequence that fails. */
#define say(call, fmt, ...)						\
do {									\
	if (verbose)							\
		printf("%d.%d vm %d " fmt "\n", (call)->thread,		\
		       (call)->index, (call)->vm, ##__VA_ARGS__);	\
} while (0)

static inline struct vm *vm_of(struct op_call *call)
{
	return &vms[call->vm];
}

static inline int vm_fd(struct op_call *call)
{
	return READ_ONCE(vm_of(call)->fd);
}

static inline uint64_t run_of(int vm, int vcpu)
{
	return RUNS_BASE + (vm * NR_VCPUS + vcpu) * RUN_ROOM;
}

static inline uint64_t bitmap_base(int bitmap)
{
	return BITMAPS_BASE + bitmap * BITMAP_ROOM;
}

/* Closes @fd and sets it to -1.  Each file is closed once, by whoever took it. */
void close_shared(int *fd);

/* Sets a slot, as KVM_SET_USER_MEMORY_REGION does.  Returns -1 and errno. */
int set_region(int fd, uint32_t slot, const struct slot *what);

/* Puts a new VM into vms[], or a new vCPU into its VM, if KVM makes one. */
void create_vm(int number);
void create_vcpu(int vm, int number);

/* Opens KVM, and makes the guest and all memory.  There are no VMs yet. */
void make_world(void);

#endif /* SELFTEST_KVM_FUZZ_WORLD_H */
