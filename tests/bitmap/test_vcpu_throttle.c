/*
 * vCPUs that run part of the time, by clocks that stand still.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"

#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "migration/threads.h"
#include "sysemu/cpus.h"
#include "sysemu/vcpu-throttle.h"

#define N 3

struct QEMUTimer {
    QEMUTimerCB *tick;
    bool pending;
    int64_t expires;
};

struct QemuCond {
    unsigned int wakes;
};

CPUState *cpus;

static CPUState cpu[N];
static QemuCond cond[N];
static QEMUTimer timer;
static int64_t now;             /* both clocks; the guest is not stopped */
static bool locked = true;
static int64_t slept;           /* since run() */
static void (*asleep)(void);    /* what happens while a vCPU sleeps; once */

/* The one thing that a vCPU is asked to do. */
static struct {
    run_on_cpu_func func;
    CPUState *cpu;
    run_on_cpu_data data;
    unsigned int times;
} asked;

static bool may_slow = true;
static bool others_ask;         /* the vCPU to do something, too */
static int64_t done_after;      /* how much of its sleep */

int64_t qemu_clock_get_ns(QEMUClockType type)
{
    return now;
}

QEMUTimer *timer_new_ns(QEMUClockType type, QEMUTimerCB *cb, void *opaque)
{
    g_assert_cmpint(type, ==, QEMU_CLOCK_VIRTUAL_RT);
    timer.tick = cb;
    return &timer;
}

void timer_mod(QEMUTimer *t, int64_t expires)
{
    t->pending = true;
    t->expires = expires;
}

void timer_del(QEMUTimer *t)
{
    t->pending = false;
}

bool timer_pending(QEMUTimer *t)
{
    return t->pending;
}

void async_run_on_cpu(CPUState *one, run_on_cpu_func func,
                      run_on_cpu_data data)
{
    asked.func = func;
    asked.cpu = one;
    asked.data = data;
    asked.times++;
}

bool migration_may_slow_vcpus(void)
{
    return may_slow;
}

bool cpu_work_list_empty(CPUState *one)
{
    return !others_ask;
}

void process_queued_cpu_work(CPUState *one)
{
    g_assert_true(locked && others_ask);
    others_ask = false;
    done_after = slept;
}

void qemu_mutex_lock_iothread(void)
{
    g_assert_false(locked);
    locked = true;
}

void qemu_mutex_unlock_iothread(void)
{
    g_assert_true(locked);
    locked = false;
}

static void pass(int64_t ns)
{
    now += ns;
    slept += ns;
    if (asleep) {
        void (*happens)(void) = asleep;

        asleep = NULL;
        happens();
    }
}

/* Somebody wakes the vCPU up after half of the time, for no reason. */
void qemu_cond_timedwait_iothread(QemuCond *one, int ms)
{
    g_assert_true(locked);
    pass(MAX(ms / 2, 1) * (int64_t)SCALE_MS);
}

void test_usleep(gulong microseconds)
{
    g_assert_false(locked);
    pass((int64_t)MAX(microseconds, 1) * SCALE_US);
}

void qemu_cond_broadcast(QemuCond *one)
{
    one->wakes++;
}

/* Three vCPUs that have always run. */
static void start(void)
{
    vcpu_throttle_stop();
    for (size_t i = 0; i < N; i++) {
        cond[i].wakes = 0;
        cpu[i] = (CPUState) {
            .created = true, .halt_cond = &cond[i],
            .next = i + 1 < N ? &cpu[i + 1] : NULL,
        };
    }
    cpus = &cpu[0];
    asked.times = 0;
    asleep = NULL;
}

/* Let @ns go by for the timer. */
static void run(int64_t ns)
{
    int64_t end = now + ns;

    slept = 0;
    while (timer.pending && timer.expires <= end) {
        now = MAX(now, timer.expires);
        timer.pending = false;
        timer.tick(NULL);
    }
    now = MAX(now, end);
}

static void sleeps(void)
{
    g_assert_cmpuint(asked.times, ==, 1);
    asked.times = 0;
    asked.func(asked.cpu, asked.data);
}

/* It runs for its part of a period, and sleeps for the rest. */
static void test_part(void)
{
    start();
    vcpu_throttle_set(&cpu[1], 0.4);
    run(5 * SCALE_MS);
    g_assert_cmpuint(asked.times, ==, 0);
    run(5 * SCALE_MS);
    g_assert_cmpuint(asked.times, ==, 1);
    g_assert_true(asked.cpu == &cpu[1]);
    sleeps();
    g_assert_cmpint(slept, ==, 15 * SCALE_MS);
    /* What it has slept does not count as time for which it ran. */
    run(9 * SCALE_MS);
    g_assert_cmpuint(asked.times, ==, 0);
    run(6 * SCALE_MS);
    sleeps();
}

/* It sleeps for as much longer as it came late to do so. */
static void test_late(void)
{
    start();
    vcpu_throttle_set(&cpu[0], 0.5);
    run(15 * SCALE_MS);
    now += 25 * SCALE_MS;
    slept = 0;
    sleeps();
    g_assert_cmpint(slept, ==, 40 * SCALE_MS);

    vcpu_throttle_set(&cpu[0], 0.01);
    run(100 * SCALE_MS);
    slept = 0;
    sleeps();
    g_assert_cmpint(slept, ==, VCPU_THROTTLE_NAP_MAX_NS);
}

/* Nobody asks it twice before it has slept. */
static void test_asked_once(void)
{
    start();
    vcpu_throttle_set(&cpu[2], 0.2);
    run(200 * SCALE_MS);
    g_assert_cmpuint(asked.times, ==, 1);
}

static void stop_it(void)
{
    cpu[0].stop = true;
}

static void let_it_go(void)
{
    vcpu_throttle_set(&cpu[0], 1);
}

/* A vCPU that is asked to stop, or let go, does not sleep on. */
static void test_wakes_up(void)
{
    void (*const events[])(void) = { stop_it, let_it_go, vcpu_throttle_stop };

    for (size_t i = 0; i < G_N_ELEMENTS(events); i++) {
        start();
        vcpu_throttle_set(&cpu[0], 0.1);
        run(20 * SCALE_MS);
        slept = 0;
        asleep = events[i];
        sleeps();
        g_assert_null(asleep);
        g_assert_cmpint(slept, <, 100 * SCALE_MS);
        g_assert_cmpuint(cond[0].wakes, ==, events[i] != stop_it);
    }
}

static void somebody_asks(void)
{
    others_ask = true;
}

/* The first one has run for 20 ms, and is to sleep for 180. */
static void start_and_run(void)
{
    start();
    vcpu_throttle_set(&cpu[0], 0.1);
    run(20 * SCALE_MS);
    slept = 0;
}

/* What others ask for does not wait, and takes nothing off the sleep. */
static void test_others_first(void)
{
    start_and_run();
    asleep = somebody_asks;
    sleeps();
    g_assert_cmpint(done_after, ==, 90 * SCALE_MS);
    g_assert_cmpint(slept, ==, 180 * SCALE_MS);
    /* Nor if they have asked before it fell asleep. */
    run(20 * SCALE_MS);
    others_ask = true;
    slept = 0;
    sleeps();
    g_assert_cmpint(done_after, ==, 0);
    g_assert_cmpint(slept, >, 0);
}

/* Who waits is told after the last thing that it is asked for. */
static void test_others_before(void)
{
    start();
    vcpu_throttle_set(&cpu[0], 0.1);
    others_ask = true;
    run(20 * SCALE_MS);
    g_assert_cmpuint(asked.times, ==, 0);
    others_ask = false;
    run(6 * SCALE_MS);
    g_assert_cmpuint(asked.times, ==, 1);
}

/* It stopped before it could fall asleep. */
static void test_stopped(void)
{
    start_and_run();
    cpu[0].stopped = true;
    sleeps();
    g_assert_cmpint(slept, ==, 0);
}

/* One that was let go, and is slowed down again, does not sleep twice. */
static void test_asked_before(void)
{
    start_and_run();
    let_it_go();
    vcpu_throttle_set(&cpu[0], 0.1);
    now += 20 * SCALE_MS;
    slept = 0;
    sleeps();
    g_assert_cmpint(slept, ==, 0);
}

/* The migration has failed, and its thread, which slowed them down, is stuck. */
static void test_nobody_lets_go(void)
{
    start_and_run();
    may_slow = false;
    run(20 * SCALE_MS);
    may_slow = true;
    g_assert_cmpint(vcpu_throttle_most(), ==, 0);
    g_assert_cmpuint(cond[0].wakes, ==, 1);
    g_assert_false(timer.pending);
}

/* Those that are let go are not asked any more. */
static void test_let_go(void)
{
    start();
    vcpu_throttle_set(&cpu[0], 0.5);
    vcpu_throttle_set(&cpu[1], 0.7);
    g_assert_cmpint(vcpu_throttle_most(), ==, 50);
    vcpu_throttle_set(&cpu[0], 1);
    g_assert_cmpint(vcpu_throttle_most(), ==, 30);
    vcpu_throttle_set(&cpu[1], 1);
    g_assert_cmpint(vcpu_throttle_most(), ==, 0);
    run(100 * SCALE_MS);
    g_assert_cmpuint(asked.times, ==, 0);
    g_assert_false(timer.pending);

    vcpu_throttle_set(&cpu[0], 0.5);
    vcpu_throttle_stop();
    g_assert_cmpint(vcpu_throttle_most(), ==, 0);
    g_assert_false(timer.pending);
}

/* Its thread is about to end, and must not get a signal. */
static void test_leaves(void)
{
    start();
    vcpu_throttle_set(&cpu[0], 0.2);
    cpu[0].created = false;
    run(VCPU_THROTTLE_PERIOD_NS);
    g_assert_cmpuint(asked.times, ==, 0);
}

/* A vCPU that has gone is not the one that is slowed down most. */
static void test_unplugged(void)
{
    start();
    vcpu_throttle_set(&cpu[0], 0.8);
    vcpu_throttle_set(&cpu[1], 0.1);
    g_assert_cmpint(vcpu_throttle_most(), ==, 90);
    cpu[0].next = &cpu[2];
    g_assert_cmpint(vcpu_throttle_most(), ==, 20);
    run(25 * SCALE_MS);
    g_assert_cmpuint(asked.times, ==, 1);
    g_assert_true(asked.cpu == &cpu[0]);
}

/* A vCPU that was asked to sleep, and never will, leaves nothing to the next. */
static void test_plugged_again(void)
{
    start();
    vcpu_throttle_set(&cpu[0], 0.8);
    vcpu_throttle_set(&cpu[1], 0.1);
    run(5 * SCALE_MS);
    g_assert_true(asked.times == 1 && asked.cpu == &cpu[1]);
    cpu[0].next = &cpu[2];
    run(5 * SCALE_MS);
    cpu[0].next = &cpu[1];
    g_assert_cmpint(vcpu_throttle_most(), ==, 20);
    asked.times = 0;
    vcpu_throttle_set(&cpu[1], 0.1);
    run(5 * SCALE_MS);
    g_assert_cmpuint(asked.times, ==, 1);
    g_assert_true(asked.cpu == &cpu[1]);
}

int main(int argc, char *argv[])
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/vcpu_throttle/part", test_part);
    g_test_add_func("/vcpu_throttle/late", test_late);
    g_test_add_func("/vcpu_throttle/asked-once", test_asked_once);
    g_test_add_func("/vcpu_throttle/wakes-up", test_wakes_up);
    g_test_add_func("/vcpu_throttle/others-first", test_others_first);
    g_test_add_func("/vcpu_throttle/others-before", test_others_before);
    g_test_add_func("/vcpu_throttle/stopped", test_stopped);
    g_test_add_func("/vcpu_throttle/asked-before", test_asked_before);
    g_test_add_func("/vcpu_throttle/nobody-lets-go", test_nobody_lets_go);
    g_test_add_func("/vcpu_throttle/let-go", test_let_go);
    g_test_add_func("/vcpu_throttle/leaves", test_leaves);
    g_test_add_func("/vcpu_throttle/unplugged", test_unplugged);
    g_test_add_func("/vcpu_throttle/plugged-again", test_plugged_again);
    return g_test_run();
}
