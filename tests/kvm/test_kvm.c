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
#define PATIENCE (30 * G_USEC_PER_SEC)

/* One after the other in the guest's memory; none is a multiple of 64. */
static const uint64_t pages[VMM_SLOTS] = { 1003, 517, 77 };

#define PAGES (1003 + 517 + 77)

typedef struct Kind {
    KvmDirtyConfig config;
    int vcpus;
    bool user;                  /* see vmm_new() */
    bool reaper;
    unsigned storm;             /* microseconds between signals; 0: none */
    int rounds;
} Kind;

static Vmm *machine_new(const Kind *kind)
{
    uint64_t gpa = GPA;
    Vmm *m = vmm_new(&kind->config, kind->vcpus, kind->user);

    m->storm = kind->storm;
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

static void test_rounds(const void *data)
{
    const Kind *kind = data;
    timer_t timer = NULL;
    Vmm *m;

    if (skipped(kind)) {
        return;
    }
    m = machine_new(kind);
    if (kind->storm) {
        timer = vmm_storm(kind->storm);
    }
    vmm_start(m);
    for (int round = 0; round < kind->rounds; round++) {
        g_usleep(ROUND_US);
        vmm_sync(m);
        if (round % 4 == 3) {
            check_standing(m);
        }
    }
    goes_on(m);
    vmm_stop(m);
    check(m);
    if (kind->storm) {
        timer_delete(timer);
    }
    g_assert_cmpuint(m->copied, >, PAGES);
    machine_free(m);
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
static void test_slots(const void *data)
{
    const Kind *kind = data;
    Vmm *m;

    if (skipped(kind)) {
        return;
    }
    m = machine_new(kind);
    vmm_start(m);
    for (int round = 0; round < kind->rounds; round++) {
        int n = round % VMM_SLOTS;

        g_usleep(ROUND_US);
        remove_and_check(m, n, has_to_stand(kind->config.mechanism));
        g_usleep(ROUND_US / 4);
        vmm_slot_set(m, n, true, true);
        check_standing(m);
    }
    goes_on(m);
    vmm_stop(m);
    check(m);
    machine_free(m);
}

/* Logging ends and begins again under the running guest. */
static void test_log_toggled(const void *data)
{
    const Kind *kind = data;
    Vmm *m;

    if (skipped(kind)) {
        return;
    }
    m = machine_new(kind);
    vmm_start(m);
    for (int round = 0; round < kind->rounds; round++) {
        int n = round % VMM_SLOTS;

        g_usleep(ROUND_US);
        vmm_slot_set(m, n, true, false);
        g_usleep(ROUND_US / 4);
        vmm_sync(m);
        vmm_slot_set(m, n, true, true);
        check_standing(m);
    }
    goes_on(m);
    vmm_stop(m);
    check(m);
    machine_free(m);
}

/* As a display, somebody who counts pages and a migration do. */
static void test_mixed(const void *data)
{
    const Kind *kind = data;
    Vmm *m;

    if (skipped(kind)) {
        return;
    }
    m = machine_new(kind);
    vmm_start(m);
    for (int round = 0; round < kind->rounds; round++) {
        g_usleep(ROUND_US / 4);
        vmm_slot_sync(m, round % VMM_SLOTS);
        g_usleep(ROUND_US / 4);
        vmm_harvest(m);
        g_usleep(ROUND_US / 4);
        vmm_slot_sync(m, (round + 1) % VMM_SLOTS);
        check_standing(m);
    }
    goes_on(m);
    vmm_stop(m);
    check(m);
    machine_free(m);
}

/* From each mechanism to each other that is to be had, while the guest runs. */
static void test_switched(const void *data)
{
    static const KvmDirtyMechanism by_faults[] = {
        KVMD_LOG, KVMD_WRPROT, KVMD_LOG, KVMD_SHARED, KVMD_WRPROT,
        KVMD_SHARED,
    };
    static const KvmDirtyMechanism collected[] = {
        KVMD_LOG, KVMD_DIRTY_BITS, KVMD_LOG, KVMD_LOG, KVMD_DIRTY_BITS,
        KVMD_DIRTY_BITS,
    };
    const Kind *kind = data;
    const KvmDirtyMechanism *to =
        kind->config.mechanism == KVMD_DIRTY_BITS ? collected : by_faults;
    Vmm *m;

    if (skipped(kind)) {
        return;
    }
    m = machine_new(kind);
    vmm_start(m);
    for (int round = 0; round < kind->rounds; round++) {
        g_usleep(ROUND_US / 2);
        vmm_harvest(m);
        g_usleep(ROUND_US / 2);
        vmm_switch(m, to[round % G_N_ELEMENTS(by_faults)]);
        if (round % 2) {
            vmm_sync(m);
        }
        check_standing(m);
    }
    goes_on(m);
    vmm_stop(m);
    check(m);
    machine_free(m);
}

#define LOG { KVMD_LOG, 0 }
#define WRPROT { KVMD_WRPROT, 0 }
#define SHARED { KVMD_SHARED, 0 }
#define DIRTY_BITS { KVMD_DIRTY_BITS, 0 }
#define RING(size) { KVMD_RING, size }

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        GTestDataFunc test;
        Kind kind;
    } tests[] = {
        { "/kvm/log", test_rounds,
          { LOG, 2, false, false, 0, 12 } },
        { "/kvm/ring-1024", test_rounds,
          { RING(1024), 1, false, false, 0, 16 } },
        { "/kvm/ring-1024-reaper", test_rounds,
          { RING(1024), 2, false, true, 0, 16 } },
        { "/kvm/ring-4096", test_rounds,
          { RING(4096), 2, false, true, 0, 16 } },
        { "/kvm/ring-65536", test_rounds,
          { RING(65536), 2, false, false, 0, 16 } },
        { "/kvm/slots-log", test_slots,
          { LOG, 2, false, false, 0, 9 } },
        { "/kvm/slots-ring-1024", test_slots,
          { RING(1024), 2, false, true, 0, 12 } },
        { "/kvm/slots-ring-65536", test_slots,
          { RING(65536), 2, false, true, 0, 12 } },
        { "/kvm/toggle-log", test_log_toggled,
          { LOG, 2, false, false, 0, 9 } },
        { "/kvm/toggle-ring-4096", test_log_toggled,
          { RING(4096), 2, false, true, 0, 12 } },
        { "/kvm/signals-log", test_rounds,
          { LOG, 1, false, false, 100, 8 } },
        { "/kvm/signals-ring-1024", test_rounds,
          { RING(1024), 2, false, true, 100, 16 } },
        { "/kvm/signals-ring-4096", test_rounds,
          { RING(4096), 1, false, true, 100, 16 } },
        { "/kvm/signals-ring-65536", test_rounds,
          { RING(65536), 1, false, false, 100, 16 } },
        { "/kvm/user-log", test_rounds,
          { LOG, 2, true, false, 0, 12 } },
        { "/kvm/user-ring-1024", test_rounds,
          { RING(1024), 1, true, false, 0, 16 } },
        { "/kvm/user-ring-1024-reaper", test_rounds,
          { RING(1024), 2, true, true, 0, 16 } },
        { "/kvm/user-ring-4096", test_rounds,
          { RING(4096), 2, true, true, 0, 16 } },
        { "/kvm/user-ring-65536", test_rounds,
          { RING(65536), 2, true, false, 0, 16 } },
        { "/kvm/user-slots-log", test_slots,
          { LOG, 2, true, false, 0, 9 } },
        { "/kvm/user-slots-ring-1024", test_slots,
          { RING(1024), 2, true, true, 0, 12 } },
        { "/kvm/user-slots-ring-65536", test_slots,
          { RING(65536), 2, true, true, 0, 12 } },
        { "/kvm/user-toggle-log", test_log_toggled,
          { LOG, 2, true, false, 0, 9 } },
        { "/kvm/user-toggle-ring-4096", test_log_toggled,
          { RING(4096), 2, true, true, 0, 12 } },
        { "/kvm/user-signals-log", test_rounds,
          { LOG, 1, true, false, 100, 8 } },
        { "/kvm/user-signals-ring-1024", test_rounds,
          { RING(1024), 2, true, true, 100, 16 } },
        { "/kvm/user-signals-ring-4096", test_rounds,
          { RING(4096), 1, true, true, 100, 16 } },
        { "/kvm/user-signals-ring-65536", test_rounds,
          { RING(65536), 1, true, false, 100, 16 } },
        { "/kvm/wrprot", test_rounds,
          { WRPROT, 2, false, false, 0, 12 } },
        { "/kvm/mixed-wrprot", test_mixed,
          { WRPROT, 2, false, false, 0, 12 } },
        { "/kvm/slots-wrprot", test_slots,
          { WRPROT, 2, false, false, 0, 12 } },
        { "/kvm/toggle-wrprot", test_log_toggled,
          { WRPROT, 2, false, false, 0, 9 } },
        { "/kvm/signals-wrprot", test_rounds,
          { WRPROT, 1, false, false, 100, 8 } },
        { "/kvm/shared", test_rounds,
          { SHARED, 2, false, false, 0, 12 } },
        { "/kvm/mixed-shared", test_mixed,
          { SHARED, 2, false, false, 0, 12 } },
        { "/kvm/slots-shared", test_slots,
          { SHARED, 2, false, false, 0, 12 } },
        { "/kvm/toggle-shared", test_log_toggled,
          { SHARED, 2, false, false, 0, 9 } },
        { "/kvm/signals-shared", test_rounds,
          { SHARED, 1, false, false, 100, 8 } },
        { "/kvm/mixed-log", test_mixed,
          { LOG, 2, false, false, 0, 9 } },
        { "/kvm/switched", test_switched,
          { SHARED, 2, false, false, 0, 12 } },
        { "/kvm/user-wrprot", test_rounds,
          { WRPROT, 2, true, false, 0, 12 } },
        { "/kvm/user-mixed-wrprot", test_mixed,
          { WRPROT, 2, true, false, 0, 12 } },
        { "/kvm/user-slots-wrprot", test_slots,
          { WRPROT, 2, true, false, 0, 12 } },
        { "/kvm/user-toggle-wrprot", test_log_toggled,
          { WRPROT, 2, true, false, 0, 9 } },
        { "/kvm/user-signals-wrprot", test_rounds,
          { WRPROT, 1, true, false, 100, 8 } },
        { "/kvm/user-shared", test_rounds,
          { SHARED, 2, true, false, 0, 12 } },
        { "/kvm/user-mixed-shared", test_mixed,
          { SHARED, 2, true, false, 0, 12 } },
        { "/kvm/user-slots-shared", test_slots,
          { SHARED, 2, true, false, 0, 12 } },
        { "/kvm/user-toggle-shared", test_log_toggled,
          { SHARED, 2, true, false, 0, 9 } },
        { "/kvm/user-signals-shared", test_rounds,
          { SHARED, 1, true, false, 100, 8 } },
        { "/kvm/user-mixed-log", test_mixed,
          { LOG, 2, true, false, 0, 9 } },
        { "/kvm/user-switched", test_switched,
          { SHARED, 2, true, false, 0, 12 } },
        { "/kvm/dirty-bits", test_rounds,
          { DIRTY_BITS, 2, false, false, 0, 12 } },
        { "/kvm/mixed-dirty-bits", test_mixed,
          { DIRTY_BITS, 2, false, false, 0, 12 } },
        { "/kvm/slots-dirty-bits", test_slots,
          { DIRTY_BITS, 2, false, false, 0, 12 } },
        { "/kvm/toggle-dirty-bits", test_log_toggled,
          { DIRTY_BITS, 2, false, false, 0, 9 } },
        { "/kvm/signals-dirty-bits", test_rounds,
          { DIRTY_BITS, 1, false, false, 100, 8 } },
        { "/kvm/dirty-bits-and-log", test_switched,
          { DIRTY_BITS, 2, false, false, 0, 12 } },
        { "/kvm/user-dirty-bits", test_rounds,
          { DIRTY_BITS, 2, true, false, 0, 12 } },
        { "/kvm/user-mixed-dirty-bits", test_mixed,
          { DIRTY_BITS, 2, true, false, 0, 12 } },
        { "/kvm/user-slots-dirty-bits", test_slots,
          { DIRTY_BITS, 2, true, false, 0, 12 } },
        { "/kvm/user-toggle-dirty-bits", test_log_toggled,
          { DIRTY_BITS, 2, true, false, 0, 9 } },
        { "/kvm/user-signals-dirty-bits", test_rounds,
          { DIRTY_BITS, 1, true, false, 100, 8 } },
        { "/kvm/user-dirty-bits-and-log", test_switched,
          { DIRTY_BITS, 2, true, false, 0, 12 } },
    };

    g_test_init(&argc, &argv, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(tests); i++) {
        g_test_add_data_func(tests[i].name, &tests[i].kind, tests[i].test);
    }
    return g_test_run();
}
