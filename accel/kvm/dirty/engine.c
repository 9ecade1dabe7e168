/*
 * What the public functions do with the mechanism in use.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "engine.h"

#include <errno.h>
#include <unistd.h>

static void engine_use(KvmDirty *kvmd, KvmDirtyMechanism mechanism)
{
    kvmd->mechanism = mechanism;
    kvmd->ops = kvmd_mechanism_ops(mechanism);
    if (kvmd->ops->begin) {
        kvmd->ops->begin(kvmd);
    }
}

static void engine_leave(KvmDirty *kvmd)
{
    if (kvmd->ops->end) {
        kvmd->ops->end(kvmd);
    }
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
    g_cond_init(&kvmd->collects_ended);
    kvmd->vmm = *vmm;
    kvmd->opaque = opaque;
    kvmd->ring_size = config->ring_size;
    kvmd->page_size = sysconf(_SC_PAGESIZE);
    kvmd->split = KVMD_SPLIT_OFF;
    kvmd->spaces = g_ptr_array_new();
    kvmd->vcpus = g_ptr_array_new_with_free_func(kvmd_vcpu_free);
    kvmd->kvm_stats = kvmd_kvm_stats_open(
        kvmd_vm_ioctl(kvmd, KVM_GET_STATS_FD, NULL));
    mechanism = kvmd_choose(kvmd, config, "dirty-tracking=", KVMD_CHOICE_NEW,
                            error);
    if (mechanism == KVMD_AUTO) {
        kvmd_free(kvmd);
        return NULL;
    }
    engine_use(kvmd, mechanism);
    kvmd->kick_first = kvmd->ops->kick_first;
    return kvmd;
}

/* Whether a VM that runs can change to @to: nothing is left un-armed then. */
static bool engine_may_switch(KvmDirty *kvmd, const KvmDirtyOps *to,
                              GError **error)
{
    const KvmDirtyOps *from = kvmd->ops;
    const char *what = from->for_life ? from->for_life :
        to ? to->for_life : NULL;
    int ret;

    if (what) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_STARTED,
                    "a running guest cannot be switched %s %s: KVM "
                    "takes or leaves them when the guest is started",
                    from->for_life ? "away from" : "to", what);
        return false;
    }
    ret = kvmd_slots_rearm(kvmd);
    if (ret < 0) {
        g_set_error(error, KVMD_ERROR, KVMD_ERROR_REFUSED,
                    "set-dirty-tracking is not possible now: KVM cannot "
                    "re-arm the pages that were found (%s)", g_strerror(-ret));
        return false;
    }
    return true;
}

/*
 * The old mechanism has published what it found, and the new one publishes
 * all of a slot that it starts to log: nothing falls between the two.
 */
bool kvmd_switch(KvmDirty *kvmd, KvmDirtyMechanism mechanism, GError **error)
{
    const KvmDirtyConfig config = { .mechanism = mechanism };

    g_mutex_lock(&kvmd->lock);
    while (kvmd->collects) {
        g_cond_wait(&kvmd->collects_ended, &kvmd->lock);
    }
    mechanism = engine_may_switch(kvmd, kvmd_mechanism_ops(mechanism), error) ?
        kvmd_choose(kvmd, &config, "set-dirty-tracking ", KVMD_CHOICE_SWITCH,
                    error) : KVMD_AUTO;
    if (mechanism != KVMD_AUTO && mechanism != kvmd->mechanism) {
        kvmd_slots_pause(kvmd);
        engine_leave(kvmd);
        engine_use(kvmd, mechanism);
        kvmd_slots_resume(kvmd);
    }
    g_mutex_unlock(&kvmd->lock);
    return mechanism != KVMD_AUTO;
}

void kvmd_free(KvmDirty *kvmd)
{
    if (kvmd->ops) {
        kvmd_slots_stop(kvmd);
        engine_leave(kvmd);
    }
    kvmd_slots_free(kvmd);
    g_ptr_array_unref(kvmd->vcpus);
    kvmd_kvm_stats_close(kvmd->kvm_stats);
    kvmd_choice_forget(kvmd);
    g_clear_pointer(&kvmd->split_ranges, g_array_unref);
    g_cond_clear(&kvmd->collects_ended);
    g_cond_clear(&kvmd->split_wake);
    g_cond_clear(&kvmd->reaper_wake);
    g_mutex_clear(&kvmd->lock);
    g_free(kvmd);
}

uint32_t kvmd_ring_size(const KvmDirty *kvmd)
{
    return kvmd->ring_size;
}

bool kvmd_clears(const KvmDirty *kvmd)
{
    return kvmd_wants_clear(kvmd);
}

bool kvmd_clear_publishes(const KvmDirty *kvmd)
{
    return kvmd->ops->clear_publishes;
}

bool kvmd_faults_tell(const KvmDirty *kvmd)
{
    return !kvmd->ops->may_not_fault;
}

/*
 * A vCPU may need the lock before it can leave, so it is kicked without.
 * Until the lock is held kvmd_switch() may change the mechanism, but not to
 * one that has kick_first, nor from one: those are for life.
 */
static void engine_lock_for_harvest(KvmDirty *kvmd)
{
    if (kvmd->kick_first) {
        kvmd->vmm.kick(kvmd->opaque);
    }
    g_mutex_lock(&kvmd->lock);
}

static int engine_begin_sync(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    (void)kvmd;
    slot->failure_told = false;
    slot->synced = true;
    return 0;
}

int kvmd_sync(KvmDirty *kvmd)
{
    int ret;

    engine_lock_for_harvest(kvmd);
    kvmd_slots_foreach_logged(kvmd, engine_begin_sync);
    ret = kvmd->ops->sync_all ? kvmd->ops->sync_all(kvmd) :
        kvmd_slots_foreach_logged(kvmd, kvmd->ops->sync_slot);
    g_mutex_unlock(&kvmd->lock);
    return ret;
}

void kvmd_sync_ahead(KvmDirty *kvmd, KvmDirtyAhead of)
{
    g_mutex_lock(&kvmd->lock);
    if (kvmd->ops->sync_ahead) {
        kvmd->ops->sync_ahead(kvmd, of);
    } else if (kvmd->ops->harvest_all) {
        kvmd->ops->harvest_all(kvmd);
    }
    g_mutex_unlock(&kvmd->lock);
}

void kvmd_brake(KvmDirty *kvmd)
{
    g_mutex_lock(&kvmd->lock);
    if (kvmd->ops->brake) {
        kvmd->ops->brake(kvmd);
    }
    g_mutex_unlock(&kvmd->lock);
}

/*
 * I3.  QEMU 7.2 adds a slot before its map of memory has it.  In between a page
 * can be read, but no slot be found to re-arm.  Whoever calls kvmd_sync() keeps
 * the map from changing; whoever looks does not.
 */
static int engine_look_at_slot(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    return slot->synced ? kvmd->ops->sync_slot(kvmd, slot) : 0;
}

void kvmd_look(KvmDirty *kvmd)
{
    g_mutex_lock(&kvmd->lock);
    if (kvmd->ops->harvest_all) {
        kvmd->ops->harvest_all(kvmd);
    } else {
        kvmd_slots_foreach_logged(kvmd, engine_look_at_slot);
    }
    g_mutex_unlock(&kvmd->lock);
}

int kvmd_slot_sync(KvmDirty *kvmd, uint32_t slot_id)
{
    KvmDirtySlot *slot;
    int ret = 0;

    engine_lock_for_harvest(kvmd);
    slot = kvmd_slot_get(kvmd, slot_id);
    if (!kvmd->ops->sync_slot) {
        ret = kvmd->ops->sync_all(kvmd);
    } else if (slot && kvmd_slot_logged(slot)) {
        ret = kvmd->ops->sync_slot(kvmd, slot);
    }
    g_mutex_unlock(&kvmd->lock);
    return ret;
}

static bool engine_in_slot(const KvmDirty *kvmd, const KvmDirtySlot *slot,
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
    if (slot && kvmd_slot_logged(slot) && kvmd_wants_clear(kvmd) && pages) {
        ret = engine_in_slot(kvmd, slot, first, pages) ?
            kvmd->ops->clear(kvmd, slot, first, pages) : -EINVAL;
        ret = MIN(ret, 0);
    }
    g_mutex_unlock(&kvmd->lock);
    return ret;
}

/* Now, since any ioctl on a vCPU waits until it has left KVM_RUN. */
static void engine_vcpu_open_stats(KvmDirtyVcpu *vcpu)
{
    const KvmDirty *kvmd = vcpu->kvmd;

    if (kvmd->vmm.vcpu_ioctl) {
        vcpu->kvm_stats = kvmd_kvm_stats_open(
            kvmd->vmm.vcpu_ioctl(kvmd->opaque, vcpu->vcpu, KVM_GET_STATS_FD,
                                 NULL));
    }
}

KvmDirtyVcpu *kvmd_vcpu_add(KvmDirty *kvmd, unsigned long id, int fd,
                            void *vcpu, GError **error)
{
    KvmDirtyVcpu *v;

    g_mutex_lock(&kvmd->lock);
    v = kvmd_vcpu_get(kvmd, id);
    if (!v) {
        v = kvmd_vcpu_new(kvmd, id);
    }
    if (!kvmd->ops->vcpu_add || kvmd->ops->vcpu_add(v, fd, error)) {
        v->vcpu = vcpu;
        engine_vcpu_open_stats(v);
    } else {
        v = NULL;
    }
    g_mutex_unlock(&kvmd->lock);
    return v;
}

void kvmd_vcpu_remove(KvmDirtyVcpu *vcpu)
{
    KvmDirty *kvmd = vcpu->kvmd;

    g_mutex_lock(&kvmd->lock);
    if (kvmd->ops->vcpu_remove) {
        kvmd->ops->vcpu_remove(vcpu);
    }
    vcpu->vcpu = NULL;
    g_clear_pointer(&vcpu->kvm_stats, kvmd_kvm_stats_close);
    g_mutex_unlock(&kvmd->lock);
}

/* KVM counts a fault here if it maps a page, or makes one writable again. */
bool kvmd_vcpu_faults(KvmDirtyVcpu *vcpu, uint64_t *faults)
{
    KvmDirty *kvmd = vcpu->kvmd;
    bool known;

    g_mutex_lock(&kvmd->lock);
    known = vcpu->kvm_stats &&
        kvmd_kvm_stat(vcpu->kvm_stats, "pf_fixed", faults);
    g_mutex_unlock(&kvmd->lock);
    return known;
}

void kvmd_vcpu_ring_full(KvmDirtyVcpu *vcpu)
{
    KvmDirty *kvmd = vcpu->kvmd;
    int64_t start = kvmd_now();

    g_mutex_lock(&kvmd->lock);
    if (kvmd->ops->vcpu_full) {
        kvmd->ops->vcpu_full(vcpu);
        kvmd_reaper_hurry(kvmd);
    }
    kvmd->stats.ring_full_exits++;
    kvmd->stats.ring_full_ns += kvmd_now() - start;
    g_mutex_unlock(&kvmd->lock);
}

void kvmd_stats(KvmDirty *kvmd, KvmDirtyStats *stats)
{
    bool known;

    g_mutex_lock(&kvmd->lock);
    *stats = kvmd->stats;
    stats->reaper_interval_ns = kvmd->reaper_interval * 1000;
    known = kvmd->kvm_stats && kvmd_cap_enabled(kvmd, KVMD_CAP_PROTECT);
    g_mutex_unlock(&kvmd->lock);
    stats->faults_known = known &&
        kvmd_kvm_stat(kvmd->kvm_stats, "write_faults", &stats->faults) &&
        kvmd_kvm_stat(kvmd->kvm_stats, "write_fault_ns", &stats->fault_ns);
}

uint64_t kvmd_guesses(KvmDirty *kvmd)
{
    uint64_t guesses;

    g_mutex_lock(&kvmd->lock);
    guesses = kvmd->guesses;
    g_mutex_unlock(&kvmd->lock);
    return guesses;
}
