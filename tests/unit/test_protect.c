/*
 * "wrprot" and "shared": harvest, re-arm all at once, publish.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Each test but one is run with both, on a KVM that offers both.
 */

#include "race.h"

#include <errno.h>
#include <linux/kvm_dirty_tracking.h>
#include <string.h>

#define PAGES 1100              /* three groups, the last one short */
#define OTHER (1 << 16 | 3)     /* a slot of another address space */
#define OTHER_PAGES 77
#define GROUP KVM_DIRTY_SUMMARY_PAGES

typedef KvmDirtyMechanism Mechanism;

/* Each page that is published is armed, and was logged. */
static Rig *strict_rig(Mechanism m)
{
    Rig *r = rig_new_patched(m);

    r->strict = r->exact = true;
    return r;
}

static RigVcpu *the_vcpu;

static Rig *two_slots(Mechanism m)
{
    Rig *r = strict_rig(m);

    the_vcpu = rig_vcpu(r, 0);
    rig_add(r, 0, PAGES, true);
    rig_add(r, OTHER, OTHER_PAGES, true);
    return r;
}

static void two_slots_free(Rig *r)
{
    rig_vcpu_free(the_vcpu);
    rig_free(r);
}

static RigBlock *block(Rig *r, uint32_t slot_id)
{
    return r->at[slot_id >> 16][slot_id & 0xffff];
}

static bool writable(Rig *r, uint32_t slot_id, uint64_t page)
{
    return fake_page_writable(r->fake, slot_id, page);
}

/* Nothing is lost, whatever the guest did up to now. */
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

/* Pages of write_some(), of the same words and groups, and of others. */
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

static void way_probe(Rig *r)
{
    rig_probe(r);
    rig_sync(r);
}

static void way_mixed(Rig *r)
{
    rig_slot_sync(r, OTHER);
    rig_probe(r);
    rig_slot_sync(r, 0);
    rig_probe(r);
}

static bool race_once(Mechanism m, void (*way)(Rig *), unsigned n)
{
    Rig *r = two_slots(m);
    bool raced;

    write_some(r);
    race_begin(r, n, write_meanwhile);
    way(r);
    raced = race_end();
    settle(r);
    two_slots_free(r);
    return raced;
}

/* The vCPU writes between any two things that the engine does. */
static void test_written_meanwhile(Mechanism m)
{
    static void (*const ways[])(Rig *) = {
        way_sync, way_slot_sync, way_probe, way_mixed,
    };

    for (size_t i = 0; i < G_N_ELEMENTS(ways); i++) {
        unsigned n = 1;

        while (race_once(m, ways[i], n)) {
            n++;
        }
        g_assert_cmpuint(n, >, 5);
    }
}

/* Costs */

static unsigned rearms(const Rig *r)
{
    return r->fake->protects + r->fake->range_protects;
}

/* Nothing was written: nothing is re-armed, and "shared" asks KVM nothing. */
static void test_idle(Mechanism m)
{
    Rig *r = two_slots(m);
    unsigned ioctls, fetches = m == KVMD_SHARED ? 0 : 1;

    write_some(r);
    settle(r);
    g_assert_cmpuint(rearms(r), ==, 1);
    ioctls = r->fake->ioctls;
    for (int i = 0; i < 5; i++) {
        settle(r);
        rig_slot_sync(r, 0);
        rig_probe(r);
    }
    settle(r);
    g_assert_cmpuint(rearms(r), ==, 1);
    g_assert_cmpuint(r->fake->ioctls - ioctls, ==, (5 * 5 + 2) * fetches);
    two_slots_free(r);
}

/* However many slots there are: one write-protection of all memory. */
static void test_many_slots(Mechanism m)
{
    enum { EACH = 12 };
    Rig *r = strict_rig(m);
    RigVcpu *v = rig_vcpu(r, 0);
    unsigned ioctls;

    for (uint32_t i = 0; i < EACH; i++) {
        rig_add(r, i, 65 + i, true);
        rig_add(r, 1 << 16 | (2 * i), 65 + i, true);
    }
    for (unsigned round = 1; round < 4; round++) {
        for (uint32_t i = 0; i < EACH; i++) {
            rig_write_range(v, i, i, 60);
            rig_write(v, 1 << 16 | (2 * i), 64 + round % 2);
        }
        ioctls = r->fake->ioctls;
        settle(r);
        g_assert_cmpuint(r->fake->protects, ==, round);
        g_assert_cmpuint(r->fake->ioctls - ioctls, ==,
                         m == KVMD_SHARED ? 1 : 2 * EACH + 1);
    }
    g_assert_cmpuint(r->fake->range_protects, ==, 0);
    rig_vcpu_free(v);
    rig_free(r);
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
    rig_sync(r);
    ordering_hook = NULL;
    return looks;
}

/* A harvest looks at the summary, and at the words of dirty groups. */
static void test_looks(Mechanism m)
{
    enum { MILLION = 1 << 20, SUMMARY = MILLION / GROUP / 64, WORDS = 8 };
    Rig *r = strict_rig(m);
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, MILLION, true);
    g_assert_cmpuint(looks_of_sync(r), ==, m == KVMD_SHARED ? SUMMARY : 0);
    for (unsigned groups = 1; groups < MILLION / GROUP; groups *= 7) {
        for (unsigned i = 0; i < groups; i++) {
            rig_write_range(v, 0, i * GROUP + i % GROUP, 1 + i % 3);
        }
        g_assert_cmpuint(looks_of_sync(r), ==, m == KVMD_SHARED ?
                         SUMMARY + WORDS * groups : 0);
        rig_check(r);
        g_assert_cmpuint(looks_of_sync(r), ==,
                         m == KVMD_SHARED ? SUMMARY : 0);
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

/* Words that follow each other are published as one; a gap is left out. */
static void test_runs(Mechanism m)
{
    static const struct {
        uint64_t first, pages;
    } writes[] = {
        { 5, 600 }, { 704, 1 }, { 832, 130 }, { 1099, 1 },
    };
    Rig *r = two_slots(m);

    for (size_t i = 0; i < G_N_ELEMENTS(writes); i++) {
        rig_write_range(the_vcpu, 0, writes[i].first, writes[i].pages);
    }
    publications = 0;
    r->watch = count_publication;
    settle(r);
    g_assert_cmpuint(publications, ==, G_N_ELEMENTS(writes));
    two_slots_free(r);
}

/* Where one slot's words end the next slot's go on. */
static void test_runs_of_two_slots(Mechanism m)
{
    Rig *r = strict_rig(m);
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, 128, true);
    rig_add(r, 1, 300, true);
    rig_write(v, 0, 127);
    rig_write_range(v, 1, 128, 100);
    settle(r);
    rig_vcpu_free(v);
    rig_free(r);
}

/* The statistics have what was published, and how often there was any. */
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
    rig_probe(r);
    kvmd_stats(r->kvmd, &stats);
    g_assert_cmpuint(stats.pages, ==, 84);
    g_assert_cmpuint(stats.harvests, ==, 3);
    g_assert_cmpuint(stats.harvest_ns, >, 0);
    g_assert_cmpuint(stats.rearm_ns, >, 0);
    g_assert_cmpuint(stats.publish_ns, >, 0);
    g_assert_cmpuint(stats.overflows, ==, 0);
    g_assert_cmpuint(r->kicks, ==, 0);
    g_assert_false(r->clears);
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

/* It re-arms its slot and no other. */
static void test_slot_sync(Mechanism m)
{
    Rig *r = two_slots(m);

    write_some(r);
    g_assert_cmpint(rig_slot_sync(r, OTHER), ==, 0);
    g_assert_cmpuint(r->fake->range_protects, ==, 1);
    g_assert_false(writable(r, OTHER, 60));
    g_assert_true(writable(r, 0, 511));
    g_assert_cmpuint(rig_published(block(r, OTHER)), ==, 10);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 0);
    rig_slot_sync(r, OTHER);
    g_assert_cmpuint(r->fake->range_protects, ==, 1);
    g_assert_cmpuint(r->fake->protects, ==, 0);
    settle(r);
    g_assert_false(writable(r, 0, 511));
    two_slots_free(r);
}

/* A slot that is not there, or not logged, is nobody's to sync. */
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

/* Probes */

/* It re-arms nothing, and nothing is told of a page twice. */
static void test_probe(Mechanism m)
{
    Rig *r = two_slots(m);

    write_some(r);
    g_assert_cmpint(rig_probe(r), ==, 0);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 72);
    g_assert_cmpuint(rig_published(block(r, OTHER)), ==, 10);
    g_assert_true(writable(r, 0, 511));
    g_assert_true(writable(r, OTHER, 60));
    rig_forget(r);
    write_some(r);
    rig_probe(r);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 0);
    g_assert_cmpuint(rearms(r), ==, 0);
    settle(r);
    two_slots_free(r);
}

/* The next sync re-arms what probes left, and only that one. */
static void test_probe_then_sync(Mechanism m)
{
    for (int probes = 1; probes < 4; probes++) {
        Rig *r = two_slots(m);

        write_some(r);
        for (int i = 0; i < probes; i++) {
            rig_probe(r);
        }
        settle(r);
        g_assert_cmpuint(r->fake->protects, ==, 1);
        g_assert_false(writable(r, 0, 511));
        g_assert_false(writable(r, OTHER, 60));
        write_some(r);
        settle(r);
        settle(r);
        g_assert_cmpuint(r->fake->protects, ==, 2);
        g_assert_cmpuint(r->fake->range_protects, ==, 0);
        two_slots_free(r);
    }
}

/* So does that of a slot, for itself; the others are still to be re-armed. */
static void test_probe_then_slot_sync(Mechanism m)
{
    Rig *r = two_slots(m);

    write_some(r);
    rig_probe(r);
    rig_slot_sync(r, OTHER);
    rig_slot_sync(r, OTHER);
    g_assert_cmpuint(r->fake->range_protects, ==, 1);
    g_assert_false(writable(r, OTHER, 60));
    g_assert_true(writable(r, 0, 511));
    write_some(r);
    settle(r);
    g_assert_cmpuint(r->fake->protects, ==, 1);
    g_assert_false(writable(r, 0, 511));
    two_slots_free(r);
}

/* A probe that found nothing has left nothing to be re-armed. */
static void test_probe_finds_nothing(Mechanism m)
{
    Rig *r = two_slots(m);

    write_some(r);
    settle(r);
    rig_probe(r);
    rig_slot_sync(r, 0);
    settle(r);
    g_assert_cmpuint(rearms(r), ==, 1);
    two_slots_free(r);
}

/*
 * A display, which reads one slot, a migration, which reads all, and a count
 * of pages share the engine; each has its own idea of what it has yet to read.
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

/* After a sync, what was not published again must be what was read last. */
static void reader_reads(Reader *reader, const RigBlock *b)
{
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
        reader_reads(display, block(r, OTHER));
        break;
    case 1:
        rig_sync(r);
        reader_reads(&migration[0], block(r, 0));
        reader_reads(&migration[1], block(r, OTHER));
        break;
    case 2:
        rig_probe(r);
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

#define FAILED "finding or re-arming"

/* All pages of @slot_id are published once more. */
static bool published_whole(Rig *r, uint32_t slot_id)
{
    return rig_published(block(r, slot_id)) == block(r, slot_id)->pages;
}

/* What fails publishes everything, which was not logged. */
static Rig *two_slots_to_fail(Mechanism m)
{
    Rig *r = two_slots(m);

    r->exact = false;
    write_some(r);
    rig_sync(r);
    rig_forget(r);
    r->strict = false;
    return r;
}

/* As before: only what is written is published. */
static void recovered(Rig *r)
{
    rig_forget(r);
    r->strict = r->exact = true;
    write_some(r);
    settle(r);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 72);
    g_assert_cmpint(rig_warned(r, FAILED), ==, 1);
}

/* Everything, until all memory has been re-armed. */
static void test_rearm_fails(Mechanism m)
{
    for (int times = 1; times < 4; times++) {
        Rig *r = two_slots_to_fail(m);

        write_some(r);
        fake_fail(r->fake, KVM_WRITE_PROTECT_ALL_MEM, ENOMEM, times);
        for (int i = 0; i <= times; i++) {
            rig_forget(r);
            g_assert_cmpint(rig_sync(r), ==, i < times ? -ENOMEM : 0);
            g_assert_true(published_whole(r, 0));
            g_assert_true(published_whole(r, OTHER));
            rig_check(r);
            if (i < times) {
                write_some(r);  /* of which nothing tells */
            }
        }
        recovered(r);
        two_slots_free(r);
    }
}

/* The others are still to be harvested. */
static void test_slot_rearm_fails(Mechanism m)
{
    Rig *r = two_slots_to_fail(m);

    write_some(r);
    fake_fail(r->fake, KVM_WRITE_PROTECT_RANGE, EIO, 1);
    g_assert_cmpint(rig_slot_sync(r, OTHER), ==, -EIO);
    g_assert_true(published_whole(r, OTHER));
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 0);
    write_some(r);              /* of which nothing tells */
    for (int i = 0; i < 3; i++) {
        rig_forget(r);
        g_assert_cmpint(rig_slot_sync(r, OTHER), ==, 0);
        g_assert_true(published_whole(r, OTHER));
    }
    rig_slot_sync(r, 0);
    g_assert_true(published_whole(r, 0));
    g_assert_cmpuint(r->fake->protects, ==, 1);
    g_assert_cmpint(rig_sync(r), ==, 0);
    g_assert_cmpuint(r->fake->protects, ==, 2);
    rig_check(r);
    recovered(r);
    two_slots_free(r);
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

static void test_harvest_fails(Mechanism m)
{
    Rig *r = two_slots_copied(m);

    write_some(r);
    fake_fail(r->fake, KVM_GET_DIRTY_LOG, EIO, 1);
    g_assert_cmpint(rig_sync(r), ==, -EIO);
    g_assert_true(published_whole(r, 0));
    g_assert_true(published_whole(r, OTHER));
    rig_check(r);
    write_some(r);
    rig_forget(r);
    g_assert_cmpint(rig_sync(r), ==, 0);
    g_assert_true(published_whole(r, 0));
    rig_check(r);
    recovered(r);
    two_slots_free(r);
}

/* Nothing is found after it, and all is re-armed nonetheless. */
static void test_probe_fails(Mechanism m)
{
    Rig *r = two_slots_copied(m);

    write_some(r);
    rig_probe(r);
    rig_sync(r);
    g_assert_cmpuint(rearms(r), ==, 1);
    fake_fail(r->fake, KVM_GET_DIRTY_LOG, EIO, 1);
    rig_forget(r);
    g_assert_cmpint(rig_probe(r), ==, -EIO);
    g_assert_true(published_whole(r, 0));
    g_assert_cmpuint(rearms(r), ==, 1);
    g_assert_cmpint(rig_sync(r), ==, 0);
    g_assert_cmpuint(r->fake->protects, ==, 2);
    recovered(r);
    two_slots_free(r);
}

/* The operator hears of each trouble once, not of each sync. */
static void test_fails_again(Mechanism m)
{
    Rig *r = two_slots_to_fail(m);

    for (int trouble = 1; trouble < 4; trouble++) {
        write_some(r);
        fake_fail(r->fake, KVM_WRITE_PROTECT_ALL_MEM, ENOMEM, 3);
        for (int i = 0; i < 5; i++) {
            rig_sync(r);
            rig_check(r);
        }
        g_assert_cmpint(rig_warned(r, FAILED), ==, trouble);
    }
    two_slots_free(r);
}

/* A signal is none. */
static void test_eintr(Mechanism m)
{
    Rig *r = two_slots(m);

    write_some(r);
    fake_fail(r->fake, KVM_WRITE_PROTECT_ALL_MEM, EINTR, 2);
    fake_fail(r->fake, KVM_WRITE_PROTECT_RANGE, EAGAIN, 2);
    fake_fail(r->fake, KVM_GET_DIRTY_LOG, EINTR, 2);
    rig_slot_sync(r, 0);
    settle(r);
    g_assert_cmpuint(r->warnings->len, ==, 0);
    two_slots_free(r);
}

/* Slots that go */

/* What is found first is published in a slot that goes, and re-armed once. */
static void test_remove(Mechanism m)
{
    Rig *r = two_slots(m);
    RigBlock *b = block(r, 0);

    write_some(r);
    rig_remove(r, 0);
    g_assert_cmpuint(rig_published(b), ==, 72);
    g_assert_cmpuint(r->fake->protects, ==, 0);
    g_assert_cmpuint(r->fake->range_protects, ==, 1);
    settle(r);
    two_slots_free(r);
}

/* A probe's pages are re-armed before the slot goes, and nowhere after. */
static void test_probe_then_remove(Mechanism m)
{
    Rig *r = two_slots(m);

    write_some(r);
    rig_probe(r);
    rig_remove(r, 0);
    write_some(r);
    rig_add(r, 0, PAGES, true);
    settle(r);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 0);
    two_slots_free(r);
}

/* KVM keeps the slot: it goes on as if nobody had asked. */
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
    rig_check(r);
    g_assert_cmpuint(r->warnings->len, ==, 0);
    two_slots_free(r);
}

static bool remove_once(unsigned n)
{
    Rig *r = two_slots(KVMD_SHARED);
    bool raced;

    write_some(r);
    race_begin(r, n, write_meanwhile);
    rig_remove(r, 0);           /* which has the oracle look */
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
 * The mapping outlives the slot: what was written after the first harvest is
 * found, and what has the id next inherits none of it.  Not so with "wrprot",
 * which has it in a bitmap that goes with the slot.
 */
static void test_written_while_removed(void)
{
    unsigned n = 1;

    while (remove_once(n)) {
        n++;
    }
    g_assert_cmpuint(n, >, 10);
}

/* KVM may log a page of a slot before the engine has mapped its bitmap. */
static bool add_once(Mechanism m, unsigned n)
{
    Rig *r = two_slots(m);
    bool raced;

    rig_remove(r, 0);
    race_begin(r, n, write_meanwhile);
    rig_add(r, 0, PAGES, true);
    raced = race_end();
    settle(r);
    two_slots_free(r);
    return raced;
}

static void test_written_while_added(Mechanism m)
{
    unsigned n = 1;

    while (add_once(m, n)) {
        n++;
    }
    g_assert_cmpuint(n, ==, 3);
}

/* Logging goes on and off; what an earlier log knew is not this one's. */
static void test_logged_again(Mechanism m)
{
    Rig *r = two_slots(m);

    for (int i = 0; i < 5; i++) {
        rig_write_range(the_vcpu, 0, 0, 70);
        if (i % 2) {
            rig_probe(r);
        }
        rig_log(r, 0, false);
        rig_forget(r);
        rig_write_range(the_vcpu, 0, 0, 70);
        settle(r);
        rig_log(r, 0, true);
        rig_write(the_vcpu, 0, 600);
        settle(r);
        g_assert_cmpuint(rig_published(block(r, 0)), ==, 1);
    }
    two_slots_free(r);
}

/* Bitmaps that cannot be mapped */

static void cannot_map(Rig *r, Mechanism m)
{
    write_some(r);
    settle(r);
    rig_slot_sync(r, OTHER);
    rig_probe(r);
    write_some(r);
    settle(r);
    g_assert_cmpint(rig_warned(r, "cannot be mapped"), ==, m == KVMD_SHARED);
    g_assert_cmpint(rig_warned(r, "0x10003"), ==, m == KVMD_SHARED);
    g_assert_cmpuint(r->warnings->len, ==, m == KVMD_SHARED);
    g_assert_cmpuint(r->fake->gets, >, 0);
    write_some(r);
    rig_remove(r, OTHER);
    rig_remove(r, 0);
    g_assert_cmpuint(r->warnings->len, ==, m == KVMD_SHARED);
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

static unsigned open_files(void)
{
    g_autoptr(GDir) dir = g_dir_open("/proc/self/fd", 0, NULL);
    unsigned n = 0;

    while (g_dir_read_name(dir)) {
        n++;
    }
    return n;
}

/* The kernel has one for the fake KVM, as long as it has the slot. */
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
} tests[] = {
    { "written-meanwhile", test_written_meanwhile },
    { "idle", test_idle },
    { "many-slots", test_many_slots },
    { "looks", test_looks },
    { "runs", test_runs },
    { "runs-of-two-slots", test_runs_of_two_slots },
    { "counts", test_counts },
    { "sizes", test_sizes },
    { "slot-sync", test_slot_sync },
    { "slot-sync-of-none", test_slot_sync_of_none },
    { "probe", test_probe },
    { "probe-then-sync", test_probe_then_sync },
    { "probe-then-slot-sync", test_probe_then_slot_sync },
    { "probe-finds-nothing", test_probe_finds_nothing },
    { "three-readers", test_three_readers },
    { "rearm-fails", test_rearm_fails },
    { "slot-rearm-fails", test_slot_rearm_fails },
    { "harvest-fails", test_harvest_fails },
    { "probe-fails", test_probe_fails },
    { "fails-again", test_fails_again },
    { "eintr", test_eintr },
    { "remove", test_remove },
    { "probe-then-remove", test_probe_then_remove },
    { "remove-fails", test_remove_fails },
    { "written-while-added", test_written_while_added },
    { "logged-again", test_logged_again },
    { "no-bitmap-fd", test_no_bitmap_fd },
    { "no-mapping", test_no_mapping },
    { "nothing-left-open", test_nothing_left_open },
};

static void test_wrprot(gconstpointer number)
{
    tests[GPOINTER_TO_UINT(number)].run(KVMD_WRPROT);
}

static void test_shared(gconstpointer number)
{
    tests[GPOINTER_TO_UINT(number)].run(KVMD_SHARED);
}

static void add(const char *mechanism, guint number, GTestDataFunc func)
{
    g_autofree char *path = g_strdup_printf("/protect/%s/%s", mechanism,
                                            tests[number].name);

    g_test_add_data_func(path, GUINT_TO_POINTER(number), func);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (guint i = 0; i < G_N_ELEMENTS(tests); i++) {
        add("wrprot", i, test_wrprot);
        add("shared", i, test_shared);
    }
    g_test_add_func("/protect/shared/written-while-removed",
                    test_written_while_removed);
    return g_test_run();
}
