/*
 * The mechanism "log": KVM_GET_DIRTY_LOG and KVM_CLEAR_DIRTY_LOG.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "rig.h"

#include <errno.h>

#define PAGES 333               /* not a multiple of 64 */

static const int all_caps[] = {
    0, KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE, FAKE_MANUAL_CAPS
};

/* Rounds of writes and syncs, re-armed by chunks of any length. */
static void test_rounds(void)
{
    static const uint64_t chunks[] = { 0, 1, 7, 63, 64, 65, 128, 200, 332 };

    for (size_t i = 0; i < G_N_ELEMENTS(all_caps) *
         G_N_ELEMENTS(chunks); i++) {
        Rig *r = rig_new_log(all_caps[i % G_N_ELEMENTS(all_caps)]);
        RigVcpu *v = rig_vcpu(r, 0);

        r->chunk = chunks[i / G_N_ELEMENTS(all_caps)];
        rig_add(r, 0, PAGES, true);
        rig_add(r, 5, 64, true);
        for (int round = 0; round < 8; round++) {
            rig_write_range(v, 0, round * 29, 70);
            rig_write_range(v, 5, round, 30);
            kvmd_brake(r->kvmd);
            rig_ahead(r, round % 2 ? KVMD_AHEAD_STOP : KVMD_AHEAD_ROUND);
            g_assert_cmpint(rig_sync(r), ==, 0);
            rig_check(r);
        }
        g_assert_cmpuint(r->warnings->len, ==, 0);
        g_assert_cmpuint(r->kicks, ==, 0);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/* What is found again because it was not re-armed is no news. */
static void test_counts(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(all_caps); i++) {
        Rig *r = rig_new_log(all_caps[i]);
        RigVcpu *v = rig_vcpu(r, 0);
        KvmDirtyStats before, stats;

        rig_add(r, 0, PAGES, true);
        rig_sync(r);
        kvmd_stats(r->kvmd, &before);
        rig_write_range(v, 0, 0, 100);
        kvmd_sync(r->kvmd);
        rig_write_range(v, 0, 90, 20);
        kvmd_sync(r->kvmd);
        kvmd_sync(r->kvmd);
        kvmd_stats(r->kvmd, &stats);
        g_assert_cmpuint(stats.pages - before.pages, ==, r->clears ? 110 : 120);
        kvmd_slot_clear(r->kvmd, 0, 0, 50);
        rig_write_range(v, 0, 40, 70);
        kvmd_sync(r->kvmd);
        kvmd_stats(r->kvmd, &stats);
        g_assert_cmpuint(stats.pages - before.pages, ==,
                         r->clears ? 110 + 10 : 120 + 70);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/* What a look finds is re-armed as after a sync, and nothing is lost. */
static void test_look(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(all_caps); i++) {
        Rig *r = rig_new_log(all_caps[i]);
        RigVcpu *v = rig_vcpu(r, 0);
        RigBlock *b = rig_add(r, 0, PAGES, true);

        r->chunk = 50;
        rig_sync(r);
        for (uint64_t first = 0; first < 240; first += 29) {
            rig_forget(r);
            rig_write_range(v, 0, first, 70);
            rig_look(r);
            g_assert_cmpuint(rig_published(b), ==, 70);
            g_assert_true(fake_page_writable(r->fake, 0, first) == r->clears);
            rig_write_range(v, 0, first + 50, 30);
            rig_clear(r, b);
            g_assert_false(fake_page_writable(r->fake, 0, first));
            rig_write(v, 0, first);
            rig_sync(r);
            g_assert_cmpuint(b->published[first], ==, 2);
            rig_check(r);
        }
        g_assert_cmpuint(r->kicks, ==, 0);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/* Without manual protection a harvest re-arms the pages it publishes. */
static void test_exact(void)
{
    Rig *r = rig_new_log(0);
    RigVcpu *v = rig_vcpu(r, 0);

    r->strict = r->exact = true;
    rig_add(r, 0, PAGES, true);
    for (int round = 0; round < 8; round++) {
        rig_write_range(v, 0, round * 29, 70);
        rig_sync(r);
        rig_check(r);
        rig_check_exact(r);
    }
    g_assert_cmpuint(r->fake->clears, ==, 0);
    rig_vcpu_free(v);
    rig_free(r);
}

/* A new slot is dirty as a whole where KVM says so, and only then. */
static void test_initially_set(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(all_caps); i++) {
        Rig *r = rig_new_log(all_caps[i]);
        RigBlock *b = rig_add(r, 0, PAGES, true);
        uint64_t want = all_caps[i] & KVM_DIRTY_LOG_INITIALLY_SET ? PAGES : 0;

        rig_sync(r);
        g_assert_cmpuint(rig_published(b), ==, want);
        rig_forget(r);
        rig_sync(r);
        g_assert_cmpuint(rig_published(b), ==, 0);
        rig_free(r);
    }
}

/* kvmd_slot_sync() harvests one slot and leaves the others alone. */
static void test_one_slot(void)
{
    Rig *r = rig_new_log(0);
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *a = rig_add(r, 0, PAGES, true);
    RigBlock *b = rig_add(r, 1, PAGES, true);

    rig_write(v, 0, 3);
    rig_write(v, 1, 3);
    g_assert_cmpint(kvmd_slot_sync(r->kvmd, 1), ==, 0);
    g_assert_cmpuint(rig_published(a), ==, 0);
    g_assert_cmpuint(rig_published(b), ==, 1);
    g_assert_cmpuint(r->fake->gets, ==, 1);
    g_assert_cmpint(kvmd_slot_sync(r->kvmd, 9), ==, 0);
    g_assert_cmpint(kvmd_slot_sync(r->kvmd, 5 << 16), ==, 0);
    rig_sync(r);
    rig_check(r);
    rig_vcpu_free(v);
    rig_free(r);
}

/* Pages written again by the time they are re-armed are not forgotten. */
static struct {
    RigVcpu *vcpu;
    unsigned left;
} racer;

static void race(void *opaque, FakePoint point, FakeVcpu *v)
{
    (void)opaque, (void)v;
    if (racer.left && (point == FAKE_LOG_BEGIN || point == FAKE_LOG_END)) {
        racer.left--;
        for (uint64_t i = racer.left % 5; i < PAGES; i += 5) {
            rig_force(racer.vcpu, 0, i);
        }
    }
}

static void test_written_meanwhile(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(all_caps); i++) {
        Rig *r = rig_new_log(all_caps[i]);
        RigVcpu *v = rig_vcpu(r, 0);

        r->chunk = 50;
        rig_add(r, 0, PAGES, true);
        racer.vcpu = v;
        r->fake->hook = race;
        for (unsigned n = 1; n < 20; n++) {
            racer.left = n;
            rig_write_range(v, 0, n, 40);
            rig_sync(r);
            racer.left = 0;
            rig_sync(r);
            rig_check(r);
        }
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/*
 * A page is re-armed only if it was published: clearing the bit of one that
 * was written since the harvest would lose it.
 */
static void test_clears_only_harvested(void)
{
    Rig *r = rig_new_log(KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE);
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *b = rig_add(r, 0, PAGES, true);

    rig_write(v, 0, 10);
    kvmd_sync(r->kvmd);
    rig_write(v, 0, 11);        /* same word, not harvested */
    rig_write(v, 0, 100);       /* a word of its own */
    rig_clear(r, b);
    g_assert_false(fake_page_writable(r->fake, 0, 10));
    g_assert_true(fake_page_writable(r->fake, 0, 11));
    rig_sync(r);
    rig_check(r);
    g_assert_cmpuint(rig_published(b), ==, 3);
    rig_vcpu_free(v);
    rig_free(r);
}

/*
 * In the words at either end, only the pages of the range are re-armed.  The
 * others are not about to be copied, so a write to them must show.
 */
static void test_clears_only_the_range(void)
{
    Rig *r = rig_new_log(KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE);
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *b = rig_add(r, 0, PAGES, true);

    rig_write_range(v, 0, 0, PAGES);
    kvmd_sync(r->kvmd);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 70, 100), ==, 0);
    for (uint64_t i = 0; i < PAGES; i++) {
        g_assert_cmpint(fake_page_writable(r->fake, 0, i), ==,
                        i < 70 || i >= 170);
    }
    for (uint64_t i = 70; i < 170; i++) {
        b->shadow[i] = b->memory[i];
        b->pending[i] = false;
    }
    rig_write_range(v, 0, 0, PAGES);
    rig_sync(r);
    rig_check(r);
    rig_vcpu_free(v);
    rig_free(r);
}

/* A range that is armed already, or empty, costs no ioctl. */
static void test_clear_nothing(void)
{
    Rig *r = rig_new_log(FAKE_MANUAL_CAPS);
    RigBlock *b = rig_add(r, 0, PAGES, true);
    unsigned clears;

    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 0, PAGES), ==, 0);
    g_assert_cmpuint(r->fake->clears, ==, 0);
    rig_sync(r);
    clears = r->fake->clears;
    g_assert_cmpuint(clears, ==, 1);
    rig_clear(r, b);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 65, 0), ==, 0);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 4, 0, 64), ==, 0);
    g_assert_cmpuint(r->fake->clears, ==, clears);
    rig_log(r, 0, false);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 0, 64), ==, 0);
    g_assert_cmpuint(r->fake->clears, ==, clears);
    rig_free(r);
}

/*
 * Pages that an earlier log of the slot harvested are not harvested by this
 * one: clearing them would lose a page that nobody was told of.
 */
static void test_logged_again(void)
{
    Rig *r = rig_new_log(FAKE_MANUAL_CAPS);
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, PAGES, true);
    kvmd_sync(r->kvmd);
    rig_log(r, 0, false);
    rig_log(r, 0, true);
    rig_write_range(v, 0, 0, 20);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 0, PAGES), ==, 0);
    g_assert_cmpuint(r->fake->clears, ==, 0);
    rig_sync(r);
    rig_check(r);
    rig_vcpu_free(v);
    rig_free(r);
}

/* If a harvest fails, the error is returned and all pages are published. */
static void test_get_fails(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(all_caps); i++) {
        Rig *r = rig_new_log(all_caps[i]);
        RigVcpu *v = rig_vcpu(r, 0);
        RigBlock *a = rig_add(r, 0, PAGES, true);
        RigBlock *b = rig_add(r, 1, PAGES, true);

        rig_sync(r);
        rig_write_range(v, 0, 0, 20);
        rig_write_range(v, 1, 0, 20);
        rig_forget(r);
        fake_fail(r->fake, KVM_GET_DIRTY_LOG, EIO, 1);
        g_assert_cmpuint(kvmd_guesses(r->kvmd), ==, 0);
        g_assert_cmpint(rig_sync(r), ==, -EIO);
        g_assert_cmpuint(kvmd_guesses(r->kvmd), ==, 1);
        g_assert_cmpuint(rig_published(a), ==, PAGES);
        g_assert_cmpuint(rig_published(b), ==, 20);
        rig_check(r);
        g_assert_cmpint(rig_warned(r, "harvesting the dirty pages"), ==, 1);
        rig_write_range(v, 0, 10, 20);
        rig_sync(r);
        rig_check(r);
        rig_vcpu_free(v);
        rig_free(r);
    }
}

/* A display syncs its slot 30 times a second: once per slot is enough. */
static void test_get_fails_often(void)
{
    Rig *r = rig_new_log(FAKE_MANUAL_CAPS);
    RigBlock *b = rig_add(r, 0, PAGES, true);

    rig_add(r, 1, PAGES, true);
    fake_fail(r->fake, KVM_GET_DIRTY_LOG, EIO, -1);
    for (int i = 0; i < 100; i++) {
        rig_forget(r);
        g_assert_cmpint(rig_slot_sync(r, 0), ==, -EIO);
        g_assert_cmpuint(rig_published(b), ==, PAGES);
    }
    g_assert_cmpint(rig_warned(r, "slot 0x0 failed"), ==, 1);
    rig_slot_sync(r, 1);
    g_assert_cmpint(rig_warned(r, "slot 0x1 failed"), ==, 1);
    /* A sync of all memory warns of each slot, and so does the next. */
    for (int i = 1; i < 4; i++) {
        g_assert_cmpint(rig_sync(r), ==, -EIO);
        rig_slot_sync(r, 0);
        g_assert_cmpint(rig_warned(r, "slot 0x0 failed"), ==, 1 + i);
        g_assert_cmpint(rig_warned(r, "slot 0x1 failed"), ==, 1 + i);
    }
    rig_free(r);
}

/* A re-arm that fails returns the error, and the next one makes up for it. */
static void test_clear_fails(void)
{
    Rig *r = rig_new_log(FAKE_MANUAL_CAPS);
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *b = rig_add(r, 0, PAGES, true);

    rig_sync(r);
    rig_write_range(v, 0, 0, 20);
    kvmd_sync(r->kvmd);
    fake_fail(r->fake, KVM_CLEAR_DIRTY_LOG, EIO, 1);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 0, PAGES), ==, -EIO);
    rig_write_range(v, 0, 0, 20);
    rig_clear(r, b);
    g_assert_false(fake_page_writable(r->fake, 0, 5));
    rig_check(r);
    rig_write_range(v, 0, 0, 20);
    rig_sync(r);
    rig_check(r);
    rig_vcpu_free(v);
    rig_free(r);
}

/* After a signal, both ioctls are called again. */
static void test_eintr(void)
{
    Rig *r = rig_new_log(FAKE_MANUAL_CAPS);
    RigVcpu *v = rig_vcpu(r, 0);

    rig_add(r, 0, PAGES, true);
    rig_write_range(v, 0, 0, 20);
    fake_fail(r->fake, KVM_GET_DIRTY_LOG, EINTR, 2);
    fake_fail(r->fake, KVM_CLEAR_DIRTY_LOG, EINTR, 2);
    g_assert_cmpint(rig_sync(r), ==, 0);
    rig_check(r);
    g_assert_cmpuint(r->warnings->len, ==, 0);
    rig_vcpu_free(v);
    rig_free(r);
}

/*
 * EAGAIN is an error like any other.  Nobody promises that it ends, and a
 * caller that tries again holds the engine's lock meanwhile.
 */
static void test_eagain(void)
{
    Rig *r = rig_new_log(FAKE_MANUAL_CAPS);
    RigVcpu *v = rig_vcpu(r, 0);
    RigBlock *b = rig_add(r, 0, PAGES, true);

    rig_sync(r);
    rig_forget(r);
    rig_write_range(v, 0, 0, 20);
    fake_fail(r->fake, KVM_GET_DIRTY_LOG, EAGAIN, 1);
    g_assert_cmpint(rig_sync(r), ==, -EAGAIN);
    g_assert_cmpuint(rig_published(b), ==, PAGES);
    rig_check(r);
    fake_fail(r->fake, KVM_CLEAR_DIRTY_LOG, EAGAIN, 1);
    kvmd_sync(r->kvmd);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 0, PAGES), ==, -EAGAIN);
    rig_clear(r, b);
    rig_check(r);
    rig_vcpu_free(v);
    rig_free(r);
}

/* The reaper has nothing to do here, and returns at once. */
static void test_no_reaper(void)
{
    Rig *r = rig_new_log(FAKE_MANUAL_CAPS);

    kvmd_reaper_run(r->kvmd);
    rig_free(r);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/log/rounds", test_rounds);
    g_test_add_func("/log/counts", test_counts);
    g_test_add_func("/log/look", test_look);
    g_test_add_func("/log/exact", test_exact);
    g_test_add_func("/log/initially-set", test_initially_set);
    g_test_add_func("/log/one-slot", test_one_slot);
    g_test_add_func("/log/written-meanwhile", test_written_meanwhile);
    g_test_add_func("/log/clears-only-harvested",
                    test_clears_only_harvested);
    g_test_add_func("/log/clears-only-the-range",
                    test_clears_only_the_range);
    g_test_add_func("/log/clear-nothing", test_clear_nothing);
    g_test_add_func("/log/logged-again", test_logged_again);
    g_test_add_func("/log/get-fails", test_get_fails);
    g_test_add_func("/log/get-fails-often", test_get_fails_often);
    g_test_add_func("/log/clear-fails", test_clear_fails);
    g_test_add_func("/log/eintr", test_eintr);
    g_test_add_func("/log/eagain", test_eagain);
    g_test_add_func("/log/no-reaper", test_no_reaper);
    return g_test_run();
}
