// SPDX-License-Identifier: GPL-2.0-only
#include "test_random.h"

uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*state = x;
	return x * 0x2545f4914f6cdd1dULL;
}

uint64_t random_below(uint64_t *state, uint64_t n)
{
	return (next_random(state) >> 16) % n;
}
