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

/* splitmix64 */
static inline uint64_t rng_next(struct rng *rng)
{
	uint64_t z = rng->state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static inline struct rng rng_of(uint64_t seed, uint64_t episode,
				uint64_t thread, uint64_t index)
{
	struct rng rng = { seed };

	rng.state = rng_next(&rng) ^ episode;
	rng.state = rng_next(&rng) ^ thread;
	rng.state = rng_next(&rng) ^ index;
	rng_next(&rng);
	return rng;
}

static inline uint64_t rng_below(struct rng *rng, uint64_t limit)
{
	return rng_next(rng) % limit;
}

/* True once in @n times. */
static inline bool rng_once_in(struct rng *rng, uint64_t n)
{
	return !rng_below(rng, n);
}

#define rng_pick(rng, array) ((array)[rng_below(rng, ARRAY_SIZE(array))])

#endif
