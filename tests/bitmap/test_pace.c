/*
 * The pace of a migration: rates, bad periods, and what may remain at the stop.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <math.h>

#include "pace.h"

#define HALF 0.5
#define PAGE 4096.0

static void expect(double found, double wanted)
{
    g_assert_cmpfloat_with_epsilon(found, wanted, 1e-6);
}

/* Of 1,000 pages, 400 are sent in 2 s, and 100 become dirty. */
static void test_rates(void)
{
    Pace pace = { 0 };

    pace_count_from(&pace, 10, 1000, 50);
    g_assert_true(pace_count(&pace, 12, 700, 450, HALF));
    expect(pace.sent_per_second, 200);
    expect(pace.written_per_second, 50);
    expect(pace_excess(&pace, HALF), 0.5);
    /* The next period begins where the last has ended. */
    g_assert_true(pace_count(&pace, 13, 700, 550, HALF));
    expect(pace.sent_per_second, 100);
    expect(pace.written_per_second, 100);
    expect(pace_excess(&pace, HALF), 2);
}

/* Free page hints take pages that were never sent from those that remain. */
static void test_pages_that_need_not_be_sent(void)
{
    Pace pace = { 0 };

    pace_count_from(&pace, 0, 1000, 0);
    g_assert_true(pace_count(&pace, 1, 100, 100, HALF));
    expect(pace.written_per_second, 0);
}

/* Nothing was sent, as while the bandwidth limit has the thread sleep. */
static void test_nothing_sent(void)
{
    Pace pace = { 0 };

    g_assert_true(isinf(pace_excess(&pace, HALF)));
    pace_count_from(&pace, 0, 1000, 0);
    g_assert_false(pace_count(&pace, 1, 1200, 0, HALF));
    g_assert_true(pace_count(&pace, 2, 1200, 100, HALF));
    expect(pace.sent_per_second, 50);
    expect(pace.written_per_second, 150);
    g_assert_false(pace_count(&pace, 2, 1200, 200, HALF));
}

/* Rounds may be as short as they like. */
static void test_too_short(void)
{
    Pace pace = { 0 };

    pace_count_from(&pace, 0, 1000, 0);
    g_assert_false(pace_count(&pace, 0.04, 1000, 60, HALF));
    g_assert_true(pace_count(&pace, 0.08, 1000, 80, HALF));
    expect(pace.sent_per_second, 1000);
}

static void test_bad_periods(void)
{
    Pace pace = { 0 };

    pace_count_from(&pace, 0, 1000, 0);
    pace_count(&pace, 1, 950, 100, HALF);
    g_assert_cmpuint(pace.bad_periods, ==, 0);
    pace_count(&pace, 2, 901, 200, HALF);
    pace_count(&pace, 3, 901, 300, HALF);
    g_assert_cmpuint(pace.bad_periods, ==, 2);
    /* A period in which nothing was sent is not one. */
    pace_count(&pace, 4, 2000, 300, HALF);
    g_assert_cmpuint(pace.bad_periods, ==, 2);
    pace_count(&pace, 5, 1, 400, HALF);
    g_assert_cmpuint(pace.bad_periods, ==, 0);
}

/* 100 ms: 10 for the devices, 15 for the sync, 50 pages of 1,000 a second. */
static void test_stop_size(void)
{
    const Pace pace = {
        .remaining = 300, .written_per_second = 1000, .sent_per_second = 10000,
    };
    const PaceSync sync = { .all = 0.050, .locked = 0.015 };
    const double size = 0.100 * 10000 * PAGE;

    expect(pace_stop_size(&pace, &sync, size, 0, 0.100, PAGE), 700 * PAGE);
    expect(pace_stop_seconds(&pace, &sync, 10000 * PAGE, 0, PAGE),
           0.010 + 0.015 + 0.035);
}

/* Pages that compress to a quarter, and 100 KiB of something that does not. */
static void test_needed_limit(void)
{
    const Pace pace = {
        .remaining = 300, .written_per_second = 1000, .sent_per_second = 10000,
    };
    const PaceSync sync = { .all = 0.050, .locked = 0.015 };
    const double bandwidth = 2500 * PAGE, others = 25 * PAGE;
    double limit = pace_stop_seconds(&pace, &sync, bandwidth, others, PAGE);

    expect(limit, 0.010 + 0.015 + 0.150);
    expect(pace_stop_size(&pace, &sync, bandwidth * limit, others, limit, PAGE),
           300 * PAGE + others);
}

/* 5 ms are collected ahead, thrice before the stop; it waits 3 ms for the BQL. */
static void test_sync(void)
{
    const PaceSync sync = pace_sync(7, 7.005, 7.008, 7.028);

    expect(sync.all, 0.038);
    expect(sync.locked, 0.020);
}

/* Pages that remain have half of the limit, however long all else takes. */
static void test_least(void)
{
    const Pace fast = { .written_per_second = 1e9, .sent_per_second = 1000 };
    const Pace still = { .sent_per_second = 1000 };
    const PaceSync slow = { .all = 2, .locked = 1 }, at_once = { 0 };

    expect(pace_stop_size(&still, &slow, 4000, 0, 0.100, PAGE), 2000);
    expect(pace_stop_size(&fast, &slow, 4000, 0, 10, PAGE), 2000);
    expect(pace_stop_size(&still, &at_once, 4000, 0, 0.001, PAGE), 2000);
    expect(pace_stop_size(&still, &at_once, 0, 0, 0, PAGE), 0);
    /* What others leave is divided, not what they need. */
    expect(pace_stop_size(&still, &at_once, 4000, 3000, 0.001, PAGE), 3500);
    expect(pace_stop_size(&still, &at_once, 4000, 4000, 0.001, PAGE), 4000);
}

static double stop_size_of_1000(const Pace *pace)
{
    const PaceSync sync = { 0 };

    return pace_stop_size(pace, &sync, 1000, 0, 0.100, PAGE);
}

/* A guest that always has what would fit, but for what is kept for all else. */
static void test_near(void)
{
    Pace pace = { 0 };

    for (int i = 0; i < PACE_NEAR; i++) {
        expect(stop_size_of_1000(&pace), 900);
        pace_found(&pace, i % 2 ? 999 : 900, 900, 1000, PACE_NEAR);
    }
    expect(stop_size_of_1000(&pace), 1000);
    pace_found(&pace, 899, 900, 1000, PACE_NEAR);
    expect(stop_size_of_1000(&pace), 900);
    /* With bursts. */
    for (int i = 0; i < PACE_NEAR; i++) {
        pace_found(&pace, 1000, 900, 1000, PACE_NEAR);
        expect(stop_size_of_1000(&pace), 900);
        pace_found(&pace, 950, 900, 1000, PACE_NEAR);
    }
    expect(stop_size_of_1000(&pace), 1000);
    /* There is more patience with vCPUs that are slowed down. */
    pace_found(&pace, 950, 900, 1000, PACE_NEAR_STEERED);
    expect(stop_size_of_1000(&pace), 900);
}

/* A fifth of the time, and not more often than 20 times a second. */
static void test_again(void)
{
    expect(pace_again(7, 7), 7.050);
    expect(pace_again(7, 7.010), 7.050);
    expect(pace_again(7, 7.100), 7.500);
}

/* Before anything was counted only what is known counts. */
static void test_unknown(void)
{
    const Pace pace = { 0 };
    const PaceSync sync = { 0 };

    expect(pace_stop_size(&pace, &sync, 1000, 0, 0.100, PAGE), 900);
    expect(pace_stop_seconds(&pace, &sync, 0, 0, PAGE), 0);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/pace/rates", test_rates);
    g_test_add_func("/pace/pages-that-need-not-be-sent",
                    test_pages_that_need_not_be_sent);
    g_test_add_func("/pace/nothing-sent", test_nothing_sent);
    g_test_add_func("/pace/too-short", test_too_short);
    g_test_add_func("/pace/bad-periods", test_bad_periods);
    g_test_add_func("/pace/stop-size", test_stop_size);
    g_test_add_func("/pace/needed-limit", test_needed_limit);
    g_test_add_func("/pace/sync", test_sync);
    g_test_add_func("/pace/least", test_least);
    g_test_add_func("/pace/near", test_near);
    g_test_add_func("/pace/again", test_again);
    g_test_add_func("/pace/unknown", test_unknown);
    return g_test_run();
}
