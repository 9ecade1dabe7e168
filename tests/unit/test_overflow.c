/*
 * Rings that overflow (I8): on a KVM that lets a vCPU fill on.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "rig.h"
#include "ordering_hook.h"

#include <errno.h>
#include <linux/kvm_dirty_tracking.h>
#include <string.h>

#define PAGES 5003              /* not a multiple of 64 */

static const uint32_t sizes[] = { 128, 256, 1024 };

/* A vCPU that was told to leave writes on, and overwrites entries. */
static void flood(RigVcpu *v, uint64_t first, uint64_t entries)
{
    FakeKvm *k = v->rig->fake;

    k->soft_limit_off = true;
    for (uint64_t i = 0; i < entries; i++) {
        uint32_t dirty = v->fake->dirty_index;

        /* KVM does not log a page that is writable already: take the next. */
        while (v->fake->dirty_index == dirty) {
            rig_force(v, 0, first++ % PAGES);
        }
    }
    k->soft_limit_off = false;
}

/*
 * The guest runs on, on a KVM that keeps to its limit.  While its writes do
 * not fill the ring, syncs are exact and see no overflow.
 */
static void settles(Rig *r, RigVcpu *v)
{
    uint32_t size = r->fake->ring_size;
    uint64_t overflows;

    rig_write_range(v, 0, 0, PAGES / 2);
    rig_sync(r);
    rig_check(r);
    rig_write_range(v, 0, PAGES / 2, PAGES / 2);
    rig_sync(r);
    rig_check(r);
    rig_sync(r);
    rig_forget(r);
    overflows = rig_overflows(r);
    r->strict = r->exact = true;
    for (int i = 0; i < 12; i++) {
        rig_write_range(v, 0, i * 17, size / 4);
        rig_sync(r);
        rig_check(r);
        rig_check_exact(r);
    }
    r->strict = r->exact = false;
    g_assert_cmpuint(rig_overflows(r), ==, overflows);
}

/* All pages are published, and armed by then. */
static void published_whole(Rig *r, const RigBlock *b)
{
    g_assert_cmpuint(rig_published(b), ==, b->pages);
    for (uint64_t i = 0; i < b->pages; i++) {
        g_assert_false(fake_page_writable(r->fake, b->slot_id, i));
    }
}

/* @entries in a ring of @size before the first sync. */
static void lap(uint32_t size, uint32_t before, uint64_t entries)
{
    Rig *r = rig_new_ring(size);
    RigVcpu *v = rig_vcpu(r, 0), *other = rig_vcpu(r, 1);
    RigBlock *b = rig_add(r, 0, PAGES, true);

    rig_write_range(v, 0, PAGES - 64, before);
    rig_sync(r);
    rig_forget(r);
    rig_write(other, 0, PAGES - 1);
    flood(v, 0, entries);
    g_assert_cmpuint(v->fake->lost, ==, entries > size ? entries - size : 0);
    g_assert_cmpint(rig_sync(r), ==, 0);
    rig_check(r);
    if (entries < size) {
        g_assert_cmpuint(rig_overflows(r), ==, 0);
        rig_check_exact(r);
    } else {
        g_assert_cmpuint(rig_overflows(r), >=, 1);
        published_whole(r, b);
        g_assert_cmpint(rig_warned(r, "overflow"), >=, 1);
    }
    settles(r, v);
    rig_vcpu_free(v);
    rig_vcpu_free(other);
    rig_free(r);
}

static void test_laps(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        uint32_t size = sizes[i];
        uint64_t entries[] = {
            size - 1, size, size + 1, size + size / 4, size + size / 2,
            2 * size - 1, 2 * size, 2 * size + 1, 3 * size, 3 * size + 7,
            4 * size - 1,
        };

        for (size_t j = 0; j < G_N_ELEMENTS(entries); j++) {
            lap(size, 0, entries[j]);
            lap(size, 1, entries[j]);
            lap(size, 41, entries[j]);
        }
    }
}

/* The reap of a vCPU that left late finds the overflow. */
static void test_laps_at_ring_full(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        for (uint64_t entries = sizes[i] - 2; entries < 3 * sizes[i];
             entries += sizes[i] / 3) {
            Rig *r = rig_new_ring(sizes[i]);
            RigVcpu *v = rig_vcpu(r, 0);
            RigBlock *b = rig_add(r, 0, PAGES, true);

            flood(v, 0, entries);
            rig_enter(v);
            if (entries >= sizes[i]) {
                g_assert_cmpuint(rig_overflows(r), >=, 1);
                published_whole(r, b);
            }
            rig_check(r);
            settles(r, v);
            rig_vcpu_free(v);
            rig_free(r);
        }
    }
}

/* So does the reap of a vCPU that goes away. */
static void test_laps_at_removal(void)
{
    for (uint64_t entries = 250; entries < 800; entries += 50) {
        Rig *r = rig_new_ring(256);
        RigVcpu *v = rig_vcpu(r, 0);

        rig_add(r, 0, PAGES, true);
        flood(v, 0, entries);
        rig_vcpu_remove(v);
        rig_check(r);
        rig_vcpu_add(v);
        settles(r, v);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/* So does the reap for a slot that goes away: all its pages are published. */
static void test_laps_at_slot_removal(void)
{
    for (uint64_t entries = 250; entries < 800; entries += 50) {
        Rig *r = rig_new_ring(256);
        RigVcpu *v = rig_vcpu(r, 0);

        rig_add(r, 0, PAGES, true);
        rig_add(r, 1, 100, true);
        flood(v, 0, entries);
        rig_write(v, 1, 11);
        rig_remove(r, 0);
        rig_check(r);
        rig_add(r, 0, PAGES, true);
        rig_sync(r);
        rig_check(r);
        settles(r, v);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/* Overflows in the middle of a reap */

typedef enum Moment {
    IN_COLLECT,                 /* before the engine looks at an entry */
    IN_RESET,                   /* before or while KVM resets one */
} Moment;

static struct {
    RigVcpu *vcpu;
    Moment moment;
    int point;                  /* -1: any */
    unsigned countdown;         /* points to let pass */
    uint64_t entries;
    uint64_t page;
    bool done;
} racer;

static void race(Moment moment, int point)
{
    if (racer.done || moment != racer.moment ||
        (racer.point >= 0 && point != racer.point)) {
        return;
    }
    if (racer.countdown) {
        racer.countdown--;
        return;
    }
    racer.done = true;
    flood(racer.vcpu, racer.page, racer.entries);
}

static void race_in_engine(void)
{
    race(IN_COLLECT, -1);
}

static void race_in_kvm(void *opaque, FakePoint point, FakeVcpu *v)
{
    (void)opaque, (void)v;
    race(IN_RESET, point);
}

/*
 * The vCPU fills @entries more while a sync harvests or re-arms the others.
 * Returns: false if the moment never came.
 */
static bool overtaken(uint32_t size, uint64_t before, uint64_t entries,
                      Moment moment, int point, unsigned countdown)
{
    Rig *r = rig_new_ring(size);
    RigVcpu *v = rig_vcpu(r, 0);
    bool done;

    rig_add(r, 0, PAGES, true);
    flood(v, 0, before);
    memset(&racer, 0, sizeof(racer));
    racer.vcpu = v;
    racer.moment = moment;
    racer.point = point;
    racer.countdown = countdown;
    racer.entries = entries;
    racer.page = 2500;
    ordering_hook = race_in_engine;
    r->fake->hook = race_in_kvm;
    rig_sync(r);
    ordering_hook = NULL;
    r->fake->hook = NULL;
    done = racer.done;
    rig_sync(r);
    rig_check(r);
    if (v->fake->lost) {
        g_assert_cmpuint(rig_overflows(r), >=, 1);
    }
    settles(r, v);
    rig_vcpu_free(v);
    rig_free(r);
    return done;
}

static void overtaken_anywhere(Moment moment, int point, unsigned step)
{
    for (size_t i = 0; i < 2; i++) {
        uint32_t size = sizes[i];
        uint64_t before[] = { 3, size / 2, size - 1 };
        uint64_t more[] = {
            size - 3, size / 2, size / 2 + 1, 1, 2, size, size + 5,
            2 * size + 9
        };

        for (size_t j = 0; j < G_N_ELEMENTS(before) *
             G_N_ELEMENTS(more); j++) {
            for (unsigned n = 0; overtaken(size, before[j % 3],
                                           more[j / 3], moment, point,
                                           n);
                 n += step * RIG_LESS_OFTEN) {
            }
        }
    }
}

/* A page is overwritten before it is collected, or meanwhile (a torn read). */
static void test_overtaken_in_collect(void)
{
    overtaken_anywhere(IN_COLLECT, -1, 29);
}

/* A page is overwritten after it was collected: the reset falls short. */
static void test_overtaken_before_reset(void)
{
    overtaken_anywhere(IN_RESET, FAKE_RESET_BEGIN, 1);
}

/* A page is overwritten while it is reset: a free entry is left, a gap. */
static void test_overtaken_in_reset_flags(void)
{
    overtaken_anywhere(IN_RESET, FAKE_RESET_FLAGS, 7);
}

/* KVM reads the slot of one entry and the offset of another. */
static void test_overtaken_in_reset_slot(void)
{
    overtaken_anywhere(IN_RESET, FAKE_RESET_SLOT, 11);
}

static void test_overtaken_in_reset_offset(void)
{
    overtaken_anywhere(IN_RESET, FAKE_RESET_OFFSET, 11);
}

static void test_overtaken_in_reset_freed(void)
{
    overtaken_anywhere(IN_RESET, FAKE_RESET_FREED, 11);
}

static void test_overtaken_after_reset(void)
{
    overtaken_anywhere(IN_RESET, FAKE_RESET_END, 1);
}

/*
 * After an overflow the engine searches the ring for where KVM fills it.  A
 * vCPU that fills one entry and the next meanwhile leaves no gap between.
 */
static void test_searched_while_filled(void)
{
    for (unsigned countdown = 0; countdown < 800;
         countdown += RIG_LESS_OFTEN) {
        Rig *r = rig_new_ring(256);
        RigVcpu *v = rig_vcpu(r, 0);

        rig_add(r, 0, PAGES, true);
        flood(v, 0, 256 + countdown % 3);
        rig_sync(r);
        if (countdown % 2) {
            rig_sync(r);        /* the ring is drained */
        }
        memset(&racer, 0, sizeof(racer));
        racer.vcpu = v;
        racer.moment = IN_COLLECT;
        racer.point = -1;
        racer.countdown = countdown;
        racer.entries = 5;
        racer.page = 1000;
        ordering_hook = race_in_engine;
        rig_sync(r);
        ordering_hook = NULL;
        rig_sync(r);
        rig_check(r);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/*
 * A vCPU is more than a lap ahead, and the reap has taken as many entries as
 * it may, the one that would tell among them.  In the next reap the vCPU fills
 * an entry while KVM resets it: the entry is left free, and its page is
 * unknown.  So whatever is found in a suspect ring is an overflow.
 */
static void test_ahead_by_a_lap(void)
{
    for (unsigned ahead = 1; ahead < 64; ahead++) {
        Rig *r = rig_new_ring(256);
        RigVcpu *v = rig_vcpu(r, 0);

        rig_add(r, 0, PAGES, true);
        flood(v, 0, 256);
        memset(&racer, 0, sizeof(racer));
        racer.vcpu = v;
        racer.moment = IN_RESET;
        racer.point = FAKE_RESET_END;
        racer.entries = 256 + ahead;
        racer.page = 1000;
        r->fake->hook = race_in_kvm;
        rig_sync(r);
        g_assert_true(racer.done);
        racer.done = false;
        racer.point = FAKE_RESET_FLAGS;
        racer.countdown = ahead;
        racer.entries = 1;
        racer.page = 4000;
        rig_sync(r);
        r->fake->hook = NULL;
        g_assert_true(racer.done);
        rig_sync(r);
        rig_check(r);
        settles(r, v);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/*
 * The vCPU fills a drained ring up to its last entry.  The batch that could
 * have told by that entry takes it.  And the vCPU fills the first entry while
 * KVM resets it, which leaves it free.
 */
static void test_drained_and_filled_to_the_end(void)
{
    for (unsigned left = 1; left <= 64; left++) {
        Rig *r = rig_new_ring(256);
        RigVcpu *v = rig_vcpu(r, 0);

        rig_add(r, 0, PAGES, true);
        flood(v, 0, 2 * 256 - left);
        rig_sync(r);
        rig_sync(r);
        flood(v, 1000, left);
        memset(&racer, 0, sizeof(racer));
        racer.vcpu = v;
        racer.moment = IN_RESET;
        racer.point = FAKE_RESET_FLAGS;
        racer.entries = 1;
        racer.page = 4000;
        r->fake->hook = race_in_kvm;
        rig_sync(r);
        r->fake->hook = NULL;
        g_assert_true(racer.done);
        rig_sync(r);
        rig_check(r);
        settles(r, v);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/*
 * Entries that are passed over once named pages of a larger slot.  KVM must
 * not try to re-arm these together with a page of the next slot of that id, or
 * that page stays writable.
 */
static void test_gap_names_no_page(void)
{
    for (uint64_t last = 100; last < 164; last++) {
        Rig *r = rig_new_ring(256);
        RigVcpu *v = rig_vcpu(r, 0);

        rig_add(r, 0, PAGES, true);
        flood(v, last + PAGES - 300, 300);
        rig_sync(r);
        rig_remove(r, 0);
        rig_add(r, 0, 100, true);
        r->fake->soft_limit_off = true;
        for (int i = 0; i < 2; i++) {
            rig_write(v, 0, 99);
            rig_sync(r);
            rig_check(r);
        }
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/* The reset that finds nothing to reset succeeds; the one after it fails. */
static void fail_next_reset(void *opaque, FakePoint point, FakeVcpu *v)
{
    FakeKvm *k = opaque;

    (void)v;
    if (point == FAKE_RESET_END) {
        k->inject[0] = (FakeInjection) {
            .request = KVM_RESET_DIRTY_RINGS, .err = EIO, .times = 1,
        };
        k->hook = NULL;
    }
}

/* A reset that fails as a vCPU is unstuck is an overflow like any other. */
static void test_unstick_fails(void)
{
    Rig *r = rig_new_ring(256);
    RigVcpu *other = rig_vcpu(r, 0), *v = rig_vcpu(r, 1);

    rig_add(r, 0, PAGES, true);
    flood(v, 0, 256 + 250);
    rig_sync(r);
    g_assert_false(fake_vcpu_enters(v->fake));
    kvmd_vcpu_ring_full(v->kvmd);
    r->fake->hook_opaque = r->fake;
    r->fake->hook = fail_next_reset;
    kvmd_vcpu_ring_full(v->kvmd);
    g_assert_cmpint(rig_warned(r, "KVM_RESET_DIRTY_RINGS"), ==, 1);
    for (int i = 0; i < 5; i++) {
        rig_write_range(other, 0, 3000 + i, 20);
        rig_sync(r);
        rig_check(r);
    }
    settles(r, v);
    rig_vcpu_free(v);
    rig_vcpu_free(other);
    rig_free(r);
}

/* With PML a ring is full at less than half. */
static void test_unstick_with_pml(void)
{
    FakeConfig fake = { FAKE_LINUX_6_1 };
    KvmDirtyConfig config = { KVMD_RING, 1024 };

    fake.reserve = 576;
    for (uint64_t entries = 1024; entries < 3 * 1024; entries += 128) {
        Rig *r = rig_new(&fake, &config);
        RigVcpu *v = rig_vcpu(r, 0);

        rig_add(r, 0, PAGES, true);
        flood(v, 0, entries);
        rig_sync(r);
        rig_check(r);
        settles(r, v);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/* All pages of a large slot are published. */
static void test_large_slot(void)
{
    Rig *r = rig_new_ring(256);
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *b;

    rig_add(r, 0, PAGES, true);
    b = rig_add(r, 1, 70001, true);
    flood(v, 0, 300);
    rig_sync(r);
    published_whole(r, b);
    rig_vcpu_free(v);
    rig_free(r);
}

/*
 * Write-protecting all memory fails.  All pages stay dirty, sync by sync,
 * until it succeeds; the operator is told once.
 */
static void test_protect_fails(void)
{
    for (int times = 1; times < 5; times++) {
        Rig *r = rig_new_ring(256);
        RigVcpu *v = rig_vcpu(r, 0);
        RigBlock *b = rig_add(r, 0, PAGES, true);

        flood(v, 0, 300);
        fake_fail(r->fake, KVM_SET_USER_MEMORY_REGION, ENOMEM, times);
        for (int i = 0; i < times; i++) {
            rig_forget(r);
            rig_sync(r);
            g_assert_cmpuint(rig_published(b), ==, PAGES);
            rig_check(r);
            /* These pages are still writable: KVM does not log the writes. */
            rig_write_range(v, 0, i, 30);
        }
        rig_sync(r);
        rig_check(r);
        g_assert_cmpint(rig_warned(r, "write-protecting"), ==, 1);
        settles(r, v);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/* Only the second half of the toggle fails: KVM logs nothing meanwhile. */
static void test_relog_fails(void)
{
    Rig *r = rig_new_ring(256);
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *b = rig_add(r, 0, PAGES, true);

    rig_add(r, 1, 100, true);
    flood(v, 0, 300);
    /* Slot 0: off, on fails.  Slot 1: fails. */
    fake_fail(r->fake, KVM_SET_USER_MEMORY_REGION, ENOMEM, 3);
    rig_sync(r);
    rig_check(r);
    rig_sync(r);
    rig_check(r);
    rig_write_range(v, 0, 700, 30);
    rig_sync(r);
    rig_check(r);
    g_assert_cmpuint(rig_published(b), ==, PAGES);
    settles(r, v);
    rig_vcpu_free(v);
    rig_free(r);
}

/* With no slot logged, or one of several, only logged slots are published. */
static void test_unlogged_stays_out(void)
{
    Rig *r = rig_new_ring(256);
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *b;

    rig_add(r, 0, PAGES, true);
    b = rig_add(r, 1, 200, false);
    flood(v, 0, 300);
    rig_sync(r);
    rig_check(r);
    g_assert_cmpuint(rig_published(b), ==, 0);
    g_assert_cmpuint(rig_overflows(r), >=, 1);
    rig_vcpu_free(v);
    rig_free(r);
}

/* The engine's own log flag wins: a slot is logged again after a re-arm. */
static void test_flags_survive(void)
{
    Rig *r = rig_new_ring(256);
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, PAGES, true);
    flood(v, 0, 600);
    rig_sync(r);
    g_assert_cmpuint(r->fake->slots[0][0]->region.flags, ==,
                     KVM_MEM_LOG_DIRTY_PAGES);
    rig_log(r, 0, false);
    g_assert_cmpuint(r->fake->slots[0][0]->region.flags, ==, 0);
    rig_log(r, 0, true);
    settles(r, v);
    rig_vcpu_free(v);
    rig_free(r);
}

/* On a patched KVM. */
static Rig *patched_rig(void)
{
    FakeConfig fake = {
        FAKE_LINUX_6_1, .tiny_rings = true, .patched = FAKE_PATCHED
    };
    KvmDirtyConfig config = { KVMD_RING, 256 };

    return rig_new(&fake, &config);
}

/* All memory is re-armed at once, and no log flag is toggled. */
static void test_protect_all(void)
{
    Rig *r = patched_rig();
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *b = rig_add(r, 0, PAGES, true);
    unsigned region_sets;

    rig_add(r, 1 << 16 | 1, 100, true);
    region_sets = r->fake->region_sets;
    r->strict = true;
    flood(v, 0, 300);
    rig_sync(r);
    rig_check(r);
    published_whole(r, b);
    g_assert_cmpuint(rig_overflows(r), >, 0);
    g_assert_cmpuint(r->fake->protects, ==, rig_overflows(r));
    g_assert_cmpuint(r->fake->region_sets, ==, region_sets);
    settles(r, v);
    rig_vcpu_free(v);
    rig_free(r);
}

/* As in protect-fails. */
static void test_protect_all_fails(void)
{
    Rig *r = patched_rig();
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *b = rig_add(r, 0, PAGES, true);

    flood(v, 0, 300);
    fake_fail(r->fake, KVM_WRITE_PROTECT_ALL_MEM, ENOMEM, 3);
    for (int i = 0; i < 3; i++) {
        rig_forget(r);
        rig_sync(r);
        g_assert_cmpuint(rig_published(b), ==, PAGES);
        rig_check(r);
        rig_write_range(v, 0, i, 30);
    }
    rig_sync(r);
    rig_check(r);
    g_assert_cmpint(rig_warned(r, "write-protecting"), ==, 1);
    settles(r, v);
    rig_vcpu_free(v);
    rig_free(r);
}

static struct {
    GThread *thread;
    uint64_t count;
} asked;

static void *ask(void *rig)
{
    asked.count = kvmd_guesses(((Rig *)rig)->kvmd);
    return NULL;
}

static void ask_meanwhile(Rig *r)
{
    if (!asked.thread) {
        asked.thread = g_thread_new("ask", ask, r);
        g_usleep(G_USEC_PER_SEC / 20);
    }
}

/* A count during the publishing waits for its end, and has the overflow. */
static void test_counted_when_whole(void)
{
    Rig *r = patched_rig();
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, PAGES, true);
    g_assert_cmpuint(kvmd_guesses(r->kvmd), ==, 0);
    flood(v, 0, 300);
    asked.thread = NULL;
    r->watch = ask_meanwhile;
    rig_sync(r);
    g_assert_nonnull(asked.thread);
    g_thread_join(asked.thread);
    g_assert_cmpuint(asked.count, ==, 1);
    rig_check(r);
    rig_vcpu_free(v);
    rig_free(r);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/overflow/laps", test_laps);
    g_test_add_func("/overflow/laps-at-ring-full", test_laps_at_ring_full);
    g_test_add_func("/overflow/laps-at-removal", test_laps_at_removal);
    g_test_add_func("/overflow/laps-at-slot-removal",
                    test_laps_at_slot_removal);
    g_test_add_func("/overflow/overtaken-in-collect",
                    test_overtaken_in_collect);
    g_test_add_func("/overflow/overtaken-before-reset",
                    test_overtaken_before_reset);
    g_test_add_func("/overflow/overtaken-in-reset-flags",
                    test_overtaken_in_reset_flags);
    g_test_add_func("/overflow/overtaken-in-reset-slot",
                    test_overtaken_in_reset_slot);
    g_test_add_func("/overflow/overtaken-in-reset-offset",
                    test_overtaken_in_reset_offset);
    g_test_add_func("/overflow/overtaken-in-reset-freed",
                    test_overtaken_in_reset_freed);
    g_test_add_func("/overflow/overtaken-after-reset",
                    test_overtaken_after_reset);
    g_test_add_func("/overflow/searched-while-filled",
                    test_searched_while_filled);
    g_test_add_func("/overflow/ahead-by-a-lap", test_ahead_by_a_lap);
    g_test_add_func("/overflow/drained-and-filled-to-the-end",
                    test_drained_and_filled_to_the_end);
    g_test_add_func("/overflow/gap-names-no-page", test_gap_names_no_page);
    g_test_add_func("/overflow/unstick-fails", test_unstick_fails);
    g_test_add_func("/overflow/unstick-with-pml", test_unstick_with_pml);
    g_test_add_func("/overflow/large-slot", test_large_slot);
    g_test_add_func("/overflow/protect-fails", test_protect_fails);
    g_test_add_func("/overflow/protect-all", test_protect_all);
    g_test_add_func("/overflow/protect-all-fails", test_protect_all_fails);
    g_test_add_func("/overflow/relog-fails", test_relog_fails);
    g_test_add_func("/overflow/unlogged-stays-out", test_unlogged_stays_out);
    g_test_add_func("/overflow/flags-survive", test_flags_survive);
    g_test_add_func("/overflow/counted-when-whole", test_counted_when_whole);
    return g_test_run();
}
