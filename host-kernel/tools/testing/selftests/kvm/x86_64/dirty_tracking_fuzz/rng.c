// SPDX-License-Identifier: GPL-2.0-only
#include "rng.h"

/* splitmix64 */
uint64_t rng_next(struct rng *rng)
{
	uint64_t z = rng->state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

struct rng rng_of(uint64_t seed, uint64_t episode, uint64_t thread,
		  uint64_t index)
{
	struct rng rng = { seed };

	rng.state = rng_next(&rng) ^ episode;
	rng.state = rng_next(&rng) ^ thread;
	rng.state = rng_next(&rng) ^ index;
	rng_next(&rng);
	return rng;
}

uint64_t rng_below(struct rng *rng, uint64_t limit)
{
	return rng_next(rng) % limit;
}

bool rng_once_in(struct rng *rng, uint64_t n)
{
	return !rng_below(rng, n);
}
