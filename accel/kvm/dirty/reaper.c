/*
 * When the rings are reaped, if nobody asks for it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A ring that fills up stops its vCPU; a ring that is reaped too often costs
 * a TLB flush each time.  So each pass looks at how full the fullest ring
 * got, and sets the time to the next pass such that it would get FILL_TARGET
 * full at the same rate.
 */

#include "engine.h"

/*
 * A quarter: the rate may quadruple within one interval before a vCPU has to
 * stop and reap for itself.
 */
#define FILL_TARGET 0.25

/* Shorter than this the wake-ups cost more than the exits they save. */
#define INTERVAL_MIN 250                    /* microseconds */

/* The stock reaper's only interval.  Nothing depends on it. */
#define INTERVAL_MAX G_TIME_SPAN_SECOND

/* Slow down by doubling, so that a pause in the writing is no surprise. */
#define INTERVAL_GROWTH 2

static int64_t interval_after(int64_t interval, int64_t elapsed, double fill)
{
    double next = interval * INTERVAL_GROWTH;

    if (fill > 0) {
        next = MIN(next, elapsed * FILL_TARGET / fill);
    }
    return CLAMP(next, INTERVAL_MIN, INTERVAL_MAX);
}

static void pass(KvmDirty *kvmd)
{
    int64_t now = g_get_monotonic_time();

    kvmd_ring_reap(kvmd, NULL);
    kvmd->reaper_interval = interval_after(kvmd->reaper_interval,
                                           now - kvmd->reaper_last,
                                           kvmd_ring_take_fill(kvmd));
    kvmd->reaper_last = now;
    kvmd->stats.reaps++;
}

static bool held(KvmDirty *kvmd)
{
    return kvmd->vmm.reaper_held && kvmd->vmm.reaper_held(kvmd->opaque);
}

/* Sleep until the next pass is due; it may come to be due earlier meanwhile. */
static void sleep_until_due(KvmDirty *kvmd)
{
    while (!kvmd->reaper_stop) {
        int64_t due = kvmd->reaper_last + kvmd->reaper_interval;

        if (!kvmd->stats.logged_slots) {
            g_cond_wait(&kvmd->reaper_wake, &kvmd->lock);
        } else if (g_get_monotonic_time() >= due) {
            return;
        } else {
            g_cond_wait_until(&kvmd->reaper_wake, &kvmd->lock, due);
        }
    }
}

void kvmd_reaper_run(KvmDirty *kvmd)
{
    g_mutex_lock(&kvmd->lock);
    while (kvmd->ring_size && !kvmd->reaper_stop) {
        sleep_until_due(kvmd);
        if (kvmd->reaper_stop) {
            break;
        }
        if (held(kvmd)) {
            kvmd->reaper_interval = INTERVAL_MAX;
            kvmd->reaper_last = g_get_monotonic_time();
        } else {
            pass(kvmd);
        }
    }
    g_mutex_unlock(&kvmd->lock);
}

void kvmd_reaper_stop(KvmDirty *kvmd)
{
    g_mutex_lock(&kvmd->lock);
    kvmd->reaper_stop = true;
    g_cond_signal(&kvmd->reaper_wake);
    g_mutex_unlock(&kvmd->lock);
}

void kvmd_reaper_kick(KvmDirty *kvmd)
{
    if (!kvmd->ring_size) {
        return;
    }
    kvmd->reaper_interval = INTERVAL_MIN;
    kvmd->reaper_last = g_get_monotonic_time();
    g_cond_signal(&kvmd->reaper_wake);
}

/*
 * A ring took no longer than since the last pass to fill: the next pass
 * belongs a FILL_TARGET of that after now.
 */
void kvmd_reaper_hurry(KvmDirty *kvmd)
{
    int64_t elapsed = g_get_monotonic_time() - kvmd->reaper_last;
    int64_t wanted = MAX(elapsed * FILL_TARGET, INTERVAL_MIN);

    if (wanted < kvmd->reaper_interval && !held(kvmd)) {
        kvmd->reaper_interval = wanted;
        kvmd->reaper_last += elapsed;
        kvmd_ring_take_fill(kvmd);
        g_cond_signal(&kvmd->reaper_wake);
    }
}
