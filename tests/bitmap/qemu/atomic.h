/*
 * QEMU's atomic operations, with the ordering that they have there.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A test may have something happen just before any of them.
 */

#ifndef QEMU_ATOMIC_H
#define QEMU_ATOMIC_H

extern void (*atomic_step)(void);

static inline void atomic_step_call(void)
{
    if (atomic_step) {
        atomic_step();
    }
}

#define qatomic_read(p) \
    (atomic_step_call(), __atomic_load_n(p, __ATOMIC_RELAXED))
#define qatomic_or(p, n) \
    (atomic_step_call(), (void)__atomic_fetch_or(p, n, __ATOMIC_SEQ_CST))
#define qatomic_fetch_and(p, n) \
    (atomic_step_call(), __atomic_fetch_and(p, n, __ATOMIC_SEQ_CST))

#endif
