/*
 * kvmd_switch(): from one mechanism to another while slots are logged.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "race.h"

#include <errno.h>
#include <linux/kvm_dirty_tracking.h>
#include <string.h>

#define PAGES 1100
#define OTHER (1 << 16 | 3)
#define OTHER_PAGES 77

static const KvmDirtyMechanism mechanisms[] = {
    KVMD_LOG, KVMD_WRPROT, KVMD_SHARED, KVMD_DIRTY_BITS,
};

/* The number of pairs. */
#define PAIRS (G_N_ELEMENTS(mechanisms) * G_N_ELEMENTS(mechanisms))

typedef struct Pair {
    KvmDirtyMechanism from;
    KvmDirtyMechanism to;
} Pair;

static bool with_dirty_bits(Pair p)
{
    return p.from == KVMD_DIRTY_BITS || p.to == KVMD_DIRTY_BITS;
}

/* Returns: false if a VM with dirty bits cannot have the other. */
static bool pair_at(size_t number, Pair *p)
{
    p->from = mechanisms[number % G_N_ELEMENTS(mechanisms)];
    p->to = mechanisms[number / G_N_ELEMENTS(mechanisms)];
    return !with_dirty_bits(*p) ||
        ((p->from == KVMD_LOG || p->from == KVMD_DIRTY_BITS) &&
         (p->to == KVMD_LOG || p->to == KVMD_DIRTY_BITS));
}

static const int all_caps[] = {
    0, KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE, FAKE_MANUAL_CAPS
};

static RigVcpu *the_vcpu;

static Rig *two_slots(const FakeConfig *fake, KvmDirtyMechanism m)
{
    KvmDirtyConfig config = { m, 0 };
    Rig *r = rig_new(fake, &config);

    the_vcpu = rig_vcpu(r, 0);
    rig_add(r, 0, PAGES, true);
    rig_add(r, OTHER, OTHER_PAGES, true);
    rig_add(r, 1, 100, false);
    return r;
}

/* A VM that may use both, and uses the first. */
static Rig *two_slots_of(Pair p, int manual_caps)
{
    FakeConfig fake = { FAKE_LINUX_6_1, .patched = FAKE_WITHOUT_DIRTY_BITS };
    Rig *r;

    fake.patched |= with_dirty_bits(p) ? FAKE_CAN_COLLECT : 0;
    fake.manual_caps = manual_caps;
    r = two_slots(&fake, KVMD_AUTO);
    rig_switch(r, p.from);
    rig_sync(r);
    rig_forget(r);
    return r;
}

static Rig *two_slots_with(KvmDirtyMechanism m, int manual_caps)
{
    return two_slots_of((Pair) { m, m }, manual_caps);
}

static void two_slots_free(Rig *r)
{
    rig_vcpu_free(the_vcpu);
    rig_free(r);
}

static void write_some(Rig *r)
{
    (void)r;
    rig_write_range(the_vcpu, 0, 0, 70);
    rig_write(the_vcpu, 0, 1099);
    rig_write_range(the_vcpu, OTHER, 60, 10);
}

static void write_meanwhile(Rig *r)
{
    (void)r;
    rig_force(the_vcpu, 0, 0);
    rig_force(the_vcpu, 0, 70);
    rig_force(the_vcpu, 0, 600);
    rig_force(the_vcpu, OTHER, 60);
    rig_force(the_vcpu, OTHER, 76);
}

/* Tracking goes on as it does without a switch. */
static void goes_on(Rig *r)
{
    for (int i = 0; i < 3; i++) {
        write_some(r);
        rig_slot_sync(r, OTHER);
        rig_harvest(r);
        write_some(r);
        g_assert_cmpint(rig_sync(r), ==, 0);
        rig_check(r);
    }
    g_assert_cmpuint(r->warnings->len, ==, 0);
}

/*
 * Leave pages that were written, pages that were harvested and have yet to be
 * re-armed, and pages that are both.
 */
static void leave_pending(Rig *r)
{
    write_some(r);
    rig_harvest(r);
    rig_write_range(the_vcpu, 0, 60, 20);
}

static bool switch_once(Pair p, int manual_caps, unsigned n)
{
    Rig *r = two_slots_of(p, manual_caps);
    bool raced;

    r->strict = p.from != KVMD_LOG && p.to != KVMD_LOG;
    leave_pending(r);
    race_begin(r, n, write_meanwhile);
    rig_switch(r, p.to);
    raced = race_end();
    g_assert_cmpint(kvmd_mechanism(r->kvmd), ==, p.to);
    g_assert_cmpint(rig_sync(r), ==, 0);
    rig_check(r);
    goes_on(r);
    two_slots_free(r);
    return raced;
}

/* From each mechanism to each, with a vCPU that writes at any point. */
static void test_pairs(void)
{
    for (size_t i = 0; i < PAIRS * G_N_ELEMENTS(all_caps); i++) {
        unsigned n = 1;
        Pair p;

        if (pair_at(i % PAIRS, &p)) {
            while (switch_once(p, all_caps[i / PAIRS], n)) {
                n++;
            }
            g_assert_cmpuint(n, >, p.from == p.to ? 0 : 8);
        }
    }
}

/* Unlogged slots stay so; all pages of logged ones are published. */
static void test_published_whole(void)
{
    Rig *r = two_slots_with(KVMD_SHARED, FAKE_MANUAL_CAPS);
    KvmDirtyStats stats;

    rig_switch(r, KVMD_WRPROT);
    g_assert_cmpuint(rig_published(r->at[0][0]), ==, PAGES);
    g_assert_cmpuint(rig_published(r->at[1][3]), ==, OTHER_PAGES);
    g_assert_cmpuint(rig_published(r->at[0][1]), ==, 0);
    kvmd_stats(r->kvmd, &stats);
    g_assert_cmpuint(stats.logged_slots, ==, 2);
    rig_remove(r, 0);
    kvmd_stats(r->kvmd, &stats);
    g_assert_cmpuint(stats.logged_slots, ==, 1);
    two_slots_free(r);
}

static void to_the_same(KvmDirtyMechanism m, const char *says)
{
    Rig *r = two_slots_with(m, FAKE_MANUAL_CAPS);
    unsigned sets = r->fake->region_sets;

    rig_switch(r, KVMD_AUTO);
    g_assert_nonnull(strstr(kvmd_reason(r->kvmd), "set-dirty-tracking auto"));
    g_assert_cmpint(kvmd_choice(r->kvmd), ==, KVMD_CHOICE_AUTO);
    rig_switch(r, m);
    g_assert_nonnull(strstr(kvmd_reason(r->kvmd), says));
    g_assert_cmpint(kvmd_choice(r->kvmd), ==, KVMD_CHOICE_SWITCH);
    g_assert_cmpuint(r->fake->region_sets, ==, sets);
    g_assert_cmpuint(rig_published(r->at[0][0]), ==, 0);
    goes_on(r);
    two_slots_free(r);
}

/* To the mechanism that is in use: only the reason changes. */
static void test_to_the_same(void)
{
    to_the_same(KVMD_SHARED, "asked for with set-dirty-tracking shared");
    to_the_same(KVMD_DIRTY_BITS,
                "asked for with set-dirty-tracking dirty-bits");
}

/* To the best one: the better ones are no longer passed over. */
static void test_to_auto(void)
{
    Rig *r = two_slots_of((Pair) { KVMD_LOG, KVMD_DIRTY_BITS },
                          FAKE_MANUAL_CAPS);

    rig_switch(r, KVMD_AUTO);
    g_assert_cmpint(kvmd_mechanism(r->kvmd), ==, KVMD_DIRTY_BITS);
    for (int m = KVMD_AUTO; m < KVMD__MAX; m++) {
        g_assert_null(kvmd_passed_over(r->kvmd, m));
    }
    goes_on(r);
    two_slots_free(r);
    r = two_slots_with(KVMD_LOG, FAKE_MANUAL_CAPS);
    rig_switch(r, KVMD_AUTO);
    g_assert_cmpint(kvmd_mechanism(r->kvmd), ==, KVMD_SHARED);
    g_assert_nonnull(strstr(kvmd_passed_over(r->kvmd, KVMD_DIRTY_BITS)->message,
                            "KVM_CAP_DIRTY_BITS"));
    g_assert_null(kvmd_passed_over(r->kvmd, KVMD_SHARED));
    goes_on(r);
    two_slots_free(r);
}

/* "log" tells whether its pages are to be re-armed; the others' always are. */
static void test_clears(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(all_caps); i++) {
        Rig *r = two_slots_with(KVMD_LOG, all_caps[i]);

        g_assert_cmpint(kvmd_clears(r->kvmd), ==, all_caps[i] != 0);
        g_assert_cmpuint(r->fake->manual, ==, all_caps[i]);
        rig_switch(r, KVMD_WRPROT);
        g_assert_true(kvmd_clears(r->kvmd));
        g_assert_cmpuint(r->fake->manual, ==, 0);
        rig_switch(r, KVMD_LOG);
        g_assert_cmpint(kvmd_clears(r->kvmd), ==, all_caps[i] != 0);
        two_slots_free(r);
    }
}

/* @to is refused with a message that has each of @says; nothing changes. */
static void refused(Rig *r, KvmDirtyMechanism to, KvmDirtyError code,
                    const char *says, const char *and_says)
{
    KvmDirtyMechanism before = kvmd_mechanism(r->kvmd);
    g_autofree char *reason = g_strdup(kvmd_reason(r->kvmd));
    KvmDirtyChoice choice = kvmd_choice(r->kvmd);
    unsigned sets = r->fake->region_sets;
    g_autoptr(GError) error = NULL;

    leave_pending(r);
    g_assert_false(kvmd_switch(r->kvmd, to, &error));
    g_assert_error(error, KVMD_ERROR, (int)code);
    g_test_message("%s", error->message);
    g_assert_nonnull(strstr(error->message, says));
    g_assert_nonnull(strstr(error->message, and_says));
    g_assert_false(kvmd_switch(r->kvmd, to, NULL));
    g_assert_cmpint(kvmd_mechanism(r->kvmd), ==, before);
    g_assert_cmpstr(kvmd_reason(r->kvmd), ==, reason);
    g_assert_cmpint(kvmd_choice(r->kvmd), ==, choice);
    g_assert_cmpuint(r->fake->region_sets, ==, sets);
    g_assert_cmpint(kvmd_clears(r->kvmd), ==, r->clears);
    rig_sync(r);
    rig_check(r);
    goes_on(r);
}

static void test_from_ring(void)
{
    FakeConfig fake = {
        FAKE_LINUX_6_1, .patched = FAKE_PATCHED, .tiny_rings = true
    };

    for (int to = KVMD_AUTO; to < KVMD__MAX; to++) {
        Rig *r = two_slots(&fake, KVMD_RING);

        refused(r, to, KVMD_ERROR_STARTED, "away from dirty rings",
                "when the guest is started");
        two_slots_free(r);
    }
}

static void test_to_ring(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(mechanisms); i++) {
        Rig *r = two_slots_with(mechanisms[i], FAKE_MANUAL_CAPS);

        refused(r, KVMD_RING, KVMD_ERROR_STARTED, "to dirty rings",
                "when the guest is started");
        two_slots_free(r);
    }
}

/* A guest that was started with "log" cannot get what it did not ask for. */
static void test_started_as_log(void)
{
    static const KvmDirtyMechanism to[] = {
        KVMD_WRPROT, KVMD_SHARED, KVMD_DIRTY_BITS,
    };
    FakeConfig fake = { FAKE_LINUX_6_1, .patched = FAKE_PATCHED };

    for (size_t i = 0; i < G_N_ELEMENTS(to); i++) {
        Rig *r = two_slots(&fake, KVMD_LOG);

        refused(r, to[i], KVMD_ERROR_STARTED, "KVM_CAP_WRITE_PROTECT_ALL_MEM",
                "before the first vCPU");
        rig_switch(r, KVMD_AUTO);
        g_assert_cmpint(kvmd_mechanism(r->kvmd), ==, KVMD_LOG);
        g_assert_nonnull(strstr(kvmd_passed_over(r->kvmd, to[i])->message,
                                "before the first vCPU"));
        goes_on(r);
        two_slots_free(r);
    }
}

/* A guest with no vCPU yet can. */
static void test_started_as_log_without_a_vcpu(void)
{
    Rig *r = rig_new_patched(KVMD_LOG);

    rig_add(r, 0, PAGES, true);
    rig_add(r, OTHER, OTHER_PAGES, true);
    rig_switch(r, KVMD_SHARED);
    the_vcpu = rig_vcpu(r, 0);
    goes_on(r);
    two_slots_free(r);
}

/* For dirty bits, no slot may be logged either. */
static void test_started_as_log_without_a_logged_slot(void)
{
    Rig *r = rig_new_patched(KVMD_LOG);
    g_autoptr(GError) error = NULL;

    rig_add(r, 0, PAGES, true);
    rig_add(r, OTHER, OTHER_PAGES, false);
    g_assert_false(kvmd_switch(r->kvmd, KVMD_DIRTY_BITS, &error));
    g_assert_error(error, KVMD_ERROR, KVMD_ERROR_STARTED);
    rig_log(r, 0, false);
    rig_switch(r, KVMD_DIRTY_BITS);
    rig_log(r, 0, true);
    rig_log(r, OTHER, true);
    the_vcpu = rig_vcpu(r, 0);
    goes_on(r);
    two_slots_free(r);
}

/* A VM that was started without dirty bits does without. */
static void test_started_without_dirty_bits(void)
{
    static const KvmDirtyMechanism from[] = { KVMD_WRPROT, KVMD_SHARED };
    FakeConfig fake = { FAKE_LINUX_6_1, .patched = FAKE_PATCHED };

    for (size_t i = 0; i < G_N_ELEMENTS(from); i++) {
        Rig *r = two_slots(&fake, from[i]);

        refused(r, KVMD_DIRTY_BITS, KVMD_ERROR_STARTED, "KVM_CAP_DIRTY_BITS",
                "before the first vCPU");
        rig_switch(r, KVMD_LOG);
        rig_switch(r, KVMD_AUTO);
        g_assert_cmpint(kvmd_mechanism(r->kvmd), ==, KVMD_SHARED);
        g_assert_nonnull(strstr(kvmd_passed_over(r->kvmd, KVMD_DIRTY_BITS)->message,
                                "before the first vCPU"));
        goes_on(r);
        two_slots_free(r);
    }
}

/* A VM that has them keeps them: nothing that waits for faults works. */
static void test_dirty_bits_stay(void)
{
    static const KvmDirtyMechanism from[] = { KVMD_AUTO, KVMD_DIRTY_BITS };
    FakeConfig fake = { FAKE_LINUX_6_1, .patched = FAKE_PATCHED };

    for (size_t i = 0; i < G_N_ELEMENTS(from); i++) {
        Rig *r = two_slots(&fake, from[i]);

        for (int n = 0; n < 2; n++) {
            refused(r, KVMD_WRPROT, KVMD_ERROR_STARTED,
                    "dirty-tracking=wrprot",
                    "dirty-bits and log only");
            refused(r, KVMD_SHARED, KVMD_ERROR_STARTED,
                    "dirty-tracking=shared",
                    "started with KVM_CAP_DIRTY_BITS");
            rig_switch(r, KVMD_LOG);
        }
        rig_switch(r, KVMD_AUTO);
        g_assert_cmpint(kvmd_mechanism(r->kvmd), ==, KVMD_DIRTY_BITS);
        goes_on(r);
        two_slots_free(r);
    }
}

static void test_host_lacks_it(void)
{
    FakeConfig fake = { FAKE_LINUX_6_1 };
    Rig *r = two_slots(&fake, KVMD_AUTO);

    refused(r, KVMD_WRPROT, KVMD_ERROR_HOST, "dirty-tracking=wrprot",
            "KVM_CAP_WRITE_PROTECT_ALL_MEM");
    two_slots_free(r);
    fake.patched = FAKE_WITHOUT_DIRTY_BITS;
    r = two_slots(&fake, KVMD_AUTO);
    g_assert_cmpint(kvmd_mechanism(r->kvmd), ==, KVMD_SHARED);
    refused(r, KVMD_DIRTY_BITS, KVMD_ERROR_HOST, "dirty-tracking=dirty-bits",
            "lacks KVM_CAP_DIRTY_BITS");
    two_slots_free(r);
    fake.patched = FAKE_CAN_PROTECT | FAKE_CAN_FETCH;
    r = two_slots(&fake, KVMD_AUTO);
    g_assert_cmpint(kvmd_mechanism(r->kvmd), ==, KVMD_WRPROT);
    refused(r, KVMD_SHARED, KVMD_ERROR_HOST, "dirty-tracking=shared",
            "KVM_CAP_DIRTY_BITMAP_FD");
    two_slots_free(r);
    fake.patched = FAKE_CAN_PROTECT;
    r = two_slots(&fake, KVMD_AUTO);
    g_assert_cmpint(kvmd_mechanism(r->kvmd), ==, KVMD_LOG);
    refused(r, KVMD_SHARED, KVMD_ERROR_HOST, "dirty-tracking=shared",
            "KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT");
    two_slots_free(r);
}

/*
 * KVM refuses to take the log flag from a slot, so it goes on logging writes
 * to armed pages.  Pages that a harvest left un-armed must be armed by then.
 */
static void test_log_flag_stays(void)
{
    for (size_t i = 0; i < PAIRS; i++) {
        Pair p;
        Rig *r;

        if (!pair_at(i, &p)) {
            continue;
        }
        r = two_slots_of(p, FAKE_MANUAL_CAPS);
        leave_pending(r);
        fake_fail(r->fake, KVM_SET_USER_MEMORY_REGION, ENOMEM, 1);
        rig_switch(r, p.to);
        write_some(r);
        rig_sync(r);
        rig_check(r);
        goes_on(r);
        two_slots_free(r);
    }
}

/* KVM takes the flag from slot 0, but does not give it back. */
static void refuse_flag(void *opaque, FakePoint point, FakeVcpu *v)
{
    FakeKvm *k = opaque;

    (void)v;
    if (point == FAKE_REGION_END && !k->slots[0][0]->dirty) {
        k->inject[0] = (FakeInjection) {
            .request = KVM_SET_USER_MEMORY_REGION, .err = ENOMEM,
            .times = 2,         /* and of the other slot */
        };
        k->hook = NULL;
    }
}

/*
 * The mechanism that knows of un-armed pages has to stay: the log flag may be
 * refused as well, and then nobody would re-arm them.
 */
static void test_cannot_rearm(void)
{
    Rig *r = rig_new_patched(KVMD_SHARED);
    g_autoptr(GError) error = NULL;

    r->heedless = true;
    the_vcpu = rig_vcpu(r, 0);
    rig_add(r, 0, 300, true);
    rig_write(the_vcpu, 0, 11);
    rig_harvest(r);
    fake_fail(r->fake, KVM_WRITE_PROTECT_RANGE, ENOMEM, -1);
    fake_fail(r->fake, KVM_SET_USER_MEMORY_REGION, ENOMEM, -1);
    g_assert_false(rig_try_switch(r, KVMD_LOG, &error));
    g_assert_error(error, KVMD_ERROR, KVMD_ERROR_REFUSED);
    g_assert_nonnull(strstr(error->message, "re-arm"));
    g_assert_cmpint(kvmd_mechanism(r->kvmd), ==, KVMD_SHARED);
    rig_sync(r);
    rig_write(the_vcpu, 0, 11);
    fake_fail_no_more(r->fake);
    rig_sync(r);
    rig_check(r);
    rig_switch(r, KVMD_LOG);
    two_slots_free(r);
}

/* Then nobody logs the slot: all of its pages are published each time. */
static void test_log_flag_lost(void)
{
    for (size_t i = 0; i < PAIRS; i++) {
        Pair p;
        Rig *r;

        if (!pair_at(i, &p) || p.from == p.to) {
            continue;
        }
        r = two_slots_of(p, FAKE_MANUAL_CAPS);
        leave_pending(r);
        r->fake->hook = refuse_flag;
        r->fake->hook_opaque = r->fake;
        rig_switch(r, p.to);
        for (int n = 0; n < 3; n++) {
            write_some(r);
            g_assert_cmpint(rig_sync(r), ==, -ENOENT);
            rig_check(r);
        }
        rig_log(r, 0, false);
        rig_log(r, 0, true);
        write_some(r);
        g_assert_cmpint(rig_sync(r), ==, 0);
        rig_check(r);
        two_slots_free(r);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/switch/pairs", test_pairs);
    g_test_add_func("/switch/published-whole", test_published_whole);
    g_test_add_func("/switch/to-the-same", test_to_the_same);
    g_test_add_func("/switch/to-auto", test_to_auto);
    g_test_add_func("/switch/clears", test_clears);
    g_test_add_func("/switch/from-ring", test_from_ring);
    g_test_add_func("/switch/to-ring", test_to_ring);
    g_test_add_func("/switch/started-as-log", test_started_as_log);
    g_test_add_func("/switch/started-as-log-without-a-vcpu",
                    test_started_as_log_without_a_vcpu);
    g_test_add_func("/switch/started-as-log-without-a-logged-slot",
                    test_started_as_log_without_a_logged_slot);
    g_test_add_func("/switch/started-without-dirty-bits",
                    test_started_without_dirty_bits);
    g_test_add_func("/switch/dirty-bits-stay", test_dirty_bits_stay);
    g_test_add_func("/switch/host-lacks-it", test_host_lacks_it);
    g_test_add_func("/switch/log-flag-stays", test_log_flag_stays);
    g_test_add_func("/switch/cannot-rearm", test_cannot_rearm);
    g_test_add_func("/switch/log-flag-lost", test_log_flag_lost);
    return g_test_run();
}
