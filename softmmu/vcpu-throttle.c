/*
 * vCPUs that run part of the time.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A timer asks each vCPU that is slowed down, and has run for long enough, to
 * sleep.  A vCPU sleeps in proportion to the time since it really woke up, also
 * if it was halted: on a busy host that may be much longer than it should be,
 * and a vCPU that may run 1% of the time would run 10%.  All of this happens
 * under the BQL, which a vCPU releases while it sleeps.
 *
 * Whatever else it is asked to do, it does in its sleep: a sync of the dirty
 * rings waits for all vCPUs, and so do others.
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "migration/threads.h"
#include "sysemu/cpus.h"
#include "sysemu/dirty-tracking-release.h"
#include "sysemu/vcpu-throttle.h"

#define TICK_NS (5 * SCALE_MS)

typedef struct Throttled {
    double share;
    int64_t awake_since;
    bool asked;                 /* to sleep, and has not woken up since */
    int serial;                 /* what an earlier one asked for is void */
} Throttled;

static QEMUTimer *timer;
static GHashTable *throttled;   /* of a CPUState, its Throttled */

static int64_t vcpu_throttle_now(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
}

/* Stands still while the guest is stopped: no vCPU runs then. */
static int64_t vcpu_throttle_guest_now(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL_RT);
}

static int64_t vcpu_throttle_nap(const Throttled *own)
{
    int64_t ran = vcpu_throttle_guest_now() - own->awake_since;

    return MIN(ran * (1 - own->share) / own->share, VCPU_THROTTLE_NAP_MAX_NS);
}

static Throttled *vcpu_throttle_who_asked(CPUState *cpu, run_on_cpu_data data)
{
    Throttled *own = g_hash_table_lookup(throttled, cpu);

    return own && own->serial == data.host_int ? own : NULL;
}

static void vcpu_throttle_wait(CPUState *cpu, int64_t ns)
{
    if (ns >= SCALE_MS) {
        qemu_cond_timedwait_bql(cpu->halt_cond, ns / SCALE_MS);
    } else {
        bql_unlock();
        g_usleep(ns / SCALE_US);
        bql_lock();
    }
}

/*
 * A vCPU that is let go meanwhile, or asked to stop, wakes up at once.  One
 * that has stopped does not begin: it may be waited for, to be unplugged.
 */
static void vcpu_throttle_sleep(CPUState *cpu, run_on_cpu_data data)
{
    Throttled *own = vcpu_throttle_who_asked(cpu, data);
    int64_t left = own ? vcpu_throttle_nap(own) : 0;
    int64_t end = vcpu_throttle_now() + left;

    while (own && left > 0 && !cpu->stop && !cpu->stopped) {
        if (cpu_work_list_empty(cpu)) {
            vcpu_throttle_wait(cpu, left);
        } else {
            process_queued_cpu_work(cpu);
        }
        /* The table may have changed meanwhile. */
        own = vcpu_throttle_who_asked(cpu, data);
        left = end - vcpu_throttle_now();
    }
    if (own) {
        own->awake_since = vcpu_throttle_guest_now();
        own->asked = false;
    }
}

/*
 * The thread of a vCPU that is unplugged runs on for a while after its kvm_run
 * was unmapped, and the vCPU is still in the list.  A signal, which comes with
 * each request, would have the thread write to kvm_run.
 *
 * Who waits for a vCPU is told once it has nothing left to do: what it has been
 * asked for already comes first.
 */
static bool vcpu_throttle_is_due(CPUState *cpu, const Throttled *own)
{
    int64_t ran = vcpu_throttle_guest_now() - own->awake_since;

    return cpu->created && !own->asked &&
        ran >= own->share * VCPU_THROTTLE_PERIOD_NS && cpu_work_list_empty(cpu);
}

static gboolean vcpu_throttle_is_gone(gpointer key, gpointer value,
                                      gpointer opaque)
{
    CPUState *cpu;

    CPU_FOREACH(cpu) {
        if (cpu == key) {
            return FALSE;
        }
    }
    return TRUE;
}

static void vcpu_throttle_tick(void *opaque)
{
    guint found = 0;
    CPUState *cpu;

    if (!migration_may_slow_vcpus()) {
        vcpu_throttle_stop();
        return;
    }
    CPU_FOREACH(cpu) {
        Throttled *own = g_hash_table_lookup(throttled, cpu);

        found += own != NULL;
        if (own && vcpu_throttle_is_due(cpu, own)) {
            own->asked = true;
            async_run_on_cpu(cpu, vcpu_throttle_sleep,
                             RUN_ON_CPU_HOST_INT(own->serial));
        }
    }
    /* Another vCPU may be plugged at the address of one that was unplugged. */
    if (found < g_hash_table_size(throttled)) {
        g_hash_table_foreach_remove(throttled, vcpu_throttle_is_gone, NULL);
    }
    if (g_hash_table_size(throttled)) {
        timer_mod(timer, vcpu_throttle_guest_now() + TICK_NS);
    }
}

static void vcpu_throttle_init(void)
{
    if (!throttled) {
        throttled = g_hash_table_new_full(NULL, NULL, NULL, g_free);
        timer = timer_new_ns(QEMU_CLOCK_VIRTUAL_RT, vcpu_throttle_tick, NULL);
    }
}

static Throttled *vcpu_throttle_add(CPUState *cpu)
{
    static int serial;
    Throttled *own = g_new0(Throttled, 1);

    own->serial = serial++;
    own->awake_since = vcpu_throttle_guest_now();
    g_hash_table_insert(throttled, cpu, own);
    return own;
}

/* Has a vCPU that sleeps look whether it is to. */
static void vcpu_throttle_wake(CPUState *cpu)
{
    qemu_cond_broadcast(cpu->halt_cond);
}

void vcpu_throttle_set(CPUState *cpu, double share)
{
    Throttled *own;

    vcpu_throttle_init();
    if (share >= 1) {
        if (g_hash_table_remove(throttled, cpu)) {
            vcpu_throttle_wake(cpu);
        }
        return;
    }
    own = g_hash_table_lookup(throttled, cpu);
    if (!own) {
        own = vcpu_throttle_add(cpu);
    }
    own->share = share;
    if (!timer_pending(timer)) {
        timer_mod(timer, vcpu_throttle_guest_now());
    }
}

void vcpu_throttle_stop(void)
{
    CPUState *cpu;

    if (!throttled) {
        return;
    }
    /* vCPUs that were unplugged meanwhile are in it, too. */
    g_hash_table_remove_all(throttled);
    CPU_FOREACH(cpu) {
        vcpu_throttle_wake(cpu);
    }
    timer_del(timer);
}

int vcpu_throttle_most(void)
{
    double least = 1;
    CPUState *cpu;

    if (!throttled) {
        return 0;
    }
    /* Not of vCPUs that were unplugged meanwhile. */
    CPU_FOREACH(cpu) {
        Throttled *own = g_hash_table_lookup(throttled, cpu);

        least = MIN(least, own ? own->share : 1);
    }
    return (1 - least) * 100 + 0.5;
}
