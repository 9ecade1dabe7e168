/*
 * Shares of vCPUs, rule by rule, and with vCPUs that behave as they should.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <math.h>

#include "vcpu-shares.h"

#define MANY 64

/* Changes are as large as they like. */
static const VcpuShareBounds unbound = {
    .least = 1e-6, .step = 1, .growth = INFINITY,
};

static void expect(double found, double wanted)
{
    g_assert_cmpfloat_with_epsilon(found, wanted, 1e-9);
}

/* vCPUs that ran all of the time for @seconds, and wrote so much per second. */
static void ran_freely(VcpuShare *vcpus, const double *rates, size_t n,
                       double seconds)
{
    for (size_t i = 0; i < n; i++) {
        vcpus[i] = (VcpuShare) {
            .run = 1, .ran = seconds, .writes = rates[i] * seconds,
        };
    }
}

/* Who does not write, or less than others, is left alone. */
static void test_who(void)
{
    const double rates[] = { 0, 100, 1000, 3000 };
    VcpuShare vcpus[4];

    /* 2,050 are to be left: 100 of one, and 975 of each of the others. */
    ran_freely(vcpus, rates, 4, 2);
    vcpu_shares_steer(vcpus, 4, 2, 8200, 4100, &unbound);
    expect(vcpus[0].run, 1);
    expect(vcpus[1].run, 1);
    expect(vcpus[2].run, 0.975);
    expect(vcpus[3].run, 0.325);
}

/* As long as too little is written, all may run. */
static void test_let_go(void)
{
    const VcpuShareBounds bounds = { .least = 0.01, .step = 1, .growth = 1.5 };
    VcpuShare vcpu = { .run = 0.4, .ran = 0.4, .writes = 7 };

    vcpu_shares_steer(&vcpu, 1, 1, 7, 70, &bounds);
    expect(vcpu.run, 0.6);
    vcpu_shares_steer(&vcpu, 1, 1, 0, 0, &bounds);
    expect(vcpu.run, 0.9);
    vcpu_shares_steer(&vcpu, 1, 1, 0, 0, &bounds);
    expect(vcpu.run, 1);
}

/* A vCPU that slept half of the time would have written twice as much. */
static void test_asleep(void)
{
    VcpuShare vcpus[2] = {
        { .run = 0.5, .ran = 5, .writes = 500 },
        { .run = 1, .ran = 10, .writes = 500 },
    };

    /* 100 and 50 per second, of which 50 and 50 were, and 80 may be. */
    vcpu_shares_steer(vcpus, 2, 10, 1000, 800, &unbound);
    expect(vcpus[0].run, 0.4);
    expect(vcpus[1].run, 0.8);
}

static void test_nobody_knows(void)
{
    VcpuShare vcpus[2] = {
        { .run = 0.5, .ran = 0.5 }, { .run = 0.5, .ran = 0.5 },
    };

    vcpu_shares_steer(vcpus, 2, 1, 1000, 500, &unbound);
    expect(vcpus[0].run, 0.25);
    expect(vcpus[1].run, 0.25);
}

/* The same where a part of half is asked for. */
static const VcpuShareBounds half = {
    .known = 0.5, .least = 1e-6, .step = 1, .growth = INFINITY,
};

/*
 * Of 1,000 pages, of which 250 may be written, @known are known to be those of
 * the second vCPU.  The first one does not write, and is to run for @idle.
 */
static void expect_idle(double known, const VcpuShareBounds *bounds,
                        double idle)
{
    const double rates[] = { 0, known };
    VcpuShare vcpus[2];

    ran_freely(vcpus, rates, 2, 1);
    vcpu_shares_steer(vcpus, 2, 1, 1000, 250, bounds);
    expect(vcpus[0].run, idle);
    expect(vcpus[1].run, 0.25);
}

/* A few faults of one vCPU do not tell who has written all that was found. */
static void test_few_are_known(void)
{
    expect_idle(499, &half, 0.25);
    expect_idle(499, &unbound, 1);
}

/* What devices write does not count against vCPUs that do not. */
static void test_most_are_known(void)
{
    expect_idle(501, &half, 1);
}

static void test_bounds(void)
{
    const VcpuShareBounds bounds = { .least = 0.1, .step = 0.2, .growth = 2 };
    const double rate = 1000;
    VcpuShare vcpu;

    ran_freely(&vcpu, &rate, 1, 1);
    vcpu_shares_steer(&vcpu, 1, 1, 1000, 10, &bounds);
    expect(vcpu.run, 0.8);
    for (int i = 0; i < 3; i++) {
        vcpu_shares_steer(&vcpu, 1, 1, 1000, 10, &bounds);
    }
    expect(vcpu.run, 0.2);
    vcpu_shares_steer(&vcpu, 1, 1, 1000, 10, &bounds);
    expect(vcpu.run, 0.1);
}

static void test_age(void)
{
    VcpuShare vcpus[2] = {
        { .run = 0.5, .ran = 8, .writes = 100 },
        { .run = 1, .ran = 16, .writes = 10 },
    };

    vcpu_shares_age(vcpus, 2, 2, 0.25);
    expect(vcpus[0].ran, 3);
    expect(vcpus[0].writes, 25);
    expect(vcpus[0].run, 0.5);
    expect(vcpus[1].ran, 6);
    expect(vcpus[1].writes, 2.5);
}

/*
 * Any number of vCPUs, of which each would write as much as it likes: soon they
 * write what they may in all, and who is slowed down writes as much as any.
 */
static void test_steady(void)
{
    const VcpuShareBounds bounds = {
        .least = 1e-6, .step = 0.1, .growth = 1.2,
    };
    size_t n = g_test_rand_int_range(1, MANY + 1);
    double demand[MANY], may, all = 0, wrote = 0, most = 0, elapsed = 0;
    VcpuShare vcpus[MANY] = {};

    for (size_t i = 0; i < n; i++) {
        demand[i] = g_test_rand_int_range(0, 3) ? g_test_rand_double() * 1e6 : 0;
        all += demand[i];
        vcpus[i].run = 1;
    }
    may = 1 + all * g_test_rand_double_range(0.02, 1.2);
    for (int step = 0; step < 400; step++) {
        elapsed = elapsed * 0.8 + 0.1;
        vcpu_shares_age(vcpus, n, 0.1, 0.8);
        wrote = 0;
        for (size_t i = 0; i < n; i++) {
            vcpus[i].writes += demand[i] * vcpus[i].run * 0.1;
            wrote += vcpus[i].writes;
        }
        vcpu_shares_steer(vcpus, n, elapsed, wrote, may * elapsed, &bounds);
    }
    wrote = 0;
    for (size_t i = 0; i < n; i++) {
        wrote += demand[i] * vcpus[i].run;
        most = MAX(most, demand[i] * vcpus[i].run);
    }
    g_assert_cmpfloat_with_epsilon(wrote, MIN(all, may), 1 + may * 1e-3);
    for (size_t i = 0; i < n; i++) {
        if (vcpus[i].run < 0.999) {
            g_assert_cmpfloat(demand[i] * vcpus[i].run, >, most * 0.99);
        }
    }
}

static void test_any_guest(void)
{
    for (int i = 0; i < 200; i++) {
        test_steady();
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/vcpu-shares/who", test_who);
    g_test_add_func("/vcpu-shares/let-go", test_let_go);
    g_test_add_func("/vcpu-shares/asleep", test_asleep);
    g_test_add_func("/vcpu-shares/nobody-knows", test_nobody_knows);
    g_test_add_func("/vcpu-shares/few-are-known", test_few_are_known);
    g_test_add_func("/vcpu-shares/most-are-known", test_most_are_known);
    g_test_add_func("/vcpu-shares/bounds", test_bounds);
    g_test_add_func("/vcpu-shares/age", test_age);
    g_test_add_func("/vcpu-shares/any-guest", test_any_guest);
    return g_test_run();
}
