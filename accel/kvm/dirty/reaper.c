/*
 * The reaper thread: when rings are reaped outside of a sync.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A full ring stops its vCPU.  Reaping a ring too early costs the guest
 * another fault for each page that it writes again before the next sync, since
 * pages in a ring are un-armed and can be written without a fault.  So the
 * reaper only looks how full the rings are, as often as their growth demands,
 * and reaps those that are filled up to REAP_FILL.
 */

#include "engine.h"

/* Only syncs reap the ring of a working set of less than half a ring. */
#define REAP_FILL 0.5

/*
 * The next look comes when this part of the free entries will be filled.  The
 * rate may quadruple until then before a vCPU has to stop and reap its ring.
 */
#define LOOK_FILL 0.25

/* At shorter intervals the wake-ups cost more than the exits they save. */
#define INTERVAL_MIN 250                    /* microseconds */

/* The stock reaper's only interval.  Nothing depends on it. */
#define INTERVAL_MAX G_TIME_SPAN_SECOND

/* Slow down by doubling, so that a pause in the writing is no surprise. */
#define INTERVAL_GROWTH 2

/*
 * Returns: the time until the next look, if the fullest ring is filled by
 * @most, and rings grew by @grown within @elapsed.
 */
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

/* Forget the fill rates that were measured before @now. */
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
    /* A ring that fills before the next look has to be reaped now. */
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

/* Sleep until the next look is due; it may be brought forward meanwhile. */
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
 * A ring filled all of its free entries since the last look.  So the next look
 * is due after LOOK_FILL of that time.
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
