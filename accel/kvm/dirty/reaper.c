/*
 * When the rings are reaped, if nobody asks for it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A ring that fills up stops its vCPU.  A ring that is reaped too early has
 * the guest fault once more for each page that it writes again before the next
 * sync: pages in a ring are not armed and cost nothing.  So the reaper only
 * looks how full the rings are, as often as their growth demands, and reaps
 * those that have come to REAP_FILL.
 */

#include "engine.h"

/* A working set of half a ring is never reaped but by a sync. */
#define REAP_FILL 0.5

/*
 * The next look comes when this part of what is free will be filled: the rate
 * may quadruple meanwhile before a vCPU has to stop and reap for itself.
 */
#define LOOK_FILL 0.25

/* Shorter than this the wake-ups cost more than the exits they save. */
#define INTERVAL_MIN 250                    /* microseconds */

/* The stock reaper's only interval.  Nothing depends on it. */
#define INTERVAL_MAX G_TIME_SPAN_SECOND

/* Slow down by doubling, so that a pause in the writing is no surprise. */
#define INTERVAL_GROWTH 2

/* Until the next look, with rings filled by @most, that grew so in @elapsed. */
static double reaper_look_after(int64_t interval, int64_t elapsed,
                                double grown, double most)
{
    double next = interval * INTERVAL_GROWTH;

    if (grown > 0) {
        next = MIN(next, elapsed * LOOK_FILL * (1 - most) / grown);
    }
    return next;
}

static void reaper_set_interval(KvmDirty *kvmd, int64_t now, double interval)
{
    kvmd->reaper_interval = CLAMP(interval, INTERVAL_MIN, INTERVAL_MAX);
    kvmd->reaper_last = now;
}

/* Nothing before @now tells how fast the rings fill. */
static void reaper_start_anew(KvmDirty *kvmd, int64_t now, double interval)
{
    kvmd->ops->look(kvmd);
    reaper_set_interval(kvmd, now, interval);
}

static void reaper_look(KvmDirty *kvmd)
{
    int64_t now = g_get_monotonic_time();
    int64_t interval = kvmd->reaper_interval;
    int64_t elapsed = now - kvmd->reaper_last;
    KvmDirtyFill fill = kvmd->ops->look(kvmd);
    double next = reaper_look_after(interval, elapsed, fill.grown, fill.most);
    /* If a ring is too fast for another look, now is the time. */
    double least = next < INTERVAL_MIN ? 0 : REAP_FILL;

    if (fill.most >= least) {
        kvmd->ops->reap(kvmd, least);
        next = reaper_look_after(interval, elapsed, fill.grown, least);
        kvmd->stats.reaps++;
    }
    reaper_set_interval(kvmd, now, next);
}

static bool reaper_held(KvmDirty *kvmd)
{
    return kvmd->vmm.reaper_held && kvmd->vmm.reaper_held(kvmd->opaque);
}

/* Sleep until the next look is due; it may come to be due earlier meanwhile. */
static void reaper_sleep_until_due(KvmDirty *kvmd)
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
    while (kvmd->ops->look && !kvmd->reaper_stop) {
        reaper_sleep_until_due(kvmd);
        if (kvmd->reaper_stop) {
            break;
        }
        if (reaper_held(kvmd)) {
            reaper_start_anew(kvmd, g_get_monotonic_time(), INTERVAL_MAX);
        } else {
            reaper_look(kvmd);
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
    if (!kvmd->ops->look) {
        return;
    }
    reaper_start_anew(kvmd, g_get_monotonic_time(), INTERVAL_MIN);
    g_cond_signal(&kvmd->reaper_wake);
}

/*
 * A ring took no longer than since the last look to fill what was free: the
 * next look belongs a LOOK_FILL of that after now.
 */
void kvmd_reaper_hurry(KvmDirty *kvmd)
{
    int64_t now = g_get_monotonic_time();
    double wanted = (now - kvmd->reaper_last) * LOOK_FILL;

    if (MAX(wanted, INTERVAL_MIN) < kvmd->reaper_interval &&
        !reaper_held(kvmd)) {
        reaper_start_anew(kvmd, now, wanted);
        g_cond_signal(&kvmd->reaper_wake);
    }
}
