/*
 * Pages of the guest's RAM that wait for the stop.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/rcu.h"
#include "exec/target_page.h"
#include "migration/colo.h"
#include "sysemu/dirty-tracking-release.h"
#include "sysemu/runstate.h"
#include "converge.h"
#include "hot-pages.h"
#include "hot-ram.h"
#include "migration.h"
#include "ram.h"

/* Pages that wait may fill one part in two of what may remain at the stop. */
#define BUDGET_PART 2

static struct {
    uint64_t waiting;           /* pages, when the last round ended, or 0 */
    uint64_t waits;             /* the sum of waiting over all rounds */
    uint64_t waited;            /* the sum of hot_pages_waited() over blocks */
    bool crowded;               /* for hot_pages_end_round() */
} hot;

static bool hot_ram_may_wait(void)
{
    return migrate_get_current()->parameters.hot_pages_wait &&
        runstate_is_running() && !migrate_colo();
}

static void hot_ram_release(void)
{
    RAMBlock *rb;

    RAMBLOCK_FOREACH_NOT_IGNORED(rb) {
        if (rb->hot) {
            hot_pages_release(rb->hot);
        }
    }
    hot.waiting = 0;
    hot.crowded = false;
}

static HotPages *hot_ram_of_block(RAMBlock *rb)
{
    if (!rb->hot) {
        rb->hot = hot_pages_new(rb->max_length >> qemu_target_page_bits());
    }
    return rb->hot;
}

static void hot_ram_choose(uint64_t budget)
{
    bool refused = false;
    RAMBlock *rb;

    hot.waiting = 0;
    hot.waited = 0;
    RAMBLOCK_FOREACH_NOT_IGNORED(rb) {
        hot.waiting += hot_pages_end_round(
            hot_ram_of_block(rb), rb->bmap,
            rb->used_length >> qemu_target_page_bits(), budget - hot.waiting,
            hot.crowded, &refused);
        hot.waited += hot_pages_waited(rb->hot);
    }
    hot.crowded = refused;
    hot.waits += hot.waiting;
}

/*
 * Before a migration stalls, a page that waits would only make the stop longer;
 * but it is known then which groups are hot when it does.
 */
static uint64_t hot_ram_budget(void)
{
    return converge_stalled() ?
        converge_room() / qemu_target_page_size() / BUDGET_PART : 0;
}

void hot_ram_begin_sync(void)
{
    RAMBlock *rb;

    if (!hot_ram_may_wait()) {
        return;
    }
    RAMBLOCK_FOREACH_NOT_IGNORED(rb) {
        if (rb->hot) {
            hot_pages_end_pass(rb->hot, rb->bmap, rb->written);
        }
    }
}

/* The first sync is part of the set-up, and so ends no round. */
void hot_ram_end_round(void)
{
    if (migration_sync_count() == 1) {
        memset(&hot, 0, sizeof(hot));
    } else if (hot_ram_may_wait()) {
        hot_ram_choose(hot_ram_budget());
    } else {
        hot_ram_release();
    }
}

void hot_ram_end_pass(uint64_t pages)
{
    if (pages * qemu_target_page_size() >= converge_room()) {
        hot_ram_release();
    }
}

unsigned long hot_ram_next(const RAMBlock *rb, unsigned long end,
                           unsigned long start)
{
    return rb->hot ? hot_pages_next(rb->hot, rb->bmap, end, start) :
        page_bitmap_next(rb->bmap, end, start);
}

void hot_ram_cleanup(void)
{
    RAMBlock *rb;

    RCU_READ_LOCK_GUARD();
    INTERNAL_RAMBLOCK_FOREACH(rb) {
        g_clear_pointer(&rb->hot, hot_pages_free);
    }
    hot.waiting = 0;
}

void hot_ram_populate(MigrationInfo *info)
{
    /* A background snapshot does not sync, and has the last migration's. */
    if (!migration_sync_count()) {
        return;
    }
    SET_OPTIONAL(info, hot_pages, g_new0(HotPagesInfo, 1));
    info->hot_pages->waiting = hot.waiting;
    info->hot_pages->waits = hot.waits;
    info->hot_pages->saved_bytes = hot.waited * qemu_target_page_size();
}
