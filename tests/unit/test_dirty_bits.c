/*
 * "dirty-bits": what a collect costs, and what is published just in time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * That no page is lost is in test_protect.c, test_switch.c, test_random.c and
 * test_stress.c.
 */

#include "two_slots.h"

#include <errno.h>
#include <linux/kvm_dirty_tracking.h>

#define PAGES 40000             /* more than a word of the summary stands for */

static Rig *two_slots(void)
{
    return two_slots_new(KVMD_DIRTY_BITS, PAGES);
}

static void write_some(void)
{
    rig_write_range(the_vcpu, 0, 0, 70);
    rig_write(the_vcpu, 0, PAGES - 1);
    rig_write_range(the_vcpu, OTHER, 60, 10);
}

/* No page is lost, whatever the guest did until now. */
static void settle(Rig *r)
{
    g_assert_cmpint(rig_sync(r), ==, 0);
    rig_check(r);
    rig_check_exact(r);
}

/* All slots are collected at once, one by itself; nothing else is asked. */
static void test_collects(void)
{
    Rig *r = two_slots();
    unsigned ioctls = r->fake->ioctls;

    for (unsigned i = 1; i < 5; i++) {
        write_some();
        g_assert_cmpint(rig_harvest(r), ==, 0);
        g_assert_cmpuint(r->fake->collects, ==, 2 * i - 1);
        g_assert_cmpint(rig_slot_sync(r, OTHER), ==, 0);
        g_assert_cmpuint(r->fake->collects, ==, 2 * i);
        g_assert_cmpuint(r->fake->ioctls - ioctls, ==, 2 * i);
    }
    settle(r);
    two_slots_free(r);
}

/* A page that is written all the time stays writable: there is no fault. */
static void test_hot_stays_writable(void)
{
    Rig *r = two_slots();

    write_some();
    rig_harvest(r);
    g_assert_true(fake_page_writable(r->fake, 0, 0));
    g_assert_true(fake_page_writable(r->fake, OTHER, 60));
    rig_harvest(r);
    g_assert_false(fake_page_writable(r->fake, 0, 0));
    g_assert_false(fake_page_writable(r->fake, OTHER, 60));
    settle(r);
    two_slots_free(r);
}

/* A sync of one slot takes nothing of another. */
static void test_slot_sync(void)
{
    Rig *r = two_slots();

    write_some();
    g_assert_cmpint(rig_slot_sync(r, OTHER), ==, 0);
    g_assert_cmpuint(rig_published(block(r, OTHER)), ==, 10);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 0);
    settle(r);
    two_slots_free(r);
}

/* Pages at the edges of regions, groups and words of the summary. */
static const uint64_t edges[] = {
    0, 1, 63, 64, 511, 512, 513, 1023, 32767, 32768, PAGES - 1,
};

/* A page that is written between the sync and the clear is read once. */
static void test_just_in_time(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(edges); i++) {
        Rig *r = two_slots();
        uint64_t page = edges[i];

        r->chunk = 1000;
        rig_write(the_vcpu, 0, PAGES / 2);
        rig_harvest(r);
        rig_write(the_vcpu, 0, page);
        g_assert_cmpuint(block(r, 0)->published[page], ==, 0);
        g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, page, 1), ==, 0);
        g_assert_cmpuint(block(r, 0)->published[page], ==, 1);
        rig_clear(r, block(r, 0));
        rig_write(the_vcpu, 0, page);
        rig_clear(r, block(r, 0));
        rig_check(r);
        rig_forget(r);
        settle(r);
        g_assert_cmpuint(rig_published(block(r, 0)), ==, 0);
        two_slots_free(r);
    }
}

/* A clear collects only the regions that its range is in. */
static void test_range(void)
{
    Rig *r = two_slots();

    rig_write(the_vcpu, 0, 511);
    rig_write(the_vcpu, 0, 512);
    rig_write(the_vcpu, 0, 1024);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 600, 100), ==, 0);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 1);
    g_assert_cmpuint(block(r, 0)->published[512], ==, 1);
    settle(r);
    two_slots_free(r);
}

/* Memory in two address spaces is not collected for each of them. */
static void test_other_space(void)
{
    Rig *r = two_slots();

    write_some();
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, OTHER, 0, OTHER_PAGES), ==, 0);
    g_assert_cmpuint(r->fake->collects, ==, 0);
    settle(r);
    two_slots_free(r);
}

/* Where the bitmap has to be copied, a sync copies it, not each clear. */
static void test_not_mapped(void)
{
    Rig *r = rig_new_patched(KVMD_DIRTY_BITS);
    unsigned gets;

    the_vcpu = rig_vcpu(r, 0);
    fake_fail(r->fake, KVM_GET_DIRTY_BITMAP_FD, EMFILE, 1);
    rig_add(r, 0, PAGES, true);
    rig_add(r, OTHER, OTHER_PAGES, true);
    write_some();
    settle(r);
    gets = r->fake->gets;
    rig_clear(r, block(r, 0));
    g_assert_cmpuint(r->fake->gets, ==, gets);
    write_some();
    settle(r);
    two_slots_free(r);
}

/*
 * If not even one slot alone can be collected, all of it is published; what
 * KVM has not collected it gives another time.
 */
static void test_sync_fails(void)
{
    for (int times = 1; times < 4; times++) {
        Rig *r = two_slots();
        int whole = times - 1;

        r->exact = false;
        settle(r);
        write_some();
        fake_fail(r->fake, KVM_COLLECT_DIRTY_BITS, ENOMEM, times);
        g_assert_cmpint(rig_sync(r), ==, whole ? -ENOMEM : 0);
        g_assert_cmpint(rig_warned(r, "taken as dirty"), ==, whole);
        g_assert_cmpuint(kvmd_guesses(r->kvmd), ==, whole);
        g_assert_cmpint(rig_published(block(r, 0)) == PAGES, ==, whole > 0);
        g_assert_cmpint(rig_published(block(r, OTHER)) == OTHER_PAGES, ==,
                        whole > 1);
        rig_check(r);
        write_some();
        g_assert_cmpint(rig_sync(r), ==, 0);
        rig_check(r);
        two_slots_free(r);
    }
}

/* Read pages although their clear has failed. */
static void copy_uncleared(RigBlock *b, uint64_t first, uint64_t pages)
{
    for (uint64_t i = first; i < first + pages; i++) {
        b->pending[i] = false;
        b->shadow[i] = b->memory[i];
    }
}

/*
 * A clear that fails publishes nothing.  The pages that the last sync
 * published are armed: they may be read, and later writes to them are found.
 */
static void test_clear_fails(void)
{
    Rig *r = two_slots();

    r->exact = false;
    write_some();
    rig_harvest(r);
    rig_forget(r);
    write_some();
    fake_fail(r->fake, KVM_COLLECT_DIRTY_BITS, EIO, 1);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 64, 100), ==, -EIO);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 0);
    g_assert_cmpuint(kvmd_guesses(r->kvmd), ==, 0);
    copy_uncleared(block(r, 0), 64, 100);
    write_some();
    g_assert_cmpint(rig_sync(r), ==, 0);
    rig_check(r);
    g_assert_cmpuint(r->warnings->len, ==, 0);
    two_slots_free(r);
}

/* A look is one collect, and no sync has less to do after it. */
static void test_look(void)
{
    Rig *r = two_slots();

    write_some();
    rig_look(r);
    g_assert_cmpuint(r->fake->collects, ==, 1);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 71);
    g_assert_cmpuint(rig_published(block(r, OTHER)), ==, 10);
    rig_write(the_vcpu, 0, 5000);
    g_assert_cmpint(rig_harvest(r), ==, 0);
    g_assert_cmpuint(r->fake->collects, ==, 2);
    g_assert_cmpuint(block(r, 0)->published[5000], ==, 1);

    /* Nor has one more to do of which all was done ahead. */
    rig_ahead(r, KVMD_AHEAD_ROUND);
    rig_write(the_vcpu, 0, 6000);
    rig_look(r);
    g_assert_cmpuint(block(r, 0)->published[6000], ==, 1);
    g_assert_cmpint(rig_harvest(r), ==, 0);
    g_assert_cmpuint(r->fake->collects, ==, 4);
    settle(r);
    two_slots_free(r);
}

/* If it fails, the next one or a sync does all. */
static void test_look_fails(void)
{
    for (int look = 0; look < 2; look++) {
        Rig *r = two_slots();

        write_some();
        fake_fail(r->fake, KVM_COLLECT_DIRTY_BITS, ENOMEM, 1);
        rig_look(r);
        g_assert_cmpuint(rig_published(block(r, 0)), ==, 0);
        g_assert_cmpuint(kvmd_guesses(r->kvmd), ==, 0);
        if (look) {
            rig_look(r);
        } else {
            g_assert_cmpint(rig_harvest(r), ==, 0);
        }
        g_assert_cmpuint(rig_published(block(r, 0)), ==, 71);
        settle(r);
        g_assert_cmpuint(r->warnings->len, ==, 0);
        two_slots_free(r);
    }
}

/* What is done ahead of a round is all that the round's sync finds. */
static void test_ahead_of_a_round(void)
{
    Rig *r = two_slots();

    write_some();
    rig_ahead(r, KVMD_AHEAD_ROUND);
    g_assert_cmpuint(r->fake->collects, ==, 1);
    g_assert_cmpuint(rig_published(block(r, 0)), ==, 71);
    g_assert_cmpuint(rig_published(block(r, OTHER)), ==, 10);
    rig_write(the_vcpu, 0, 5000);
    g_assert_cmpint(rig_harvest(r), ==, 0);
    g_assert_cmpuint(r->fake->collects, ==, 1);
    g_assert_cmpuint(block(r, 0)->published[5000], ==, 0);
    g_assert_cmpint(rig_harvest(r), ==, 0);
    g_assert_cmpuint(r->fake->collects, ==, 2);
    g_assert_cmpuint(block(r, 0)->published[5000], ==, 1);
    settle(r);
    two_slots_free(r);
}

/* The sync of a round finds what KVM has logged meanwhile, for a fault. */
static void test_ahead_leaves_the_bitmap(void)
{
    Rig *r = two_slots();

    write_some();
    kvmd_brake(r->kvmd);
    rig_ahead(r, KVMD_AHEAD_ROUND);
    rig_write(the_vcpu, 0, 3);
    g_assert_cmpuint(block(r, 0)->published[3], ==, 1);
    g_assert_cmpint(rig_harvest(r), ==, 0);
    g_assert_cmpuint(r->fake->collects, ==, 1);
    g_assert_cmpuint(block(r, 0)->published[3], ==, 2);
    settle(r);
    two_slots_free(r);
}

/* The last sync leaves nothing, and what is idle by then is wrprot. */
static void test_ahead_of_the_end(void)
{
    for (int round = 0; round < 2; round++) {
        Rig *r = two_slots();
        unsigned collects;

        write_some();
        if (round) {
            rig_ahead(r, KVMD_AHEAD_ROUND);
            rig_write(the_vcpu, 0, 5000);
        }
        collects = r->fake->collects;
        rig_ahead(r, KVMD_AHEAD_STOP);
        g_assert_cmpuint(r->fake->collects, ==, collects + 3);
        g_assert_cmpuint(rig_published(block(r, 0)), ==, 71 + round);
        g_assert_false(fake_page_writable(r->fake, 0, 0));
        g_assert_false(fake_page_writable(r->fake, OTHER, 60));
        rig_write(the_vcpu, 0, 6000);
        g_assert_cmpint(rig_harvest(r), ==, 0);
        g_assert_cmpuint(r->fake->collects, ==, collects + 4);
        g_assert_cmpuint(block(r, 0)->published[6000], ==, 1);
        rig_clear(r, block(r, 0));
        rig_clear(r, block(r, OTHER));
        rig_check(r);
        rig_check_exact(r);
        two_slots_free(r);
    }
}

/* If it fails, the sync does all. */
static void test_ahead_fails(void)
{
    static const KvmDirtyAhead all[] = { KVMD_AHEAD_ROUND, KVMD_AHEAD_STOP };

    for (size_t i = 0; i < G_N_ELEMENTS(all); i++) {
        Rig *r = two_slots();

        write_some();
        fake_fail(r->fake, KVM_COLLECT_DIRTY_BITS, ENOMEM, 1);
        rig_ahead(r, all[i]);
        g_assert_cmpuint(rig_published(block(r, 0)), ==, 0);
        g_assert_cmpint(rig_harvest(r), ==, 0);
        g_assert_cmpuint(rig_published(block(r, 0)), ==, 71);
        settle(r);
        g_assert_cmpuint(r->warnings->len, ==, 0);
        two_slots_free(r);
    }
}

/* Who syncs a slot gets what is in it now; the sync has still less to do. */
static void test_ahead_and_slot_sync(void)
{
    Rig *r = two_slots();

    rig_ahead(r, KVMD_AHEAD_ROUND);
    rig_write(the_vcpu, OTHER, 5);
    g_assert_cmpint(rig_slot_sync(r, OTHER), ==, 0);
    g_assert_cmpuint(block(r, OTHER)->published[5], ==, 1);
    rig_write(the_vcpu, 0, 5);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 0, 8), ==, 0);
    g_assert_cmpuint(block(r, 0)->published[5], ==, 1);
    g_assert_cmpuint(r->fake->collects, ==, 3);
    g_assert_cmpint(rig_harvest(r), ==, 0);
    g_assert_cmpuint(r->fake->collects, ==, 3);
    settle(r);
    two_slots_free(r);
}

/* A slot that is logged since has not been collected, nor has a switched VM. */
static void test_ahead_and_changes(void)
{
    for (int how = 0; how < 4; how++) {
        Rig *r = two_slots();

        r->exact = false;
        write_some();
        rig_ahead(r, KVMD_AHEAD_ROUND);
        if (how == 0) {
            rig_add(r, 7, 100, true);
            rig_write(the_vcpu, 7, 9);
        } else if (how == 1) {
            rig_remove(r, OTHER);
            rig_add(r, OTHER, OTHER_PAGES, true);
            rig_write(the_vcpu, OTHER, 9);
        } else if (how == 2) {
            rig_log(r, OTHER, false);
            rig_log(r, OTHER, true);
            rig_write(the_vcpu, OTHER, 9);
        } else {
            rig_switch(r, KVMD_LOG);
            rig_switch(r, KVMD_DIRTY_BITS);
            rig_write(the_vcpu, 0, 9);
        }
        g_assert_cmpint(rig_sync(r), ==, 0);
        rig_check(r);
        two_slots_free(r);
    }
}

/* Each page that the next sync finds costs a fault, and no other does. */
static void test_brake(void)
{
    for (int ahead = 0; ahead < 3; ahead++) {
        Rig *r = two_slots();

        write_some();
        kvmd_brake(r->kvmd);
        if (ahead) {
            rig_ahead(r, ahead == 1 ? KVMD_AHEAD_ROUND : KVMD_AHEAD_STOP);
        }
        rig_harvest(r);
        g_assert_cmpuint(r->fake->brakes, ==, 1);
        g_assert_false(fake_page_writable(r->fake, 0, 0));
        g_assert_false(fake_page_writable(r->fake, OTHER, 60));
        if (ahead < 2) {
            g_assert_true(fake_page_writable(r->fake, 0, 70));
            g_assert_true(fake_page_writable(r->fake, OTHER, 0));
        }
        write_some();
        g_assert_true(fake_page_writable(r->fake, 0, 0));
        rig_harvest(r);
        g_assert_cmpuint(r->fake->brakes, ==, 1);
        g_assert_true(fake_page_writable(r->fake, 0, 0));
        r->exact = false;       /* a fault and a dirty bit are one write */
        g_assert_cmpint(rig_sync(r), ==, 0);
        rig_check(r);
        two_slots_free(r);
    }
}

/* It is for the next sync, and for no other harvest. */
static void test_brake_is_for_a_sync(void)
{
    Rig *r = two_slots();

    write_some();
    kvmd_brake(r->kvmd);
    g_assert_cmpint(kvmd_slot_clear(r->kvmd, 0, 0, 8), ==, 0);
    g_assert_cmpint(rig_slot_sync(r, OTHER), ==, 0);
    g_assert_cmpuint(r->fake->collects, ==, 2);
    g_assert_cmpuint(r->fake->brakes, ==, 0);
    rig_harvest(r);
    g_assert_cmpuint(r->fake->brakes, ==, 1);

    /* Too late for a sync of which all is done, and over with it. */
    rig_ahead(r, KVMD_AHEAD_ROUND);
    kvmd_brake(r->kvmd);
    rig_harvest(r);
    rig_harvest(r);
    g_assert_cmpuint(r->fake->brakes, ==, 1);
    r->exact = false;
    rig_sync(r);
    rig_check(r);
    two_slots_free(r);
}

/* A look that comes before the sync brakes in its place. */
static void test_look_brakes(void)
{
    Rig *r = two_slots();

    write_some();
    kvmd_brake(r->kvmd);
    rig_look(r);
    g_assert_cmpuint(r->fake->brakes, ==, 1);
    g_assert_false(fake_page_writable(r->fake, 0, 0));
    g_assert_true(fake_page_writable(r->fake, 0, 70));
    write_some();
    rig_look(r);
    write_some();
    rig_harvest(r);
    g_assert_cmpuint(r->fake->brakes, ==, 1);
    g_assert_true(fake_page_writable(r->fake, 0, 0));
    r->exact = false;
    rig_sync(r);
    rig_check(r);
    two_slots_free(r);
}

/* An older KVM takes no flag, and is given none. */
static void test_no_brake(void)
{
    FakeConfig fake = {
        FAKE_LINUX_6_1, .patched = FAKE_PATCHED, .no_brake = true,
    };
    KvmDirtyConfig config = { KVMD_DIRTY_BITS, 0 };
    Rig *r = rig_new(&fake, &config);

    the_vcpu = rig_vcpu(r, 0);
    rig_add(r, 0, PAGES, true);
    rig_add(r, OTHER, OTHER_PAGES, true);
    write_some();
    kvmd_brake(r->kvmd);
    g_assert_cmpint(rig_harvest(r), ==, 0);
    g_assert_cmpuint(r->fake->collects, ==, 1);
    g_assert_true(fake_page_writable(r->fake, 0, 0));
    settle(r);
    two_slots_free(r);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/dirty_bits/collects", test_collects);
    g_test_add_func("/dirty_bits/hot-stays-writable", test_hot_stays_writable);
    g_test_add_func("/dirty_bits/slot-sync", test_slot_sync);
    g_test_add_func("/dirty_bits/just-in-time", test_just_in_time);
    g_test_add_func("/dirty_bits/range", test_range);
    g_test_add_func("/dirty_bits/other-space", test_other_space);
    g_test_add_func("/dirty_bits/not-mapped", test_not_mapped);
    g_test_add_func("/dirty_bits/sync-fails", test_sync_fails);
    g_test_add_func("/dirty_bits/clear-fails", test_clear_fails);
    g_test_add_func("/dirty_bits/look", test_look);
    g_test_add_func("/dirty_bits/look-fails", test_look_fails);
    g_test_add_func("/dirty_bits/ahead-of-a-round", test_ahead_of_a_round);
    g_test_add_func("/dirty_bits/ahead-leaves-the-bitmap",
                    test_ahead_leaves_the_bitmap);
    g_test_add_func("/dirty_bits/ahead-of-the-end", test_ahead_of_the_end);
    g_test_add_func("/dirty_bits/ahead-fails", test_ahead_fails);
    g_test_add_func("/dirty_bits/ahead-and-slot-sync",
                    test_ahead_and_slot_sync);
    g_test_add_func("/dirty_bits/ahead-and-changes", test_ahead_and_changes);
    g_test_add_func("/dirty_bits/brake", test_brake);
    g_test_add_func("/dirty_bits/brake-is-for-a-sync",
                    test_brake_is_for_a_sync);
    g_test_add_func("/dirty_bits/look-brakes", test_look_brakes);
    g_test_add_func("/dirty_bits/no-brake", test_no_brake);
    return g_test_run();
}
