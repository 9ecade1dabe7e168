/*
 * Whether a migration comes to its end.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <math.h>
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "exec/memory.h"
#include "exec/target_page.h"
#include "hw/core/cpu.h"
#include "qapi/qapi-events-dirty-tracking.h"
#include "sysemu/cpu-throttle.h"
#include "sysemu/dirty-tracking.h"
#include "sysemu/dirty-tracking-release.h"
#include "sysemu/dirtylimit.h"
#include "sysemu/runstate.h"
#include "sysemu/vcpu-throttle.h"
#include "converge.h"
#include "migration.h"
#include "pace.h"
#include "ram.h"
#include "vcpu-shares.h"

/*
 * vCPUs that are slowed down run and sleep in turn, so that a single look may
 * see nothing but sleep.  What was seen counts for less the longer ago it was:
 * after so many seconds, 37%.
 */
#define MEMORY 0.500

/*
 * Where pages may be logged without telling who wrote them, that is so for
 * most or for next to none: with PML, faults are those of pages that a vCPU
 * meets for the first time.  What devices write comes without, too.
 */
#define KNOWN_PART 0.5

/* What the vCPUs are doing; pages and seconds are aged. */
typedef struct Throttle {
    size_t n;
    VcpuShare *shares;
    uint64_t *writes;           /* of each vCPU, at the last look */
    bool began;
    double seconds;
    double written;
    double sent;
} Throttle;

static struct {
    Pace pace;
    PaceSync sync;              /* of the stop, by the last one */
    double sync_began;          /* its collect ahead, to sync_collected */
    double sync_collected;
    double sync_locked;         /* the BQL has been taken for it */
    double next_look;           /* not before that */
    double next_crossing;       /* the same */
    uint64_t round_end;         /* pages sent, when as many were as remained */
    uint64_t others;            /* bytes that remain, beside the guest's RAM */
    uint64_t exact_others;      /* the same, when they were last asked for it */
    double stop_size;           /* bytes that are sent in the downtime limit */
    double bandwidth;           /* the same in a second; 0 if that limit is 0 */
    int slept;                  /* percent, at most, in the last period */
    bool stalled;
    bool above;                 /* more remains than may at the stop */
    bool crossed;               /* for converge_crossed() */
    uint64_t braked_round;      /* dirty_sync_count, at the last brake */
    Throttle throttle;
} converge;

/* In seconds, as in pace.h. */
static double converge_now(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_REALTIME) /
        (double)NANOSECONDS_PER_SECOND;
}

/* Returns: the pages that remain to be sent. */
static uint64_t converge_remaining(void)
{
    return ram_bytes_remaining() / qemu_target_page_size();
}

/*
 * Returns: the pages that were sent.  One that xbzrle could not make smaller
 * counts as its page and as a normal one.
 */
static uint64_t converge_sent(void)
{
    return ram_get_total_transferred_pages() - xbzrle_counters.overflow;
}

static double converge_threshold(void)
{
    return migrate_get_current()->parameters.throttle_trigger_threshold / 100.0;
}

void converge_pending(uint64_t bytes, bool exact)
{
    uint64_t ram = ram_bytes_remaining();
    uint64_t others = bytes > ram ? bytes - ram : 0;

    if (exact) {
        converge.exact_others = others;
    }
    converge.others = MAX(others, converge.exact_others);
}

uint64_t converge_room(void)
{
    uint64_t size = migrate_get_current()->threshold_size;

    return size > converge.others ? size - converge.others : 0;
}

bool converge_crosses(uint64_t pages)
{
    if (pages * qemu_target_page_size() >= converge_room()) {
        converge.above = true;
        return false;
    }
    if (!converge.above || migration_in_postcopy() ||
        converge_now() < converge.next_crossing) {
        return false;
    }
    converge.above = false;
    converge.crossed = true;
    return true;
}

bool converge_crossed(void)
{
    bool crossed = converge.crossed;

    converge.crossed = false;
    return crossed;
}

static void throttle_forget(Throttle *throttle)
{
    g_clear_pointer(&throttle->shares, g_free);
    g_clear_pointer(&throttle->writes, g_free);
    memset(throttle, 0, sizeof(*throttle));
}

bool converge_stalled(void)
{
    return converge.stalled;
}

bool converge_replaces(void)
{
    return dirty_tracking_looks() && !migrate_colo();
}

/*
 * Returns: bytes per second as QEMU counts them when it decides to stop: less
 * than the pages that were sent, if they are compressed.
 */
static double converge_bandwidth(void)
{
    return converge.bandwidth ? converge.bandwidth :
        converge.pace.sent_per_second * qemu_target_page_size();
}

static MigrationConvergence *converge_info(void)
{
    MigrationConvergence *info = g_new0(MigrationConvergence, 1);
    double page = qemu_target_page_size();
    double written = converge.pace.written_per_second;
    double sent = converge.pace.sent_per_second;
    double excess = pace_excess(&converge.pace, converge_threshold());
    double may_run = (1 - converge.slept / 100.0) / excess;
    double needed = pace_stop_seconds(&converge.pace, &converge.sync,
                                      converge_bandwidth(), converge.others,
                                      page);

    info->write_rate = written * page;
    info->bandwidth = sent * page;
    info->stalled = converge.stalled;
    info->converges = written < sent;
    info->downtime_needed = needed * 1000 + 1;
    info->bandwidth_needed = written / converge_threshold() * page;
    info->throttle_needed = may_run < 1 ? (1 - may_run) * 100 + 0.5 : 0;
    return info;
}

static void converge_stall(void)
{
    g_autoptr(MigrationConvergence) info = NULL;

    converge.stalled = true;
    info = converge_info();
    qapi_event_send_migration_stalled(info);
}

static void throttle_end(Throttle *throttle)
{
    vcpu_throttle_stop();
    throttle_forget(throttle);
}

/* If the number of vCPUs has changed, all of them run freely. */
static void throttle_resize(Throttle *throttle)
{
    CPUState *cpu;
    size_t n = 0;

    CPU_FOREACH(cpu) {
        n++;
    }
    if (n != throttle->n) {
        throttle_end(throttle);
        throttle->n = n;
        throttle->shares = g_new0(VcpuShare, n);
        throttle->writes = g_new0(uint64_t, n);
        for (size_t i = 0; i < n; i++) {
            throttle->shares[i].run = 1;
        }
    }
}

/*
 * Learn which vCPUs have written how much since the last call.  If that cannot
 * be told of one of them now, the next call learns it of all.
 */
static void throttle_learn(Throttle *throttle)
{
    g_autofree uint64_t *writes = g_new0(uint64_t, throttle->n);
    CPUState *cpu;
    size_t i = 0;

    CPU_FOREACH(cpu) {
        if (!dirty_tracking_vcpu_writes(cpu, &writes[i++])) {
            return;
        }
    }
    for (i = 0; i < throttle->n; i++) {
        throttle->shares[i].writes += writes[i] - throttle->writes[i];
        throttle->writes[i] = writes[i];
    }
}

/* The parameters of upstream's steps bound ours. */
static VcpuShareBounds throttle_bounds(void)
{
    const MigrationParameters *p = &migrate_get_current()->parameters;

    return (VcpuShareBounds) {
        .known = dirty_tracking_tells_writers() ? 0 : KNOWN_PART,
        .least = 1 - p->max_cpu_throttle / 100.0,
        .step = (vcpu_throttle_most() ? p->cpu_throttle_increment :
                 p->cpu_throttle_initial) / 100.0,
        .growth = 1.2,
    };
}

static void throttle_age(Throttle *throttle, double seconds)
{
    const Pace *pace = &converge.pace;
    double kept = exp(-seconds / MEMORY);

    vcpu_shares_age(throttle->shares, throttle->n, seconds, kept);
    throttle->seconds = throttle->seconds * kept + seconds;
    throttle->written = throttle->written * kept +
        seconds * pace->written_per_second;
    throttle->sent = throttle->sent * kept + seconds * pace->sent_per_second;
}

/*
 * In the last @seconds guest and migration did what was counted.  Called with
 * the BQL held.
 */
static void throttle_steer(Throttle *throttle, double seconds)
{
    VcpuShareBounds bounds = throttle_bounds();
    CPUState *cpu;
    size_t i = 0;

    converge.slept = vcpu_throttle_most();
    throttle_resize(throttle);
    if (throttle->began) {
        throttle_age(throttle, seconds);
        throttle_learn(throttle);
        vcpu_shares_steer(throttle->shares, throttle->n, throttle->seconds,
                          throttle->written,
                          throttle->sent * converge_threshold(), &bounds);
        CPU_FOREACH(cpu) {
            vcpu_throttle_set(cpu, throttle->shares[i++].run);
        }
    } else {
        /* What is learnt first was written before: it does not count. */
        throttle_learn(throttle);
        for (; i < throttle->n; i++) {
            throttle->shares[i].writes = 0;
        }
        throttle->began = true;
    }
}

/* The dirty limit of vCPUs slows them down by itself. */
static bool converge_may_throttle(void)
{
    return migrate_auto_converge() && !dirtylimit_in_service();
}

/*
 * Each look takes time from the thread that sends, and makes the guest fault
 * on pages that it has written before: both are welcome only where vCPUs are
 * to be slowed down.  A dirty limit does so by rings that are full, which a
 * look would empty.
 */
static bool converge_looks(void)
{
    return converge_replaces() && converge_may_throttle();
}

/* Rounds are no bursts, and looks may be. */
static unsigned int converge_patience(void)
{
    return converge_looks() ? PACE_BAD_IN_A_ROW : 1;
}

/* A period may end here.  Returns: its seconds, or 0 if it goes on. */
static double converge_count(double now)
{
    double last = converge.pace.last;

    if (!pace_count(&converge.pace, now, converge_remaining(),
                    converge_sent(), converge_threshold())) {
        return 0;
    }
    if (!converge_replaces()) {
        converge.slept = cpu_throttle_get_percentage();
    }
    if (!converge.stalled && runstate_is_running() &&
        converge.pace.bad_periods >= converge_patience()) {
        converge_stall();
    }
    return now - last;
}

static bool converge_steers(void)
{
    return converge.stalled && converge_looks() && runstate_is_running() &&
        !block_migration_is_bulk();
}

/* A dirty limit may be set after vCPUs were slowed down. */
static void converge_let_go(void)
{
    if (converge.throttle.began && !converge_may_throttle()) {
        bql_lock();
        throttle_end(&converge.throttle);
        bql_unlock();
        converge.slept = 0;
    }
}

/*
 * calc-dirty-rate counts what is found: each look would find pages again that
 * are yet to be sent (log), or that were written again (dirty-bits, rings).
 */
static bool converge_is_measured(void)
{
    return qatomic_read(&global_dirty_tracking) & GLOBAL_DIRTY_DIRTY_RATE;
}

static bool converge_wants_look(double now)
{
    return migration_sync_count() > 1 && now >= converge.next_look &&
        converge_looks() && !converge_is_measured() && runstate_is_running() &&
        !migration_in_postcopy();
}

/* Once in a round.  The faults tell auto-converge, in each look, who writes. */
static bool converge_wants_brake(void)
{
    return converge.stalled &&
        (converge.braked_round != migration_sync_count() ||
         migrate_auto_converge());
}

static void converge_brake(void)
{
    if (converge_wants_brake()) {
        converge.braked_round = migration_sync_count();
        dirty_tracking_brake();
    }
}

/*
 * Looks may find more and more to be sent.  A round is over, too, when as many
 * pages were sent as remained when it began.
 */
static bool converge_is_round_over(void)
{
    return converge_sent() >= converge.round_end;
}

void converge_forget(uint64_t pages)
{
    converge.round_end -= MIN(pages, converge.round_end);
    converge.pace.remaining -= MIN(pages, converge.pace.remaining);
}

void converge_run(void)
{
    double now = converge_now(), end, seconds;

    converge_let_go();
    if (!converge_wants_look(now)) {
        return;
    }
    converge_brake();
    dirty_tracking_look();
    ram_take_published();
    end = converge_now();
    converge.next_look = pace_again(now, end);
    if (converge_is_round_over()) {
        ram_sync_round();
        return;
    }
    seconds = converge_count(now);
    if (seconds && converge_steers()) {
        bql_lock();
        throttle_steer(&converge.throttle, seconds);
        bql_unlock();
    }
}

void converge_sync_ahead(void)
{
    converge.sync_began = converge_now();
    converge_brake();
    dirty_tracking_sync_ahead(false);
    converge.sync_collected = converge_now();
}

void converge_sync_locked(void)
{
    converge.sync_locked = converge_now();
}

static void converge_round_ended(void)
{
    double now = converge_now(), seconds;

    converge.sync = pace_sync(converge.sync_began, converge.sync_collected,
                              converge.sync_locked, now);
    converge.sync_locked = 0;
    pace_found(&converge.pace, ram_bytes_remaining(), converge_room(),
               converge.stop_size - converge.others,
               converge_steers() ? PACE_NEAR_STEERED : PACE_NEAR);
    converge.round_end = converge_sent() + converge_remaining();
    if (!converge.pace.last) {
        pace_count_from(&converge.pace, now, converge_remaining(),
                        converge_sent());
    } else {
        seconds = converge_count(now);
        if (seconds && converge_steers()) {
            throttle_steer(&converge.throttle, seconds);
        }
    }
    converge.next_crossing = pace_again(converge.sync_began, now);
    /* A sync is a look, too. */
    converge.next_look = MAX(converge.next_look,
                             now + PACE_PERIOD_SECONDS);
}

/*
 * Other syncs end no round: the last one, COLO's, and those of upstream's
 * timer, in the main thread.  All but COLO's, of a guest that stands still,
 * are under the BQL.  The timer's may come while the migration thread, in a
 * sync of its own, has let the BQL go (with TCG, and with rings): it then
 * counts for that sync, which ends just after it.
 */
void converge_end_sync(void)
{
    if (migration_sync_count() == 1) {
        throttle_forget(&converge.throttle);
        memset(&converge, 0, sizeof(converge));
    } else if (converge.sync_locked) {
        converge_round_ended();
    }
}

uint64_t converge_stop_size(uint64_t size)
{
    double limit = migrate_get_current()->parameters.downtime_limit / 1000.0;

    /* In postcopy, and in a background snapshot, nobody is to be told. */
    if (migration_sync_count() && !migration_in_postcopy()) {
        converge.stop_size = size;
        converge.bandwidth = limit ? size / limit : 0;
    }
    return pace_stop_size(&converge.pace, &converge.sync, size,
                          MIN(converge.others, size), limit,
                          qemu_target_page_size());
}

void converge_end(void)
{
    bql_lock();
    throttle_end(&converge.throttle);
    bql_unlock();
}

void converge_populate(MigrationInfo *info)
{
    int most = vcpu_throttle_most();

    if (most) {
        info->has_cpu_throttle_percentage = true;
        info->cpu_throttle_percentage = most;
    }
    /* A background snapshot does not sync, and has the last migration's. */
    if (migration_sync_count() > 1 && converge.pace.sent_per_second) {
        SET_OPTIONAL(info, convergence, converge_info());
    }
}
