/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Random arguments: most of them such as a VMM could give, some at the very
 * edge, and a few that nobody in their right mind would.
 */
#ifndef SELFTEST_KVM_FUZZ_ARGUMENTS_H
#define SELFTEST_KVM_FUZZ_ARGUMENTS_H

#include "world.h"

/*
 * Two slots have the middle of one of the windows: see witness.h.  Nobody may
 * touch the second.
 */
#define WITNESS_GPA	(6 * GIB + 300 * PAGE)
#define WITNESS_PAGES	700UL
#define STILL_GPA	(WITNESS_GPA + WITNESS_PAGES * PAGE)
#define STILL_PAGES	100UL

/* Returns an address where slots may lie, in bytes. */
uint64_t any_gpa(struct rng *rng);

/*
 * Returns @gpa if @npages pages from there on may be touched, or 0, where they
 * may be, if one of them may not.
 */
uint64_t without_still(uint64_t gpa, uint64_t npages);

/* Returns the number of pages of a slot. */
uint64_t any_npages(struct rng *rng);

/*
 * Returns an address of the fuzzer's that a slot can be made of.  Rarely, that is
 * a dirty bitmap's, even the slot's own.
 */
uint64_t any_hva(struct rng *rng);

/* The same, often where the page at @gpa can be part of a huge one. */
uint64_t any_hva_for(struct rng *rng, uint64_t gpa);

/* Returns a slot of the operation's VM, and its number for KVM in @id. */
struct slot *any_slot(struct op_call *call, uint32_t *id);

/* The same, but one that is there, if there are any. */
struct slot *live_slot(struct op_call *call, uint32_t *id);

/* Returns the number of a slot, or rarely one that no slot has. */
uint32_t any_slot_id(struct op_call *call);

/* Returns 0, or rarely something else. */
uint64_t mostly_zero(struct rng *rng);

/* Returns where an ioctl may be told to read or write. */
void *any_pointer(struct op_call *call);

/* Chooses a range, in bytes, for what goes through guest memory. */
void any_range(struct op_call *call, uint64_t *gpa, uint64_t *size);

#endif /* SELFTEST_KVM_FUZZ_ARGUMENTS_H */
