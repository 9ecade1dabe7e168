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

/* A chunk of 64 GiB ends in a slot: no region is looked at twice for that. */
static void test_chunks(void)
{
    Rig *r = rig_new_patched(KVMD_DIRTY_BITS);

    the_vcpu = rig_vcpu(r, 0);
    r->exact = true;
    r->gpa_offset = (UINT64_C(4) << 30) - 1000 * 4096;
    rig_add(r, 15, 2000, true); /* 1000 are in one chunk, 1000 in the next */
    rig_add(r, 1 << 16 | 15, 50, true);
    rig_add(r, 31, 2000, true); /* so is it with these, and a third */
    rig_write_range(the_vcpu, 15, 990, 20);
    rig_write(the_vcpu, 1 << 16 | 15, 7);
    rig_write(the_vcpu, 31, 0);
    rig_write(the_vcpu, 31, 1999);
    rig_harvest(r);
    g_assert_cmpuint(r->fake->collects, ==, 3);
    g_assert_cmpuint(rig_published(block(r, 15)), ==, 20);
    g_assert_cmpuint(rig_published(block(r, 31)), ==, 2);
    g_assert_true(fake_page_writable(r->fake, 15, 999));
    g_assert_true(fake_page_writable(r->fake, 15, 1000));
    g_assert_true(fake_page_writable(r->fake, 1 << 16 | 15, 7));
    g_assert_true(fake_page_writable(r->fake, 31, 0));
    settle(r);
    two_slots_free(r);
}

static struct {
    Rig *rig;
    GThread *thread;
    GMutex lock;
    GCond wake;
    bool answered;
    unsigned chunks;            /* yet to be collected */
    int unflushed;              /* what a collect has found */
} other;

/* Another thread has yet to come. */
static Rig *two_slots_and_another(void)
{
    Rig *r = two_slots();

    other.rig = r;
    other.thread = NULL;
    return r;
}

static gpointer ask(gpointer unused)
{
    kvmd_guesses(other.rig->kvmd);
    g_mutex_lock(&other.lock);
    other.answered = true;
    g_cond_signal(&other.wake);
    g_mutex_unlock(&other.lock);
    return unused;
}

static void other_asks(void *opaque, FakePoint point, FakeVcpu *v)
{
    gint64 until = g_get_monotonic_time() + 10 * G_TIME_SPAN_SECOND;

    (void)opaque, (void)v;
    if (point == FAKE_COLLECT_BEGIN) {
        other.answered = false;
        other.thread = g_thread_new("other", ask, NULL);
        g_mutex_lock(&other.lock);
        while (!other.answered) {
            g_assert_true(g_cond_wait_until(&other.wake, &other.lock, until));
        }
        g_mutex_unlock(&other.lock);
        g_thread_join(other.thread);
    }
}

/* Who needs the engine need not wait until KVM has collected. */
static void test_nobody_waits(void)
{
    Rig *r = two_slots_and_another();

    r->fake->hook = other_asks;
    write_some();
    rig_look(r);
    rig_ahead(r, KVMD_AHEAD_STOP);
    write_some();
    rig_harvest(r);
    g_assert_true(other.answered);
    r->fake->hook = NULL;
    settle(r);
    two_slots_free(r);
}

static gpointer add_slot(gpointer unused)
{
    rig_add(other.rig, 7, 100, true);
    return unused;
}

static void other_adds(void *opaque, FakePoint point, FakeVcpu *v)
{
    (void)opaque, (void)v;
    if (point == FAKE_COLLECT_BEGIN && !other.thread) {
        other.thread = g_thread_new("other", add_slot, NULL);
        g_usleep(100000);       /* it waits for KVM then, not for the engine */
    }
}

/* A slot that comes while memory is collected ahead was not collected. */
static void test_slot_comes_meanwhile(void)
{
    Rig *r = two_slots_and_another();

    r->fake->hook = other_adds;
    rig_ahead(r, KVMD_AHEAD_ROUND);
    g_thread_join(other.thread);
    r->fake->hook = NULL;
    rig_write(the_vcpu, 7, 9);
    g_assert_cmpint(rig_harvest(r), ==, 0);
    g_assert_cmpuint(block(r, 7)->published[9], ==, 1);
    settle(r);
    two_slots_free(r);
}

static gpointer sync_too(gpointer unused)
{
    g_assert_cmpint(kvmd_sync(other.rig->kvmd), ==, 0);
    return unused;
}

/* KVM has put pages into the bitmap, and has not yet flushed the TLBs. */
static void other_has_not_flushed(void *opaque, FakePoint point, FakeVcpu *v)
{
    (void)opaque, (void)v;
    if (point == FAKE_COLLECT_END && g_thread_self() == other.thread) {
        g_atomic_int_set(&other.unflushed, 1);
        g_usleep(200000);
        g_atomic_int_set(&other.unflushed, 0);
    }
}

/* The collect of another thread comes between that of a look and its take. */
static void other_collects(Rig *r)
{
    (void)r;
    if (!other.thread) {
        rig_write(the_vcpu, 0, 3);
        other.thread = g_thread_new("other", sync_too, NULL);
        g_usleep(100000);       /* it is about to collect then */
    }
}

static void assert_flushed(Rig *r)
{
    (void)r;
    for (int i = 0; i < 100 && g_thread_self() != other.thread; i++) {
        g_assert_cmpint(g_atomic_int_get(&other.unflushed), ==, 0);
        g_usleep(2000);
    }
}

/* I3.  Until TLBs are flushed, a page in the bitmap is not armed. */
static void test_no_take_before_the_flush(void)
{
    Rig *r = two_slots_and_another();

    write_some();
    r->fake->hook = other_has_not_flushed;
    r->returned = other_collects;
    r->watch = assert_flushed;
    rig_look(r);
    g_thread_join(other.thread);
    r->fake->hook = NULL;
    r->returned = NULL;
    r->watch = NULL;
    settle(r);
    two_slots_free(r);
}

static gpointer switch_it(gpointer unused)
{
    g_assert_true(rig_try_switch(other.rig, KVMD_LOG, NULL));
    return unused;
}

/* The first thing that is done of a switch is a collect, too. */
static void other_switches(void *opaque, FakePoint point, FakeVcpu *v)
{
    (void)opaque, (void)v;
    if (point == FAKE_COLLECT_BEGIN && !other.thread) {
        other.thread = g_thread_new("other", switch_it, NULL);
        g_usleep(100000);
    } else if (point == FAKE_COLLECT_BEGIN &&
               g_thread_self() == other.thread) {
        g_assert_cmpuint(other.chunks, ==, 0);
    } else if (point == FAKE_COLLECT_END && other.chunks) {
        other.chunks--;
    }
}

/* Another mechanism comes when the collect is over: it goes on with its own. */
static void test_switch_waits(void)
{
    Rig *r = two_slots_and_another();

    other.chunks = 2;
    r->exact = false;
    rig_add(r, 16, 100, true);  /* in the second */
    write_some();
    r->fake->hook = other_switches;
    rig_look(r);
    g_thread_join(other.thread);
    r->fake->hook = NULL;
    g_assert_cmpint(rig_sync(r), ==, 0);
    rig_check(r);
    two_slots_free(r);
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

static gpointer ask_for_brake(gpointer unused)
{
    kvmd_brake(other.rig->kvmd);
    return unused;
}

static void other_brakes(void *opaque, FakePoint point, FakeVcpu *v)
{
    (void)opaque, (void)v;
    if (point == FAKE_COLLECT_BEGIN && !other.thread) {
        other.thread = g_thread_new("other", ask_for_brake, NULL);
        g_thread_join(other.thread);
    }
}

/* Whoever asks while another thread collects has the next collect. */
static void test_brake_meanwhile(void)
{
    Rig *r = two_slots_and_another();

    write_some();
    r->fake->hook = other_brakes;
    rig_harvest(r);
    r->fake->hook = NULL;
    g_assert_cmpuint(r->fake->brakes, ==, 0);
    write_some();
    rig_look(r);
    g_assert_cmpuint(r->fake->brakes, ==, 1);
    r->exact = false;
    g_assert_cmpint(rig_sync(r), ==, 0);
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

/*
 * kvm.dirty_tracking=0 hides it from VMs that come later; this one goes on with
 * what it has enabled.
 */
static void test_brake_of_a_kvm_that_hides_it(void)
{
    Rig *r = two_slots();

    r->fake->config.patched = 0;
    r->exact = false;
    rig_switch(r, KVMD_LOG);
    rig_switch(r, KVMD_DIRTY_BITS);
    write_some();
    kvmd_brake(r->kvmd);
    rig_harvest(r);
    g_assert_cmpuint(r->fake->brakes, ==, 1);
    g_assert_false(fake_page_writable(r->fake, 0, 0));
    g_assert_cmpint(rig_sync(r), ==, 0);
    rig_check(r);
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
    g_test_add_func("/dirty_bits/chunks", test_chunks);
    g_test_add_func("/dirty_bits/nobody-waits", test_nobody_waits);
    g_test_add_func("/dirty_bits/slot-comes-meanwhile",
                    test_slot_comes_meanwhile);
    g_test_add_func("/dirty_bits/no-take-before-the-flush",
                    test_no_take_before_the_flush);
    g_test_add_func("/dirty_bits/switch-waits", test_switch_waits);
    g_test_add_func("/dirty_bits/brake", test_brake);
    g_test_add_func("/dirty_bits/brake-is-for-a-sync",
                    test_brake_is_for_a_sync);
    g_test_add_func("/dirty_bits/brake-meanwhile", test_brake_meanwhile);
    g_test_add_func("/dirty_bits/look-brakes", test_look_brakes);
    g_test_add_func("/dirty_bits/no-brake", test_no_brake);
    g_test_add_func("/dirty_bits/brake-of-a-kvm-that-hides-it",
                    test_brake_of_a_kvm_that_hides_it);
    return g_test_run();
}
