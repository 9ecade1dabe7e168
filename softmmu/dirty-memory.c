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
#include "qemu/timer.h"
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
    unsigned long first;
    unsigned long pages;
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
 * A clear may find more than its chunk, as harvests share words, or what
 * another RAMBlock has in the slot meanwhile.  What was cleared since the last
 * sync may have been sent in this pass: there no page may become dirty before
 * the next sync.  All else is yet to be sent.
 */
static bool is_to_be_sent(unsigned long page)
{
    const RAMBlock *rb = clearing.rb;

    page -= rb->offset >> TARGET_PAGE_BITS;
    return page < rb->max_length >> TARGET_PAGE_BITS &&
        (page - clearing.first < clearing.pages ||
         test_bit(page >> rb->clear_bmap_shift, rb->clear_bmap));
}

/* @page is in ram_list.dirty_memory, and begins a word. */
static void publish_word(unsigned long page, unsigned long bits)
{
    unsigned long le = GULONG_TO_LE(bits);

    if (is_to_be_sent(page)) {
        publish_cleared(page, bits);
    } else {
        cpu_physical_memory_set_dirty_lebitmap(
            &le, (ram_addr_t)page << TARGET_PAGE_BITS, BITS_PER_LONG);
    }
}

void cpu_physical_memory_publish(unsigned long *words, ram_addr_t start,
                                 ram_addr_t pages)
{
    unsigned long first = start >> TARGET_PAGE_BITS;
    unsigned shift = first % BITS_PER_LONG;

    if (!clearing.rb) {
        cpu_physical_memory_set_dirty_lebitmap(words, start, pages);
        return;
    }
    RCU_READ_LOCK_GUARD();
    first -= shift;
    for (unsigned long n = BITS_TO_LONGS(pages); n; n--, words++) {
        unsigned long bits = GULONG_FROM_LE(*words);

        if (bits << shift) {
            publish_word(first, bits << shift);
        }
        first += BITS_PER_LONG;
        if (shift && bits >> (BITS_PER_LONG - shift)) {
            publish_word(first, bits >> (BITS_PER_LONG - shift));
        }
    }
}

/*
 * A page that is written between the clear of its chunk and its turn to be
 * sent is sent twice, so a chunk should be sent soon after its clear.  But
 * each clear makes an ioctl, and the vCPUs flush their TLBs: chunks grow until
 * there is so much time between two clears.
 */
#define CHUNK_REST_NS (5 * SCALE_MS)
#define CHUNK_LEAST_SHIFT ctz32(PAGE_GROUP)
#define CHUNK_MOST_SHIFT 18     /* 1 GiB, QEMU's default for all mechanisms */

/* Guarded by the lock that guards RAMBlock.bmap. */
static struct {
    unsigned shift;
    int64_t cleared;            /* the last clear ended then, in ns */
} chunk;

uint8_t cpu_physical_memory_clear_shift(uint8_t shift)
{
    return dirty_tracking_clear_publishes() ?
        MIN(shift, CHUNK_LEAST_SHIFT) : shift;
}

/*
 * Twice as much if the last chunk was sent sooner than it should be; half as
 * much, and again, until it would be sent in less than four times that.
 */
static void chunk_adapt(unsigned least)
{
    int64_t rest = qemu_clock_get_ns(QEMU_CLOCK_REALTIME) - chunk.cleared;

    if (rest < CHUNK_REST_NS) {
        chunk.shift++;
    }
    for (; rest >= 4 * CHUNK_REST_NS && chunk.shift > least; rest /= 2) {
        chunk.shift--;
    }
    chunk.shift = MIN(MAX(chunk.shift, least), CHUNK_MOST_SHIFT);
}

/*
 * Returns: the pages of the next clear, which begins at @first.  It does not
 * reach back, nor to what was cleared since the last sync: that may have been
 * sent in this pass (is_to_be_sent()).
 */
static unsigned long chunk_next(const RAMBlock *rb, unsigned long first)
{
    uint8_t least = rb->clear_bmap_shift;
    unsigned long unit = first >> least, end;

    chunk_adapt(least);
    end = MIN(unit + (1UL << (chunk.shift - least)),
              DIV_ROUND_UP(rb->max_length >> TARGET_PAGE_BITS, 1UL << least));
    return (find_next_zero_bit(rb->clear_bmap, end, unit + 1) - unit) << least;
}

/* The pages are armed and stay so: they do not go to rb->clear_bmap. */
static uint64_t clear_and_take_chunk(RAMBlock *rb, unsigned long first)
{
    unsigned long pages = chunk_next(rb, first);

    record_takes(rb, &rb->written);
    clearing.rb = rb;
    clearing.first = first;
    clearing.pages = pages;
    clearing.added = 0;
    bitmap_clear(rb->clear_bmap, first >> rb->clear_bmap_shift,
                 pages >> rb->clear_bmap_shift);
    memory_region_clear_dirty_bitmap(rb->mr,
                                     (ram_addr_t)first << TARGET_PAGE_BITS,
                                     (ram_addr_t)pages << TARGET_PAGE_BITS);
    chunk.cleared = qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
    clearing.rb = NULL;
    return clearing.added;
}

uint64_t cpu_physical_memory_clear_and_take(RAMBlock *rb, ram_addr_t start,
                                            ram_addr_t length, bool runs)
{
    if (!dirty_tracking_clear_publishes()) {
        memory_region_clear_dirty_bitmap(rb->mr, start, length);
        return 0;
    }
    return runs ? clear_and_take_chunk(rb, start >> TARGET_PAGE_BITS) : 0;
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

    /*
     * Memory that is shared and stays where it is has no bitmap.  What a guest
     * has ejected counts no longer.
     */
    if (!rb->bmap || !qemu_ram_is_migratable(rb)) {
        return 0;
    }
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
