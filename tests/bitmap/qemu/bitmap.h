/*
 * QEMU's bitmaps, as simple as they can be.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QEMU_BITMAP_H
#define QEMU_BITMAP_H

#include "qemu/bitops.h"

#define BITMAP_LAST_WORD_MASK(nbits) (~0UL >> (-(nbits) & (BITS_PER_LONG - 1)))
#define BITS_TO_LONGS(nr) DIV_ROUND_UP(nr, BITS_PER_LONG)

static inline unsigned long *bitmap_new(unsigned long nbits)
{
    return g_new0(unsigned long, BITS_TO_LONGS(nbits));
}

static inline void bitmap_zero(unsigned long *map, unsigned long nbits)
{
    memset(map, 0, BITS_TO_LONGS(nbits) * sizeof(unsigned long));
}

static inline void bitmap_set(unsigned long *map, unsigned long start,
                              unsigned long nr)
{
    for (unsigned long i = start; i < start + nr; i++) {
        set_bit(i, map);
    }
}

static inline void bitmap_clear(unsigned long *map, unsigned long start,
                                unsigned long nr)
{
    for (unsigned long i = start; i < start + nr; i++) {
        clear_bit(i, map);
    }
}

static inline bool bitmap_empty(const unsigned long *map, unsigned long nbits)
{
    return find_next_bit(map, nbits, 0) == nbits;
}

static inline unsigned long
bitmap_count_one_with_offset(const unsigned long *map, unsigned long start,
                             unsigned long nr)
{
    unsigned long count = 0;

    for (unsigned long i = start; i < start + nr; i++) {
        count += test_bit(i, map);
    }
    return count;
}

static inline unsigned long bitmap_count_one(const unsigned long *map,
                                             unsigned long nr)
{
    return bitmap_count_one_with_offset(map, 0, nr);
}

#endif
