/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A small generator of random numbers, the same in host and guest, for runs that
 * repeat.  A caller keeps the state, which it seeds with anything but 0.
 */
#ifndef SELFTEST_KVM_TEST_RANDOM_H
#define SELFTEST_KVM_TEST_RANDOM_H

#include <stdint.h>

/* Returns 64 random bits and advances @state. */
uint64_t next_random(uint64_t *state);

/* Returns a random number in [0, @n) and advances @state. */
uint64_t random_below(uint64_t *state, uint64_t n);

#endif /* SELFTEST_KVM_TEST_RANDOM_H */
