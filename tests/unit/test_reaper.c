/*
 * The reaper: when it looks, when it reaps, and when it leaves rings alone.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Most tests run it on their own thread, with a clock that stands still until
 * they move it (clock_hook.h).  Whenever the reaper goes to sleep, the test
 * has its turn, and the guest may write until the reaper wakes.  The other
 * tests have a thread and the real clock, and check no times.
 */

#include "rig.h"
#include "clock_hook.h"

#include <errno.h>

/* Here the names mean GLib's. */
#undef g_get_monotonic_time
#undef g_cond_wait_until
#undef g_cond_wait
#undef g_cond_signal

#define SIZE 1024
/* With PML a vCPU stops after so many entries: the engine counts on that. */
#define WHOLE (SIZE - 64 - 512)
#define HALF (WHOLE / 2)
#define PAGES 5003              /* not a multiple of 64 */
#define SECOND G_USEC_PER_SEC
#define SHORTEST 250
#define FOR_EVER G_MAXINT64
#define PATIENCE (60 * SECOND)

typedef struct Guest {
    RigVcpu *vcpu;
    double rate;                /* pages per microsecond; 0: it idles */
    double next;                /* when it writes again */
    uint64_t page;
} Guest;

static struct {
    bool on;
    gint64 now;
    bool signalled;
    int sleeps;
    /* The reaper sleeps until then, FOR_EVER if nobody wakes it. */
    void (*asleep)(gint64 until);
    Rig *rig;
    Guest guests[2];
    gint64 seen;                /* a test's own */
    uint64_t count;
    KvmDirtyStats before;
    unsigned resets;
} w;

/* What the engine calls */

gint64 clock_now(void)
{
    return w.on ? w.now : g_get_monotonic_time();
}

static gboolean sleep_in_turn(GMutex *mutex, gint64 until)
{
    g_mutex_unlock(mutex);
    w.signalled = false;
    w.sleeps++;
    w.asleep(until);
    g_mutex_lock(mutex);
    if (!w.signalled) {
        g_assert_cmpint(until, !=, FOR_EVER);
        w.now = MAX(w.now, until);
    }
    return w.signalled;
}

gboolean clock_wait_until(GCond *cond, GMutex *mutex, gint64 until)
{
    return w.on ? sleep_in_turn(mutex, until) :
        g_cond_wait_until(cond, mutex, until);
}

void clock_wait(GCond *cond, GMutex *mutex)
{
    if (w.on) {
        sleep_in_turn(mutex, FOR_EVER);
    } else {
        g_cond_wait(cond, mutex);
    }
}

void clock_signal(GCond *cond)
{
    w.signalled = true;
    g_cond_signal(cond);
}

/* The test's side */

static void world_new(void (*asleep)(gint64 until))
{
    w.rig = rig_new_ring(SIZE);
    w.on = asleep;
    w.now = 100 * SECOND;
    w.sleeps = 0;
    w.asleep = asleep;
    w.seen = 0;
    w.count = 0;
    w.before = (KvmDirtyStats) { 0 };
    for (size_t i = 0; i < G_N_ELEMENTS(w.guests); i++) {
        w.guests[i] = (Guest) { .vcpu = rig_vcpu(w.rig, i), .page = i };
    }
}

static void world_free(void)
{
    w.on = false;
    for (size_t i = 0; i < G_N_ELEMENTS(w.guests); i++) {
        rig_vcpu_free(w.guests[i].vcpu);
    }
    rig_check(w.rig);
    rig_free(w.rig);
}

/* The reaper runs until @asleep stops it. */
static void run_with(void (*asleep)(gint64 until))
{
    world_new(asleep);
    kvmd_reaper_run(w.rig->kvmd);
    world_free();
}

static KvmDirtyStats stats(void)
{
    KvmDirtyStats s;

    kvmd_stats(w.rig->kvmd, &s);
    return s;
}

/* In microseconds; never out of bounds once the reaper runs. */
static gint64 interval(void)
{
    uint64_t ns = stats().reaper_interval_ns;

    g_assert_cmpuint(ns, >=, SHORTEST * 1000);
    g_assert_cmpuint(ns, <=, SECOND * 1000);
    return ns / 1000;
}

static void guest_rate(Guest *g, double pages_per_second)
{
    g->rate = pages_per_second / SECOND;
    g->next = w.now;
}

/* The page after the last but one: two guests never write the same. */
static void guest_write(Guest *g)
{
    g->page = (g->page + 2) % (PAGES - 1);
    w.now = MAX(w.now, (gint64)g->next);
    g->next += 1 / g->rate;
    rig_write(g->vcpu, 0, g->page);
}

/* The guests write until @until, or until they wake the reaper. */
static void guests_run(gint64 until)
{
    while (!w.signalled) {
        Guest *g = NULL;

        for (size_t i = 0; i < G_N_ELEMENTS(w.guests); i++) {
            Guest *other = &w.guests[i];

            if (other->rate && other->next <= until &&
                (!g || other->next < g->next)) {
                g = other;
            }
        }
        if (!g) {
            return;
        }
        guest_write(g);
    }
}

static void stop(void)
{
    kvmd_reaper_stop(w.rig->kvmd);
}

/* Nothing is logged at first: the reaper's first interval is the shortest. */
static bool begun(gint64 until)
{
    if (until != FOR_EVER) {
        return true;
    }
    g_assert_cmpint(w.sleeps, ==, 1);
    rig_add(w.rig, 0, PAGES, true);
    g_assert_true(w.signalled);
    return false;
}

static void asleep_idle(gint64 until)
{
    if (!begun(until)) {
        w.seen = SHORTEST;
        return;
    }
    g_assert_cmpint(until - w.now, ==, w.seen);
    g_assert_cmpint(interval(), ==, w.seen);
    w.seen = MIN(2 * w.seen, SECOND);
    if (w.sleeps == 20) {
        g_assert_cmpuint(w.rig->fake->resets, ==, 0);
        g_assert_cmpuint(stats().reaps, ==, 0);
        g_assert_cmpint(w.seen, ==, SECOND);
        stop();
    }
}

static void test_idle(void)
{
    run_with(asleep_idle);
    g_assert_cmpint(w.sleeps, ==, 20);
}

/* Pages are counted in whole ones. */
static void assert_near(gint64 a, double b)
{
    g_assert_cmpint(a, >=, b - b / 50);
    g_assert_cmpint(a, <=, b + b / 50);
}

#define SETTLE 40               /* sleeps */

/*
 * A ring that is reaped was filled by at most half at the last look but one,
 * and a quarter of the rest came after that.  Looks cannot be so close to each
 * other at a very high rate: then a reap takes at least what comes in the
 * shortest interval.  Nor are there more looks than needed.
 */
static void assert_paced(double rate)
{
    KvmDirtyStats now = stats();
    uint64_t reaps = now.reaps - w.before.reaps;
    uint64_t pages = now.pages - w.before.pages;
    double most = HALF + HALF / 4.0 + 1;
    double least = CLAMP(SHORTEST * rate / SECOND - 1, 0, HALF);

    g_assert_cmpuint(now.ring_full_exits, ==, w.before.ring_full_exits);
    g_assert_cmpuint(pages, <=, reaps * most);
    g_assert_cmpuint(pages, >=, reaps * least);
    g_assert_cmpuint(reaps * 5, >=, SETTLE);
}

static const double rates[] = { 300, 1000, 17000, 100000, 600000, 5e6 };

/* The reaper finds the pace for each rate, after any other. */
static void asleep_rates(gint64 until)
{
    static const int order[] = { 0, 3, 1, 4, 2, 5, 0, 4, 5, 3 };

    if (!begun(until)) {
        return;
    }
    if (w.sleeps % (2 * SETTLE) == SETTLE) {
        w.before = stats();
    } else if (w.sleeps % (2 * SETTLE) == 0) {
        double rate = w.guests[0].rate * SECOND;

        if (rate * SHORTEST / SECOND > SIZE) {
            assert_near(interval(), SHORTEST);
        } else if (rate) {
            assert_paced(rate);
        }
        if (w.count == G_N_ELEMENTS(order)) {
            stop();
            return;
        }
        guest_rate(&w.guests[0], rates[order[w.count++]]);
    }
    guests_run(until);
}

static void test_rates(void)
{
    run_with(asleep_rates);
    g_assert_cmpint(w.sleeps, ==, 2 * SETTLE * 11);
}

/*
 * The ring can still take this rate for one interval.  The very next interval
 * is right: it fills a quarter of the free entries.
 */
static void asleep_shrink(gint64 until)
{
    if (!begun(until)) {
        return;
    }
    if (w.sleeps == SETTLE) {
        g_assert_cmpint(interval(), ==, SECOND);
        guest_rate(&w.guests[0], HALF / 2);
    } else if (w.sleeps == SETTLE + 1) {
        assert_near(interval(), SECOND * (1 - 0.25) * 0.25 / 0.25);
        g_assert_cmpuint(stats().ring_full_exits, ==, 0);
        g_assert_cmpuint(stats().reaps, ==, 0);
        stop();
    }
    guests_run(until);
}

static void test_shrinks_at_once(void)
{
    run_with(asleep_shrink);
    g_assert_cmpint(w.sleeps, ==, SETTLE + 1);
}

/*
 * The guest writes the same pages again and again, fewer than half a ring: it
 * faults once for each, and the reaper leaves the ring alone.
 */
static void asleep_working_set(gint64 until)
{
    uint64_t pages = MIN(w.sleeps * 8, HALF - 1);

    if (!begun(until)) {
        return;
    }
    rig_write_range(w.guests[0].vcpu, 0, 0, pages);
    g_assert_cmpuint(fake_vcpu_used(w.guests[0].vcpu->fake), ==, pages);
    g_assert_cmpuint(stats().reaps, ==, 0);
    if (w.sleeps == 2 * SETTLE) {
        g_assert_cmpint(interval(), ==, SECOND);
        stop();
    }
}

static void test_working_set(void)
{
    run_with(asleep_working_set);
}

/*
 * The other guest's rate does not matter, nor which guest comes first.  Its
 * pages stay in its ring until that is half full as well.
 */
static void asleep_fullest(gint64 until)
{
    Guest *slow = &w.guests[!w.seen];
    uint32_t used = fake_vcpu_used(slow->vcpu->fake);

    if (!begun(until)) {
        return;
    }
    if (w.sleeps == 2) {
        guest_rate(&w.guests[w.seen], 50000);
        guest_rate(slow, 2000);
    } else if (w.sleeps % SETTLE == 0 && w.before.reaps) {
        assert_paced(50000);
        if (w.sleeps == 8 * SETTLE) {
            stop();
        }
    }
    if (w.sleeps % SETTLE == 0) {
        w.before = stats();
    }
    if (used < w.count) {
        g_assert_cmpuint(w.count, >=, HALF);
    }
    guests_run(until);
    w.count = fake_vcpu_used(slow->vcpu->fake);
}

static void test_fullest(void)
{
    for (int i = 0; i < 2; i++) {
        world_new(asleep_fullest);
        w.seen = i;
        kvmd_reaper_run(w.rig->kvmd);
        g_assert_cmpint(w.sleeps, ==, 8 * SETTLE);
        world_free();
    }
}

/*
 * Pages that a sync takes from the rings count in the rate as well.  There is
 * a sync in the middle of each interval.  If the ring takes x in an interval,
 * it has x / 2 at the end: x = (1 - x / 2) / 4.
 */
static void asleep_sync(gint64 until)
{
    gint64 middle = w.now + (until - w.now) / 2;

    if (!begun(until)) {
        return;
    }
    if (w.sleeps == 2) {
        guest_rate(&w.guests[0], 5000);
    } else if (w.sleeps == SETTLE) {
        assert_near(interval(), SECOND * (2 / 9.0) * WHOLE / 5000);
        g_assert_cmpuint(stats().reaps, ==, 0);
        stop();
    }
    guests_run(middle);
    rig_sync(w.rig);
    guests_run(until);
}

static void test_sync_counts(void)
{
    run_with(asleep_sync);
}

/* Pages in a ring from before logging began anew do not count in the rate. */
static void asleep_anew(gint64 until)
{
    if (!begun(until)) {
        return;
    }
    if (w.sleeps == 2) {
        w.now += SHORTEST;
        rig_write_range(w.guests[0].vcpu, 0, 0, HALF / 2);
        rig_log(w.rig, 0, false);
        rig_log(w.rig, 0, true);
    } else if (w.sleeps == 4) {
        g_assert_cmpint(interval(), ==, 2 * SHORTEST);
        stop();
    }
}

static void test_begins_anew(void)
{
    run_with(asleep_anew);
    g_assert_cmpint(w.sleeps, ==, 4);
}

/*
 * A ring fills up.  The reaper, which meant to sleep for a second, is woken,
 * and looks again after a quarter of the time that filling took.
 */
static void asleep_hurry(gint64 until)
{
    if (!begun(until)) {
        return;
    }
    if (w.sleeps == SETTLE) {
        g_assert_cmpint(interval(), ==, SECOND);
        w.seen = w.now;
        guest_rate(&w.guests[0], 100000);
        guests_run(until);
        g_assert_cmpuint(stats().ring_full_exits, ==, 1);
        g_assert_true(w.signalled);
        g_assert_cmpint(interval(), ==, (w.now - w.seen) / 4);
    } else if (w.sleeps == SETTLE + 1) {
        g_assert_cmpint(until - w.now, ==, (w.now - w.seen) / 4);
        stop();
    }
}

static void test_hurry(void)
{
    run_with(asleep_hurry);
    g_assert_cmpint(w.sleeps, ==, SETTLE + 1);
}

/* A ring that fills again and again does not put off the next look. */
static void asleep_full_often(gint64 until)
{
    if (!begun(until)) {
        return;
    }
    if (w.sleeps == 2) {
        guest_rate(&w.guests[0], 8e6);
        w.seen = w.now;
    }
    guests_run(until);
    if (w.sleeps == SETTLE) {
        g_assert_cmpuint(stats().ring_full_exits, >, 10);
        g_assert_cmpuint(stats().reaps * SHORTEST * 2, >=, w.now - w.seen);
        stop();
    }
}

static void test_full_often(void)
{
    run_with(asleep_full_often);
}

/* Held, the reaper leaves rings alone, and a full one does not hurry it. */
static void asleep_held(gint64 until)
{
    FakeVcpu *v = w.guests[0].vcpu->fake;

    if (!begun(until)) {
        return;
    }
    if (w.sleeps == 2) {
        w.rig->held = true;
        rig_write_range(w.guests[0].vcpu, 0, 0, SIZE / 2);
        w.count = stats().reaps;
        w.resets = w.rig->fake->resets;
    } else if (w.sleeps < 6) {
        g_assert_cmpint(until - w.now, ==, SECOND);
        g_assert_cmpuint(w.rig->fake->resets, ==, w.resets);
        g_assert_cmpuint(fake_vcpu_used(v), ==, SIZE / 2);
    } else if (w.sleeps == 6) {
        rig_write_range(w.guests[0].vcpu, 0, SIZE, SIZE);
        g_assert_cmpuint(stats().ring_full_exits, ==, 1);
        g_assert_cmpint(interval(), ==, SECOND);
        g_assert_false(w.signalled);
        g_assert_cmpuint(fake_vcpu_used(v), >, 0);
        g_assert_cmpuint(stats().reaps, ==, w.count);
        w.rig->held = false;
    } else {
        g_assert_cmpuint(stats().reaps, ==, w.count + 1);
        g_assert_cmpuint(fake_vcpu_used(v), ==, 0);
        stop();
    }
}

static void test_held(void)
{
    run_with(asleep_held);
    g_assert_cmpint(w.sleeps, ==, 7);
}

/* The reaper reaps at each look, until the ring is no longer suspect. */
static void reaped_at_each_look(void)
{
    if (w.sleeps < 5) {
        g_assert_cmpuint(stats().overflows, >, 0);
        g_assert_cmpuint(stats().reaps, ==, w.sleeps - 2);
        rig_force(w.guests[0].vcpu, 0, w.sleeps);
    } else if (w.sleeps == 5) {
        w.count = stats().reaps;
    } else if (w.sleeps == SETTLE) {
        g_assert_cmpuint(stats().reaps, ==, w.count);
        stop();
    }
}

/* A few pages whose reset failed do not wait until the ring is half full. */
static void asleep_unreset(gint64 until)
{
    if (!begun(until)) {
        return;
    }
    if (w.sleeps == 2) {
        rig_write_range(w.guests[0].vcpu, 0, 0, 5);
        fake_fail(w.rig->fake, KVM_RESET_DIRTY_RINGS, EIO, 1);
        kvmd_sync(w.rig->kvmd);
        g_assert_cmpuint(fake_vcpu_used(w.guests[0].vcpu->fake), ==, 5);
        return;
    }
    if (w.sleeps == 3) {
        g_assert_cmpuint(fake_vcpu_used(w.guests[0].vcpu->fake), ==, 0);
    }
    reaped_at_each_look();
}

static void test_unreset(void)
{
    run_with(asleep_unreset);
}

static void overflow(void)
{
    w.rig->fake->soft_limit_off = true;
    for (int i = 0; i < SIZE + SIZE / 2; i++) {
        rig_force(w.guests[0].vcpu, 0, i);
    }
    w.rig->fake->soft_limit_off = false;
}

/* Nor do the pages of a ring that overflowed. */
static void asleep_overflowed(gint64 until)
{
    if (!begun(until)) {
        return;
    }
    if (w.sleeps == 2) {
        overflow();
    } else {
        reaped_at_each_look();
    }
}

static void test_overflowed(void)
{
    run_with(asleep_overflowed);
}

/* Nor do any pages while memory is to be re-armed after an overflow. */
static void asleep_not_rearmed(gint64 until)
{
    if (!begun(until)) {
        return;
    }
    if (w.sleeps == 2) {
        fake_fail(w.rig->fake, KVM_SET_USER_MEMORY_REGION, ENOMEM, -1);
        overflow();
    } else if (w.sleeps == SETTLE) {
        g_assert_cmpuint(stats().reaps, ==, SETTLE - 2);
        fake_fail(w.rig->fake, KVM_SET_USER_MEMORY_REGION, 0, 0);
    } else if (w.sleeps == SETTLE + 2) {
        g_assert_cmpuint(stats().reaps, ==, SETTLE - 1);
        stop();
    } else {
        /* These pages are still armed: the ring is no longer suspect. */
        rig_force(w.guests[0].vcpu, 0, PAGES - w.sleeps);
    }
}

static void test_not_rearmed(void)
{
    run_with(asleep_not_rearmed);
}

/* No look comes while no slot is logged; then the interval is shortest. */
static void asleep_toggle(gint64 until)
{
    bool logged = w.sleeps % 2 == 0;

    g_assert_cmpuint(stats().reaps, ==, 0);
    g_assert_cmpint(until != FOR_EVER, ==, logged);
    if (logged) {
        g_assert_cmpint(until - w.now, ==, SHORTEST);
        rig_log(w.rig, 0, false);
    } else if (w.sleeps > 10) {
        stop();
    } else {
        w.now += 1000 * SECOND;
        rig_log(w.rig, 0, true);
    }
}

static void test_unlogged(void)
{
    world_new(asleep_toggle);
    rig_add(w.rig, 0, PAGES, false);
    kvmd_reaper_run(w.rig->kvmd);
    g_assert_cmpint(w.sleeps, ==, 11);
    world_free();
}

/* Logging of one of two slots ends: the reaper stays awake. */
static void asleep_other(gint64 until)
{
    if (!begun(until)) {
        return;
    }
    g_assert_cmpint(until, !=, FOR_EVER);
    if (w.sleeps == 2) {
        rig_add(w.rig, 1, 10, true);
        rig_remove(w.rig, 0);
    } else {
        stop();
    }
}

static void test_other_logged(void)
{
    run_with(asleep_other);
    g_assert_cmpint(w.sleeps, ==, 3);
}

/* The reaper does not miss a slot that was logged before it started. */
static void asleep_late(gint64 until)
{
    g_assert_cmpint(until, !=, FOR_EVER);
    if (w.sleeps == 1) {
        rig_write_range(w.guests[0].vcpu, 0, 0, HALF);
    } else {
        g_assert_cmpuint(stats().reaps, ==, 1);
        stop();
    }
}

static void test_logged_before(void)
{
    world_new(asleep_late);
    rig_add(w.rig, 0, PAGES, true);
    kvmd_reaper_run(w.rig->kvmd);
    g_assert_cmpint(w.sleeps, ==, 2);
    world_free();
}

static void asleep_never(gint64 until)
{
    g_assert_cmpint(until, ==, -1);
}

static void test_stopped_before(void)
{
    world_new(asleep_never);
    rig_add(w.rig, 0, PAGES, true);
    stop();
    kvmd_reaper_run(w.rig->kvmd);
    g_assert_cmpuint(stats().reaps, ==, 0);
    world_free();
}

static void test_no_rings(void)
{
    Rig *r = rig_new_log(FAKE_MANUAL_CAPS);

    w.on = true;
    w.asleep = asleep_never;
    rig_add(r, 0, PAGES, true);
    kvmd_reaper_run(r->kvmd);
    w.on = false;
    rig_free(r);
}

/* With a thread and the real clock */

static void await_reaps(uint64_t reaps)
{
    gint64 start = g_get_monotonic_time();

    while (stats().reaps < reaps) {
        g_assert_cmpint(g_get_monotonic_time() - start, <, PATIENCE);
        g_usleep(SHORTEST);
    }
}

/*
 * Fill the ring until the reaper reaps all of it.  If the reaper comes before
 * all is written, it leaves the rest, and the ring is filled again.
 */
static void reaped(RigVcpu *v, uint64_t page)
{
    gint64 start = g_get_monotonic_time();

    do {
        uint64_t reaps = stats().reaps;

        g_assert_cmpint(g_get_monotonic_time() - start, <, PATIENCE);
        rig_write_range(v, 0, page, HALF);
        await_reaps(reaps + 1);
    } while (fake_vcpu_used(v->fake) != 0);
}

/* The reaper has had time for many looks. */
static void pause_a_while(void)
{
    g_usleep(SECOND / 10);
}

static void test_thread(void)
{
    uint64_t reaps;

    world_new(NULL);
    rig_reaper_start(w.rig);
    rig_add(w.rig, 0, PAGES, false);
    pause_a_while();
    g_assert_cmpuint(stats().reaps, ==, 0);
    for (int i = 0; i < 3; i++) {
        rig_log(w.rig, 0, true);
        reaped(w.guests[0].vcpu, 0);
        rig_log(w.rig, 0, false);
        reaps = stats().reaps;
        pause_a_while();
        g_assert_cmpuint(stats().reaps, ==, reaps);
    }
    rig_reaper_stop(w.rig);
    world_free();
}

/* The reaper wakes from a sleep without end, and from one with an end. */
static void test_thread_stops(void)
{
    for (int i = 0; i < 4; i++) {
        world_new(NULL);
        rig_reaper_start(w.rig);
        rig_add(w.rig, 0, PAGES, i & 1);
        if (i & 2) {
            pause_a_while();
        }
        rig_reaper_stop(w.rig);
        world_free();
    }
}

static void test_thread_held(void)
{
    FakeVcpu *v;

    world_new(NULL);
    v = w.guests[0].vcpu->fake;
    w.rig->held = true;
    rig_reaper_start(w.rig);
    rig_add(w.rig, 0, PAGES, true);
    rig_write_range(w.guests[0].vcpu, 0, 0, HALF);
    pause_a_while();
    g_assert_cmpuint(stats().reaps, ==, 0);
    g_assert_cmpuint(fake_vcpu_used(v), ==, HALF);
    __atomic_store_n(&w.rig->held, false, __ATOMIC_RELAXED);
    await_reaps(1);
    g_assert_cmpuint(fake_vcpu_used(v), ==, 0);
    rig_reaper_stop(w.rig);
    world_free();
}

/*
 * vCPUs come and go under the reaper, with the same ids.  KVM's indices go on,
 * and writes from before a vCPU went are published when it has gone.
 */
static void come_and_go(unsigned round)
{
    for (size_t i = 0; i < G_N_ELEMENTS(w.guests); i++) {
        RigVcpu *v = w.guests[i].vcpu;

        if ((round >> i) & 1) {
            continue;
        }
        if (!v->kvmd) {
            rig_vcpu_add(v);
        }
        rig_write_range(v, 0, round * 37 % 3000, round % 331);
        rig_vcpu_remove(v);
        g_assert_cmpuint(fake_vcpu_used(v->fake), ==, 0);
    }
}

static void reaped_while_here(RigVcpu *v)
{
    if (!v->kvmd) {
        rig_vcpu_add(v);
    }
    reaped(v, PAGES - HALF);
}

static void test_thread_vcpus(void)
{
    world_new(NULL);
    w.rig->strict = w.rig->exact = true;
    rig_reaper_start(w.rig);
    rig_add(w.rig, 0, PAGES, true);
    for (unsigned round = 0; round < 200; round++) {
        come_and_go(round);
        rig_check(w.rig);
        /* Logging that begins wakes the reaper. */
        rig_log(w.rig, 0, false);
        rig_log(w.rig, 0, true);
        if (round % 20 == 0) {
            reaped_while_here(w.guests[0].vcpu);
        }
    }
    for (size_t i = 0; i < G_N_ELEMENTS(w.guests); i++) {
        g_assert_cmpuint(w.guests[i].vcpu->fake->dirty_index, >, 4 * SIZE);
    }
    rig_check_exact(w.rig);
    g_assert_cmpuint(stats().overflows, ==, 0);
    rig_reaper_stop(w.rig);
    world_free();
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/reaper/idle", test_idle);
    g_test_add_func("/reaper/rates", test_rates);
    g_test_add_func("/reaper/shrinks-at-once", test_shrinks_at_once);
    g_test_add_func("/reaper/working-set", test_working_set);
    g_test_add_func("/reaper/fullest", test_fullest);
    g_test_add_func("/reaper/sync-counts", test_sync_counts);
    g_test_add_func("/reaper/begins-anew", test_begins_anew);
    g_test_add_func("/reaper/hurry", test_hurry);
    g_test_add_func("/reaper/full-often", test_full_often);
    g_test_add_func("/reaper/held", test_held);
    g_test_add_func("/reaper/unreset", test_unreset);
    g_test_add_func("/reaper/overflowed", test_overflowed);
    g_test_add_func("/reaper/not-rearmed", test_not_rearmed);
    g_test_add_func("/reaper/unlogged", test_unlogged);
    g_test_add_func("/reaper/other-logged", test_other_logged);
    g_test_add_func("/reaper/logged-before", test_logged_before);
    g_test_add_func("/reaper/stopped-before", test_stopped_before);
    g_test_add_func("/reaper/no-rings", test_no_rings);
    g_test_add_func("/reaper/thread", test_thread);
    g_test_add_func("/reaper/thread-stops", test_thread_stops);
    g_test_add_func("/reaper/thread-held", test_thread_held);
    g_test_add_func("/reaper/thread-vcpus", test_thread_vcpus);
    return g_test_run();
}
