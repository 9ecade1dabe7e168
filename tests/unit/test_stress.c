/*
 * Everything at once, on threads.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * There are vCPUs that write, the reaper, a main thread that syncs, re-arms,
 * and adds and removes slots and vCPUs, and one that syncs as a display does,
 * or a measurement of the dirty rate.
 *
 * test_random.c tries the interleavings; this test is for ThreadSanitizer.
 * The order of events differs from run to run, but the oracle does not.
 */

#include "rig.h"

#define VCPUS 3
#define BLOCKS 4
#define STEPS 400
#define WRITES 20000            /* at least, by all vCPUs */
#define BURST 40
#define PATIENCE (60 * G_USEC_PER_SEC)

typedef struct Kind {
    bool ring;
    uint32_t size;
    unsigned unasked;           /* writes between two looks at the limit */
    bool soft_limit_off;        /* KVM never asks a vCPU to leave */
    int manual_caps;
    KvmDirtyMechanism patched;  /* on a patched KVM, if not 0 */
    bool switches;              /* and away from it */
} Kind;

typedef struct Cpu {
    RigVcpu *vcpu;
    GThread *thread;
    GMutex lock;                /* held while it writes, or must not */
    GRand *rand;
    uint64_t writes;
    unsigned unasked;
} Cpu;

static struct {
    const Kind *kind;
    Rig *rig;
    GRand *rand;
    RigBlock *blocks[BLOCKS];
    Cpu cpus[VCPUS];
    GThread *display;
    GMutex display_lock;        /* held while it is in the engine */
    int wanted;                 /* the main thread waits for vCPUs' locks */
    bool stop;
} w;

/* Not a multiple of 64, but for one. */
static const uint64_t block_pages[BLOCKS] = { 1500, 77, 640, 1 };

static uint64_t any(GRand *rand, uint64_t n)
{
    return g_rand_int_range(rand, 0, n);
}

/* A vCPU's thread */

static void write_one(Cpu *c)
{
    uint32_t slot_id = any(c->rand, 8) ? 0 : any(c->rand, BLOCKS);
    uint64_t page = any(c->rand, block_pages[slot_id]);

    if (c->unasked++ < w.kind->unasked) {
        rig_force(c->vcpu, slot_id, page);
    } else {
        c->unasked = 0;
        rig_write(c->vcpu, slot_id, page);
    }
    __atomic_add_fetch(&c->writes, 1, __ATOMIC_RELAXED);
}

static void *cpu_thread(void *opaque)
{
    Cpu *c = opaque;

    while (!__atomic_load_n(&w.stop, __ATOMIC_RELAXED)) {
        g_mutex_lock(&c->lock);
        for (uint64_t n = c->vcpu->kvmd ? any(c->rand, BURST) : 0; n; n--) {
            write_one(c);
        }
        g_mutex_unlock(&c->lock);
        while (__atomic_load_n(&w.wanted, __ATOMIC_RELAXED)) {
            g_usleep(20);
        }
    }
    return NULL;
}

/* The display re-arms nothing, and leaves its pages to the main thread. */
static void *display_thread(void *opaque)
{
    GRand *rand = opaque;

    while (!__atomic_load_n(&w.stop, __ATOMIC_RELAXED)) {
        g_mutex_lock(&w.display_lock);
        switch (any(rand, 4)) {
        case 0:
            g_assert_cmpint(rig_harvest(w.rig), ==, 0);
            break;
        case 1:
            rig_look(w.rig);
            break;
        default:
            g_assert_cmpint(kvmd_slot_sync(w.rig->kvmd, 0), ==, 0);
        }
        g_mutex_unlock(&w.display_lock);
        g_usleep(any(rand, 200));
    }
    g_rand_free(rand);
    return NULL;
}

/* Between two of its writes, it stands still. */
static void cpu_pause(Cpu *c)
{
    __atomic_add_fetch(&w.wanted, 1, __ATOMIC_RELAXED);
    g_mutex_lock(&c->lock);
}

static void cpu_resume(Cpu *c)
{
    g_mutex_unlock(&c->lock);
    __atomic_sub_fetch(&w.wanted, 1, __ATOMIC_RELAXED);
}

static void pause_all(void)
{
    for (int i = 0; i < VCPUS; i++) {
        cpu_pause(&w.cpus[i]);
    }
}

static void resume_all(void)
{
    for (int i = 0; i < VCPUS; i++) {
        cpu_resume(&w.cpus[i]);
    }
}

/* The main thread's steps */

static void step_check(void)
{
    pause_all();
    g_mutex_lock(&w.display_lock);
    g_assert_cmpint(rig_last_sync(w.rig), ==, 0);
    rig_check(w.rig);
    g_mutex_unlock(&w.display_lock);
    resume_all();
}

static void step_sync(void)
{
    uint64_t n = any(w.rand, 5);

    if (any(w.rand, 2)) {
        kvmd_brake(w.rig->kvmd);
        rig_ahead(w.rig, any(w.rand, 2) ? KVMD_AHEAD_ROUND : KVMD_AHEAD_STOP);
    }
    if (n < BLOCKS) {
        g_assert_cmpint(rig_slot_sync(w.rig, n), ==, 0);
    } else {
        g_assert_cmpint(rig_sync(w.rig), ==, 0);
    }
}

static void step_log(void)
{
    uint32_t slot_id = any(w.rand, BLOCKS);
    RigBlock *b = w.blocks[slot_id];

    if (b->attached) {
        rig_log(w.rig, slot_id, !b->tracked);
    }
}

/*
 * "log" and "wrprot" do not find pages that are written between the last
 * harvest and the removal: with them the guest stands still.
 */
static bool removal_is_seen(void)
{
    KvmDirtyMechanism mechanism = kvmd_mechanism(w.rig->kvmd);

    return mechanism == KVMD_RING || mechanism == KVMD_SHARED ||
        mechanism == KVMD_DIRTY_BITS;
}

/* The id comes back with other memory behind it. */
static void step_slot(void)
{
    uint32_t slot_id = any(w.rand, BLOCKS);
    RigBlock *b = w.blocks[slot_id];

    if (!b->attached) {
        rig_attach(w.rig, b, slot_id, any(w.rand, 4));
    } else if (removal_is_seen()) {
        rig_remove(w.rig, slot_id);
    } else {
        pause_all();
        rig_remove(w.rig, slot_id);
        resume_all();
    }
}

static void step_cpu(void)
{
    Cpu *c = &w.cpus[any(w.rand, VCPUS)];

    cpu_pause(c);
    if (c->vcpu->kvmd) {
        rig_vcpu_remove(c->vcpu);
    } else {
        rig_vcpu_add(c->vcpu);
    }
    cpu_resume(c);
}

static void step_switch(void)
{
    static const KvmDirtyMechanism to[] = {
        KVMD_LOG, KVMD_WRPROT, KVMD_SHARED,
    };

    if (w.kind->switches && w.kind->patched == KVMD_DIRTY_BITS) {
        rig_switch(w.rig, any(w.rand, 2) ? KVMD_LOG : KVMD_DIRTY_BITS);
    } else if (w.kind->switches) {
        rig_switch(w.rig, to[any(w.rand, G_N_ELEMENTS(to))]);
    }
}

static void step_stats(void)
{
    KvmDirtyStats stats;

    kvmd_stats(w.rig->kvmd, &stats);
    g_assert_cmpuint(stats.logged_slots, <=, BLOCKS);
    g_usleep(any(w.rand, 2000));
}

static void step(void)
{
    static void (*const steps[])(void) = {
        step_sync, step_sync, step_sync, step_log, step_slot, step_cpu,
        step_stats, step_stats, step_switch, step_check,
    };

    steps[any(w.rand, G_N_ELEMENTS(steps))]();
}

static uint64_t writes(void)
{
    uint64_t n = 0;

    for (int i = 0; i < VCPUS; i++) {
        n += __atomic_load_n(&w.cpus[i].writes, __ATOMIC_RELAXED);
    }
    return n;
}

static bool overflows(const Kind *kind)
{
    return kind->unasked || kind->soft_limit_off;
}

static Rig *patched_rig(const Kind *kind)
{
    FakeConfig fake = { FAKE_LINUX_6_1, .patched = FAKE_PATCHED };
    KvmDirtyConfig config = { kind->patched, 0 };

    fake.manual_caps = kind->manual_caps;
    return rig_new(&fake, &config);
}

static void world_new(const Kind *kind)
{
    w.kind = kind;
    w.rig = kind->ring ? rig_new_ring(kind->size) :
        kind->patched ? patched_rig(kind) : rig_new_log(kind->manual_caps);
    w.rig->fake->soft_limit_off = kind->soft_limit_off;
    /* This searches all rings for each page: not with large ones. */
    w.rig->strict = kind->ring && kind->size < 1024 && !overflows(kind);
    w.rig->chunk = 100;
    w.rand = g_rand_new_with_seed(g_test_rand_int());
    w.stop = false;
    g_mutex_init(&w.display_lock);
    w.rig->gpa_shift = 36;      /* a chunk of a collect for each slot */
    for (int i = 0; i < BLOCKS; i++) {
        w.blocks[i] = rig_add(w.rig, i, block_pages[i], true);
    }
    for (int i = 0; i < VCPUS; i++) {
        w.cpus[i].vcpu = rig_vcpu(w.rig, i);
        w.cpus[i].rand = g_rand_new_with_seed(g_test_rand_int());
        w.cpus[i].writes = w.cpus[i].unasked = 0;
        g_mutex_init(&w.cpus[i].lock);
    }
}

static void threads_start(void)
{
    rig_reaper_start(w.rig);
    if (w.kind->patched) {
        w.display = g_thread_new("display", display_thread,
                                 g_rand_new_with_seed(g_test_rand_int()));
    }
    for (int i = 0; i < VCPUS; i++) {
        w.cpus[i].thread = g_thread_new("vcpu", cpu_thread, &w.cpus[i]);
    }
}

static void threads_join(void)
{
    __atomic_store_n(&w.stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < VCPUS; i++) {
        g_thread_join(w.cpus[i].thread);
    }
    if (w.kind->patched) {
        g_thread_join(w.display);
    }
    rig_reaper_stop(w.rig);
}

static void world_free(void)
{
    for (int i = 0; i < VCPUS; i++) {
        rig_vcpu_free(w.cpus[i].vcpu);
        g_rand_free(w.cpus[i].rand);
        g_mutex_clear(&w.cpus[i].lock);
    }
    g_mutex_clear(&w.display_lock);
    g_rand_free(w.rand);
    rig_free(w.rig);
}

/* Whatever happened before, every vCPU can write, and no page is lost. */
static void end(void)
{
    for (int i = 0; i < BLOCKS; i++) {
        if (!w.blocks[i]->attached) {
            rig_attach(w.rig, w.blocks[i], i, true);
        } else if (!w.blocks[i]->tracked) {
            rig_log(w.rig, i, true);
        }
    }
    for (int i = 0; i < VCPUS; i++) {
        if (!w.cpus[i].vcpu->kvmd) {
            rig_vcpu_add(w.cpus[i].vcpu);
        }
        rig_write_range(w.cpus[i].vcpu, 0, 0, block_pages[0]);
        rig_sync(w.rig);
        rig_check(w.rig);
    }
}

static uint64_t lost(void)
{
    uint64_t n = 0;

    for (int i = 0; i < VCPUS; i++) {
        n += w.cpus[i].vcpu->fake->lost;
    }
    return n;
}

static void test_kind(const void *data)
{
    const Kind *kind = data;
    gint64 begin = g_get_monotonic_time();

    world_new(kind);
    threads_start();
    for (int i = 0; i < STEPS || writes() < WRITES; i++) {
        g_assert_cmpint(g_get_monotonic_time() - begin, <, PATIENCE);
        step();
    }
    threads_join();
    rig_last_sync(w.rig);
    rig_check(w.rig);
    /* The kind of trouble that was asked for did come. */
    g_assert_cmpint(lost() > 0, ==, overflows(kind));
    if (lost()) {
        g_assert_cmpuint(rig_overflows(w.rig), >, 0);
    }
    end();
    world_free();
}

int main(int argc, char **argv)
{
    static const Kind small = { .ring = true, .size = 128 };
    static const Kind large = { .ring = true, .size = 4096 };
    static const Kind late = { .ring = true, .size = 128, .unasked = 200 };
    static const Kind late_large = {
        .ring = true, .size = 1024, .unasked = 1500
    };
    static const Kind never = {
        .ring = true, .size = 128, .soft_limit_off = true
    };
    static const Kind log = { .manual_caps = 0 };
    static const Kind log_manual = { .manual_caps = FAKE_MANUAL_CAPS };
    static const Kind wrprot = { .patched = KVMD_WRPROT };
    static const Kind shared = { .patched = KVMD_SHARED };
    static const Kind dirty_bits = { .patched = KVMD_DIRTY_BITS };
    static const Kind switches = { .patched = KVMD_SHARED, .switches = true };
    static const Kind dirty_bits_switches = {
        .patched = KVMD_DIRTY_BITS, .switches = true
    };

    g_test_init(&argc, &argv, NULL);
    g_test_add_data_func("/stress/ring-128", &small, test_kind);
    g_test_add_data_func("/stress/ring-4096", &large, test_kind);
    g_test_add_data_func("/stress/asked-late-128", &late, test_kind);
    g_test_add_data_func("/stress/asked-late-1024", &late_large, test_kind);
    g_test_add_data_func("/stress/never-asked-128", &never, test_kind);
    g_test_add_data_func("/stress/log", &log, test_kind);
    g_test_add_data_func("/stress/log-manual", &log_manual, test_kind);
    g_test_add_data_func("/stress/wrprot", &wrprot, test_kind);
    g_test_add_data_func("/stress/shared", &shared, test_kind);
    g_test_add_data_func("/stress/dirty-bits", &dirty_bits, test_kind);
    g_test_add_data_func("/stress/switches", &switches, test_kind);
    g_test_add_data_func("/stress/dirty-bits-switches", &dirty_bits_switches,
                         test_kind);
    return g_test_run();
}
