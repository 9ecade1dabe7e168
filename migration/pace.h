/*
 * The pace of a migration: how fast pages are sent and become dirty again,
 * whether that is too slow, and how much may remain when the guest is stopped.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Time is in seconds, and counts are of pages.  All members are 0 before a
 * migration.  This file knows nothing of QEMU.
 */

#ifndef MIGRATION_PACE_H
#define MIGRATION_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* Shorter periods are not counted: what a vCPU does in one is chance. */
#define PACE_PERIOD_SECONDS 0.050

/* What may turn out to be in vain takes a fifth of the time at the most. */
#define PACE_REST_PART 4

/* So many bad periods in a row (pace_excess() above 1) are not a burst. */
#define PACE_BAD_IN_A_ROW 2

/*
 * Time from the last sync to the end of a stop that no page can tell: for all
 * vCPUs to stand still, and to send the state of the devices.  It is known only
 * once the guest has been stopped.  The lab's guests, whose CPUs are emulated,
 * need 12 ms; one of few devices on real CPUs needs about 1 ms.
 */
#define PACE_STOP_SECONDS 0.010

/*
 * With dirty-bits dirty_tracking_sync_ahead() collects so many times ahead of
 * the sync of the stop, and once ahead of a sync that ends a round.  With
 * rings it reaps once, which is over soon, as they are reaped all the time.
 */
#define PACE_STOP_COLLECTS 3

/*
 * After so many syncs that have found what would fit, but for what is kept for
 * the last sync and the devices, nothing is kept for them: QEMU without this
 * ends such a migration at once.  More time is left to vCPUs that are slowed
 * down to write less, at 20 syncs a second or fewer.
 */
#define PACE_NEAR 4
#define PACE_NEAR_STEERED 60

typedef struct Pace {
    double last;                /* when pages were last counted */
    uint64_t remaining;         /* at that time, to be sent */
    uint64_t sent;              /* at that time, since the migration began */
    double written_per_second;  /* in the last period, became dirty again */
    double sent_per_second;
    unsigned int bad_periods;   /* in a row, up to the last one */
    unsigned int near;          /* syncs that found so much, as PACE_NEAR */
    bool nothing_kept;
} Pace;

/* What the sync of the stop will take, by what the last sync took. */
typedef struct PaceSync {
    double all;                 /* with what is collected ahead of it */
    /* Under the BQL, or waiting for vCPUs (rings), at most. */
    double locked;
} PaceSync;

/*
 * pace_sync: A sync has ended @now; from @began until @collected it was
 * collected ahead of it, and from @locked on the BQL was held.
 */
PaceSync pace_sync(double began, double collected, double locked, double now);

/*
 * pace_count_from: The first period begins at @now; @remaining pages are to be
 * sent, and @sent were.
 */
void pace_count_from(Pace *pace, double now, uint64_t remaining, uint64_t sent);

/*
 * pace_count: A period ends, and the next begins, unless this one is too short
 * or nothing was sent in it: then it goes on.
 * @threshold: the part of the pages sent that may become dirty without the
 *             period being a bad one
 * Returns: whether a period has ended.
 */
bool pace_count(Pace *pace, double now, uint64_t remaining, uint64_t sent,
                double threshold);

/*
 * pace_again: Returns: when to do again what has taken from @began to @ended,
 * and may have been in vain.  Looks are, for pages that the next sync would
 * have found in the same time, and syncs before a stop if they find too much
 * for it.
 */
double pace_again(double began, double ended);

/*
 * pace_excess: how many times as much became dirty as @threshold allows;
 * infinite if nothing was ever counted as sent.
 */
double pace_excess(const Pace *pace, double threshold);

/*
 * pace_found: A sync has found that @remaining is to be sent.  Less than @room
 * may remain when the guest is to be stopped; less than @most could be sent
 * within the downtime limit if nothing else took time.  All are in the same
 * unit.
 * @patience: how many syncs may find what is not less than @room, but less than
 *            @most; larger finds in between do not matter, as bursts
 */
void pace_found(Pace *pace, double remaining, double room, double most,
                unsigned int patience);

/*
 * pace_stop_size:
 * @size: what is sent in @limit
 * @others: the part of @size, or all of it, that remains beside pages
 * @limit: the downtime limit
 * @page_size: in the unit of @size
 *
 * The limit is also for the last sync, the devices, and the pages that become
 * dirty between the decision to stop and the stop.  At least half of what
 * others leave is for the pages that remain.  Once many syncs have found what
 * nearly fits (pace_found()), nothing is kept for all else.
 *
 * Returns: the part of @size that may remain when the guest is to be stopped,
 * others and pages together.
 */
double pace_stop_size(const Pace *pace, const PaceSync *sync, double size,
                      double others, double limit, double page_size);

/*
 * pace_stop_seconds:
 * @bandwidth: what is sent in a second
 * @others: what remains beside pages
 * @page_size: in the unit of both
 *
 * Returns: how long the stop would take with what remained at the end of the
 * last period: as a limit, pace_stop_size() would let that remain.  0 if
 * @bandwidth is.
 */
double pace_stop_seconds(const Pace *pace, const PaceSync *sync,
                         double bandwidth, double others, double page_size);

#endif
