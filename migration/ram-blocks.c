/*
 * The RAMBlocks of a migration, some of which a guest may eject meanwhile.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "exec/cpu-common.h"
#include "exec/memory.h"
#include "exec/page-bitmap.h"
#include "exec/target_page.h"
#include "qemu/rcu.h"
#include "sysemu/dirty-tracking-release.h"
#include "converge.h"
#include "migration.h"
#include "ram-blocks.h"
#include "ram.h"

void ram_block_hold(RAMBlock *rb)
{
    rb->held = true;
    memory_region_ref(rb->mr);
}

bool ram_block_stays_migratable(RAMBlock *rb)
{
    rb->ejected = rb->held && migrate_background_snapshot();
    return rb->ejected;
}

/* qemu_ram_unset_idstr() left the name of a block that is held. */
static void ram_block_let_go(RAMBlock *rb)
{
    rb->held = false;
    /* Now that it is not held, nothing keeps it migratable. */
    if (rb->ejected) {
        qemu_ram_unset_migratable(rb);
    }
    if (!qemu_ram_is_migratable(rb)) {
        memset(rb->idstr, 0, sizeof(rb->idstr));
    }
    memory_region_unref(rb->mr);
}

void ram_blocks_let_go(void)
{
    RAMBlock *rb;

    /* The last reference to a block may take it off the list. */
    RCU_READ_LOCK_GUARD();
    INTERNAL_RAMBLOCK_FOREACH(rb) {
        if (ram_block_is_held(rb)) {
            ram_block_let_go(rb);
        }
    }
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
