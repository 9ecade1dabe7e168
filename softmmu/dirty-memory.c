/*
 * From ram_list.dirty_memory to the migration's bitmaps.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "cpu.h"
#include "exec/memory.h"
#include "exec/ram_addr.h"
#include "qemu/rcu.h"
#include "sysemu/dirty-tracking.h"

static uint64_t harvest_block(RAMBlock *rb, PageBitmap *found,
                              unsigned long first, unsigned long pages)
{
    unsigned long **blocks =
        qatomic_rcu_read(&ram_list.dirty_memory[DIRTY_MEMORY_MIGRATION])
            ->blocks;
    unsigned long base = rb->offset >> TARGET_PAGE_BITS;
    unsigned long end = first + pages;
    uint64_t count = 0;

    while (first < end) {
        unsigned long offset = (base + first) % DIRTY_MEMORY_BLOCK_SIZE;
        unsigned long n = MIN(end - first, DIRTY_MEMORY_BLOCK_SIZE - offset);
        PageHarvest harvest = {
            .block = blocks[(base + first) / DIRTY_MEMORY_BLOCK_SIZE],
            .size = DIRTY_MEMORY_BLOCK_SIZE,
            .first = offset,
            .end = offset + n,
            .dest = rb->bmap,
            .dest_first = first,
            .added = rb->written,
            .found = found,
        };

        count += page_bitmap_harvest(&harvest);
        first += n;
    }
    return count;
}

/*
 * A RAMBlock begins at a word of the bitmaps (find_ram_offset()).  TCG is also
 * told of pages that rb->bmap had already: these, too, are sent later, and the
 * guest may write them after that.
 */
uint64_t cpu_physical_memory_sync_dirty_bitmap(RAMBlock *rb, ram_addr_t start,
                                               ram_addr_t length)
{
    unsigned long first = start >> TARGET_PAGE_BITS;
    unsigned long pages = length >> TARGET_PAGE_BITS;
    uint64_t count;

    if (!pages) {
        return 0;
    }
    count = harvest_block(rb, NULL, first, pages);
    cpu_physical_memory_dirty_bits_cleared(rb->offset + start, length);
    if (rb->clear_bmap) {
        clear_bmap_set(rb, first, pages);
    } else {
        memory_region_clear_dirty_bitmap(rb->mr, start, length);
    }
    return count;
}

/* What a thread clears at present, and how many pages that has found. */
static __thread struct {
    RAMBlock *rb;
    uint64_t added;
} clearing;

/* From here on @map tells what was taken since the last sync. */
static void record_takes(RAMBlock *rb, PageBitmap **map)
{
    if (!*map) {
        *map = page_bitmap_new(rb->max_length >> TARGET_PAGE_BITS);
    }
}

/* @page counts as those of ram_list.dirty_memory do, and begins a word. */
static void publish_cleared(unsigned long page, unsigned long bits)
{
    unsigned long **vga =
        qatomic_rcu_read(&ram_list.dirty_memory[DIRTY_MEMORY_VGA])->blocks;
    RAMBlock *rb = clearing.rb;
    unsigned long base = rb->offset >> TARGET_PAGE_BITS, added;

    qatomic_or(vga[page / DIRTY_MEMORY_BLOCK_SIZE] +
               BIT_WORD(page % DIRTY_MEMORY_BLOCK_SIZE), bits);
    added = page_bitmap_add_word(rb->bmap, page - base, bits);
    if (added) {
        page_bitmap_add_word(rb->written, page - base, added);
        clearing.added += ctpopl(added);
    }
    if (global_dirty_tracking & GLOBAL_DIRTY_DIRTY_RATE) {
        total_dirty_pages += ctpopl(bits);
    }
}

/*
 * A clear looks for slots by guest physical address, and these may change
 * meanwhile: then it finds what another RAMBlock has there.
 */
static bool is_cleared(ram_addr_t start)
{
    const RAMBlock *rb = clearing.rb;

    return rb && start - rb->offset < rb->max_length;
}

void cpu_physical_memory_publish(unsigned long *words, ram_addr_t start,
                                 ram_addr_t pages)
{
    unsigned long first = start >> TARGET_PAGE_BITS;
    unsigned shift = first % BITS_PER_LONG;

    if (!is_cleared(start)) {
        cpu_physical_memory_set_dirty_lebitmap(words, start, pages);
        return;
    }
    RCU_READ_LOCK_GUARD();
    first -= shift;
    for (unsigned long n = BITS_TO_LONGS(pages); n; n--, words++) {
        unsigned long bits = GULONG_FROM_LE(*words);

        if (bits << shift) {
            publish_cleared(first, bits << shift);
        }
        first += BITS_PER_LONG;
        if (shift && bits >> (BITS_PER_LONG - shift)) {
            publish_cleared(first, bits >> (BITS_PER_LONG - shift));
        }
    }
}

/* The pages are armed and stay so: they do not go to rb->clear_bmap. */
uint64_t cpu_physical_memory_clear_and_take(RAMBlock *rb, ram_addr_t start,
                                            ram_addr_t length)
{
    if (dirty_tracking_clear_publishes()) {
        record_takes(rb, &rb->written);
        clearing.rb = rb;
    }
    clearing.added = 0;
    memory_region_clear_dirty_bitmap(rb->mr, start, length);
    clearing.rb = NULL;
    return clearing.added;
}

uint64_t cpu_physical_memory_take_published(RAMBlock *rb)
{
    unsigned long pages = rb->used_length >> TARGET_PAGE_BITS;

    if (!dirty_tracking_clear_publishes()) {
        clear_bmap_set(rb, 0, pages);
    }
    record_takes(rb, &rb->written);
    record_takes(rb, &rb->looked);
    return harvest_block(rb, rb->looked, 0, pages);
}

/* Returns: the first page from @first on, below @end, that was taken. */
static unsigned long next_taken(const RAMBlock *rb, unsigned long end,
                                unsigned long first)
{
    if (rb->written) {
        end = page_bitmap_next(rb->written, end, first);
    }
    return rb->looked ? page_bitmap_next(rb->looked, end, first) : end;
}

uint64_t cpu_physical_memory_forget(RAMBlock *rb, unsigned long first,
                                    unsigned long pages)
{
    unsigned long end = first + pages, kept;
    uint64_t count = 0;

    for (; first < end; first = kept + 1) {
        kept = next_taken(rb, end, first);
        count += page_bitmap_clear(rb->bmap, first, kept - first);
    }
    return count;
}

/* A clear may find a page, which is sent, written again and found by a sync. */
uint64_t cpu_physical_memory_count_written(RAMBlock *rb, uint64_t synced)
{
    unsigned long pages = rb->used_length >> TARGET_PAGE_BITS;

    if (rb->looked) {
        page_bitmap_clear(rb->looked, 0, pages);
    }
    return rb->written ? page_bitmap_clear(rb->written, 0, pages) : synced;
}
