/*
 * QEMU's bit operations, as simple as they can be.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QEMU_BITOPS_H
#define QEMU_BITOPS_H

#include "qemu/osdep.h"

#define BIT_WORD(nr) ((nr) / BITS_PER_LONG)
#define BIT_MASK(nr) (1UL << ((nr) % BITS_PER_LONG))
#define MAKE_64BIT_MASK(shift, length) \
    (((~0ULL) >> (64 - (length))) << (shift))

static inline bool test_bit(unsigned long nr, const unsigned long *map)
{
    return map[BIT_WORD(nr)] & BIT_MASK(nr);
}

static inline void set_bit(unsigned long nr, unsigned long *map)
{
    map[BIT_WORD(nr)] |= BIT_MASK(nr);
}

static inline void clear_bit(unsigned long nr, unsigned long *map)
{
    map[BIT_WORD(nr)] &= ~BIT_MASK(nr);
}

static inline bool test_and_set_bit(unsigned long nr, unsigned long *map)
{
    bool was = test_bit(nr, map);

    set_bit(nr, map);
    return was;
}

static inline bool test_and_clear_bit(unsigned long nr, unsigned long *map)
{
    bool was = test_bit(nr, map);

    clear_bit(nr, map);
    return was;
}

static inline unsigned long find_next_bit(const unsigned long *map,
                                          unsigned long size,
                                          unsigned long nr)
{
    while (nr < size && !test_bit(nr, map)) {
        nr++;
    }
    return MIN(nr, size);
}

static inline unsigned long find_next_zero_bit(const unsigned long *map,
                                               unsigned long size,
                                               unsigned long nr)
{
    while (nr < size && test_bit(nr, map)) {
        nr++;
    }
    return MIN(nr, size);
}

#endif
