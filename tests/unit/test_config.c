/*
 * What may be asked for, what is chosen, and what the user is told.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "rig.h"

#include <fcntl.h>
#include <string.h>

static int on_ioctl(void *opaque, unsigned long request, void *arg)
{
    return fake_vm_ioctl(opaque, request, arg);
}

static void no_publish(void *opaque, uint64_t tag, uint64_t first,
                       const uint64_t *words, size_t n)
{
    (void)opaque, (void)tag, (void)first, (void)words, (void)n;
    g_assert_not_reached();
}

static void no_kick(void *opaque)
{
    (void)opaque;
}

/* The one warning that may come, or NULL; a warning sets this to NULL. */
static const char *expected_warning;

static void on_warn(void *opaque, const char *message)
{
    (void)opaque;
    g_test_message("%s", message);
    g_assert_nonnull(expected_warning);
    g_assert_nonnull(strstr(message, expected_warning));
    expected_warning = NULL;
}

static KvmDirty *try_new(const FakeConfig *host, FakeKvm **fake,
                         KvmDirtyMechanism mechanism, uint32_t size,
                         GError **error)
{
    static const KvmDirtyVmm vmm = {
        .vm_ioctl = on_ioctl, .publish = no_publish,
        .kick = no_kick, .warn = on_warn,
    };
    KvmDirtyConfig config = { mechanism, size };

    *fake = fake_new(host);
    return kvmd_new(&vmm, *fake, &config, error);
}

/* kvmd_new() fails with @code, and its message has each of @says. */
static void refused(const FakeConfig *host, KvmDirtyMechanism mechanism,
                    uint32_t size, KvmDirtyError code, const char *says,
                    const char *and_says)
{
    g_autoptr(GError) error = NULL;
    FakeKvm *fake;

    g_assert_null(try_new(host, &fake, mechanism, size, &error));
    g_assert_error(error, KVMD_ERROR, (int)code);
    g_test_message("%s", error->message);
    g_assert_nonnull(strstr(error->message, says));
    g_assert_nonnull(strstr(error->message, and_says));
    g_assert_cmpuint(fake->ring_size, ==, 0);
    fake_free(fake);
}

/* The reason that kvmd_new() gives if @mechanism is asked for. */
static KvmDirtyChoice choice(KvmDirtyMechanism mechanism, uint32_t ring)
{
    return mechanism != KVMD_AUTO ? KVMD_CHOICE_NEW :
        ring ? KVMD_CHOICE_RING_SIZE : KVMD_CHOICE_AUTO;
}

/* kvmd_new() chooses @chosen with @ring entries; its reason has @says. */
static void chosen(const FakeConfig *host, KvmDirtyMechanism mechanism,
                   uint32_t size, KvmDirtyMechanism chosen, uint32_t ring,
                   const char *says)
{
    g_autoptr(GError) error = NULL;
    FakeKvm *fake;
    KvmDirty *kvmd = try_new(host, &fake, mechanism, size, &error);

    g_assert_no_error(error);
    g_assert_nonnull(kvmd);
    g_assert_cmpint(kvmd_mechanism(kvmd), ==, chosen);
    g_assert_cmpuint(kvmd_ring_size(kvmd), ==, ring);
    g_assert_cmpuint(fake->ring_size, ==, ring);
    g_test_message("%s", kvmd_reason(kvmd));
    g_assert_nonnull(strstr(kvmd_reason(kvmd), says));
    g_assert_cmpint(kvmd_choice(kvmd), ==, choice(mechanism, ring));
    kvmd_free(kvmd);
    fake_free(fake);
}

static const FakeConfig host = { FAKE_LINUX_6_1 };
static const FakeConfig host_pml = {
    .ring_max = FAKE_RING_MAX, .reserve = 576, .manual_caps = FAKE_MANUAL_CAPS
};
static const FakeConfig host_small_rings = {
    .ring_max = FAKE_RING_MAX / 16, .reserve = 64
};
static const FakeConfig host_no_rings = { .manual_caps = FAKE_MANUAL_CAPS };

static void test_size_not_a_power_of_two(void)
{
    static const uint32_t sizes[] = { 3, 1000, 1023, 65535, 0xffffffff };

    for (size_t i = 0; i < G_N_ELEMENTS(sizes); i++) {
        g_autofree char *says = g_strdup_printf("dirty-ring-size=%u",
                                                sizes[i]);

        for (int m = KVMD_AUTO; m < KVMD__MAX; m++) {
            refused(&host, m, sizes[i], KVMD_ERROR_CONFIG, says,
                    "a power of two");
        }
    }
}

static void test_size_with_log(void)
{
    refused(&host, KVMD_LOG, 4096, KVMD_ERROR_CONFIG, "dirty-ring-size=4096",
            "dirty-tracking=log");
}

/* Neither by name, nor on a host that has it. */
static void test_size_with_patched(void)
{
    static const FakeConfig patched = {
        FAKE_LINUX_6_1, .patched = FAKE_PATCHED
    };

    refused(&patched, KVMD_WRPROT, 4096, KVMD_ERROR_CONFIG,
            "dirty-ring-size=4096", "dirty-tracking=wrprot");
    refused(&patched, KVMD_SHARED, 4096, KVMD_ERROR_CONFIG,
            "dirty-ring-size=4096", "dirty-tracking=shared");
    refused(&patched, KVMD_DIRTY_BITS, 4096, KVMD_ERROR_CONFIG,
            "dirty-ring-size=4096", "dirty-tracking=dirty-bits");
    chosen(&patched, KVMD_AUTO, 4096, KVMD_RING, 4096,
           "dirty-ring-size=4096");
}

/* kvmd_config_check() refuses the same values, and no others. */
static void test_check_without_a_host(void)
{
    static const KvmDirtyConfig good[] = {
        { KVMD_AUTO, 0 }, { KVMD_AUTO, 1024 }, { KVMD_LOG, 0 },
        { KVMD_RING, 0 }, { KVMD_RING, 1 }, { KVMD_RING, 65536 },
        { KVMD_WRPROT, 0 }, { KVMD_SHARED, 0 }, { KVMD_DIRTY_BITS, 0 },
    };
    static const KvmDirtyConfig bad[] = {
        { KVMD_AUTO, 3 }, { KVMD_LOG, 1024 }, { KVMD_RING, 1025 },
        { KVMD_WRPROT, 1024 }, { KVMD_SHARED, 1024 },
        { KVMD_DIRTY_BITS, 1024 },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(good); i++) {
        g_autoptr(GError) error = NULL;

        g_assert_true(kvmd_config_check(&good[i], &error));
        g_assert_no_error(error);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        g_autoptr(GError) error = NULL;

        g_assert_false(kvmd_config_check(&bad[i], &error));
        g_assert_error(error, KVMD_ERROR, KVMD_ERROR_CONFIG);
        g_assert_false(kvmd_config_check(&bad[i], NULL));
    }
}

static void test_size_refused_by_host(void)
{
    refused(&host, KVMD_RING, 131072, KVMD_ERROR_HOST,
            "dirty-ring-size=131072", "65536");
    refused(&host, KVMD_AUTO, 0x80000000, KVMD_ERROR_HOST,
            "dirty-ring-size=2147483648", "65536");
    refused(&host_small_rings, KVMD_RING, 65536, KVMD_ERROR_HOST,
            "dirty-ring-size=65536", "4096");
    /* Less than a page, and less than what KVM keeps in reserve. */
    refused(&host, KVMD_RING, 128, KVMD_ERROR_REFUSED,
            "dirty-ring-size=128", "1024");
    refused(&host_pml, KVMD_RING, 512, KVMD_ERROR_REFUSED,
            "dirty-ring-size=512", "1024");
}

static void test_host_without_rings(void)
{
    refused(&host_no_rings, KVMD_RING, 0, KVMD_ERROR_HOST,
            "dirty-tracking=ring", "KVM_CAP_DIRTY_LOG_RING");
    refused(&host_no_rings, KVMD_RING, 4096, KVMD_ERROR_HOST,
            "dirty-tracking=ring", "KVM_CAP_DIRTY_LOG_RING");
    chosen(&host_no_rings, KVMD_AUTO, 0, KVMD_LOG, 0, "auto");
}

/* A size alone names no mechanism: as ever, there is a warning and bitmaps. */
static void test_size_without_rings(void)
{
    FakeKvm *fake;
    KvmDirty *kvmd;

    expected_warning = "dirty-ring-size=4096";
    chosen(&host_no_rings, KVMD_AUTO, 4096, KVMD_LOG, 0, "auto");
    g_assert_null(expected_warning);
    expected_warning = "KVM_CAP_DIRTY_LOG_RING";
    kvmd = try_new(&host_no_rings, &fake, KVMD_AUTO, 4096, NULL);
    g_assert_null(expected_warning);
    g_assert_nonnull(strstr(kvmd_passed_over(kvmd, KVMD_RING)->message,
                            "KVM_CAP_DIRTY_LOG_RING"));
    g_assert_true(kvmd_switch(kvmd, KVMD_LOG, NULL));
    kvmd_free(kvmd);
    fake_free(fake);
}

static void test_choice(void)
{
    chosen(&host, KVMD_LOG, 0, KVMD_LOG, 0, "dirty-tracking=log");
    chosen(&host, KVMD_RING, 0, KVMD_RING, 65536, "dirty-tracking=ring");
    chosen(&host, KVMD_RING, 1024, KVMD_RING, 1024, "dirty-tracking=ring");
    chosen(&host, KVMD_AUTO, 4096, KVMD_RING, 4096, "dirty-ring-size=4096");
    chosen(&host, KVMD_AUTO, 0, KVMD_LOG, 0, "dirty-tracking=auto");
    chosen(&host_small_rings, KVMD_RING, 0, KVMD_RING, 4096,
           "dirty-tracking=ring");
    chosen(&host_pml, KVMD_RING, 1024, KVMD_RING, 1024, "ring");
}

/*
 * To a guest with rings, the CPU's own log is worth more than the patched
 * KVM's write-protection; the other mechanisms need the latter.
 */
static void test_cpu_log(void)
{
    FakeConfig config = host_pml;

    config.patched = FAKE_PATCHED;
    for (int log = 0; log < 2; log++) {
        static const KvmDirtyMechanism mechanisms[] = {
            KVMD_RING, KVMD_WRPROT, KVMD_SHARED, KVMD_DIRTY_BITS
        };

        config.cpu_log = log;
        for (size_t i = 0; i < G_N_ELEMENTS(mechanisms); i++) {
            FakeKvm *fake;
            KvmDirty *kvmd = try_new(&config, &fake, mechanisms[i], 0, NULL);

            g_assert_nonnull(kvmd);
            g_assert_cmpint(!!(fake->patched & FAKE_CAN_PROTECT), ==,
                            !log || mechanisms[i] != KVMD_RING);
            kvmd_free(kvmd);
            fake_free(fake);
        }
    }
}

/* Hosts that have, or refuse, any of what a patched one has */

/* In the order of FakePatched. */
static const char *const caps[] = {
    "KVM_CAP_WRITE_PROTECT_ALL_MEM",
    "KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT",
    "KVM_CAP_DIRTY_BITMAP_FD",
    "KVM_CAP_EAGER_PAGE_SPLIT",
    "KVM_CAP_DIRTY_BITS",
};

/* The capabilities that each mechanism needs. */
static const int needs[KVMD__MAX] = {
    [KVMD_WRPROT] = FAKE_CAN_PROTECT | FAKE_CAN_FETCH,
    [KVMD_SHARED] = FAKE_CAN_PROTECT | FAKE_CAN_FETCH | FAKE_CAN_MAP,
    [KVMD_DIRTY_BITS] = FAKE_CAN_PROTECT | FAKE_CAN_FETCH | FAKE_CAN_MAP |
        FAKE_CAN_COLLECT,
};

/* The first capability that @mechanism needs and @has lacks; or NULL. */
static const char *missing(KvmDirtyMechanism mechanism, int has)
{
    int lacks = needs[mechanism] & ~has;

    return lacks ? caps[__builtin_ctz(lacks)] : NULL;
}

/* Whether the host lacks the first missing capability, or refuses it. */
static KvmDirtyError obstacle(const FakeConfig *config,
                              KvmDirtyMechanism mechanism)
{
    return missing(mechanism, config->patched) ==
        missing(mechanism, config->patched & ~config->patched_refused) ?
        KVMD_ERROR_HOST : KVMD_ERROR_REFUSED;
}

/* The mechanism is passed over for what the host lacks, or refuses. */
static void passed_over(const KvmDirty *kvmd, KvmDirtyMechanism mechanism,
                        const FakeConfig *config)
{
    const char *cap = missing(mechanism, config->patched &
                              ~config->patched_refused);
    const GError *why = kvmd_passed_over(kvmd, mechanism);
    KvmDirtyError code = obstacle(config, mechanism);

    if (!cap) {
        g_assert_null(why);
        return;
    }
    g_assert_error(why, KVMD_ERROR, (int)code);
    g_test_message("%s", why->message);
    g_assert_nonnull(strstr(why->message, kvmd_mechanism_name(mechanism)));
    g_assert_nonnull(strstr(why->message, cap));
    g_assert_nonnull(strstr(why->message, code == KVMD_ERROR_HOST ?
                            "lacks" : "refuses"));
}

static KvmDirtyMechanism best_with(int has)
{
    return !missing(KVMD_DIRTY_BITS, has) ? KVMD_DIRTY_BITS :
        !missing(KVMD_SHARED, has) ? KVMD_SHARED :
        !missing(KVMD_WRPROT, has) ? KVMD_WRPROT : KVMD_LOG;
}

static void auto_with(const FakeConfig *config)
{
    int has = config->patched & ~config->patched_refused;
    FakeKvm *fake;
    KvmDirty *kvmd = try_new(config, &fake, KVMD_AUTO, 0, NULL);

    g_assert_nonnull(kvmd);
    g_assert_cmpint(kvmd_mechanism(kvmd), ==, best_with(has));
    g_assert_nonnull(strstr(kvmd_reason(kvmd), "dirty-tracking=auto"));
    g_assert_cmpint(kvmd_choice(kvmd), ==, KVMD_CHOICE_AUTO);
    passed_over(kvmd, KVMD_DIRTY_BITS, config);
    passed_over(kvmd, KVMD_SHARED, config);
    passed_over(kvmd, KVMD_WRPROT, config);
    g_assert_null(kvmd_passed_over(kvmd, KVMD_AUTO));
    g_assert_null(kvmd_passed_over(kvmd, KVMD_LOG));
    g_assert_null(kvmd_passed_over(kvmd, KVMD_RING));
    g_assert_true(kvmd_clears(kvmd));
    kvmd_free(kvmd);
    fake_free(fake);
}

/* Asked for by name, a mechanism has all that it needs, or is an error. */
static void named_with(const FakeConfig *config, KvmDirtyMechanism mechanism,
                       const char *option)
{
    const char *cap = missing(mechanism, config->patched &
                              ~config->patched_refused);

    if (cap) {
        refused(config, mechanism, 0, obstacle(config, mechanism), option,
                cap);
    } else {
        chosen(config, mechanism, 0, mechanism, 0, option);
    }
}

static void test_capabilities(void)
{
    for (int i = 0; i <= FAKE_PATCHED; i++) {
        for (int refusals = 0; refusals <= FAKE_PATCHED; refusals++) {
            FakeConfig config = { FAKE_LINUX_6_1, .patched = i };

            config.patched_refused = refusals;
            auto_with(&config);
            named_with(&config, KVMD_WRPROT, "dirty-tracking=wrprot");
            named_with(&config, KVMD_SHARED, "dirty-tracking=shared");
            named_with(&config, KVMD_DIRTY_BITS, "dirty-tracking=dirty-bits");
        }
    }
}

/* The capability that changes what others see is for who asked for it. */
static void test_dirty_bits_unasked(void)
{
    static const FakeConfig patched = {
        FAKE_LINUX_6_1, .patched = FAKE_PATCHED
    };

    for (int m = KVMD_AUTO; m < KVMD__MAX; m++) {
        bool wanted = m == KVMD_AUTO || m == KVMD_DIRTY_BITS;
        FakeKvm *fake;
        KvmDirty *kvmd = try_new(&patched, &fake, m, 0, NULL);

        g_assert_cmpint(!!(fake->patched & FAKE_CAN_COLLECT), ==, wanted);
        g_assert_cmpint(kvmd_clear_publishes(kvmd), ==, wanted);
        g_assert_cmpint(kvmd_faults_tell(kvmd), ==, m != KVMD_LOG);
        kvmd_free(kvmd);
        fake_free(fake);
    }
}

/* A user who names a mechanism is not told why the others are not used. */
static void test_nothing_passed_over(void)
{
    static const FakeConfig patched = {
        FAKE_LINUX_6_1, .patched = FAKE_CAN_PROTECT | FAKE_CAN_FETCH
    };

    for (int m = KVMD_LOG; m < KVMD_SHARED; m++) {
        FakeKvm *fake;
        KvmDirty *kvmd = try_new(&patched, &fake, m, 0, NULL);

        for (int other = KVMD_AUTO; other < KVMD__MAX; other++) {
            g_assert_null(kvmd_passed_over(kvmd, other));
        }
        kvmd_free(kvmd);
        fake_free(fake);
    }
}

/* Rings need KVM's write-protection, which initially-all-set leaves out. */
static void test_manual_protect(void)
{
    static const struct {
        int caps;
        bool refused;
        KvmDirtyMechanism mechanism;
        uint64_t enabled;
    } cases[] = {
        { FAKE_MANUAL_CAPS, false, KVMD_LOG, FAKE_MANUAL_CAPS },
        { KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE, false, KVMD_LOG,
          KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE },
        { 0, false, KVMD_LOG, 0 },
        { FAKE_MANUAL_CAPS, true, KVMD_LOG, 0 },
        { FAKE_MANUAL_CAPS, false, KVMD_RING, 0 },
        /* A later KVM offers an option that nobody asked for. */
        { FAKE_MANUAL_CAPS | 64, false, KVMD_LOG, FAKE_MANUAL_CAPS },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        FakeConfig config = { FAKE_LINUX_6_1 };
        FakeKvm *fake;
        KvmDirty *kvmd;

        config.manual_caps = cases[i].caps;
        config.manual_refused = cases[i].refused;
        kvmd = try_new(&config, &fake, cases[i].mechanism, 0, NULL);
        g_assert_nonnull(kvmd);
        g_assert_cmpuint(fake->manual, ==, cases[i].enabled);
        g_assert_cmpint(kvmd_clears(kvmd), ==, cases[i].enabled != 0);
        kvmd_free(kvmd);
        fake_free(fake);
    }
}

static void test_names(void)
{
    KvmDirtyMechanism mechanism;

    for (int m = KVMD_AUTO; m < KVMD__MAX; m++) {
        g_assert_true(kvmd_mechanism_parse(kvmd_mechanism_name(m),
                                           &mechanism));
        g_assert_cmpint(mechanism, ==, m);
    }
    mechanism = KVMD_RING;
    g_assert_false(kvmd_mechanism_parse("", &mechanism));
    g_assert_false(kvmd_mechanism_parse("rings", &mechanism));
    g_assert_false(kvmd_mechanism_parse("Ring", &mechanism));
    g_assert_cmpint(mechanism, ==, KVMD_RING);
}

/* A vCPU whose ring cannot be mapped is an error, not a crash. */
static void test_vcpu_without_a_ring(void)
{
    g_autoptr(GError) error = NULL;
    FakeKvm *fake;
    KvmDirty *kvmd = try_new(&host, &fake, KVMD_RING, 1024, NULL);

    g_assert_null(kvmd_vcpu_add(kvmd, 0, -1, NULL, &error));
    g_assert_error(error, KVMD_ERROR, KVMD_ERROR_HOST);
    kvmd_free(kvmd);
    fake_free(fake);
}

/* Programs that a VMM starts must not inherit its files. */
static void test_close_on_exec(void)
{
    FakeKvm *fake;
    KvmDirty *kvmd = try_new(&host, &fake, KVMD_LOG, 0, NULL);

    g_assert_cmpint(fake->stats_given, >=, 0);
    g_assert_cmpint(fcntl(fake->stats_given, F_GETFD), ==, FD_CLOEXEC);
    kvmd_free(kvmd);
    g_assert_cmpint(fcntl(fake->stats_given, F_GETFD), ==, -1);
    fake_free(fake);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/config/size-not-a-power-of-two",
                    test_size_not_a_power_of_two);
    g_test_add_func("/config/size-with-log", test_size_with_log);
    g_test_add_func("/config/size-with-patched", test_size_with_patched);
    g_test_add_func("/config/check-without-a-host",
                    test_check_without_a_host);
    g_test_add_func("/config/size-refused-by-host",
                    test_size_refused_by_host);
    g_test_add_func("/config/host-without-rings", test_host_without_rings);
    g_test_add_func("/config/size-without-rings", test_size_without_rings);
    g_test_add_func("/config/choice", test_choice);
    g_test_add_func("/config/cpu-log", test_cpu_log);
    g_test_add_func("/config/capabilities", test_capabilities);
    g_test_add_func("/config/dirty-bits-unasked", test_dirty_bits_unasked);
    g_test_add_func("/config/nothing-passed-over", test_nothing_passed_over);
    g_test_add_func("/config/manual-protect", test_manual_protect);
    g_test_add_func("/config/names", test_names);
    g_test_add_func("/config/vcpu-without-a-ring", test_vcpu_without_a_ring);
    g_test_add_func("/config/close-on-exec", test_close_on_exec);
    return g_test_run();
}
