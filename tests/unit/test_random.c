/*
 * Many short random lives of a virtual machine, on one thread.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Either a vCPU or the engine runs.  While the engine does, a vCPU may get its
 * turn whenever the engine, or KVM on its behalf, touches a ring, a bitmap or
 * a log.  So every interleaving that matters can come up, and comes up again
 * with the same seed.  A run that fails prints its seed, and
 * KVMD_RANDOM_SEED=<that> runs it alone.
 */

#include "rig.h"
#include "ordering_hook.h"

#include <errno.h>
#include <linux/kvm_dirty_tracking.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VCPUS 2
#define SLOTS 3
#define RUNS 700
#define STEPS 40

typedef struct Kind {
    bool ring;
    bool overflow;              /* KVM may let a vCPU fill on */
    bool failures;              /* re-arms may fail, or fall short */
    KvmDirtyMechanism patched;  /* on a patched KVM, if not 0 */
    bool switches;              /* the test switches away from it */
    int manual_caps;
} Kind;

static struct {
    Kind kind;
    Rig *rig;
    GRand *rand;
    RigVcpu *vcpus[VCPUS];
    bool running[VCPUS];        /* it may have a turn */
    uint64_t next_page;
    unsigned chance;            /* of a turn, one in so many */
} w;

static char run_seed[64];

static void tell_seed(int signo)
{
    (void)signo;
    if (write(STDERR_FILENO, run_seed, strlen(run_seed)) < 0) {
        _exit(1);
    }
}

/* [0, n) */
static uint32_t any(uint32_t n)
{
    return g_rand_int_range(w.rand, 0, n);
}

static bool one_in(uint32_t n)
{
    return any(n) == 0;
}

static uint64_t any_page(uint32_t slot_id)
{
    RigBlock *b = w.rig->at[0][slot_id];

    if (!b) {
        return 0;
    }
    return one_in(2) ? any(b->pages) : w.next_page++ % b->pages;
}

/* The vCPU goes on with its write, or begins one. */
static void turn(RigVcpu *v, bool forced)
{
    uint32_t slot_id = any(SLOTS);

    if (!forced && !fake_vcpu_enters(v->fake)) {
        return;
    }
    if (!v->fake->write.active) {
        fake_write_begin(v->fake, slot_id, any_page(slot_id),
                         ++w.rig->stamp);
    }
    fake_write_step(v->fake);
}

static void flood(RigVcpu *v, unsigned turns)
{
    w.rig->fake->soft_limit_off = true;
    while (turns--) {
        turn(v, true);
    }
    w.rig->fake->soft_limit_off = false;
}

/* The engine, or KVM for it, is about to look at a ring, bitmap or log. */
static void anywhere(void)
{
    int i = any(VCPUS);
    RigVcpu *v = w.vcpus[i];

    if (!one_in(w.chance) || !w.running[i] || v->in_full) {
        return;
    }
    if (w.kind.overflow && one_in(24)) {
        flood(v, any(5 * w.rig->fake->ring_size));
        return;
    }
    for (unsigned n = any(5); n; n--) {
        turn(v, false);
    }
}

static void in_kvm(void *opaque, FakePoint point, FakeVcpu *v)
{
    (void)opaque, (void)point, (void)v;
    anywhere();
}

static void hooks(bool on)
{
    ordering_hook = on ? anywhere : NULL;
    w.rig->fake->hook = on ? in_kvm : NULL;
}

static void finish(RigVcpu *v)
{
    while (v->fake->write.active) {
        rig_enter(v);
        fake_write_step(v->fake);
    }
}

/* Steps */

static void step_write(void)
{
    int i = any(VCPUS);

    if (!w.running[i]) {
        return;
    }
    if (w.kind.overflow && one_in(10)) {
        flood(w.vcpus[i], any(5 * w.rig->fake->ring_size));
        return;
    }
    for (unsigned n = any(60); n; n--) {
        rig_enter(w.vcpus[i]);
        turn(w.vcpus[i], false);
    }
}

static void step_sync(void)
{
    if (one_in(3)) {
        rig_slot_sync(w.rig, any(SLOTS));
    } else if (one_in(5)) {
        kvmd_brake(w.rig->kvmd);
        rig_ahead(w.rig, any(2) ? KVMD_AHEAD_ROUND : KVMD_AHEAD_STOP);
    } else if (one_in(4)) {
        rig_harvest(w.rig);
    } else if (one_in(4)) {
        rig_look(w.rig);
    } else {
        rig_sync(w.rig);
    }
}

/* A page is published as pending by the one, and copied with the other. */
static void step_switch(void)
{
    static const KvmDirtyMechanism to[] = {
        KVMD_AUTO, KVMD_LOG, KVMD_WRPROT, KVMD_SHARED,
    };
    static const KvmDirtyMechanism dirty_bits_to[] = {
        KVMD_AUTO, KVMD_LOG, KVMD_DIRTY_BITS,
    };

    if (w.kind.switches && w.kind.patched == KVMD_DIRTY_BITS) {
        rig_switch(w.rig, dirty_bits_to[any(G_N_ELEMENTS(dirty_bits_to))]);
    } else if (w.kind.switches) {
        rig_switch(w.rig, to[any(G_N_ELEMENTS(to))]);
    }
}

static void finish_all(void)
{
    for (int i = 0; i < VCPUS; i++) {
        if (w.running[i]) {
            finish(w.vcpus[i]);
        }
    }
}

/*
 * "log" and "wrprot" have pages that a vCPU writes between the last harvest
 * and the removal in the bitmap that goes with the slot: nobody can have them,
 * so a test must not ask for them.
 */
static void step_remove(uint32_t slot_id)
{
    KvmDirtyMechanism mechanism = kvmd_mechanism(w.rig->kvmd);

    if (mechanism == KVMD_LOG || mechanism == KVMD_WRPROT) {
        finish_all();
        hooks(false);
    }
    rig_remove(w.rig, slot_id);
    hooks(true);
}

static void step_slot(void)
{
    uint32_t slot_id = any(SLOTS);
    RigBlock *b = w.rig->at[0][slot_id];

    if (!b) {
        rig_add(w.rig, slot_id, 1 + any(slot_id ? 300 : 900), !one_in(4));
    } else if (one_in(2)) {
        step_remove(slot_id);
    } else {
        rig_log(w.rig, slot_id, !b->tracked);
    }
}

static void step_vcpu(void)
{
    int i = any(VCPUS);

    if (w.running[i]) {
        finish(w.vcpus[i]);
        w.running[i] = false;
        rig_vcpu_remove(w.vcpus[i]);
    } else {
        rig_vcpu_add(w.vcpus[i]);
        w.running[i] = true;
    }
}

static void step_failure(void)
{
    FakeKvm *k = w.rig->fake;

    if (!w.kind.failures) {
        return;
    }
    if (w.kind.patched) {
        static const unsigned long requests[] = {
            KVM_WRITE_PROTECT_ALL_MEM, KVM_WRITE_PROTECT_RANGE,
            KVM_GET_DIRTY_LOG, KVM_GET_DIRTY_BITMAP_FD,
            KVM_COLLECT_DIRTY_BITS,
        };

        fake_fail(k, requests[any(G_N_ELEMENTS(requests))], ENOMEM, any(3));
        return;
    }
    k->reset_drops_group = one_in(2);
    k->reset_stops_by_work = !k->reset_drops_group;
    k->reset_stops_after = any(70);
    k->reset_stops = one_in(3) ? any(9) : 1;
}

/*
 * All vCPUs stand still: pages that the last sync leaves out are lost.  A
 * region must be re-armed before it is read.
 */
static void check(void)
{
    hooks(false);
    fake_fail_no_more(w.rig->fake);
    finish_all();
    rig_last_sync(w.rig);
    rig_check(w.rig);
    hooks(true);
}

static void step(void)
{
    static void (*const steps[])(void) = {
        step_write, step_write, step_write, step_write, step_sync, step_sync,
        step_sync, step_slot, step_vcpu, step_failure, step_switch, check,
    };

    w.chance = 1 + any(60);
    steps[any(G_N_ELEMENTS(steps))]();
}

/* The guest goes on, on a KVM that keeps to its limit and does not fail. */
static void end(void)
{
    w.rig->fake->reset_stops = 0;
    check();
    hooks(false);
    for (int i = 0; i < VCPUS; i++) {
        if (!w.running[i]) {
            rig_vcpu_add(w.vcpus[i]);
            w.running[i] = true;
        }
        for (int n = 0; n < 300; n++) {
            rig_write(w.vcpus[i], 0, any_page(0));
        }
        rig_sync(w.rig);
        rig_check(w.rig);
    }
}

static void world_new(const Kind *kind, uint32_t seed)
{
    memset(&w, 0, sizeof(w));
    w.kind = *kind;
    w.rand = g_rand_new_with_seed(seed);
    w.chance = 16;
    w.rig = kind->patched ? rig_new_patched(kind->patched) :
        kind->ring ? rig_new_ring(one_in(2) ? 128 : 256) :
        rig_new_log(kind->manual_caps);
    w.rig->chunk = any(200);
    for (int i = 0; i < VCPUS; i++) {
        w.vcpus[i] = rig_vcpu(w.rig, i);
        w.running[i] = true;
    }
    rig_add(w.rig, 0, 1000, true);
}

static void world_free(void)
{
    for (int i = 0; i < VCPUS; i++) {
        rig_vcpu_free(w.vcpus[i]);
    }
    rig_free(w.rig);
    g_rand_free(w.rand);
}

static void run(const Kind *kind, uint32_t seed)
{
    snprintf(run_seed, sizeof(run_seed), "# KVMD_RANDOM_SEED=%u\n", seed);
    world_new(kind, seed);
    hooks(true);
    for (int i = 0; i < STEPS; i++) {
        step();
    }
    end();
    world_free();
}

static void test_kind(const void *data)
{
    const char *alone = getenv("KVMD_RANDOM_SEED");

    if (alone) {
        run(data, strtoul(alone, NULL, 10));
        return;
    }
    for (int i = 0; i < RUNS / RIG_LESS_OFTEN; i++) {
        run(data, g_test_rand_int());
    }
}

int main(int argc, char **argv)
{
    static const Kind ring = { .ring = true };
    static const Kind ring_failures = { .ring = true, .failures = true };
    static const Kind overflow = { .ring = true, .overflow = true };
    static const Kind overflow_failures = {
        .ring = true, .overflow = true, .failures = true
    };
    static const Kind wrprot = { .patched = KVMD_WRPROT };
    static const Kind wrprot_failures = {
        .patched = KVMD_WRPROT, .failures = true
    };
    static const Kind shared = { .patched = KVMD_SHARED };
    static const Kind shared_failures = {
        .patched = KVMD_SHARED, .failures = true
    };
    static const Kind dirty_bits = { .patched = KVMD_DIRTY_BITS };
    static const Kind dirty_bits_failures = {
        .patched = KVMD_DIRTY_BITS, .failures = true
    };
    static const Kind switches = { .patched = KVMD_SHARED, .switches = true };
    static const Kind dirty_bits_switches = {
        .patched = KVMD_DIRTY_BITS, .switches = true
    };
    static const Kind log = { .manual_caps = 0 };
    static const Kind log_manual = {
        .manual_caps = KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE
    };
    static const Kind log_set = { .manual_caps = FAKE_MANUAL_CAPS };

    signal(SIGABRT, tell_seed);
    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/random/log", &log, test_kind);
    g_test_add_data_func("/random/log-manual", &log_manual, test_kind);
    g_test_add_data_func("/random/log-initially-set", &log_set, test_kind);
    g_test_add_data_func("/random/wrprot", &wrprot, test_kind);
    g_test_add_data_func("/random/wrprot-failures", &wrprot_failures,
                         test_kind);
    g_test_add_data_func("/random/shared", &shared, test_kind);
    g_test_add_data_func("/random/shared-failures", &shared_failures,
                         test_kind);
    g_test_add_data_func("/random/dirty-bits", &dirty_bits, test_kind);
    g_test_add_data_func("/random/dirty-bits-failures", &dirty_bits_failures,
                         test_kind);
    g_test_add_data_func("/random/switches", &switches, test_kind);
    g_test_add_data_func("/random/dirty-bits-switches", &dirty_bits_switches,
                         test_kind);
    g_test_add_data_func("/random/ring", &ring, test_kind);
    g_test_add_data_func("/random/ring-failures", &ring_failures, test_kind);
    g_test_add_data_func("/random/overflow", &overflow, test_kind);
    g_test_add_data_func("/random/overflow-failures", &overflow_failures,
                         test_kind);
    return g_test_run();
}
