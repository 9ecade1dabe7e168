/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The guest reads and writes random pages.  It has no interrupt table, so that a
 * fault ends it, and the next run starts it anew.
 */
#ifndef SELFTEST_KVM_FUZZ_GUEST_H
#define SELFTEST_KVM_FUZZ_GUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"

/* The guest's code lies where no other slot does, in both address spaces. */
#define CODE_GPA	(3 * GIB)
#define CODE_SLOT	20

/* The pages from CODE_GPA on. */
enum code_page {
	PAGE_CODE,
	PAGE_PML4,
	PAGE_LOW,	/* maps the first 512 GiB */
	PAGE_TOP,	/* maps the last 512 GiB that the CPU can address */
	PAGE_VMCB,
	PAGE_HSAVE,
};

#define MAPPED_BY_ONE	(512 * GIB)

enum guest_mode {
	GUEST_PLAIN,
	GUEST_IN_SMM,
	GUEST_NESTED,
};

/* The code: where it begins, where a guest that nests begins, and the end. */
extern const char fuzz_guest[], fuzz_guest_nests[], fuzz_guest_end[];

extern uint64_t top_gpa;	/* the end of what the CPU can address */
extern bool has_svm;

static inline uint64_t code_gpa(enum code_page page)
{
	return CODE_GPA + page * PAGE;
}

/* Maps and fills the pages at CODE_BASE.  top_gpa is known by then. */
void make_guest(void);

/* Sets one MSR of the vCPU, if it can. */
void set_msr(int vcpu, uint32_t index, uint64_t data);

/* Has the vCPU touch @count pages of @npages, a power of two, from @gpa on. */
void set_guest(int vcpu, enum guest_mode mode, uint64_t gpa, uint64_t npages,
	       uint64_t count, uint64_t random);

#endif /* SELFTEST_KVM_FUZZ_GUEST_H */
