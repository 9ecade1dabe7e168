/*
 * The pace of a migration.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <math.h>
#include "pace.h"

void pace_count_from(Pace *pace, double now, uint64_t remaining, uint64_t sent)
{
    pace->last = now;
    pace->remaining = remaining;
    pace->sent = sent;
}

bool pace_count(Pace *pace, double now, uint64_t remaining, uint64_t sent,
                double threshold)
{
    double seconds = now - pace->last;
    double pages_sent = sent - pace->sent;
    double pages_written = pages_sent + remaining - pace->remaining;

    if (!pages_sent || seconds < PACE_PERIOD_SECONDS) {
        return false;
    }
    pace->written_per_second = MAX(pages_written, 0) / seconds;
    pace->sent_per_second = pages_sent / seconds;
    pace->bad_periods = pace_excess(pace, threshold) > 1 ?
        pace->bad_periods + 1 : 0;
    pace_count_from(pace, now, remaining, sent);
    return true;
}

double pace_again(double began, double ended)
{
    return MAX(began + PACE_PERIOD_SECONDS,
               ended + (ended - began) * PACE_REST_PART);
}

double pace_excess(const Pace *pace, double threshold)
{
    return pace->sent_per_second ?
        pace->written_per_second / (pace->sent_per_second * threshold) :
        INFINITY;
}

PaceSync pace_sync(double began, double collected, double locked, double now)
{
    return (PaceSync) {
        .all = (collected - began) * PACE_STOP_COLLECTS + now - collected,
        .locked = now - locked,
    };
}

/* What becomes dirty while pages are collected ahead of the last sync. */
static double pace_written_ahead(const Pace *pace, const PaceSync *sync)
{
    return pace->written_per_second * sync->all;
}

void pace_found(Pace *pace, double remaining, double room, double most,
                unsigned int patience)
{
    if (remaining < room) {
        pace->near = 0;
    } else if (remaining < most) {
        pace->near++;
    }
    pace->nothing_kept = pace->near >= patience;
}

double pace_stop_size(const Pace *pace, const PaceSync *sync, double size,
                      double others, double limit, double page_size)
{
    double left = limit - PACE_STOP_SECONDS - sync->locked;
    double ahead = pace_written_ahead(pace, sync) * page_size;

    if (pace->nothing_kept) {
        return size;
    }
    return limit > 0 ? MAX(size * left / limit - ahead,
                           (size + others) / 2) : 0;
}

double pace_stop_seconds(const Pace *pace, const PaceSync *sync,
                         double bandwidth, double others, double page_size)
{
    double pages = pace->remaining + pace_written_ahead(pace, sync);

    return bandwidth ? PACE_STOP_SECONDS + sync->locked +
        (pages * page_size + others) / bandwidth : 0;
}
