/*
 * The choice of a mechanism, and what all mechanisms share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "engine.h"

#include <errno.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

GQuark kvmd_error_quark(void)
{
    return g_quark_from_static_string("kvmd-error-quark");
}

static const struct {
    const char *name;
    const KvmDirtyOps *ops;
} mechanisms[KVMD__MAX] = {
    [KVMD_AUTO] = { "auto", NULL },
    [KVMD_LOG] = { "log", &kvmd_log_ops },
    [KVMD_RING] = { "ring", &kvmd_ring_ops },
    [KVMD_WRPROT] = { "wrprot", &kvmd_wrprot_ops },
    [KVMD_SHARED] = { "shared", &kvmd_shared_ops },
    [KVMD_DIRTY_BITS] = { "dirty-bits", &kvmd_dirty_bits_ops },
};

/* What KVMD_AUTO prefers; every host has the last. */
static const KvmDirtyMechanism best_first[] = {
    KVMD_DIRTY_BITS, KVMD_SHARED, KVMD_WRPROT, KVMD_LOG,
};

const char *kvmd_mechanism_name(KvmDirtyMechanism mechanism)
{
    g_assert(mechanism < KVMD__MAX);
    return mechanisms[mechanism].name;
}

bool kvmd_mechanism_parse(const char *name, KvmDirtyMechanism *mechanism)
{
    for (int i = 0; i < KVMD__MAX; i++) {
        if (g_str_equal(name, mechanisms[i].name)) {
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

int64_t kvmd_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/*
 * A signal is delivered before the next try, which so does not meet it again:
 * only a KVM that is broken has that reason so often.  EAGAIN is what no ioctl
 * that the engine calls has a reason for (Linux 6.1).  To ask for ever would
 * hide either, with the lock held.
 */
#define INTERRUPTIONS_MAX 10000

int kvmd_vm_ioctl(KvmDirty *kvmd, unsigned long request, void *arg)
{
    int ret, tries = 0;

    do {
        ret = kvmd->vmm.vm_ioctl(kvmd->opaque, request, arg);
    } while (ret == -EINTR && tries++ < INTERRUPTIONS_MAX);
    return ret;
}

int kvmd_check_extension(KvmDirty *kvmd, long capability)
{
    int ret = kvmd_vm_ioctl(kvmd, KVM_CHECK_EXTENSION, (void *)capability);

    return MAX(ret, 0);
}

int kvmd_enable_cap(KvmDirty *kvmd, uint32_t capability, uint64_t arg)
{
    struct kvm_enable_cap cap = { .cap = capability, .args = { arg } };

    return kvmd_vm_ioctl(kvmd, KVM_ENABLE_CAP, &cap);
}

void kvmd_publish(KvmDirty *kvmd, const KvmDirtySlot *slot, uint64_t first,
                  const uint64_t *words, size_t n)
{
    kvmd->vmm.publish(kvmd->opaque, slot->tag, first, words, n);
}

void kvmd_warn(KvmDirty *kvmd, const char *format, ...)
{
    g_autofree char *message = NULL;
    va_list ap;

    va_start(ap, format);
    message = g_strdup_vprintf(format, ap);
    va_end(ap);
    kvmd->vmm.warn(kvmd->opaque, message);
}

/*
 * Enable @mechanism for the VM, but do not use it yet.  KVMD_DIRTY_BITS, once
 * enabled, leaves no other but KVMD_LOG; the others do not notice each other.
 * Returns: false with @error set if the host lacks or refuses it.
 */
static bool enable(KvmDirty *kvmd, KvmDirtyMechanism mechanism,
                   GError **error)
{
    const KvmDirtyOps *ops = mechanisms[mechanism].ops;

    if (kvmd->dirty_bits && !ops->sees_dirty_bits) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_STARTED,
                    "dirty-tracking=%s is not possible: this guest was started "
                    "with KVM_CAP_DIRTY_BITS, which goes with dirty-bits and "
                    "log only", kvmd_mechanism_name(mechanism));
        return false;
    }
    return !ops->enable || ops->enable(kvmd, error);
}

static void use(KvmDirty *kvmd, KvmDirtyMechanism mechanism)
{
    kvmd->mechanism = mechanism;
    kvmd->ops = mechanisms[mechanism].ops;
    if (kvmd->ops->begin) {
        kvmd->ops->begin(kvmd);
    }
}

/* Enable the best that the host has, and note why each better one is not. */
static KvmDirtyMechanism enable_best(KvmDirty *kvmd)
{
    for (size_t i = 0; ; i++) {
        g_assert(i < G_N_ELEMENTS(best_first));
        if (enable(kvmd, best_first[i], &kvmd->passed_over[best_first[i]])) {
            return best_first[i];
        }
    }
}

static void forget_reasons(KvmDirty *kvmd)
{
    g_clear_pointer(&kvmd->reason, g_free);
    for (int i = 0; i < KVMD__MAX; i++) {
        g_clear_error(&kvmd->passed_over[i]);
    }
}

/*
 * A ring size without a mechanism's name.  Who gives one for every host, as
 * libvirt's domains do, has bitmaps where there are no rings.
 */
static KvmDirtyMechanism ring_if_any(KvmDirty *kvmd)
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

/*
 * Enable what @config asks for, and tell why: in terms of @option, or by
 * @by_name if it asks for a name.  Returns: the mechanism, or KVMD_AUTO with
 * @error set and the old reasons kept.
 */
static KvmDirtyMechanism choose(KvmDirty *kvmd, const KvmDirtyConfig *config,
                                const char *option, KvmDirtyChoice by_name,
                                GError **error)
{
    KvmDirtyMechanism mechanism = config->mechanism;

    if (mechanism == KVMD_AUTO && config->ring_size) {
        mechanism = ring_if_any(kvmd);
    }
    if (mechanism != KVMD_AUTO && !enable(kvmd, mechanism, error)) {
        return KVMD_AUTO;
    }
    forget_reasons(kvmd);
    if (mechanism == KVMD_AUTO) {
        mechanism = enable_best(kvmd);
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

KvmDirty *kvmd_new(const KvmDirtyVmm *vmm, void *opaque,
                   const KvmDirtyConfig *config, GError **error)
{
    KvmDirtyMechanism mechanism;
    KvmDirty *kvmd;

    if (!kvmd_config_check(config, error)) {
        return NULL;
    }
    kvmd = g_new0(KvmDirty, 1);
    g_mutex_init(&kvmd->lock);
    g_cond_init(&kvmd->reaper_wake);
    g_cond_init(&kvmd->split_wake);
    kvmd->vmm = *vmm;
    kvmd->opaque = opaque;
    kvmd->ring_size = config->ring_size;
    kvmd->page_size = sysconf(_SC_PAGESIZE);
    kvmd->split = KVMD_SPLIT_OFF;
    kvmd->spaces = g_ptr_array_new();
    kvmd->vcpus = g_ptr_array_new_with_free_func(g_free);
    kvmd->vm_stats = kvmd_vm_stats_open(kvmd);
    mechanism = choose(kvmd, config, "dirty-tracking=", KVMD_CHOICE_NEW, error);
    if (mechanism == KVMD_AUTO) {
        kvmd_free(kvmd);
        return NULL;
    }
    use(kvmd, mechanism);
    return kvmd;
}

/*
 * The old mechanism has published what it found, and the new one publishes
 * all of a slot that it starts to log: nothing falls between the two.
 */
bool kvmd_switch(KvmDirty *kvmd, KvmDirtyMechanism mechanism, GError **error)
{
    const KvmDirtyConfig config = { .mechanism = mechanism };
    int ret;

    if (kvmd->ring_size || mechanism == KVMD_RING) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_STARTED,
                    "a running guest cannot be switched %s dirty rings: KVM "
                    "takes or leaves them when the guest is started",
                    kvmd->ring_size ? "away from" : "to");
        return false;
    }
    g_mutex_lock(&kvmd->lock);
    ret = kvmd_slots_rearm(kvmd);
    if (ret < 0) {
        g_mutex_unlock(&kvmd->lock);
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_REFUSED,
                    "set-dirty-tracking is not possible now: KVM cannot "
                    "re-arm the pages that were found (%s)", g_strerror(-ret));
        return false;
    }
    mechanism = choose(kvmd, &config, "set-dirty-tracking ", KVMD_CHOICE_SWITCH,
                       error);
    if (mechanism != KVMD_AUTO && mechanism != kvmd->mechanism) {
        kvmd_slots_pause(kvmd);
        if (kvmd->ops->end) {
            kvmd->ops->end(kvmd);
        }
        use(kvmd, mechanism);
        kvmd_slots_resume(kvmd);
    }
    g_mutex_unlock(&kvmd->lock);
    return mechanism != KVMD_AUTO;
}

void kvmd_free(KvmDirty *kvmd)
{
    kvmd_slots_free(kvmd);
    if (kvmd->ops && kvmd->ops->end) {
        kvmd->ops->end(kvmd);
    }
    g_ptr_array_unref(kvmd->vcpus);
    kvmd_vm_stats_close(kvmd->vm_stats);
    forget_reasons(kvmd);
    g_clear_pointer(&kvmd->split_ranges, g_array_unref);
    g_cond_clear(&kvmd->split_wake);
    g_cond_clear(&kvmd->reaper_wake);
    g_mutex_clear(&kvmd->lock);
    g_free(kvmd);
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

uint32_t kvmd_ring_size(const KvmDirty *kvmd)
{
    return kvmd->ring_size;
}

bool kvmd_clears(const KvmDirty *kvmd)
{
    return kvmd->ops == &kvmd_log_ops ? kvmd->manual_protect :
        kvmd->ops->clear != NULL;
}

bool kvmd_clear_publishes(const KvmDirty *kvmd)
{
    return kvmd->ops->clear_publishes;
}

/*
 * Rings are there for good, whereas kvmd_switch() may change the mechanism
 * until the lock is held.  A vCPU may need the lock before it can leave.
 */
static void lock_for_harvest(KvmDirty *kvmd)
{
    if (kvmd->ring_size) {
        kvmd->vmm.kick(kvmd->opaque);
    }
    g_mutex_lock(&kvmd->lock);
}

static int expect_success(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    (void)kvmd;
    slot->failure_told = false;
    return 0;
}

int kvmd_sync(KvmDirty *kvmd)
{
    int ret;

    lock_for_harvest(kvmd);
    kvmd_slots_foreach_logged(kvmd, expect_success);
    ret = kvmd->ops->sync_all(kvmd);
    g_mutex_unlock(&kvmd->lock);
    return ret;
}

void kvmd_sync_ahead(KvmDirty *kvmd)
{
    if (kvmd->ring_size) {
        g_mutex_lock(&kvmd->lock);
        kvmd_ring_reap(kvmd, NULL);
        g_mutex_unlock(&kvmd->lock);
    }
}

int kvmd_slot_sync(KvmDirty *kvmd, uint32_t slot_id)
{
    KvmDirtySlot *slot;
    int ret = 0;

    lock_for_harvest(kvmd);
    slot = kvmd_slot_get(kvmd, slot_id);
    if (!kvmd->ops->sync_slot) {
        ret = kvmd->ops->sync_all(kvmd);
    } else if (slot && kvmd_slot_logged(slot)) {
        ret = kvmd->ops->sync_slot(kvmd, slot);
    }
    g_mutex_unlock(&kvmd->lock);
    return ret;
}

static bool in_slot(const KvmDirty *kvmd, const KvmDirtySlot *slot,
                    uint64_t first, uint64_t pages)
{
    uint64_t all = kvmd_slot_pages(kvmd, slot);

    return pages <= all && first <= all - pages;
}

int kvmd_slot_clear(KvmDirty *kvmd, uint32_t slot_id,
                    uint64_t first, uint64_t pages)
{
    KvmDirtySlot *slot;
    int ret = 0;

    g_mutex_lock(&kvmd->lock);
    slot = kvmd_slot_get(kvmd, slot_id);
    if (slot && kvmd_slot_logged(slot) && kvmd_clears(kvmd) && pages) {
        ret = in_slot(kvmd, slot, first, pages) ?
            kvmd->ops->clear(kvmd, slot, first, pages) : -EINVAL;
        ret = MIN(ret, 0);
    }
    g_mutex_unlock(&kvmd->lock);
    return ret;
}

void kvmd_stats(KvmDirty *kvmd, KvmDirtyStats *stats)
{
    g_mutex_lock(&kvmd->lock);
    *stats = kvmd->stats;
    stats->reaper_interval_ns = kvmd->reaper_interval * 1000;
    g_mutex_unlock(&kvmd->lock);
    stats->faults_known = kvmd->vm_stats && kvmd->can_protect &&
        kvmd_vm_stat(kvmd->vm_stats, "write_faults", &stats->faults) &&
        kvmd_vm_stat(kvmd->vm_stats, "write_fault_ns", &stats->fault_ns);
}

uint64_t kvmd_guesses(KvmDirty *kvmd)
{
    uint64_t guesses;

    g_mutex_lock(&kvmd->lock);
    guesses = kvmd->guesses;
    g_mutex_unlock(&kvmd->lock);
    return guesses;
}
