/*
 * Harvest, re-arm, publish, with rings that do not overflow.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "rig.h"
#include "ordering_hook.h"

#include <errno.h>

#define SIZE 256
#define PAGES 1001              /* not a multiple of 64 */

static Rig *strict_rig(uint32_t size)
{
    Rig *r = rig_new_ring(size);

    r->strict = r->exact = true;
    return r;
}

/* A written page is published once, and no other page is. */
static void test_exact(void)
{
    Rig *r = strict_rig(SIZE);
    RigBlock *b = rig_add(r, 0, PAGES, true);
    RigVcpu *v = rig_vcpu(r, 0);

    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 100; i++) {
            rig_write(v, 0, (round * 37 + i * 11) % PAGES / 2 * 2);
        }
        g_assert_cmpint(rig_sync(r), ==, 0);
        rig_check(r);
        rig_check_exact(r);
    }
    g_assert_cmpuint(rig_published(b), <, PAGES);
    g_assert_cmpuint(r->warnings->len, ==, 0);
    g_assert_cmpuint(rig_overflows(r), ==, 0);
    rig_vcpu_free(v);
    rig_free(r);
}

/* The order of the pages must not matter to how they become words. */
static void test_word_edges(void)
{
    static const uint64_t pages[] = {
        0, 63, 64, 127, 128, 1000, 999, 960, 959, 64, 0, 65, 63, 1, 62
    };
    Rig *r = strict_rig(SIZE);
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, PAGES, true);
    rig_add(r, 1 << 16 | 3, PAGES, true);
    for (size_t i = 0; i < G_N_ELEMENTS(pages); i++) {
        rig_write(v, i % 2 ? 0 : 1 << 16 | 3, pages[i]);
    }
    rig_sync(r);
    rig_check(r);
    rig_check_exact(r);
    rig_vcpu_free(v);
    rig_free(r);
}

/* More rounds than the indices fit in a ring, in batches of every length. */
static void test_wrap(void)
{
    Rig *r = strict_rig(SIZE);
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, PAGES, true);
    for (uint32_t n = 0; n < SIZE - 64; n += 7) {
        rig_write_range(v, 0, n, n);
        rig_sync(r);
        rig_check(r);
        rig_check_exact(r);
    }
    g_assert_cmpuint(rig_overflows(r), ==, 0);
    rig_vcpu_free(v);
    rig_free(r);
}

/* A vCPU with a full ring reaps its own ring, and no other. */
static void test_full_reaps_own(void)
{
    Rig *r = strict_rig(SIZE);
    RigBlock *b = rig_add(r, 0, PAGES, true);
    RigVcpu *v = rig_vcpu(r, 0), *other = rig_vcpu(r, 1);
    KvmDirtyStats stats;

    rig_write(other, 0, 1000);
    rig_write_range(v, 0, 0, 900);
    g_assert_cmpuint(rig_published(b), >=, 900 - SIZE);
    g_assert_cmpuint(b->published[1000], ==, 0);
    kvmd_stats(r->kvmd, &stats);
    g_assert_cmpuint(stats.ring_full_exits, ==, (900 - 1) / (SIZE - 64));
    g_assert_cmpuint(r->kicks, ==, 0);
    rig_sync(r);
    rig_check(r);
    rig_check_exact(r);
    g_assert_cmpuint(r->kicks, ==, 1);
    g_assert_cmpuint(rig_overflows(r), ==, 0);
    rig_vcpu_free(v);
    rig_vcpu_free(other);
    rig_free(r);
}

/* A reap ahead of a sync disturbs no vCPU; the sync finds new pages. */
static void sync_ahead(KvmDirtyAhead of)
{
    Rig *r = strict_rig(SIZE);
    RigBlock *b = rig_add(r, 0, PAGES, true);
    RigVcpu *v = rig_vcpu(r, 0), *other = rig_vcpu(r, 1);

    rig_write_range(v, 0, 0, 50);
    rig_write_range(other, 0, 100, 50);
    rig_ahead(r, of);
    g_assert_cmpuint(rig_published(b), ==, 100);
    g_assert_cmpuint(r->kicks, ==, 0);
    rig_write_range(v, 0, 40, 20);
    rig_sync(r);
    rig_check(r);
    rig_check_exact(r);
    g_assert_cmpuint(r->collected, ==, 120);
    rig_vcpu_free(v);
    rig_vcpu_free(other);
    rig_free(r);
}

static void test_sync_ahead(void)
{
    sync_ahead(KVMD_AHEAD_ROUND);
    sync_ahead(KVMD_AHEAD_STOP);
}

/* A look publishes what is in the rings, and no vCPU has to leave for it. */
static void test_look(void)
{
    Rig *r = strict_rig(SIZE);
    RigBlock *b = rig_add(r, 0, PAGES, true);
    RigVcpu *v = rig_vcpu(r, 0), *other = rig_vcpu(r, 1);

    for (unsigned i = 1; i < 5; i++) {
        rig_write_range(v, 0, 10, 70);
        rig_write(other, 0, 500);
        rig_look(r);
        g_assert_cmpuint(rig_published(b), ==, 71);
        g_assert_cmpuint(b->published[10], ==, i);
        g_assert_cmpuint(b->published[500], ==, i);
        g_assert_cmpuint(fake_vcpu_used(v->fake), ==, 0);
        g_assert_cmpuint(fake_vcpu_used(other->fake), ==, 0);
        g_assert_cmpuint(r->kicks, ==, 0);
    }
    rig_write(v, 0, 10);
    g_assert_cmpint(rig_sync(r), ==, 0);
    rig_check(r);
    rig_check_exact(r);
    rig_vcpu_free(other);
    rig_vcpu_free(v);
    rig_free(r);
}

/* With PML 576 entries are in reserve; the engine must not care. */
static void test_full_with_pml(void)
{
    FakeConfig fake = { FAKE_LINUX_6_1 };
    KvmDirtyConfig config = { KVMD_RING, 1024 };
    Rig *r;
    RigVcpu *v;

    fake.reserve = 576;
    r = rig_new(&fake, &config);
    r->strict = r->exact = true;
    v = rig_vcpu(r, 0);
    rig_add(r, 0, 5000, true);
    rig_write_range(v, 0, 0, 5000);
    rig_sync(r);
    rig_check(r);
    rig_check_exact(r);
    g_assert_cmpuint(rig_overflows(r), ==, 0);
    rig_vcpu_free(v);
    rig_free(r);
}

/* collected() and the statistics add up to what was written. */
static void test_counts(void)
{
    Rig *r = strict_rig(SIZE);
    RigVcpu *v = rig_vcpu(r, 0);
    KvmDirtyStats stats;

    rig_add(r, 0, PAGES, true);
    rig_write_range(v, 0, 0, 100);
    rig_sync(r);
    rig_sync(r);
    rig_write_range(v, 0, 50, 23);
    rig_sync(r);
    kvmd_stats(r->kvmd, &stats);
    g_assert_cmpuint(r->collected, ==, 123);
    g_assert_cmpuint(stats.pages, ==, 123);
    g_assert_cmpuint(stats.harvests, ==, 2);
    g_assert_cmpuint(stats.overflows, ==, 0);
    g_assert_cmpuint(stats.logged_slots, ==, 1);
    rig_vcpu_free(v);
    rig_free(r);
}

/* An empty sync asks nothing of KVM: a reset flushes the TLBs. */
static void test_nothing_to_do(void)
{
    Rig *r = strict_rig(SIZE);
    RigVcpu *v = rig_vcpu(r, 0);
    unsigned resets;

    rig_add(r, 0, PAGES, true);
    rig_write(v, 0, 5);
    rig_sync(r);
    resets = r->fake->resets;
    g_assert_cmpuint(resets, >, 0);
    rig_sync(r);
    g_assert_cmpuint(r->fake->resets, ==, resets);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 0, PAGES), ==, 0);
    g_assert_false(kvmd_clears(r->kvmd));
    rig_vcpu_free(v);
    rig_free(r);
}

/* Hooks: a vCPU writes whenever the engine or KVM touches a ring. */

static struct {
    Rig *rig;
    RigVcpu *vcpu;
    uint64_t page;
    unsigned left;
} racer;

static void race(void)
{
    if (racer.left && !racer.vcpu->in_full &&
        fake_vcpu_enters(racer.vcpu->fake)) {
        racer.left--;
        rig_force(racer.vcpu, 0, racer.page);
        racer.page = (racer.page * 7 + 3) % PAGES;
    }
}

static void race_in_kvm(void *opaque, FakePoint point, FakeVcpu *v)
{
    (void)opaque, (void)point, (void)v;
    race();
}

static void race_start(Rig *r, RigVcpu *v, unsigned writes)
{
    racer.rig = r;
    racer.vcpu = v;
    racer.page = 1;
    racer.left = writes;
    ordering_hook = race;
    r->fake->hook = race_in_kvm;
}

static void race_stop(Rig *r)
{
    ordering_hook = NULL;
    r->fake->hook = NULL;
}

/*
 * I2, I3: a page that is written again at any moment between its harvest and
 * its publication shows in this harvest or in the next.
 */
static void test_written_meanwhile(void)
{
    Rig *r = rig_new_ring(1024);
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, PAGES, true);
    r->exact = true;
    for (unsigned n = 1; n < 120; n++) {
        for (int i = 0; i < 10; i++) {
            rig_write(v, 0, (n + i * 97) % PAGES);
        }
        race_start(r, v, n);
        rig_sync(r);
        race_stop(r);
        rig_sync(r);
        rig_check(r);
        rig_check_exact(r);
    }
    g_assert_cmpuint(rig_overflows(r), ==, 0);
    rig_vcpu_free(v);
    rig_free(r);
}

/* A vCPU that never ceases to write does not keep a sync from returning. */
static void test_sync_ends(void)
{
    Rig *r = rig_new_ring(1024);
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, PAGES, true);
    rig_write(v, 0, 0);
    race_start(r, v, G_MAXUINT);
    rig_sync(r);
    race_stop(r);
    rig_sync(r);
    rig_check(r);
    rig_vcpu_free(v);
    rig_free(r);
}

/* Resets that fail */

/* After a signal before any work, the ioctl is called again, silently. */
static void test_reset_eintr(void)
{
    Rig *r = strict_rig(SIZE);
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, PAGES, true);
    rig_write_range(v, 0, 0, 100);
    fake_fail(r->fake, KVM_RESET_DIRTY_RINGS, EINTR, 3);
    rig_sync(r);
    rig_check(r);
    rig_check_exact(r);
    g_assert_cmpuint(rig_overflows(r), ==, 0);
    g_assert_cmpuint(r->warnings->len, ==, 0);
    rig_vcpu_free(v);
    rig_free(r);
}

/* Rounds of writes and syncs, of which none may lose a page. */
static void rounds(Rig *r, RigVcpu *v, int n, int pages)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < pages; j++) {
            rig_write(v, 0, (i * 31 + j * 5) % PAGES);
        }
        rig_sync(r);
        rig_check(r);
    }
}

/* Task work, at any time, ends a reset: the rest is done later. */
static void test_reset_partial(void)
{
    for (int after = 0; after < 40; after++) {
        Rig *r = rig_new_ring(SIZE);
        RigVcpu *v = rig_vcpu(r, 0), *w = rig_vcpu(r, 1);

        rig_add(r, 0, PAGES, true);
        for (int times = 1; times < 9; times++) {
            r->fake->reset_stops_by_work = true;
            r->fake->reset_stops_after = after;
            r->fake->reset_stops = times;
            rig_write_range(w, 0, times * 100, 20);
            rounds(r, v, 3, 60);
            r->fake->reset_stops = 0;
            rounds(r, v, 2, 60);
        }
        g_assert_cmpint(rig_warned(r, "KVM_RESET_DIRTY_RINGS"), ==, 0);
        rig_vcpu_free(v);
        rig_vcpu_free(w);
        rig_free(r);
    }
}

/*
 * The kernel returns early without re-arming the entries it had gathered, up
 * to 64 pages, and counts them as reset.
 */
static void check_partial_drops(int after, bool by_work)
{
    Rig *r = rig_new_ring(SIZE);
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, PAGES, true);
    r->fake->reset_drops_group = true;
    r->fake->reset_stops_by_work = by_work;
    r->fake->reset_stops_after = after;
    rig_write_range(v, 0, 100, 60);
    r->fake->reset_stops = 1;
    rig_sync(r);
    rig_check(r);
    rig_write_range(v, 0, 100, 60);
    rig_sync(r);
    rig_check(r);
    rig_vcpu_free(v);
    rig_free(r);
}

/*
 * Linux 6.16 and later do so on a signal.  Not even a right count proves that
 * the entries were re-armed: here the last look is at the 61st entry, which is
 * free.  So no signal may come.
 */
static void test_reset_partial_drops(void)
{
    for (int after = 0; after <= 60; after++) {
        check_partial_drops(after, false);
    }
}

/* Task work does the same, and nobody can block it: a short count tells. */
static void test_reset_partial_drops_by_work(void)
{
    for (int after = 1; after < 60; after++) {
        check_partial_drops(after, true);
    }
}

/* After any other error all pages are dirty; the operator is told once. */
static void test_reset_eio(void)
{
    for (int times = 1; times < 6; times++) {
        Rig *r = rig_new_ring(SIZE);
        RigVcpu *v = rig_vcpu(r, 0), *w = rig_vcpu(r, 1);

        rig_add(r, 0, PAGES, true);
        rig_write_range(w, 0, 900, 30);
        rounds(r, v, 2, 60);
        fake_fail(r->fake, KVM_RESET_DIRTY_RINGS, EIO, times);
        rounds(r, v, 8, 60);
        g_assert_cmpuint(rig_overflows(r), >=, 1);
        g_assert_cmpint(rig_warned(r, "KVM_RESET_DIRTY_RINGS"), ==, 1);
        rig_forget(r);
        rounds(r, v, 5, 60);
        rig_check_exact(r);
        rig_vcpu_free(v);
        rig_vcpu_free(w);
        rig_free(r);
    }
}

/* A signal follows, before the entries of the failed reset are reset. */
static void test_reset_eio_then_partial(void)
{
    for (int after = 0; after < 30; after++) {
        Rig *r = rig_new_ring(SIZE);
        RigVcpu *v = rig_vcpu(r, 0);

        rig_add(r, 0, PAGES, true);
        fake_fail(r->fake, KVM_RESET_DIRTY_RINGS, EIO, 1);
        rounds(r, v, 1, 20);
        r->fake->reset_stops_by_work = true;
        r->fake->reset_stops_after = after;
        r->fake->reset_stops = 1;
        for (int i = 0; i < 2; i++) {
            rig_write_range(v, 0, 500, 10);
            rig_sync(r);
            rig_check(r);
        }
        rounds(r, v, 3, 30);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/*
 * While every reset fails, a vCPU with a full ring leaves KVM over and over.
 * When resets succeed again it must run, and KVM must not have gone too far.
 */
static void test_reset_fails_for_long(void)
{
    for (int exits = 1; exits < 40; exits++) {
        Rig *r = rig_new_ring(SIZE);
        RigVcpu *v = rig_vcpu(r, 0);

        rig_add(r, 0, PAGES, true);
        rounds(r, v, 1, 100);
        fake_fail(r->fake, KVM_RESET_DIRTY_RINGS, EIO, -1);
        rig_write_range(v, 0, 0, SIZE - 64 - 1);
        rig_force(v, 0, PAGES - 1);
        g_assert_false(fake_vcpu_enters(v->fake));
        for (int i = 0; i < exits; i++) {
            kvmd_vcpu_ring_full(v->kvmd);
        }
        fake_fail(r->fake, KVM_RESET_DIRTY_RINGS, EIO, 0);
        rig_write_range(v, 0, 0, PAGES);
        rounds(r, v, 8, 60);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/*
 * The next reset, of another ring, resets the entries of a failed one as well,
 * and counts them there: the engine believes neither count.
 */
static void test_reset_eio_of_another(void)
{
    Rig *r = rig_new_ring(SIZE);
    RigVcpu *v = rig_vcpu(r, 0), *w = rig_vcpu(r, 1);

    rig_add(r, 0, PAGES, true);
    rig_write_range(w, 0, 900, 30);
    fake_fail(r->fake, KVM_RESET_DIRTY_RINGS, EIO, 1);
    rig_sync(r);
    rig_check(r);
    rounds(r, v, 5, 20);
    rig_vcpu_free(v);
    rig_vcpu_free(w);
    rig_free(r);
}

/*
 * All of a full ring was collected when the reset failed.  Once it succeeds,
 * nothing is left to collect, but the vCPU is not stuck.
 */
static void test_reset_fails_when_all_collected(void)
{
    FakeConfig fake = { FAKE_LINUX_6_1, .tiny_rings = true };
    KvmDirtyConfig config = { KVMD_RING, SIZE };

    fake.reserve = SIZE - SIZE / 4;
    for (int exits = 1; exits < 6; exits++) {
        Rig *r = rig_new(&fake, &config);
        RigVcpu *v = rig_vcpu(r, 0);

        rig_add(r, 0, PAGES, true);
        rig_write_range(v, 0, 0, SIZE / 4 - 1);
        rig_force(v, 0, PAGES - 1);
        fake_fail(r->fake, KVM_RESET_DIRTY_RINGS, EIO, -1);
        for (int i = 0; i < exits; i++) {
            kvmd_vcpu_ring_full(v->kvmd);
        }
        fake_fail(r->fake, KVM_RESET_DIRTY_RINGS, EIO, 0);
        rounds(r, v, 8, 60);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/* vCPUs that come and go */

/* Pages that a vCPU leaves in its ring are published when it goes. */
static void test_vcpu_remove(void)
{
    Rig *r = strict_rig(SIZE);
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, PAGES, true);
    rig_write_range(v, 0, 0, 150);
    rig_vcpu_remove(v);
    rig_check(r);
    rig_check_exact(r);
    rig_sync(r);
    rig_vcpu_free(v);
    rig_free(r);
}

/*
 * A parked vCPU comes back to its ring, whose indices have not moved, while
 * other rings were reaped.
 */
static void test_vcpu_comes_back(void)
{
    Rig *r = strict_rig(SIZE);
    RigVcpu *v = rig_vcpu(r, 7), *other = rig_vcpu(r, 3);

    rig_add(r, 0, PAGES, true);
    for (int i = 0; i < 10; i++) {
        rig_write_range(v, 0, i * 10, 77);
        rig_vcpu_remove(v);
        rig_write_range(other, 0, 500, 100);
        rig_sync(r);
        rig_vcpu_add(v);
        rig_write_range(other, 0, 490, 50);
        rig_write_range(v, 0, i * 10, 55);
        rig_sync(r);
        rig_check(r);
        rig_check_exact(r);
    }
    g_assert_cmpuint(rig_overflows(r), ==, 0);
    rig_vcpu_free(v);
    rig_vcpu_free(other);
    rig_free(r);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/ring/exact", test_exact);
    g_test_add_func("/ring/word-edges", test_word_edges);
    g_test_add_func("/ring/wrap", test_wrap);
    g_test_add_func("/ring/full-reaps-own", test_full_reaps_own);
    g_test_add_func("/ring/sync-ahead", test_sync_ahead);
    g_test_add_func("/ring/look", test_look);
    g_test_add_func("/ring/full-with-pml", test_full_with_pml);
    g_test_add_func("/ring/counts", test_counts);
    g_test_add_func("/ring/nothing-to-do", test_nothing_to_do);
    g_test_add_func("/ring/written-meanwhile", test_written_meanwhile);
    g_test_add_func("/ring/sync-ends", test_sync_ends);
    g_test_add_func("/ring/vcpu-remove", test_vcpu_remove);
    g_test_add_func("/ring/vcpu-comes-back", test_vcpu_comes_back);
    g_test_add_func("/ring/reset-eintr", test_reset_eintr);
    g_test_add_func("/ring/reset-partial", test_reset_partial);
    g_test_add_func("/ring/reset-partial-drops", test_reset_partial_drops);
    g_test_add_func("/ring/reset-eio", test_reset_eio);
    g_test_add_func("/ring/reset-eio-then-partial",
                    test_reset_eio_then_partial);
    g_test_add_func("/ring/reset-partial-drops-by-work",
                    test_reset_partial_drops_by_work);
    g_test_add_func("/ring/reset-eio-of-another", test_reset_eio_of_another);
    g_test_add_func("/ring/reset-fails-for-long", test_reset_fails_for_long);
    g_test_add_func("/ring/reset-fails-when-all-collected",
                    test_reset_fails_when_all_collected);
    return g_test_run();
}
