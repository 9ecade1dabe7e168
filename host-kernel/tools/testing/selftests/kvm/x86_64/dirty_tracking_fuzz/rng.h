/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Random numbers that follow from where they are asked for: a generator is made
 * for each operation, of the seed, the episode, the thread and the operation's
 * index.  So an operation that is left out changes nothing for the others.
 */
#ifndef SELFTEST_KVM_FUZZ_RNG_H
#define SELFTEST_KVM_FUZZ_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct rng {
	uint64_t state;
};

/* Returns the generator of one operation. */
struct rng rng_of(uint64_t seed, uint64_t episode, uint64_t thread,
		  uint64_t index);

/* Returns 64 random bits. */
uint64_t rng_next(struct rng *rng);

/* Returns a random number in [0, @limit). */
uint64_t rng_below(struct rng *rng, uint64_t limit);

/* Returns true once in @n times. */
bool rng_once_in(struct rng *rng, uint64_t n);

/* One of the elements of @array. */
#define rng_pick(rng, array) ((array)[rng_below(rng, ARRAY_SIZE(array))])

#endif /* SELFTEST_KVM_FUZZ_RNG_H */
