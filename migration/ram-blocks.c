/*
 * The RAMBlocks of a migration, some of which a guest may eject meanwhile.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "exec/memory.h"
#include "exec/page-bitmap.h"
#include "exec/target_page.h"
#include "qemu/rcu.h"
#include "converge.h"
#include "hot-pages.h"
#include "migration.h"
#include "ram-blocks.h"
#include "ram.h"

void ram_block_hold(RAMBlock *rb)
{
    assert(ram_block_is_held(rb));
    memory_region_ref(rb->mr);
}

/* qemu_ram_unset_idstr() left the name of a block that is held. */
void ram_block_let_go(RAMBlock *rb)
{
    if (!ram_block_is_held(rb)) {
        return;
    }
    g_clear_pointer(&rb->hot, hot_pages_free);
    if (!qemu_ram_is_migratable(rb)) {
        memset(rb->idstr, 0, sizeof(rb->idstr));
    }
    memory_region_unref(rb->mr);
}

static uint64_t ram_pages_left(void)
{
    uint64_t pages = 0;
    RAMBlock *rb;

    RAMBLOCK_FOREACH_NOT_IGNORED(rb) {
        pages += page_bitmap_count(rb->bmap, 0, rb->used_length >>
                                   qemu_target_page_bits());
    }
    return pages;
}

void ram_blocks_changed(uint64_t *remaining)
{
    uint64_t left;

    /* ram_list.version was read before: the flags of blocks are as new. */
    smp_rmb();
    left = ram_pages_left();
    converge_forget(*remaining - left);
    *remaining = left;
}
