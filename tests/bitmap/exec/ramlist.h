/*
 * The bitmaps that threads set bits in, in small blocks; the test has them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef EXEC_RAMLIST_H
#define EXEC_RAMLIST_H

#include "exec/page-bitmap.h"

#define DIRTY_MEMORY_BLOCK_SIZE (4UL * PAGE_GROUP)

enum {
    DIRTY_MEMORY_VGA,
    DIRTY_MEMORY_CODE,
    DIRTY_MEMORY_MIGRATION,
    DIRTY_MEMORY_NUM,
};

typedef struct DirtyMemoryBlocks {
    unsigned long *blocks[2];
} DirtyMemoryBlocks;

typedef struct RAMList {
    DirtyMemoryBlocks *dirty_memory[DIRTY_MEMORY_NUM];
} RAMList;

extern RAMList ram_list;

#endif
