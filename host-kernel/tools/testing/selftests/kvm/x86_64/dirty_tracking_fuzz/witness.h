/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The witness is a slot of the first VM that operations migrate while all else
 * goes on.  They harvest, re-arm and copy it by turns, in any way that the VM
 * has.  When vCPUs are stopped, after one last harvest, the copy must be what the
 * memory is.  Nobody writes to the slot behind it, which shares a page table with
 * it, so that its bitmap must stay empty.
 */
#ifndef SELFTEST_KVM_FUZZ_WITNESS_H
#define SELFTEST_KVM_FUZZ_WITNESS_H

#include <pthread.h>

#include "arguments.h"

/* Where the memory of both slots is, as guests see it, and its size in bytes. */
#define WITNESS_HVA	0x150000000000UL
#define WITNESS_END	((WITNESS_PAGES + STILL_PAGES) * PAGE)

/* A thread holds the lock while it harvests, or uses the fields but running. */
struct witness {
	pthread_mutex_t lock;
	pthread_rwlock_t running;	/* read by what writes the first VM's memory */
	bool on;
	bool can_protect;
	unsigned long found[BITS_TO_LONGS(WITNESS_PAGES)];
};

extern struct witness witness;

/*
 * How many pages have changed between two copies, in all episodes.  Each is a
 * process, so they share it; a copy of what nobody writes to proves nothing.
 */
extern unsigned long *witness_changes;

/* Maps witness_changes, before the first episode. */
void count_witness_changes(void);

/* Maps its memory.  Its slots come with witness_start(). */
void make_witness(void);

/* Makes the slots and sets witness.on, unless KVM refuses.  The lock is held. */
void witness_start(void);

/* Harvests, re-arms and copies once.  The lock is held, and the witness on. */
void take_and_copy(struct rng *rng);

/*
 * Takes and copies for the last time, and fails if a page was lost or one is dirty
 * that nobody wrote to.  The lock is held, and no vCPU of the first VM runs.
 */
void witness_check(struct rng *rng);

#endif /* SELFTEST_KVM_FUZZ_WITNESS_H */
