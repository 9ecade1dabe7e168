/*
 * The choice of a mechanism, and its reasons.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "engine.h"

static const KvmDirtyOps *const mechanisms[KVMD__MAX] = {
    [KVMD_AUTO] = NULL,
    [KVMD_LOG] = &kvmd_log_ops,
    [KVMD_RING] = &kvmd_ring_ops,
    [KVMD_WRPROT] = &kvmd_wrprot_ops,
    [KVMD_SHARED] = &kvmd_shared_ops,
    [KVMD_DIRTY_BITS] = &kvmd_dirty_bits_ops,
};

/* What KVMD_AUTO prefers; every host has the last. */
static const KvmDirtyMechanism best_first[] = {
    KVMD_DIRTY_BITS, KVMD_SHARED, KVMD_WRPROT, KVMD_LOG,
};

const KvmDirtyOps *kvmd_mechanism_ops(KvmDirtyMechanism mechanism)
{
    return mechanisms[mechanism];
}

const char *kvmd_mechanism_name(KvmDirtyMechanism mechanism)
{
    g_assert(mechanism < KVMD__MAX);
    return mechanism == KVMD_AUTO ? "auto" : mechanisms[mechanism]->name;
}

bool kvmd_mechanism_parse(const char *name, KvmDirtyMechanism *mechanism)
{
    for (int i = 0; i < KVMD__MAX; i++) {
        if (g_str_equal(name, kvmd_mechanism_name(i))) {
            *mechanism = i;
            return true;
        }
    }
    return false;
}

bool kvmd_config_check(const KvmDirtyConfig *config, GError **error)
{
    uint32_t size = config->ring_size;

    if (size & (size - 1)) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_CONFIG,
                    "dirty-ring-size=%u is not allowed: it is 0 (no ring) or "
                    "a power of two", size);
        return false;
    }
    if (size && config->mechanism != KVMD_AUTO &&
        config->mechanism != KVMD_RING) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_CONFIG,
                    "dirty-ring-size=%u contradicts dirty-tracking=%s: a "
                    "ring size goes with dirty-tracking=ring or auto", size,
                    kvmd_mechanism_name(config->mechanism));
        return false;
    }
    return true;
}

/*
 * Enable @mechanism for the VM, but do not use it yet.  KVMD_DIRTY_BITS, once
 * enabled, leaves no other but KVMD_LOG; the others do not notice each other.
 * Returns: false with @error set if the host lacks or refuses it.
 */
static bool choice_enable(KvmDirty *kvmd, KvmDirtyMechanism mechanism,
                          GError **error)
{
    const KvmDirtyOps *ops = mechanisms[mechanism];

    if (kvmd_cap_enabled(kvmd, KVMD_CAP_DIRTY_BITS) && !ops->sees_dirty_bits) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_STARTED,
                    "dirty-tracking=%s is not possible: this guest was started "
                    "with KVM_CAP_DIRTY_BITS, which goes with dirty-bits and "
                    "log only", ops->name);
        return false;
    }
    return !ops->enable || ops->enable(kvmd, error);
}

/* Enable the best that the host has, and note why each better one is not. */
static KvmDirtyMechanism choice_enable_best(KvmDirty *kvmd)
{
    for (size_t i = 0; ; i++) {
        KvmDirtyMechanism next;

        g_assert(i < G_N_ELEMENTS(best_first));
        next = best_first[i];
        if (choice_enable(kvmd, next, &kvmd->passed_over[next])) {
            return next;
        }
    }
}

void kvmd_choice_forget(KvmDirty *kvmd)
{
    g_clear_pointer(&kvmd->reason, g_free);
    for (int i = 0; i < KVMD__MAX; i++) {
        g_clear_error(&kvmd->passed_over[i]);
    }
}

/*
 * A ring size without a mechanism's name.  libvirt's domains give one on every
 * host: where there are no rings, they have bitmaps.
 */
static KvmDirtyMechanism choice_ring_if_any(KvmDirty *kvmd)
{
    if (kvmd_ring_most(kvmd)) {
        return KVMD_RING;
    }
    kvmd_warn(kvmd, "dirty-ring-size=%u has no effect: this host's KVM has no "
              "dirty rings (KVM_CAP_DIRTY_LOG_RING), and bitmaps are used",
              kvmd->ring_size);
    kvmd->ring_size = 0;
    return KVMD_AUTO;
}

KvmDirtyMechanism kvmd_choose(KvmDirty *kvmd, const KvmDirtyConfig *config,
                              const char *option, KvmDirtyChoice by_name,
                              GError **error)
{
    KvmDirtyMechanism mechanism = config->mechanism;

    if (mechanism == KVMD_AUTO && config->ring_size) {
        mechanism = choice_ring_if_any(kvmd);
    }
    if (mechanism != KVMD_AUTO && !choice_enable(kvmd, mechanism, error)) {
        return KVMD_AUTO;
    }
    kvmd_choice_forget(kvmd);
    if (mechanism == KVMD_AUTO) {
        mechanism = choice_enable_best(kvmd);
        kvmd->choice = KVMD_CHOICE_AUTO;
        if (config->ring_size) {
            g_set_error(&kvmd->passed_over[KVMD_RING], KVMD_ERROR,
                        KVMD_ERROR_HOST, "this host's KVM has no dirty rings "
                        "(KVM_CAP_DIRTY_LOG_RING)");
        }
        kvmd->reason = g_strdup_printf(
            "chosen by %sauto: the best that this host has", option);
    } else if (config->mechanism == KVMD_AUTO) {
        kvmd->choice = KVMD_CHOICE_RING_SIZE;
        kvmd->reason = g_strdup_printf("asked for with dirty-ring-size=%u",
                                       config->ring_size);
    } else {
        kvmd->choice = by_name;
        kvmd->reason = g_strdup_printf("asked for with %s%s", option,
                                       kvmd_mechanism_name(mechanism));
    }
    return mechanism;
}

KvmDirtyMechanism kvmd_mechanism(const KvmDirty *kvmd)
{
    return kvmd->mechanism;
}

KvmDirtyChoice kvmd_choice(const KvmDirty *kvmd)
{
    return kvmd->choice;
}

const char *kvmd_reason(const KvmDirty *kvmd)
{
    return kvmd->reason;
}

const GError *kvmd_passed_over(const KvmDirty *kvmd,
                               KvmDirtyMechanism mechanism)
{
    return kvmd->passed_over[mechanism];
}
