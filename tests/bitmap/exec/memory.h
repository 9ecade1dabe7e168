/*
 * What a sync re-arms at once; the test has it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef EXEC_MEMORY_H
#define EXEC_MEMORY_H

#include "exec/cpu-common.h"

typedef struct MemoryRegion MemoryRegion;

void memory_region_clear_dirty_bitmap(MemoryRegion *mr, ram_addr_t start,
                                      ram_addr_t length);

#endif
