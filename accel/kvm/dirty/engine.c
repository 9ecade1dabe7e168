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
    if (size && config->mechanism == KVMD_LOG) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_CONFIG,
                    "dirty-ring-size=%u contradicts dirty-tracking=log: a "
                    "ring size goes with dirty-tracking=ring or auto", size);
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

int kvmd_vm_ioctl(KvmDirty *kvmd, unsigned long request, void *arg)
{
    int ret;

    do {
        ret = kvmd->vmm.vm_ioctl(kvmd->opaque, request, arg);
    } while (ret == -EINTR || ret == -EAGAIN);
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

static void choose(KvmDirty *kvmd, const KvmDirtyConfig *config)
{
    if (config->mechanism != KVMD_AUTO) {
        kvmd->mechanism = config->mechanism;
        kvmd->reason = g_strdup_printf(
            "asked for with dirty-tracking=%s",
            kvmd_mechanism_name(config->mechanism));
    } else if (config->ring_size) {
        kvmd->mechanism = KVMD_RING;
        kvmd->reason = g_strdup_printf("asked for with dirty-ring-size=%u",
                                       config->ring_size);
    } else {
        kvmd->mechanism = KVMD_LOG;
        kvmd->reason = g_strdup("chosen by dirty-tracking=auto: every host "
                                "has log, and no dirty-ring-size was given");
    }
    kvmd->ops = mechanisms[kvmd->mechanism].ops;
}

KvmDirty *kvmd_new(const KvmDirtyVmm *vmm, void *opaque,
                   const KvmDirtyConfig *config, GError **error)
{
    KvmDirty *kvmd;

    if (!kvmd_config_check(config, error)) {
        return NULL;
    }
    kvmd = g_new0(KvmDirty, 1);
    g_mutex_init(&kvmd->lock);
    g_cond_init(&kvmd->reaper_wake);
    kvmd->vmm = *vmm;
    kvmd->opaque = opaque;
    kvmd->ring_size = config->ring_size;
    kvmd->page_size = sysconf(_SC_PAGESIZE);
    kvmd->spaces = g_ptr_array_new();
    kvmd->vcpus = g_ptr_array_new_with_free_func(g_free);
    choose(kvmd, config);
    if (!kvmd->ops->enable(kvmd, error)) {
        kvmd_free(kvmd);
        return NULL;
    }
    return kvmd;
}

void kvmd_free(KvmDirty *kvmd)
{
    kvmd_slots_free(kvmd);
    if (kvmd->ops->disable) {
        kvmd->ops->disable(kvmd);
    }
    g_ptr_array_unref(kvmd->vcpus);
    g_free(kvmd->reason);
    g_cond_clear(&kvmd->reaper_wake);
    g_mutex_clear(&kvmd->lock);
    g_free(kvmd);
}

KvmDirtyMechanism kvmd_mechanism(const KvmDirty *kvmd)
{
    return kvmd->mechanism;
}

const char *kvmd_reason(const KvmDirty *kvmd)
{
    return kvmd->reason;
}

uint32_t kvmd_ring_size(const KvmDirty *kvmd)
{
    return kvmd->ring_size;
}

bool kvmd_clears(const KvmDirty *kvmd)
{
    return kvmd->manual_protect;
}

int kvmd_sync(KvmDirty *kvmd)
{
    int ret;

    if (!kvmd->ops->sync_slot) {
        kvmd->vmm.kick(kvmd->opaque);
    }
    g_mutex_lock(&kvmd->lock);
    ret = kvmd->ops->sync_all(kvmd);
    g_mutex_unlock(&kvmd->lock);
    return ret;
}

int kvmd_slot_sync(KvmDirty *kvmd, uint32_t slot_id)
{
    KvmDirtySlot *slot;
    int ret = 0;

    if (!kvmd->ops->sync_slot) {
        return kvmd_sync(kvmd);
    }
    g_mutex_lock(&kvmd->lock);
    slot = kvmd_slot_get(kvmd, slot_id);
    if (slot && kvmd_slot_logged(slot)) {
        ret = kvmd->ops->sync_slot(kvmd, slot);
    }
    g_mutex_unlock(&kvmd->lock);
    return ret;
}

int kvmd_slot_clear(KvmDirty *kvmd, uint32_t slot_id,
                    uint64_t first, uint64_t pages)
{
    KvmDirtySlot *slot;
    int ret = 0;

    if (!kvmd_clears(kvmd)) {
        return 0;
    }
    g_mutex_lock(&kvmd->lock);
    slot = kvmd_slot_get(kvmd, slot_id);
    if (slot && kvmd_slot_logged(slot)) {
        ret = kvmd->ops->clear(kvmd, slot, first, pages);
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
}
