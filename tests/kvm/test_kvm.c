/*
 * The engine on the real /dev/kvm: no page is lost.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Round by round the guest writes, the engine is asked what, and that is
 * copied.  When the guest stands still and a last sync is done, memory and
 * copy are equal byte for byte.
 */

#include "vmm.h"

#define GPA (16 << 20)
#define ROUND_US 40000
#define PATIENCE (120 * G_USEC_PER_SEC)

/* One after the other in the guest's memory; none is a multiple of 64. */
static const uint64_t pages[VMM_SLOTS] = { 1003, 517, 77 };

#define PAGES (1003 + 517 + 77)

typedef struct Scenario Scenario;

/* How the guest is tracked, and what happens to it. */
typedef struct Kind {
    const char *name;
    KvmDirtyConfig config;
    int vcpus;
    bool reaper;
    bool user;                  /* see vmm_new() */
    const Scenario *scenario;
} Kind;

struct Scenario {
    const char *name;
    /* One round, in which the guest runs. */
    void (*round)(Vmm *m, const Kind *kind, int round);
    int rounds;
    unsigned storm;             /* microseconds between signals; 0: none */
};

static Vmm *machine_new(const Kind *kind)
{
    uint64_t gpa = GPA;
    Vmm *m = vmm_new(&kind->config, kind->vcpus, kind->user);

    m->storm = kind->scenario->storm;
    for (int n = 0; n < VMM_SLOTS; n++) {
        vmm_slot_init(m, n, gpa, pages[n]);
        vmm_slot_set(m, n, true, true);
        gpa += pages[n] * 4096;
    }
    for (int i = 0; i < kind->vcpus; i++) {
        vmm_vcpu_program(&m->vcpus[i], GPA, PAGES);
    }
    if (kind->reaper) {
        vmm_reaper_start(m);
    }
    return m;
}

static void machine_free(Vmm *m)
{
    KvmDirtyStats s;

    kvmd_stats(m->kvmd, &s);
    g_test_message("pages %" G_GUINT64_FORMAT ", ring full %" G_GUINT64_FORMAT
                   ", overflows %" G_GUINT64_FORMAT ", reaps %"
                   G_GUINT64_FORMAT ", passes %u",
                   (guint64)s.pages, (guint64)s.ring_full_exits,
                   (guint64)s.overflows, (guint64)s.reaps,
                   vmm_vcpu_stamp(&m->vcpus[0], 0, 0));
    if (m->reaper) {
        vmm_reaper_stop(m);
    }
    vmm_free(m);
}

/* The vCPUs stand still. */
static void check(Vmm *m)
{
    vmm_sync(m);
    for (int n = 0; n < VMM_SLOTS; n++) {
        if (m->slots[n].logged) {
            g_assert_cmpuint(vmm_slot_lost(&m->slots[n]), ==, 0);
        }
    }
}

/*
 * Each vCPU gets through all of its pages again: it is not stuck leaving with
 * a ring that is full and stays so.
 */
static void goes_on(Vmm *m)
{
    gint64 begin = g_get_monotonic_time();

    for (int i = 0; i < m->n_vcpus; i++) {
        uint32_t stamp = vmm_vcpu_stamp(&m->vcpus[i], 0, 0);

        while (vmm_vcpu_stamp(&m->vcpus[i], 0, 0) - stamp < 2) {
            g_assert_cmpint(g_get_monotonic_time() - begin, <, PATIENCE);
            g_usleep(1000);
        }
    }
}

static void check_standing(Vmm *m)
{
    vmm_stop(m);
    check(m);
    vmm_start(m);
}

/* "log" and rings are everywhere; a host without them is to be heard of. */
static bool is_patched(KvmDirtyMechanism mechanism)
{
    return mechanism == KVMD_WRPROT || mechanism == KVMD_SHARED ||
        mechanism == KVMD_DIRTY_BITS;
}

static bool skipped(const Kind *kind)
{
    g_autofree char *why = NULL;

    if (!vmm_possible()) {
        why = g_strdup("there is no /dev/kvm that can be opened");
    } else if (is_patched(kind->config.mechanism)) {
        why = vmm_refusal(&kind->config);
    }
    if (why) {
        g_test_skip(why);
    }
    return why != NULL;
}

static void test(const void *data)
{
    const Kind *kind = data;
    const Scenario *scenario = kind->scenario;
    timer_t timer = NULL;
    Vmm *m;

    if (skipped(kind)) {
        return;
    }
    m = machine_new(kind);
    if (scenario->storm) {
        timer = vmm_storm(scenario->storm);
    }
    vmm_start(m);
    for (int round = 0; round < scenario->rounds; round++) {
        scenario->round(m, kind, round);
    }
    goes_on(m);
    vmm_stop(m);
    check(m);
    if (scenario->storm) {
        timer_delete(timer);
    }
    g_assert_cmpuint(m->copied, >, PAGES);
    machine_free(m);
}

static void round_sync(Vmm *m, const Kind *kind, int round)
{
    (void)kind;
    g_usleep(ROUND_US);
    vmm_sync(m);
    if (round % 4 == 3) {
        check_standing(m);
    }
}

/*
 * "log" and "wrprot" cannot know what is written between the last harvest and
 * the removal: there the guest has to stand still.
 */
static bool has_to_stand(KvmDirtyMechanism mechanism)
{
    return mechanism == KVMD_LOG || mechanism == KVMD_WRPROT;
}

static void remove_and_check(Vmm *m, int n, bool still)
{
    if (still) {
        vmm_stop(m);
        vmm_sync(m);
    }
    vmm_slot_set(m, n, false, false);
    g_assert_cmpuint(vmm_slot_lost(&m->slots[n]), ==, 0);
    if (still) {
        vmm_start(m);
    }
}

/* Slots come and go under the running guest. */
static void round_slots(Vmm *m, const Kind *kind, int round)
{
    int n = round % VMM_SLOTS;

    g_usleep(ROUND_US);
    remove_and_check(m, n, has_to_stand(kind->config.mechanism));
    g_usleep(ROUND_US / 4);
    vmm_slot_set(m, n, true, true);
    check_standing(m);
}

/* Logging ends and begins again under the running guest. */
static void round_toggle(Vmm *m, const Kind *kind, int round)
{
    int n = round % VMM_SLOTS;

    (void)kind;
    g_usleep(ROUND_US);
    vmm_slot_set(m, n, true, false);
    g_usleep(ROUND_US / 4);
    vmm_sync(m);
    vmm_slot_set(m, n, true, true);
    check_standing(m);
}

/* As a display, somebody who counts pages and a migration do. */
static void round_mixed(Vmm *m, const Kind *kind, int round)
{
    (void)kind;
    g_usleep(ROUND_US / 4);
    vmm_slot_sync(m, round % VMM_SLOTS);
    g_usleep(ROUND_US / 4);
    vmm_harvest(m);
    g_usleep(ROUND_US / 4);
    vmm_slot_sync(m, (round + 1) % VMM_SLOTS);
    check_standing(m);
}

/* As a migration: ahead of each sync, and now and then it brakes the guest. */
static void round_ahead(Vmm *m, const Kind *kind, int round)
{
    (void)kind;
    g_usleep(ROUND_US / 2);
    if (round % 2) {
        kvmd_brake(m->kvmd);
    }
    kvmd_sync_ahead(m->kvmd, KVMD_AHEAD_ROUND);
    g_usleep(ROUND_US / 8);
    vmm_sync(m);
    g_usleep(ROUND_US / 4);
    kvmd_sync_ahead(m->kvmd, KVMD_AHEAD_STOP);
    check_standing(m);
}

/* From each mechanism to each other that is to be had, while the guest runs. */
static void round_switched(Vmm *m, const Kind *kind, int round)
{
    static const KvmDirtyMechanism by_faults[] = {
        KVMD_LOG, KVMD_WRPROT, KVMD_LOG, KVMD_SHARED, KVMD_WRPROT,
        KVMD_SHARED,
    };
    static const KvmDirtyMechanism collected[] = {
        KVMD_LOG, KVMD_DIRTY_BITS, KVMD_LOG, KVMD_LOG, KVMD_DIRTY_BITS,
        KVMD_DIRTY_BITS,
    };
    const KvmDirtyMechanism *to =
        kind->config.mechanism == KVMD_DIRTY_BITS ? collected : by_faults;

    g_usleep(ROUND_US / 2);
    vmm_harvest(m);
    g_usleep(ROUND_US / 2);
    vmm_switch(m, to[round % G_N_ELEMENTS(by_faults)]);
    if (round % 2) {
        vmm_sync(m);
    }
    check_standing(m);
}

static const Kind kinds[] = {
    { .name = "log", .config = { KVMD_LOG, 0 }, .vcpus = 2 },
    { .name = "ring-1024", .config = { KVMD_RING, 1024 }, .vcpus = 1 },
    { .name = "ring-1024-reaper", .config = { KVMD_RING, 1024 }, .vcpus = 2,
      .reaper = true },
    { .name = "ring-4096", .config = { KVMD_RING, 4096 }, .vcpus = 2,
      .reaper = true },
    { .name = "ring-65536", .config = { KVMD_RING, 65536 }, .vcpus = 2 },
    { .name = "wrprot", .config = { KVMD_WRPROT, 0 }, .vcpus = 2 },
    { .name = "shared", .config = { KVMD_SHARED, 0 }, .vcpus = 2 },
    { .name = "dirty-bits", .config = { KVMD_DIRTY_BITS, 0 }, .vcpus = 2 },
};

static const Scenario scenarios[] = {
    { "", round_sync, 12, 0 },
    { "signals-", round_sync, 8, 100 },
    { "slots-", round_slots, 9, 0 },
    { "toggle-", round_toggle, 9, 0 },
    { "mixed-", round_mixed, 9, 0 },
    { "ahead-", round_ahead, 8, 0 },
};

static const Scenario switched = { "switched-", round_switched, 12, 0 };

static void add(const Kind *kind, const Scenario *scenario, bool user)
{
    g_autofree char *name =
        g_strconcat("/kvm/", user ? "user-" : "", scenario->name, kind->name,
                    NULL);
    Kind *added = g_new(Kind, 1);

    *added = *kind;
    added->scenario = scenario;
    added->user = user;
    g_test_add_data_func_full(name, added, test, g_free);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    for (size_t k = 0; k < G_N_ELEMENTS(kinds); k++) {
        KvmDirtyMechanism mechanism = kinds[k].config.mechanism;

        for (int user = 0; user < 2; user++) {
            for (size_t s = 0; s < G_N_ELEMENTS(scenarios); s++) {
                add(&kinds[k], &scenarios[s], user);
            }
            if (mechanism == KVMD_SHARED || mechanism == KVMD_DIRTY_BITS) {
                add(&kinds[k], &switched, user);
            }
        }
    }
    return g_test_run();
}
