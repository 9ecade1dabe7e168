/*
 * QEMU's atomic operations, with the ordering that they have there.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A test may have something happen just before any of them, and before the
 * compiler's own loads and stores.
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

/* A macro is not expanded in itself: there these are the compiler's. */
#define __atomic_load_n(p, order) \
    (atomic_step_call(), __atomic_load_n(p, order))
#define __atomic_store_n(p, n, order) \
    (atomic_step_call(), __atomic_store_n(p, n, order))

#define qatomic_read(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define qatomic_or(p, n) \
    (atomic_step_call(), (void)__atomic_fetch_or(p, n, __ATOMIC_SEQ_CST))
#define qatomic_fetch_and(p, n) \
    (atomic_step_call(), __atomic_fetch_and(p, n, __ATOMIC_SEQ_CST))

#endif
