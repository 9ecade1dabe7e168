/*
 * What syncs and clears move to a migration's bitmap, and how often it counts.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A period is what lies between two syncs.
 */

#include "qemu/osdep.h"
#include "cpu.h"
#include "exec/ram_addr.h"
#include "qemu/timer.h"
#include "sysemu/dirty-tracking.h"

#define BASE 128UL              /* a RAMBlock begins at a word */
#define PAGES (5UL * PAGE_GROUP + 70)
#define CHUNK_SHIFT 9
#define CHUNKS DIV_ROUND_UP(PAGES, 1UL << CHUNK_SHIFT)
#define NUM_BLOCKS G_N_ELEMENTS(((DirtyMemoryBlocks *)NULL)->blocks)

void (*atomic_step)(void);
RAMList ram_list;

uint64_t total_dirty_pages;
unsigned int global_dirty_tracking;

static DirtyMemoryBlocks dirty, vga;
static RAMBlock rb;
static bool clears_find;
static bool set_in_sptes[PAGES];     /* dirty bits that a clear publishes */
static unsigned long slot_first;     /* KVM's slot begins with that page */
static long other_block;             /* what a clear finds is that far away */
static unsigned long written_meanwhile;
static bool runs = true;
static bool finds_more;              /* than the chunk that is cleared */
static int64_t now;                  /* ns */
static int64_t since_clear = 1000 * SCALE_MS;

/* At each second look at the clock a clear ends, and then the chunk is sent. */
int64_t qemu_clock_get_ns(QEMUClockType type)
{
    static unsigned looks;

    g_assert_cmpint(type, ==, QEMU_CLOCK_REALTIME);
    now += looks++ % 2 ? 0 : since_clear;
    return now;
}

bool dirty_tracking_clear_publishes(void)
{
    return clears_find;
}

void clear_bmap_set(RAMBlock *block, uint64_t start, uint64_t npages)
{
    bitmap_set(block->clear_bmap, start >> CHUNK_SHIFT,
               DIV_ROUND_UP(npages, 1UL << CHUNK_SHIFT));
}

/* QEMU writes, or tells what was written. */
static void write_page(unsigned long page)
{
    unsigned long *block =
        dirty.blocks[(BASE + page) / DIRTY_MEMORY_BLOCK_SIZE];
    unsigned long bit = (BASE + page) % DIRTY_MEMORY_BLOCK_SIZE;

    set_bit(bit, block);
    dirty_memory_mark(block, bit, 1);
}

void cpu_physical_memory_set_dirty_lebitmap(unsigned long *bitmap,
                                            ram_addr_t start, ram_addr_t pages)
{
    for (ram_addr_t page = 0; page < pages; page++) {
        if (test_bit(page, bitmap)) {
            write_page((start >> TARGET_PAGE_BITS) + page - BASE);
        }
    }
}

/* KVM publishes what the CPUs have written, from @slot_first on. */
void memory_region_clear_dirty_bitmap(MemoryRegion *mr, ram_addr_t start,
                                      ram_addr_t length)
{
    unsigned long first = MAX(start >> TARGET_PAGE_BITS, slot_first);
    unsigned long end = MIN((start + length) >> TARGET_PAGE_BITS, PAGES);
    unsigned long words[BITS_TO_LONGS(PAGES)] = { 0 };

    (void)mr;
    if (finds_more) {
        first = slot_first;
        end = PAGES;
    }
    for (unsigned long page = first; page < end && clears_find; page++) {
        if (set_in_sptes[page]) {
            set_bit(page - first, words);
        }
        set_in_sptes[page] = false;
    }
    cpu_physical_memory_publish(
        words, (BASE + first + other_block) << TARGET_PAGE_BITS, end - first);
    if (written_meanwhile) {
        write_page(written_meanwhile);
    }
}

void cpu_physical_memory_dirty_bits_cleared(ram_addr_t start,
                                            ram_addr_t length)
{
    g_assert_cmpuint(start, ==, rb.offset);
    g_assert_cmpuint(length, ==, rb.used_length);
}

/* A migration that has sent all of its memory once, and has just synced. */
static void begin(bool finds)
{
    clears_find = finds;
    for (size_t i = 0; i < NUM_BLOCKS; i++) {
        dirty.blocks[i] = page_block_new(DIRTY_MEMORY_BLOCK_SIZE);
        vga.blocks[i] = page_block_new(DIRTY_MEMORY_BLOCK_SIZE);
    }
    ram_list.dirty_memory[DIRTY_MEMORY_MIGRATION] = &dirty;
    ram_list.dirty_memory[DIRTY_MEMORY_VGA] = &vga;
    rb = (RAMBlock) {
        .offset = BASE << TARGET_PAGE_BITS,
        .used_length = PAGES << TARGET_PAGE_BITS,
        .max_length = (PAGES + PAGE_GROUP) << TARGET_PAGE_BITS,
        .bmap = page_bitmap_new(PAGES + PAGE_GROUP),
        .clear_bmap = bitmap_new(CHUNKS),
        .clear_bmap_shift = CHUNK_SHIFT,
    };
    clear_bmap_set(&rb, 0, PAGES);
}

static void end(void)
{
    page_bitmap_free(rb.bmap);
    page_bitmap_free(rb.written);
    page_bitmap_free(rb.looked);
    g_free(rb.clear_bmap);
    for (size_t i = 0; i < NUM_BLOCKS; i++) {
        g_free(dirty.blocks[i]);
        g_free(vga.blocks[i]);
    }
}

/* A vCPU writes: dirty bits tell of it. */
static void write_by_cpu(unsigned long page)
{
    set_in_sptes[page] = true;
}

/* What a sync and a look begin with. */
static void collect(void)
{
    for (unsigned long page = 0; page < PAGES; page++) {
        unsigned long word = set_in_sptes[page];

        cpu_physical_memory_publish(&word, (BASE + page) << TARGET_PAGE_BITS,
                                    1);
        set_in_sptes[page] = false;
    }
}

/* Returns: the pages that a look has found. */
static uint64_t look(void)
{
    collect();
    return cpu_physical_memory_take_published(&rb);
}

/* Clear as before a page is sent.  Returns: the pages found. */
static uint64_t clear_chunk(unsigned long page)
{
    unsigned long first = page >> CHUNK_SHIFT << CHUNK_SHIFT;

    return test_and_clear_bit(page >> CHUNK_SHIFT, rb.clear_bmap) ?
        cpu_physical_memory_clear_and_take(
            &rb, first << TARGET_PAGE_BITS,
            1UL << CHUNK_SHIFT << TARGET_PAGE_BITS, runs) : 0;
}

/* Returns: the pages that the clear of its chunk has found. */
static uint64_t send_page(unsigned long page)
{
    uint64_t found = clear_chunk(page);

    g_assert_true(page_bitmap_test_and_clear(rb.bmap, page));
    return found;
}

static void check_sync(uint64_t added, uint64_t counted)
{
    uint64_t synced;

    collect();
    synced = cpu_physical_memory_sync_dirty_bitmap(&rb, 0, rb.used_length);
    g_assert_cmpuint(synced, ==, added);
    g_assert_cmpuint(cpu_physical_memory_count_written(&rb, synced), ==,
                     counted);
}

static void test_written_after_the_clear_too(void)
{
    begin(true);
    write_by_cpu(5);
    write_by_cpu(600);
    g_assert_cmpuint(send_page(5), ==, 1);
    write_by_cpu(5);
    check_sync(2, 2);
    end();
}

static void test_written_before_the_clear_only(void)
{
    begin(true);
    write_by_cpu(5);
    g_assert_cmpuint(send_page(5), ==, 1);
    check_sync(0, 1);
    end();
}

/* The migration has yet to send the page: it waits, or the pass ended. */
static void test_not_sent_meanwhile(void)
{
    begin(true);
    write_by_cpu(5);
    g_assert_cmpuint(clear_chunk(5), ==, 1);
    write_by_cpu(5);
    check_sync(0, 1);
    end();
}

/* Pages that the last sync found counted then, and count again now. */
static void test_known_before_the_clear(void)
{
    begin(true);
    write_by_cpu(5);
    check_sync(1, 1);
    write_by_cpu(5);
    g_assert_cmpuint(send_page(5), ==, 0);
    write_by_cpu(5);
    check_sync(1, 1);
    end();
}

static void test_each_period_begins_anew(void)
{
    begin(true);
    write_by_cpu(5);
    g_assert_cmpuint(send_page(5), ==, 1);
    check_sync(0, 1);
    check_sync(0, 0);
    write_by_cpu(5);
    check_sync(1, 1);
    end();
}

static void test_clears_find_nothing(void)
{
    begin(false);
    write_by_cpu(5);
    write_by_cpu(6);
    g_assert_cmpuint(clear_chunk(5), ==, 0);
    check_sync(2, 2);
    g_assert_null(rb.written);
    end();
}

static void check_chunks(bool to_be_cleared)
{
    for (unsigned long chunk = 0; chunk < CHUNKS; chunk++) {
        g_assert_cmpint(test_bit(chunk, rb.clear_bmap), ==, to_be_cleared);
    }
}

/* A look has published pages: all of them are taken, and count once. */
static void test_published(void)
{
    static const unsigned long pages[] = {
        0, 5, 511, 512, 600, PAGES - 70, PAGES - 1,
    };

    for (int finds = 0; finds < 2; finds++) {
        begin(finds);
        bitmap_clear(rb.clear_bmap, 0, CHUNKS);
        for (size_t i = 0; i < G_N_ELEMENTS(pages); i++) {
            write_by_cpu(pages[i]);
        }
        g_assert_cmpuint(look(), ==,
                         G_N_ELEMENTS(pages));
        for (size_t i = 0; i < G_N_ELEMENTS(pages); i++) {
            g_assert_true(page_bitmap_test(rb.bmap, pages[i]));
        }
        /* What is un-armed has to be cleared before it is sent. */
        check_chunks(!finds);
        g_assert_cmpuint(look(), ==, 0);
        g_assert_cmpuint(send_page(5), ==, 0);
        write_by_cpu(5);
        write_by_cpu(600);
        write_by_cpu(700);
        g_assert_cmpuint(look(), ==, 2);
        check_chunks(!finds);
        check_sync(0, G_N_ELEMENTS(pages) + 1);
        check_sync(0, 0);
        end();
    }
}

/* Returns: how many pages the next clear covers, of a guest that wrote all. */
static uint64_t chunk_sent_in(int64_t ns)
{
    uint64_t found;

    since_clear = ns;
    begin(true);
    for (unsigned long page = 0; page < PAGES; page++) {
        write_by_cpu(page);
    }
    found = clear_chunk(PAGE_GROUP);
    for (unsigned long page = 0; page < PAGES; page++) {
        bool cleared = page_bitmap_test(rb.bmap, page);

        g_assert_true(cleared != set_in_sptes[page]);
        g_assert_true(cleared != test_bit(page >> CHUNK_SHIFT, rb.clear_bmap));
        set_in_sptes[page] = false;
    }
    end();
    since_clear = 1000 * SCALE_MS;
    return found;
}

/* Chunks are for as much as is sent in 5 to 20 ms. */
static void test_chunks_grow_and_shrink(void)
{
    g_assert_cmpuint(chunk_sent_in(1000 * SCALE_MS), ==, PAGE_GROUP);
    g_assert_cmpuint(chunk_sent_in(4 * SCALE_MS), ==, 2 * PAGE_GROUP);
    g_assert_cmpuint(chunk_sent_in(5 * SCALE_MS), ==, 2 * PAGE_GROUP);
    g_assert_cmpuint(chunk_sent_in(19 * SCALE_MS), ==, 2 * PAGE_GROUP);
    g_assert_cmpuint(chunk_sent_in(4 * SCALE_MS), ==, 4 * PAGE_GROUP);
    g_assert_cmpuint(chunk_sent_in(20 * SCALE_MS), ==, 2 * PAGE_GROUP);
    g_assert_cmpuint(chunk_sent_in(20 * SCALE_MS), ==, PAGE_GROUP);
    g_assert_cmpuint(chunk_sent_in(1000 * SCALE_MS), ==, PAGE_GROUP);
    for (int i = 0; i < 20; i++) {
        chunk_sent_in(0);
    }
    g_assert_cmpuint(chunk_sent_in(0), ==, PAGES - PAGE_GROUP);
    /* 1 GiB was the most, and that is now eight times by half. */
    g_assert_cmpuint(chunk_sent_in((20LL * SCALE_MS << 8) - 1), ==,
                     2 * PAGE_GROUP);
    g_assert_cmpuint(chunk_sent_in(1000 * SCALE_MS), ==, PAGE_GROUP);
}

/*
 * What was cleared may have been sent since, and with multifd the page could
 * arrive before that.
 */
static void test_chunk_ends_where_one_was_cleared(void)
{
    begin(true);
    clear_chunk(3 * PAGE_GROUP);
    for (unsigned long page = 0; page < PAGES; page++) {
        write_by_cpu(page);
    }
    since_clear = 0;
    g_assert_cmpuint(clear_chunk(PAGE_GROUP), ==, 2 * PAGE_GROUP);
    g_assert_cmpuint(clear_chunk(0), ==, PAGE_GROUP);
    g_assert_cmpuint(clear_chunk(4 * PAGE_GROUP), ==, PAGE_GROUP + 70);
    since_clear = 1000 * SCALE_MS;
    check_sync(PAGE_GROUP, PAGES);
    end();
}

/*
 * A harvest finds more than the chunk: what may have been sent since the last sync
 * is left to the next one.
 */
static void test_harvest_of_more_than_the_chunk(void)
{
    begin(true);
    clear_chunk(3 * PAGE_GROUP);
    for (unsigned long page = 0; page < PAGES; page++) {
        write_by_cpu(page);
    }
    finds_more = true;
    g_assert_cmpuint(clear_chunk(PAGE_GROUP), ==, PAGES - PAGE_GROUP);
    finds_more = false;
    for (unsigned long page = 0; page < PAGES; page++) {
        g_assert_true(page_bitmap_test(rb.bmap, page) ==
                      (page / PAGE_GROUP != 3));
    }
    check_sync(PAGE_GROUP, PAGES);
    end();
}

/* The last sync has found all, or the destination knows what is to come. */
static void test_nothing_once_it_stands_still(void)
{
    begin(true);
    write_by_cpu(5);
    runs = false;
    g_assert_cmpuint(clear_chunk(5), ==, 0);
    runs = true;
    g_assert_true(set_in_sptes[5]);
    set_in_sptes[5] = false;
    end();
}

static void test_shift(void)
{
    clears_find = true;
    g_assert_cmpuint(cpu_physical_memory_clear_shift(18), ==, CHUNK_SHIFT);
    g_assert_cmpuint(cpu_physical_memory_clear_shift(6), ==, 6);
    clears_find = false;
    g_assert_cmpuint(cpu_physical_memory_clear_shift(18), ==, 18);
}

/* What the guest has taken back since it said that a page is free. */
static void test_forgotten(void)
{
    begin(true);
    page_bitmap_set_all(rb.bmap);
    rb.ejected = true;
    g_assert_cmpuint(cpu_physical_memory_forget(&rb, 0, 10), ==, 0);
    rb.ejected = false;
    g_assert_cmpuint(cpu_physical_memory_forget(&rb, 0, 10), ==, 10);
    g_assert_cmpuint(cpu_physical_memory_forget(&rb, 5, 10), ==, 5);
    page_bitmap_clear(rb.bmap, 0, PAGES);
    write_by_cpu(20);
    write_by_cpu(22);
    g_assert_cmpuint(look(), ==, 2);
    g_assert_false(page_bitmap_test_and_set(rb.bmap, 21));
    g_assert_cmpuint(cpu_physical_memory_forget(&rb, 20, 3), ==, 1);
    g_assert_true(page_bitmap_test(rb.bmap, 20));
    g_assert_true(page_bitmap_test(rb.bmap, 22));
    /* A sync finds what is written after it. */
    check_sync(0, 2);
    g_assert_cmpuint(cpu_physical_memory_forget(&rb, 20, 3), ==, 2);
    end();
}

/* Memory that is not sent has no bitmap. */
static void test_forgotten_of_no_bitmap(void)
{
    RAMBlock other = { .used_length = PAGES << TARGET_PAGE_BITS };

    g_assert_cmpuint(cpu_physical_memory_forget(&other, 0, PAGES), ==, 0);
}

/* A look finds a page that is to be sent anyway, and no sync will. */
static void test_looked(void)
{
    for (int finds = 0; finds < 2; finds++) {
        begin(finds);
        page_bitmap_set_all(rb.bmap);
        write_by_cpu(20);
        g_assert_cmpuint(look(), ==, 0);
        g_assert_cmpuint(cpu_physical_memory_forget(&rb, 20, 1), ==, 0);
        g_assert_true(page_bitmap_test(rb.bmap, 20));
        g_assert_cmpuint(cpu_physical_memory_forget(&rb, 0, PAGES), ==,
                         PAGES - 1);
        check_sync(0, 0);
        g_assert_cmpuint(cpu_physical_memory_forget(&rb, 20, 1), ==, 1);
        end();
    }
}

/* What a clear publishes may be older than what the guest says of a page. */
static void test_cleared_and_forgotten(void)
{
    begin(true);
    page_bitmap_set_all(rb.bmap);
    write_by_cpu(20);
    g_assert_cmpuint(clear_chunk(20), ==, 0);
    g_assert_cmpuint(cpu_physical_memory_forget(&rb, 20, 1), ==, 1);
    end();
}

/* A disk that QEMU emulates writes, before a clear and while it goes on. */
static void test_written_by_qemu(void)
{
    begin(true);
    page_bitmap_set_all(rb.bmap);
    for (unsigned long page = 20; page < 24; page++) {
        write_by_cpu(page);
    }
    write_page(20);
    written_meanwhile = 21;
    g_assert_cmpuint(clear_chunk(20), ==, 0);
    written_meanwhile = 0;
    g_assert_cmpuint(cpu_physical_memory_forget(&rb, 20, 4), ==, 4);
    check_sync(2, 2);
    g_assert_true(page_bitmap_test(rb.bmap, 20));
    g_assert_true(page_bitmap_test(rb.bmap, 21));
    end();
}

/* What a clear finds is dirty for displays, too, and counts for the dirty rate. */
static void test_other_clients(void)
{
    begin(true);
    write_by_cpu(20);
    write_by_cpu(600);
    g_assert_cmpuint(clear_chunk(20), ==, 1);
    g_assert_cmpuint(total_dirty_pages, ==, 0);
    global_dirty_tracking = GLOBAL_DIRTY_DIRTY_RATE;
    g_assert_cmpuint(clear_chunk(600), ==, 1);
    global_dirty_tracking = 0;
    g_assert_cmpuint(total_dirty_pages, ==, 1);
    for (unsigned long page = 0; page < PAGES; page++) {
        unsigned long at = BASE + page;

        g_assert_cmpint(test_bit(at % DIRTY_MEMORY_BLOCK_SIZE,
                                 vga.blocks[at / DIRTY_MEMORY_BLOCK_SIZE]),
                        ==, page == 20 || page == 600);
    }
    total_dirty_pages = 0;
    end();
}

/* KVM's slot need not begin with a word of the block's. */
static void test_slot_within_a_word(void)
{
    for (slot_first = 0; slot_first < 70; slot_first += 23) {
        begin(true);
        for (unsigned long page = slot_first; page < 200; page += 7) {
            write_by_cpu(page);
        }
        clear_chunk(0);
        for (unsigned long page = 0; page < PAGES; page++) {
            g_assert_cmpint(page_bitmap_test(rb.bmap, page), ==,
                            page >= slot_first && page < 200 &&
                            (page - slot_first) % 7 == 0);
        }
        end();
    }
    slot_first = 0;
}

/* A slot of another RAMBlock has come where that of the chunk was. */
static void test_slot_of_another_block(void)
{
    static const long blocks[] = { PAGES + PAGE_GROUP, -(long)BASE };

    for (size_t i = 0; i < G_N_ELEMENTS(blocks); i++) {
        begin(true);
        other_block = blocks[i];
        write_by_cpu(5);
        page_bitmap_set_all(rb.bmap);
        g_assert_cmpuint(send_page(5), ==, 0);
        g_assert_cmpuint(page_bitmap_clear(rb.bmap, 0, PAGES), ==, PAGES - 1);
        g_assert_true(test_bit((BASE + 5 + other_block) %
                               DIRTY_MEMORY_BLOCK_SIZE,
                               dirty.blocks[(BASE + 5 + other_block) /
                                            DIRTY_MEMORY_BLOCK_SIZE]));
        other_block = 0;
        end();
    }
}

/* That RAMBlock follows, where the last chunk of this one would go on. */
static void test_slot_of_the_block_behind(void)
{
    begin(true);
    rb.max_length = rb.used_length;
    other_block = 100;
    write_by_cpu(PAGES - 30);
    page_bitmap_set_all(rb.bmap);
    g_assert_cmpuint(send_page(PAGES - 1), ==, 0);
    g_assert_true(test_bit((BASE + PAGES + 70) % DIRTY_MEMORY_BLOCK_SIZE,
                           dirty.blocks[(BASE + PAGES + 70) /
                                        DIRTY_MEMORY_BLOCK_SIZE]));
    other_block = 0;
    end();
}

/* Without bits that a clear publishes, they are left to the next sync. */
static void test_left_to_the_sync(void)
{
    begin(false);
    page_bitmap_set_all(rb.bmap);
    write_by_cpu(20);
    g_assert_cmpuint(clear_chunk(20), ==, 0);
    g_assert_cmpuint(cpu_physical_memory_forget(&rb, 20, 1), ==, 1);
    check_sync(1, 1);
    end();
}

/* Compares with the set of pages that each period added to the bitmap. */
static void test_random(void)
{
    begin(true);
    for (int period = 0; period < 200; period++) {
        g_autofree bool *added = g_new0(bool, PAGES);
        g_autofree bool *pending = g_new0(bool, PAGES);
        uint64_t synced = 0, counted = 0;

        for (int i = g_test_rand_int_range(0, 2000); i; i--) {
            unsigned long page = g_test_rand_int_range(0, PAGES);
            unsigned long chunk = page >> CHUNK_SHIFT << CHUNK_SHIFT;

            if (i % 2) {
                write_by_cpu(page);
                pending[page] = true;
                continue;
            }
            for (unsigned long p = chunk;
                 p < MIN(chunk + (1UL << CHUNK_SHIFT), PAGES) &&
                 test_bit(page >> CHUNK_SHIFT, rb.clear_bmap); p++) {
                added[p] |= pending[p] && !page_bitmap_test(rb.bmap, p);
                pending[p] = false;
            }
            clear_chunk(page);
            page_bitmap_test_and_clear(rb.bmap, page);
        }
        for (unsigned long p = 0; p < PAGES; p++) {
            bool is_new = pending[p] && !page_bitmap_test(rb.bmap, p);

            synced += is_new;
            counted += is_new || added[p];
        }
        check_sync(synced, counted);
    }
    end();
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/dirty_memory/written-after-the-clear-too",
                    test_written_after_the_clear_too);
    g_test_add_func("/dirty_memory/written-before-the-clear-only",
                    test_written_before_the_clear_only);
    g_test_add_func("/dirty_memory/not-sent-meanwhile",
                    test_not_sent_meanwhile);
    g_test_add_func("/dirty_memory/known-before-the-clear",
                    test_known_before_the_clear);
    g_test_add_func("/dirty_memory/each-period-begins-anew",
                    test_each_period_begins_anew);
    g_test_add_func("/dirty_memory/clears-find-nothing",
                    test_clears_find_nothing);
    g_test_add_func("/dirty_memory/published", test_published);
    g_test_add_func("/dirty_memory/chunks-grow-and-shrink",
                    test_chunks_grow_and_shrink);
    g_test_add_func("/dirty_memory/chunk-ends-where-one-was-cleared",
                    test_chunk_ends_where_one_was_cleared);
    g_test_add_func("/dirty_memory/harvest-of-more-than-the-chunk",
                    test_harvest_of_more_than_the_chunk);
    g_test_add_func("/dirty_memory/nothing-once-it-stands-still",
                    test_nothing_once_it_stands_still);
    g_test_add_func("/dirty_memory/shift", test_shift);
    g_test_add_func("/dirty_memory/forgotten", test_forgotten);
    g_test_add_func("/dirty_memory/forgotten-of-no-bitmap",
                    test_forgotten_of_no_bitmap);
    g_test_add_func("/dirty_memory/looked", test_looked);
    g_test_add_func("/dirty_memory/cleared-and-forgotten",
                    test_cleared_and_forgotten);
    g_test_add_func("/dirty_memory/written-by-qemu", test_written_by_qemu);
    g_test_add_func("/dirty_memory/other-clients", test_other_clients);
    g_test_add_func("/dirty_memory/slot-within-a-word",
                    test_slot_within_a_word);
    g_test_add_func("/dirty_memory/slot-of-another-block",
                    test_slot_of_another_block);
    g_test_add_func("/dirty_memory/slot-of-the-block-behind",
                    test_slot_of_the_block_behind);
    g_test_add_func("/dirty_memory/left-to-the-sync", test_left_to_the_sync);
    g_test_add_func("/dirty_memory/random", test_random);
    return g_test_run();
}
