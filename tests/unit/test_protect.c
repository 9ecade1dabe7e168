/*
 * "wrprot" and "shared": harvest, publish, re-arm by regions.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Each test but one is run with both, on a KVM that offers both; and with
 * "dirty-bits", unless it is about re-arming, which that has no need to.
 */

#include "race.h"
#include "two_slots.h"

#include <errno.h>
#include <linux/kvm_dirty_tracking.h>
#include <string.h>

#define PAGES 1100              /* three regions, the last one short */
#define GROUP KVM_DIRTY_SUMMARY_PAGES
#define REGION 512

typedef KvmDirtyMechanism Mechanism;

/* Each page that the oracle copies is armed, and was logged. */
static Rig *strict_rig(Mechanism m)
{
    Rig *r = rig_new_patched(m);

    r->strict = r->exact = true;
    return r;
}

static Rig *two_slots(Mechanism m)
{
    Rig *r = two_slots_new(m, PAGES);

    r->strict = true;
    return r;
}

static bool maps(Mechanism m)
{
    return m != KVMD_WRPROT;
}

static bool writable(Rig *r, uint32_t slot_id, uint64_t page)
{
    return fake_page_writable(r->fake, slot_id, page);
}

/* No page is lost, whatever the guest did until now. */
static void settle(Rig *r)
{
    g_assert_cmpint(rig_sync(r), ==, 0);
    rig_check(r);
    rig_check_exact(r);
}

/* Races */

static void write_some(Rig *r)
{
    (void)r;
    rig_write_range(the_vcpu, 0, 0, 70);
    rig_write(the_vcpu, 0, 511);
    rig_write(the_vcpu, 0, 1099);
    rig_write_range(the_vcpu, OTHER, 60, 10);
}

/* Pages of write_some(), pages of the same words and groups, and others. */
static void write_meanwhile(Rig *r)
{
    static const uint64_t pages[] = { 0, 63, 69, 70, 511, 510, 512, 600, 1098 };

    (void)r;
    for (size_t i = 0; i < G_N_ELEMENTS(pages); i++) {
        rig_force(the_vcpu, 0, pages[i]);
    }
    rig_force(the_vcpu, OTHER, 0);
    rig_force(the_vcpu, OTHER, 60);
    rig_force(the_vcpu, OTHER, 76);
}

static void way_sync(Rig *r)
{
    rig_sync(r);
}

static void way_slot_sync(Rig *r)
{
    rig_slot_sync(r, 0);
}

static void way_mixed(Rig *r)
{
    rig_slot_sync(r, OTHER);
    rig_harvest(r);
    rig_clear(r, block(r, 0));
    rig_harvest(r);
}

static void way_look(Rig *r)
{
    rig_look(r);
    rig_clear(r, block(r, 0));
    rig_look(r);
}

/* The oracle checks a slot that goes, and all others at the end. */
static bool race_and_free(Rig *r, void (*way)(Rig *), unsigned n)
{
    bool raced;

    race_begin(r, n, write_meanwhile);
    way(r);
    raced = race_end();
    settle(r);
    two_slots_free(r);
    return raced;
}

static bool race_once(Mechanism m, void (*way)(Rig *), unsigned n)
{
    Rig *r = two_slots(m);

    r->chunk = 300;             /* of several regions, and parts of one */
    rig_harvest(r);
    write_some(r);
    return race_and_free(r, way, n);
}

/* The vCPU writes between any two things that the engine does. */
static void test_written_meanwhile(Mechanism m)
{
    static void (*const ways[])(Rig *) = {
        way_sync, way_slot_sync, way_mixed, way_look,
    };

    for (size_t i = 0; i < G_N_ELEMENTS(ways); i++) {
        unsigned n = 1;

        while (race_once(m, ways[i], n)) {
            n++;
        }
        g_assert_cmpuint(n, >, 3);
    }
}

/* Costs */

/* Nothing was written: nothing is re-armed, and "shared" asks KVM nothing. */
static void test_idle(Mechanism m)
{
    Rig *r = two_slots(m);
    unsigned ioctls, rearms, fetches = m == KVMD_SHARED ? 0 : 1;

    write_some(r);
    settle(r);
    rearms = r->fake->range_protects;
    ioctls = r->fake->ioctls;
    for (int i = 0; i < 5; i++) {
        settle(r);
        rig_slot_sync(r, 0);
        rig_harvest(r);
    }
    settle(r);
    g_assert_cmpuint(r->fake->range_protects, ==, rearms);
    g_assert_cmpuint(r->fake->ioctls - ioctls, ==, (5 * 5 + 2) * fetches);
    two_slots_free(r);
}

/* Only regions that are un-armed are re-armed, and none twice. */
static void test_rearms(Mechanism m)
{
    Rig *r = two_slots(m);

    write_some(r);              /* regions 0 and 2, and one of OTHER */
    rig_harvest(r);
    g_assert_cmpuint(r->fake->range_protects, ==, 0);
    g_assert_true(writable(r, 0, 511));
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, REGION, REGION), ==, 0);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 0, 0), ==, 0);
    g_assert_cmpuint(r->fake->range_protects, ==, 0);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, REGION - 1, 1), ==, 0);
    g_assert_cmpuint(r->fake->range_protects, ==, 1);
    g_assert_false(writable(r, 0, 0));
    g_assert_true(writable(r, 0, 1099));
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 0, REGION), ==, 0);
    g_assert_cmpuint(r->fake->range_protects, ==, 1);
    rig_clear(r, block(r, 0));
    rig_clear(r, block(r, OTHER));
    g_assert_cmpuint(r->fake->range_protects, ==, 3);
    g_assert_false(writable(r, 0, 1099));
    g_assert_cmpuint(r->fake->protects, ==, 0);
    settle(r);
    two_slots_free(r);
}

/* Regions that follow each other are re-armed with one ioctl. */
static void test_neighbours(Mechanism m)
{
    Rig *r = two_slots(m);

    rig_write_range(the_vcpu, 0, 0, PAGES);
    settle(r);
    g_assert_cmpuint(r->fake->range_protects, ==, 1);
    rig_write(the_vcpu, 0, 0);
    rig_write(the_vcpu, 0, REGION);
    settle(r);
    g_assert_cmpuint(r->fake->range_protects, ==, 2);
    two_slots_free(r);
}

/* Writes between the harvest and the re-arm cost nothing more. */
static void test_written_before_rearm(Mechanism m)
{
    Rig *r = two_slots(m);

    write_some(r);
    rig_harvest(r);
    rig_forget(r);
    write_some(r);
    rig_harvest(r);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 0);
    rig_clear(r, block(r, 0));
    rig_clear(r, block(r, OTHER));
    rig_check(r);
    settle(r);
    two_slots_free(r);
}

/* A slot need not begin where a region does, nor end there. */
static void test_unaligned(Mechanism m)
{
    static const uint64_t offsets[] = { 1, 63, 64, 65, 160, 192, 256, 511 };

    for (size_t i = 0; i < G_N_ELEMENTS(offsets); i++) {
        Rig *r = strict_rig(m);

        r->gpa_offset = offsets[i] * 4096;
        r->chunk = 100;
        the_vcpu = rig_vcpu(r, 0);
        rig_add(r, 0, PAGES, true);
        rig_add(r, OTHER, OTHER_PAGES, true);
        for (uint64_t page = 0; page < PAGES; page += 61) {
            rig_write(the_vcpu, 0, page);
            settle(r);
            rig_write(the_vcpu, 0, PAGES - 1 - page);
            rig_write(the_vcpu, OTHER, page % OTHER_PAGES);
        }
        rig_write_range(the_vcpu, 0, 0, PAGES);
        settle(r);
        two_slots_free(r);
    }
}

/* A range that is not in the slot is refused. */
static void test_clear_beyond(Mechanism m)
{
    Rig *r = two_slots(m);

    write_some(r);
    rig_harvest(r);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 0, PAGES + 1), ==, -EINVAL);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, PAGES, 1), ==, -EINVAL);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 1, UINT64_MAX), ==, -EINVAL);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 9, 0, 1), ==, 0);
    g_assert_cmpuint(r->fake->range_protects, ==, 0);
    settle(r);
    two_slots_free(r);
}

static unsigned looks;

static void count_look(void)
{
    looks++;
}

/* How often a harvest looks at what is shared with KVM. */
static unsigned looks_of_sync(Rig *r)
{
    looks = 0;
    ordering_hook = count_look;
    rig_harvest(r);
    ordering_hook = NULL;
    rig_sync(r);
    return looks;
}

/* A harvest looks at the summary, and at the words of dirty groups. */
static void test_looks(Mechanism m)
{
    enum { MILLION = 1 << 20, SUMMARY = MILLION / GROUP / 64, WORDS = 8 };
    Rig *r = strict_rig(m);
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, MILLION, true);
    g_assert_cmpuint(looks_of_sync(r), ==, maps(m) ? SUMMARY : 0);
    for (unsigned groups = 1; groups < MILLION / GROUP; groups *= 7) {
        for (unsigned i = 0; i < groups; i++) {
            rig_write_range(v, 0, i * GROUP + i % GROUP, 1 + i % 3);
        }
        g_assert_cmpuint(looks_of_sync(r), ==, maps(m) ?
                         SUMMARY + WORDS * groups : 0);
        rig_check(r);
        g_assert_cmpuint(looks_of_sync(r), ==, maps(m) ? SUMMARY : 0);
    }
    rig_vcpu_free(v);
    rig_free(r);
}

static unsigned publications;

static void count_publication(Rig *r)
{
    (void)r;
    publications++;
}

/* A group, or a copied bitmap, is published at once; a clean one is not. */
static void test_publications(Mechanism m)
{
    Rig *r = two_slots(m);

    r->watch = count_publication;
    publications = 0;
    settle(r);
    g_assert_cmpuint(publications, ==, 0);
    write_some(r);
    settle(r);
    g_assert_cmpuint(publications, ==, maps(m) ? 3 : 2);
    two_slots_free(r);
}

/* The statistics count published pages, and harvests that found any. */
static void test_counts(Mechanism m)
{
    Rig *r = two_slots(m);
    KvmDirtyStats stats;

    write_some(r);              /* 82 pages */
    settle(r);
    settle(r);
    rig_write(the_vcpu, 0, 9);
    rig_slot_sync(r, 0);
    rig_write(the_vcpu, OTHER, 9);
    settle(r);
    kvmd_stats(r->kvmd, &stats);
    g_assert_cmpuint(stats.pages, ==, 84);
    g_assert_cmpuint(stats.harvests, ==, 4);
    g_assert_cmpuint(stats.harvest_ns, >, 0);
    g_assert_cmpint(stats.rearm_ns > 0, ==, m != KVMD_DIRTY_BITS);
    g_assert_cmpuint(stats.publish_ns, >, 0);
    g_assert_cmpuint(stats.overflows, ==, 0);
    g_assert_cmpuint(r->kicks, ==, 0);
    g_assert_true(r->clears);
    two_slots_free(r);
}

/* Pages at the edges of words, groups and slots. */

static void write_edges(RigVcpu *v, uint64_t pages)
{
    static const uint64_t edges[] = {
        0, 1, 62, 63, 64, 510, 511, 512, 513, 32766, 32767, 32768,
    };

    for (size_t i = 0; i < G_N_ELEMENTS(edges); i++) {
        if (edges[i] < pages) {
            rig_write(v, 0, edges[i]);
            settle(v->rig);
            rig_write(v, 0, pages - 1 - edges[i]);
        }
    }
    settle(v->rig);
}

static void test_sizes(Mechanism m)
{
    static const uint64_t sizes[] = {
        1, 63, 64, 65, 511, 512, 513, 32767, 32768, 32769,
    };

    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        Rig *r = strict_rig(m);
        RigVcpu *v = rig_vcpu(r, 0);
        RigBlock *b = rig_add(r, 0, sizes[i], true);

        write_edges(v, sizes[i]);
        rig_write_range(v, 0, 0, sizes[i]);
        settle(r);
        g_assert_cmpuint(rig_published(b), ==, sizes[i]);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/* A sync of one slot */

/* A sync of one slot harvests no other. */
static void test_slot_sync(Mechanism m)
{
    Rig *r = two_slots(m);

    write_some(r);
    g_assert_cmpint(rig_slot_sync(r, OTHER), ==, 0);
    g_assert_cmpuint(rig_published(block(r, OTHER)), ==, 10);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 0);
    rig_clear(r, block(r, OTHER));
    g_assert_cmpuint(r->fake->range_protects, ==, 1);
    g_assert_false(writable(r, OTHER, 60));
    g_assert_true(writable(r, 0, 511));
    settle(r);
    g_assert_false(writable(r, 0, 511));
    two_slots_free(r);
}

/* A sync of a slot that is not there, or not logged, does nothing. */
static void test_slot_sync_of_none(Mechanism m)
{
    Rig *r = two_slots(m);
    unsigned ioctls;

    rig_add(r, 1, 64, false);
    rig_write(the_vcpu, 1, 1);
    ioctls = r->fake->ioctls;
    g_assert_cmpint(kvmd_slot_sync(r->kvmd, 1), ==, 0);
    g_assert_cmpint(kvmd_slot_sync(r->kvmd, 2), ==, 0);
    g_assert_cmpint(kvmd_slot_sync(r->kvmd, 7 << 16), ==, 0);
    g_assert_cmpuint(r->fake->ioctls, ==, ioctls);
    two_slots_free(r);
}

/*
 * A display, which reads one slot, a migration, which reads all, and a count
 * of pages share the engine.  Each remembers by itself what it has yet to
 * read, and re-arms that first.
 */

typedef struct Reader {
    uint64_t *seen;             /* by page: RigBlock.published, when read */
    uint64_t *copy;
} Reader;

static Reader reader_new(const RigBlock *b)
{
    Reader reader = {
        g_memdup2(b->published, b->pages * sizeof(uint64_t)),
        g_memdup2(b->memory, b->pages * sizeof(uint64_t)),
    };

    return reader;
}

static void reader_free(Reader *reader)
{
    g_free(reader->seen);
    g_free(reader->copy);
}

/*
 * After a sync, a page that was not published again must be as the reader read
 * it last.  It reads a page that was published again after re-arming it.
 */
static void reader_reads(Rig *r, Reader *reader, const RigBlock *b)
{
    kvmd_slot_clear(r->kvmd, b->slot_id, 0, b->pages);
    for (uint64_t i = 0; i < b->pages; i++) {
        if (reader->seen[i] != b->published[i]) {
            reader->seen[i] = b->published[i];
            reader->copy[i] = b->memory[i];
        }
        g_assert_cmpuint(reader->copy[i], ==, b->memory[i]);
    }
}

static void readers_step(Rig *r, Reader *display, Reader migration[2])
{
    switch (g_test_rand_int_range(0, 5)) {
    case 0:
        rig_slot_sync(r, OTHER);
        reader_reads(r, display, block(r, OTHER));
        break;
    case 1:
        rig_harvest(r);
        reader_reads(r, &migration[0], block(r, 0));
        reader_reads(r, &migration[1], block(r, OTHER));
        break;
    case 2:
        rig_harvest(r);
        break;
    default:
        rig_write(the_vcpu, 0, g_test_rand_int_range(0, 20) * 50);
        rig_write(the_vcpu, OTHER, g_test_rand_int_range(0, OTHER_PAGES));
    }
}

static void test_three_readers(Mechanism m)
{
    for (int run = 0; run < 50; run++) {
        Rig *r = two_slots(m);
        Reader display = reader_new(block(r, OTHER));
        Reader migration[2] = {
            reader_new(block(r, 0)), reader_new(block(r, OTHER)),
        };

        for (int i = 0; i < 60; i++) {
            readers_step(r, &display, migration);
        }
        settle(r);
        reader_free(&display);
        reader_free(&migration[0]);
        reader_free(&migration[1]);
        two_slots_free(r);
    }
}

/* Failures */

/* All pages of @slot_id are published once more. */
static bool published_whole(Rig *r, uint32_t slot_id)
{
    return rig_published(block(r, slot_id)) == block(r, slot_id)->pages;
}

/* As before: only what is written is published. */
static void recovered(Rig *r)
{
    rig_forget(r);
    r->strict = r->exact = true;
    write_some(r);
    settle(r);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 72);
}

/* A region that is not re-armed is published until it is. */
static void test_rearm_fails(Mechanism m)
{
    for (int times = 1; times < 4; times++) {
        Rig *r = two_slots(m);

        r->exact = false;
        r->chunk = REGION;
        write_some(r);
        rig_harvest(r);
        for (int i = 0; i <= times; i++) {
            fake_fail(r->fake, KVM_WRITE_PROTECT_RANGE, ENOMEM, i < times);
            rig_forget(r);
            g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 10, 90), ==,
                            i < times ? -ENOMEM : 0);
            g_assert_cmpuint(kvmd_guesses(r->kvmd), ==, MIN(i + 1, times));
            g_assert_cmpuint(rig_published(block(r, 0)), ==,
                             i < times ? 100 : 0);
            write_some(r);      /* which KVM does not log */
            rig_harvest(r);
        }
        fake_fail(r->fake, KVM_WRITE_PROTECT_RANGE, EIO, 1);
        g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 0, PAGES), ==, -EIO);
        rig_sync(r);
        rig_check(r);
        g_assert_cmpuint(r->warnings->len, ==, 0);
        recovered(r);
        two_slots_free(r);
    }
}

/* A harvest can fail where KVM has to copy. */
static Rig *two_slots_copied(Mechanism m)
{
    Rig *r = strict_rig(m);

    the_vcpu = rig_vcpu(r, 0);
    rig_add(r, 0, PAGES, true);
    fake_fail(r->fake, KVM_GET_DIRTY_BITMAP_FD, EMFILE, 1);
    rig_add(r, OTHER, OTHER_PAGES, true);
    r->strict = r->exact = false;
    return r;
}

/* All pages of the slot are published, and re-armed before they are read. */
static void test_harvest_fails(Mechanism m)
{
    Rig *r = two_slots_copied(m);

    for (int i = 1; i < 4; i++) {
        write_some(r);
        rig_harvest(r);
        rig_clear(r, block(r, OTHER));
        rig_forget(r);
        write_some(r);
        fake_fail(r->fake, KVM_GET_DIRTY_LOG, EIO, 2);
        g_assert_cmpint(rig_sync(r), ==, -EIO);
        g_assert_true(published_whole(r, OTHER));
        g_assert_cmpint(published_whole(r, 0), ==, m == KVMD_WRPROT);
        rig_check(r);
        g_assert_cmpint(writable(r, OTHER, 60), ==, m == KVMD_DIRTY_BITS);
        fake_fail(r->fake, KVM_GET_DIRTY_LOG, EIO, 0);
        g_assert_cmpint(rig_sync(r), ==, 0);
        rig_check(r);
        g_assert_cmpint(rig_warned(r, "taken as dirty"), ==,
                        i * (m == KVMD_WRPROT ? 2 : 1));
    }
    recovered(r);
    two_slots_free(r);
}

/* A signal is no failure. */
static void test_eintr(Mechanism m)
{
    Rig *r = two_slots(m);

    write_some(r);
    fake_fail(r->fake, KVM_WRITE_PROTECT_RANGE, EINTR, 2);
    fake_fail(r->fake, KVM_GET_DIRTY_LOG, EINTR, 2);
    fake_fail(r->fake, KVM_COLLECT_DIRTY_BITS, EINTR, 2);
    rig_slot_sync(r, 0);
    settle(r);
    g_assert_cmpuint(r->warnings->len, ==, 0);
    two_slots_free(r);
}

/* Slots that go */

/*
 * When a slot goes, the pages found are published, and never re-armed; with them
 * the rest of their regions, if they would have to be re-armed.
 */
static void test_remove(Mechanism m)
{
    Rig *r = two_slots(m);
    RigBlock *b = block(r, 0);

    write_some(r);
    rig_remove(r, 0);
    g_assert_cmpuint(rig_published(b), ==,
                     m == KVMD_DIRTY_BITS ? 72 : REGION + PAGES % REGION);
    g_assert_cmpuint(r->fake->range_protects, ==, 0);
    settle(r);
    two_slots_free(r);
}

/*
 * QEMU's map of memory may change before its slots do.  Then a page is read
 * although nobody could re-arm it, and the guest goes on to write to it.
 */
static void test_read_elsewhere(Mechanism m)
{
    static const uint64_t offsets[] = { 0, 1, 65, 511 };

    for (size_t i = 0; i < G_N_ELEMENTS(offsets); i++) {
        Rig *r = strict_rig(m);

        r->gpa_offset = offsets[i] * 4096;
        the_vcpu = rig_vcpu(r, 0);
        rig_add(r, 0, PAGES, true);
        rig_add(r, OTHER, OTHER_PAGES, true);
        for (uint64_t page = 0; page < PAGES; page += 300) {
            rig_write(the_vcpu, 0, page);
        }
        rig_harvest(r);
        rig_read_elsewhere(r, block(r, 0));
        for (uint64_t page = 0; page < PAGES; page += 300) {
            rig_write(the_vcpu, 0, page);
        }
        rig_remove(r, 0);       /* the oracle checks the slot here */
        settle(r);
        two_slots_free(r);
    }
}

/*
 * It may also change after its slots did.  A look, which does not wait for it,
 * finds no page then that could be read without being re-armed.
 */
static void test_look_too_early(Mechanism m)
{
    Rig *r = strict_rig(m);

    the_vcpu = rig_vcpu(r, 0);
    rig_add(r, OTHER, OTHER_PAGES, true);
    settle(r);
    rig_add(r, 0, PAGES, true);
    for (unsigned i = 0; i < 2; i++) {
        write_some(r);
        rig_look(r);
        g_assert_cmpuint(block(r, OTHER)->published[60], ==, i + 1);
        rig_read_elsewhere(r, block(r, 0));
        rig_clear(r, block(r, OTHER));
    }
    settle(r);
    two_slots_free(r);
}

/* Regions un-armed in a slot are not un-armed in the next slot with its id. */
static void test_harvest_then_remove(Mechanism m)
{
    Rig *r = two_slots(m);

    write_some(r);
    rig_harvest(r);
    rig_remove(r, 0);
    write_some(r);
    rig_add(r, 0, PAGES, true);
    settle(r);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 0);
    two_slots_free(r);
}

/* If KVM keeps the slot, it is tracked as before. */
static void test_remove_fails(Mechanism m)
{
    Rig *r = two_slots(m);

    write_some(r);
    fake_fail(r->fake, KVM_SET_USER_MEMORY_REGION, ENOMEM, 1);
    g_assert_cmpint(rig_set(r, block(r, 0), 0, 0, 0), ==, -ENOMEM);
    write_some(r);
    settle(r);
    rig_write(the_vcpu, 0, 600);
    rig_slot_sync(r, 0);
    rig_clear(r, block(r, 0));
    rig_check(r);
    g_assert_cmpuint(r->warnings->len, ==, 0);
    two_slots_free(r);
}

static bool remove_once(Mechanism m, unsigned n)
{
    Rig *r = two_slots(m);
    bool raced;

    write_some(r);
    race_begin(r, n, write_meanwhile);
    rig_remove(r, 0);           /* the oracle checks the slot here */
    raced = race_end();
    settle(r);
    rig_add(r, 0, PAGES, true);
    settle(r);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 0);
    write_some(r);
    settle(r);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 72);
    two_slots_free(r);
    return raced;
}

/*
 * The mapping outlives the slot: pages written after the first harvest are
 * found, and the next slot with the id inherits none of them.  This is not so
 * with "wrprot", which has them in a bitmap that goes with the slot.
 */
static void test_written_while_removed(Mechanism m)
{
    unsigned n = 1;

    while (remove_once(m, n)) {
        n++;
    }
    g_assert_cmpuint(n, >, 10);
}

static void way_add(Rig *r)
{
    rig_add(r, 0, PAGES, true);
}

/* KVM may log a page of a slot before the engine has mapped its bitmap. */
static bool add_once(Mechanism m, unsigned n)
{
    Rig *r = two_slots(m);

    rig_remove(r, 0);
    return race_and_free(r, way_add, n);
}

static void test_written_while_added(Mechanism m)
{
    unsigned n = 1;

    while (add_once(m, n)) {
        n++;
    }
    g_assert_cmpuint(n, ==, 3);
}

/*
 * Logging goes on and off: a log inherits nothing from an earlier one.  The
 * CPU's dirty bits stay.
 */
static void test_logged_again(Mechanism m)
{
    unsigned stale = m == KVMD_DIRTY_BITS ? 70 : 0;
    Rig *r = two_slots(m);

    for (int i = 0; i < 5; i++) {
        rig_write_range(the_vcpu, 0, 0, 70);
        if (i % 2) {
            rig_harvest(r);
        }
        rig_log(r, 0, false);
        rig_forget(r);
        rig_write_range(the_vcpu, 0, 0, 70);
        settle(r);
        rig_log(r, 0, true);
        rig_write(the_vcpu, 0, 600);
        settle(r);
        g_assert_cmpuint(rig_published(block(r, 0)), ==, stale + 1);
    }
    two_slots_free(r);
}

/* Bitmaps that cannot be mapped */

static void cannot_map(Rig *r, Mechanism m)
{
    write_some(r);
    settle(r);
    rig_slot_sync(r, OTHER);
    rig_harvest(r);
    write_some(r);
    settle(r);
    g_assert_cmpint(rig_warned(r, "cannot be mapped"), ==, maps(m));
    g_assert_cmpint(rig_warned(r, "0x10003"), ==, maps(m));
    g_assert_cmpuint(r->warnings->len, ==, maps(m));
    g_assert_cmpuint(r->fake->gets, >, 0);
    write_some(r);
    rig_remove(r, OTHER);
    g_assert_cmpint(rig_warned(r, "No data available"), ==, maps(m));
    rig_remove(r, 0);
    g_assert_cmpuint(r->warnings->len, ==, 2 * maps(m));
    two_slots_free(r);
}

static void test_no_bitmap_fd(Mechanism m)
{
    Rig *r = two_slots_copied(m);

    r->strict = r->exact = true;
    cannot_map(r, m);
}

static void test_no_mapping(Mechanism m)
{
    Rig *r = strict_rig(m);

    the_vcpu = rig_vcpu(r, 0);
    rig_add(r, 0, PAGES, true);
    r->fake->unmappable = true;
    rig_add(r, OTHER, OTHER_PAGES, true);
    cannot_map(r, m);
}

static void way_remove_other(Rig *r)
{
    rig_remove(r, OTHER);
}

static bool remove_copied_once(Mechanism m, unsigned n)
{
    Rig *r = two_slots_copied(m);

    settle(r);                  /* what is armed is not published anyway */
    return race_and_free(r, way_remove_other, n);
}

/* A bitmap that is not mapped goes with its slot: all pages are published. */
static void test_copied_while_removed(gconstpointer data)
{
    unsigned n = 1;

    while (remove_copied_once(GPOINTER_TO_UINT(data), n)) {
        n++;
    }
    g_assert_cmpuint(n, >, 5);
}

static unsigned open_files(void)
{
    g_autoptr(GDir) dir = g_dir_open("/proc/self/fd", 0, NULL);
    unsigned n = 0;

    while (g_dir_read_name(dir)) {
        n++;
    }
    return n;
}

/* A look leaves un-armed what it finds, as a sync does. */
static void test_look(Mechanism m)
{
    Rig *r = two_slots(m);

    rig_harvest(r);
    for (unsigned i = 1; i < 4; i++) {
        unsigned protects = r->fake->protects + r->fake->range_protects;

        write_some(r);
        rig_look(r);
        g_assert_cmpuint(rig_published(block(r, 0)), ==, 72);
        g_assert_cmpuint(block(r, 0)->published[1099], ==, i);
        g_assert_cmpuint(block(r, OTHER)->published[69], ==, i);
        g_assert_cmpuint(r->fake->protects + r->fake->range_protects, ==,
                         protects);
        g_assert_true(writable(r, 0, 511));
        rig_clear(r, block(r, 0));
        rig_clear(r, block(r, OTHER));
    }
    rig_look(r);
    settle(r);
    two_slots_free(r);
}

/* The kernel has one mapping of the fake KVM's, as long as it has the slot. */
static unsigned bitmaps_mapped(void)
{
    g_autofree char *maps = NULL;
    unsigned n = 0;

    g_assert_true(g_file_get_contents("/proc/self/maps", &maps, NULL, NULL));
    for (const char *at = maps; (at = strstr(at, "memfd:bitmap")); at++) {
        n++;
    }
    return n;
}

/* Neither files nor mappings are left open, whatever becomes of a slot. */
static void test_nothing_left_open(Mechanism m)
{
    Rig *r = two_slots(m);
    unsigned files = open_files(), maps = bitmaps_mapped();

    for (int i = 0; i < 10; i++) {
        rig_log(r, 0, false);
        rig_remove(r, OTHER);
        r->fake->unmappable = i % 2;
        rig_log(r, 0, true);
        rig_add(r, OTHER, OTHER_PAGES, true);
    }
    rig_log(r, 0, false);
    r->fake->unmappable = false;
    rig_log(r, 0, true);
    rig_remove(r, OTHER);
    rig_add(r, OTHER, OTHER_PAGES, true);
    g_assert_cmpuint(open_files(), ==, files);
    g_assert_cmpuint(bitmaps_mapped(), ==, maps);
    two_slots_free(r);
    g_assert_cmpuint(bitmaps_mapped(), ==, 0);
}

static const struct {
    const char *name;
    void (*run)(Mechanism m);
    bool rearms;                /* it tests how regions are re-armed */
} tests[] = {
    { "written-meanwhile", test_written_meanwhile, false },
    { "idle", test_idle, true },
    { "rearms", test_rearms, true },
    { "neighbours", test_neighbours, true },
    { "written-before-rearm", test_written_before_rearm, true },
    { "unaligned", test_unaligned, false },
    { "clear-beyond", test_clear_beyond, false },
    { "looks", test_looks, false },
    { "publications", test_publications, false },
    { "counts", test_counts, false },
    { "sizes", test_sizes, false },
    { "slot-sync", test_slot_sync, true },
    { "look", test_look, true },
    { "slot-sync-of-none", test_slot_sync_of_none, false },
    { "three-readers", test_three_readers, false },
    { "rearm-fails", test_rearm_fails, true },
    { "harvest-fails", test_harvest_fails, false },
    { "eintr", test_eintr, false },
    { "remove", test_remove, false },
    { "read-elsewhere", test_read_elsewhere, false },
    { "look-too-early", test_look_too_early, false },
    { "harvest-then-remove", test_harvest_then_remove, false },
    { "remove-fails", test_remove_fails, false },
    { "written-while-added", test_written_while_added, false },
    { "logged-again", test_logged_again, false },
    { "no-bitmap-fd", test_no_bitmap_fd, false },
    { "no-mapping", test_no_mapping, false },
    { "nothing-left-open", test_nothing_left_open, false },
};

static void test_wrprot(gconstpointer number)
{
    tests[GPOINTER_TO_UINT(number)].run(KVMD_WRPROT);
}

static void test_shared(gconstpointer number)
{
    tests[GPOINTER_TO_UINT(number)].run(KVMD_SHARED);
}

static void test_dirty_bits(gconstpointer number)
{
    tests[GPOINTER_TO_UINT(number)].run(KVMD_DIRTY_BITS);
}

static void test_mapped_while_removed(gconstpointer m)
{
    test_written_while_removed(GPOINTER_TO_UINT(m));
}

static void add(const char *mechanism, guint number, GTestDataFunc func)
{
    g_autofree char *path = g_strdup_printf("/protect/%s/%s", mechanism,
                                            tests[number].name);

    g_test_add_data_func(path, GUINT_TO_POINTER(number), func);
}

/* KVM's own count, where KVM has one and was asked to count. */
static void test_faults(void)
{
    static const KvmDirtyConfig log = { .mechanism = KVMD_LOG };
    static const FakeConfig fake = { FAKE_LINUX_6_1, .patched = FAKE_PATCHED };
    Rig *rigs[] = {
        rig_new_patched(KVMD_SHARED), rig_new(&fake, &log),
        rig_new_log(FAKE_MANUAL_CAPS),
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rigs); i++) {
        KvmDirtyStats stats;

        fake_set_faults(rigs[i]->fake, 48, 12345);
        kvmd_stats(rigs[i]->kvmd, &stats);
        g_assert_cmpint(stats.faults_known, ==, i == 0);
        g_assert_cmpuint(stats.faults, ==, i ? 0 : 48);
        g_assert_cmpuint(stats.fault_ns, ==, i ? 0 : 12345);
        rig_free(rigs[i]);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(tests); i++) {
        add("wrprot", i, test_wrprot);
        add("shared", i, test_shared);
        if (!tests[i].rearms) {
            add("dirty-bits", i, test_dirty_bits);
        }
    }
    g_test_add_data_func("/protect/shared/written-while-removed",
                         GUINT_TO_POINTER(KVMD_SHARED),
                         test_mapped_while_removed);
    g_test_add_data_func("/protect/dirty-bits/written-while-removed",
                         GUINT_TO_POINTER(KVMD_DIRTY_BITS),
                         test_mapped_while_removed);
    g_test_add_data_func("/protect/shared/copied-while-removed",
                         GUINT_TO_POINTER(KVMD_SHARED),
                         test_copied_while_removed);
    g_test_add_data_func("/protect/dirty-bits/copied-while-removed",
                         GUINT_TO_POINTER(KVMD_DIRTY_BITS),
                         test_copied_while_removed);
    g_test_add_func("/protect/faults", test_faults);
    return g_test_run();
}
