/*
 * What a RAMBlock has for a migration.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef EXEC_RAM_ADDR_H
#define EXEC_RAM_ADDR_H

#include "exec/dirty-memory.h"
#include "exec/memory.h"

typedef struct RAMBlock {
    MemoryRegion *mr;
    ram_addr_t offset;
    ram_addr_t used_length;
    ram_addr_t max_length;
    PageBitmap *bmap;
    PageBitmap *written;
    PageBitmap *looked;
    unsigned long *clear_bmap;
    uint8_t clear_bmap_shift;
    bool ejected;
} RAMBlock;

static inline bool qemu_ram_is_migratable(RAMBlock *rb)
{
    return !rb->ejected;
}

#define GLOBAL_DIRTY_DIRTY_RATE 2

extern uint64_t total_dirty_pages;
extern unsigned int global_dirty_tracking;

void cpu_physical_memory_set_dirty_lebitmap(unsigned long *bitmap,
                                            ram_addr_t start,
                                            ram_addr_t pages);
void cpu_physical_memory_dirty_bits_cleared(ram_addr_t start,
                                            ram_addr_t length);
void clear_bmap_set(RAMBlock *rb, uint64_t start, uint64_t npages);

#endif
