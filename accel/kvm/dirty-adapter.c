/*
 * Dirty page tracking of a KVM guest: the adapter between libkvmdirty and QEMU.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Locks, outermost first: the BQL, kml_slots_lock, the accelerator's ioctl
 * blocker (since 8.0), the engine's own.  The reaper thread, and a vCPU whose
 * ring is full, take only the engine's lock.  They publish under RCU, and set
 * the bits of ram_list.dirty_memory atomically.
 */

#include "qemu/osdep.h"
#include <sys/ioctl.h>
#include <linux/kvm.h>

#include "qapi/clone-visitor.h"
#include "qapi/error.h"
#include "qapi/qapi-events-dirty-tracking.h"
#include "qapi/qapi-types-dirty-tracking.h"
#include "qapi/qapi-visit-common.h"
#include "qapi/qapi-visit-dirty-tracking.h"
#include "qapi/visitor.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/rcu.h"
#include "exec/ram_addr.h"
#include "hw/core/cpu.h"
#include "sysemu/dirtylimit.h"
#include "sysemu/dirty-tracking.h"
#include "sysemu/dirty-tracking-release.h"
#include "sysemu/kvm.h"
#include "sysemu/kvm_int.h"
#include "sysemu/runstate.h"
#include "dirty-adapter.h"
#include "dirty/kvmdirty.h"
#include "trace.h"

/* The last rounds that query-migrate returns: about a minute of short ones. */
#define ROUNDS_KEPT 32

struct KVMDirtyTracking {
    KvmDirtyConfig config;
    KvmDirty *engine;
    VMChangeStateEntry *vm_state;
    QEMUBH *overflow_bh;        /* sends DIRTY_TRACKING_OVERFLOW */
    uint64_t overflows_told;    /* by the last of these events */
    bool reaper_started;
    OnOffAuto split;
    uint64_t split_size;
    bool split_wanted;          /* start the splitter at the next sync */
    bool split_running;         /* the splitter thread has to be joined */
    QemuThread splitter;
    bool all_dirty;             /* so the next sync has nothing to find */
    int64_t sync_start;         /* when the present sync began, 0 outside one */
    uint64_t bql_hold_ns;       /* in all syncs */
    uint64_t held_ns;           /* in the last sync */
    uint64_t rounds;            /* of the migration, or of the last one */
    KvmDirtyStats round_stats;  /* at the end of the last round */
    uint64_t guesses[2];        /* kvmd_guesses() in the last sync, and in the
                                   one before */
    DirtyTrackingRound history[ROUNDS_KEPT];
};

/* What the engine needs of QEMU */

/*
 * Not kvm_vm_ioctl(): without the BQL it waits for the ioctl blocker, whose
 * owner changes slots and waits for the engine's locks, one of which the caller
 * may have.  The blocker keeps ioctls from slots that are removed to come back
 * in parts; the engine's lock does that for those that need a slot.
 */
static int vmm_vm_ioctl(void *opaque, unsigned long request, void *arg)
{
    KVMState *s = opaque;
    int ret;

    trace_kvm_vm_ioctl(request, arg);
    ret = ioctl(s->vmfd, request, arg);
    return ret < 0 ? -errno : ret;
}

/*
 * Called with or without the BQL, under the engine's lock.  @tag is a
 * ram_addr_t.
 */
static void vmm_publish(void *opaque, uint64_t tag, uint64_t first,
                        const uint64_t *words, size_t n)
{
    ram_addr_t start = tag + first * qemu_real_host_page_size();

    trace_kvm_dirty_publish(start, n);
    cpu_physical_memory_publish((unsigned long *)words, start,
                                n * KVMD_WORD_PAGES);
}

static int vmm_vcpu_ioctl(void *opaque, void *vcpu, unsigned long request,
                          void *arg)
{
    return kvm_vcpu_ioctl(vcpu, request, arg);
}

static void vmm_collected(void *opaque, void *vcpu, uint32_t pages)
{
    CPUState *cpu = vcpu;

    trace_kvm_dirty_collected(cpu->cpu_index, pages);
    cpu->dirty_pages += pages;
}

/*
 * The thread that found the overflow holds the engine's lock and must not wait
 * for the monitor.  The main loop therefore sends the event: one for all
 * overflows since the last event.
 */
static void vmm_overflowed(void *opaque)
{
    qemu_bh_schedule(KVM_STATE(opaque)->dirty->overflow_bh);
}

static void vmm_send_overflow(void *opaque)
{
    KVMDirtyTracking *dirty = opaque;
    KvmDirtyStats stats;

    kvmd_stats(dirty->engine, &stats);
    if (stats.overflows != dirty->overflows_told) {
        dirty->overflows_told = stats.overflows;
        qapi_event_send_dirty_tracking_overflow(stats.overflows);
    }
}

typedef struct KickAll {
    unsigned int pending;
    QemuCond done;
} KickAll;

static void kick_one_done(CPUState *cpu, run_on_cpu_data data)
{
    KickAll *kick = data.host_ptr;

    if (--kick->pending == 0) {
        qemu_cond_broadcast(&kick->done);
    }
}

/*
 * Kick all vCPUs first, then wait for all.  A vCPU that is not created yet,
 * that has stopped, or that calls this function, is not inside KVM_RUN.  The
 * wait releases the BQL, so it does not count as hold time, and another thread
 * may sync meanwhile.
 */
static void vmm_kick(void *opaque)
{
    KVMDirtyTracking *dirty = KVM_STATE(opaque)->dirty;
    KickAll kick = { .pending = 0 };
    bool in_sync = dirty->sync_start != 0;
    int64_t held = get_clock() - dirty->sync_start;
    CPUState *cpu;

    qemu_cond_init(&kick.done);
    CPU_FOREACH(cpu) {
        if (cpu->created && !cpu->stopped && !qemu_cpu_is_self(cpu)) {
            kick.pending++;
            async_run_on_cpu(cpu, kick_one_done, RUN_ON_CPU_HOST_PTR(&kick));
        }
    }
    dirty->sync_start = 0;
    while (kick.pending) {
        qemu_cond_wait_bql(&kick.done);
    }
    dirty->sync_start = in_sync ? get_clock() - held : 0;
    qemu_cond_destroy(&kick.done);
}

/* dirty-limit slows a vCPU down each time its ring is full: rings must fill. */
static bool vmm_reaper_held(void *opaque)
{
    return dirtylimit_in_service();
}

static void vmm_warn(void *opaque, const char *message)
{
    warn_report("%s", message);
}

static const KvmDirtyVmm vmm = {
    .vm_ioctl = vmm_vm_ioctl,
    .vcpu_ioctl = vmm_vcpu_ioctl,
    .publish = vmm_publish,
    .collected = vmm_collected,
    .overflowed = vmm_overflowed,
    .kick = vmm_kick,
    .reaper_held = vmm_reaper_held,
    .warn = vmm_warn,
};

/* Setting up */

static void propagate_gerror(Error **errp, GError *err)
{
    error_setg(errp, "%s", err->message);
    g_error_free(err);
}

static KvmDirtySplit split_mode(OnOffAuto mode)
{
    switch (mode) {
    case ON_OFF_AUTO_ON:
        return KVMD_SPLIT_ON;
    case ON_OFF_AUTO_OFF:
        return KVMD_SPLIT_OFF;
    default:
        return KVMD_SPLIT_AUTO;
    }
}

/* Splitting huge pages ahead: under the BQL, except for the thread itself */

static void *split_thread(void *opaque)
{
    kvmd_split_run(opaque);
    return NULL;
}

static void split_stop(KVMDirtyTracking *dirty)
{
    dirty->split_wanted = false;
    if (dirty->split_running) {
        kvmd_split_stop(dirty->engine);
        qemu_thread_join(&dirty->splitter);
        dirty->split_running = false;
    }
}

/* Called by a migration's first sync: from here on all memory is logged. */
static void split_start(KVMDirtyTracking *dirty)
{
    split_stop(dirty);
    if (kvmd_split_begin(dirty->engine)) {
        dirty->split_running = true;
        qemu_thread_create(&dirty->splitter, "kvm-splitter", split_thread,
                           dirty->engine, QEMU_THREAD_JOINABLE);
    }
}

/* A stopped guest writes nothing, so there is nothing to split ahead of. */
static void vm_state_changed(void *opaque, bool running, RunState state)
{
    if (!running) {
        split_stop(opaque);
    }
}

/* Defined at the end of this file, after its functions. */
static const DirtyTrackingOps kvm_dirty_tracking_ops;

int kvm_dirty_init(KVMState *s)
{
    GError *err = NULL;

    s->dirty->engine = kvmd_new(&vmm, s, &s->dirty->config, &err);
    if (!s->dirty->engine ||
        !kvmd_split_set(s->dirty->engine, split_mode(s->dirty->split),
                        s->dirty->split_size, &err)) {
        error_report("%s", err->message);
        g_error_free(err);
        return -ENOTSUP;
    }
    dirty_tracking_register(&kvm_dirty_tracking_ops);
    s->dirty->overflow_bh = qemu_bh_new(vmm_send_overflow, s->dirty);
    s->dirty->vm_state = qemu_add_vm_change_state_handler(vm_state_changed,
                                                          s->dirty);
    trace_kvm_dirty_init(
        kvmd_mechanism_name(kvmd_mechanism(s->dirty->engine)),
        kvmd_reason(s->dirty->engine));
    return 0;
}

void kvm_dirty_cleanup(KVMState *s)
{
    dirty_tracking_register(NULL);
    g_clear_pointer(&s->dirty->vm_state, qemu_del_vm_change_state_handler);
    g_clear_pointer(&s->dirty->engine, kvmd_free);
}

static void *reaper_thread(void *opaque)
{
    rcu_register_thread();
    kvmd_reaper_run(opaque);
    rcu_unregister_thread();
    return NULL;
}

static void reaper_start(KVMDirtyTracking *dirty)
{
    QemuThread reaper;

    if (kvmd_ring_size(dirty->engine) && !dirty->reaper_started) {
        dirty->reaper_started = true;
        qemu_thread_create(&reaper, "kvm-reaper", reaper_thread,
                           dirty->engine, QEMU_THREAD_DETACHED);
    }
}

int kvm_dirty_init_vcpu(CPUState *cpu, Error **errp)
{
    KVMDirtyTracking *dirty = cpu->kvm_state->dirty;
    GError *err = NULL;

    cpu->kvm_dirty_vcpu = kvmd_vcpu_add(dirty->engine, kvm_arch_vcpu_id(cpu),
                                        cpu->kvm_fd, cpu, &err);
    if (!cpu->kvm_dirty_vcpu) {
        propagate_gerror(errp, err);
        return -1;
    }
    reaper_start(dirty);
    return 0;
}

void kvm_dirty_destroy_vcpu(CPUState *cpu)
{
    kvmd_vcpu_remove(cpu->kvm_dirty_vcpu);
    cpu->kvm_dirty_vcpu = NULL;
}

void kvm_dirty_ring_full(CPUState *cpu)
{
    trace_kvm_dirty_ring_full(cpu->cpu_index);
    kvmd_vcpu_ring_full(cpu->kvm_dirty_vcpu);
    dirtylimit_vcpu_execute(cpu);
}

int kvm_dirty_set_region(KVMState *s, const KVMSlot *slot,
                         const struct kvm_userspace_memory_region *mem)
{
    int ret = kvmd_slot_set(s->dirty->engine, mem, slot->ram_start_offset);

    /* The caller takes it for an ioctl. */
    if (ret < 0) {
        errno = -ret;
    }
    return ret;
}

/* The memory listener */

static void sync_begin(KVMDirtyTracking *dirty)
{
    if (!dirty->sync_start) {
        dirty->sync_start = get_clock();
    }
}

/* This leaves out the exits from the guest and the entries to it. */
static uint64_t guest_time_lost(const KvmDirtyStats *stats)
{
    return stats->fault_ns + stats->ring_full_ns;
}

/*
 * A round's figures are those since the last round, or since logging began.
 * They include what the reaper and vCPUs with full rings did in between.
 */
static void kvm_dirty_tracking_round(void)
{
    KVMDirtyTracking *dirty = kvm_state->dirty;
    DirtyTrackingRound *round = &dirty->history[dirty->rounds % ROUNDS_KEPT];
    KvmDirtyStats *last = &dirty->round_stats, now;

    kvmd_stats(dirty->engine, &now);
    *round = (DirtyTrackingRound) {
        .round = ++dirty->rounds,
        .pages = now.pages - last->pages,
        .harvest_time = now.harvest_ns - last->harvest_ns,
        .rearm_time = now.rearm_ns - last->rearm_ns,
        .publish_time = now.publish_ns - last->publish_ns,
        .bql_hold_time = dirty->held_ns,
        .ring_full_exits = now.ring_full_exits - last->ring_full_exits,
        .ring_full_time = now.ring_full_ns - last->ring_full_ns,
        .overflows = now.overflows - last->overflows,
        .has_faults = now.faults_known,
        .faults = now.faults - last->faults,
        .has_guest_time_lost = now.faults_known,
        .guest_time_lost = guest_time_lost(&now) - guest_time_lost(last),
    };
    trace_kvm_dirty_round(round->round, round->pages, round->harvest_time,
                          round->rearm_time, round->publish_time,
                          round->ring_full_time, round->guest_time_lost);
    *last = now;
}

/*
 * A guess that was counted in the last sync may have published only after that
 * sync took the bits.  So a guess counts in two syncs.
 */
static bool kvm_dirty_tracking_guessed(void)
{
    KVMDirtyTracking *dirty = kvm_state->dirty;
    uint64_t last_but_one = dirty->guesses[1];

    dirty->guesses[1] = dirty->guesses[0];
    dirty->guesses[0] = kvmd_guesses(dirty->engine);
    return dirty->guesses[0] != last_but_one;
}

static bool kvm_dirty_tracking_may_guess(void)
{
    KVMDirtyTracking *dirty = kvm_state->dirty;

    return kvmd_guesses(dirty->engine) != dirty->guesses[1];
}

/*
 * A sync under the BQL begins with the first callback, and ends here: QEMU has
 * taken its bits from ram_list.dirty_memory.
 */
static void kvm_dirty_log_global_after_sync(MemoryListener *listener)
{
    KVMDirtyTracking *dirty = kvm_state->dirty;

    if (dirty->split_wanted) {
        split_start(dirty);
    }
    if (dirty->sync_start) {
        dirty->held_ns = get_clock() - dirty->sync_start;
        trace_kvm_dirty_sync_end(dirty->held_ns);
        dirty->bql_hold_ns += dirty->held_ns;
        dirty->sync_start = 0;
    }
}

/*
 * QEMU calls the listeners of all address spaces one after another.  The first
 * call harvests the slots of all of them.
 */
static void kvm_dirty_log_sync_global(LOG_SYNC_GLOBAL_PARAMETERS)
{
    KVMMemoryListener *kml = container_of(listener, KVMMemoryListener,
                                          listener);
    KVMDirtyTracking *dirty = kvm_state->dirty;

    if (kml->as_id != 0) {
        return;
    }
    sync_begin(dirty);
    if (!dirty->all_dirty) {
        kvmd_sync(dirty->engine);
    }
    dirty->all_dirty = false;
}

/* Returns in @first and @pages which pages of @slot are in @section, if any. */
static bool slot_in_section(const KVMSlot *slot,
                            const MemoryRegionSection *section,
                            uint64_t *first, uint64_t *pages)
{
    hwaddr psize = qemu_real_host_page_size();
    hwaddr start = MAX(section->offset_within_address_space,
                       slot->start_addr);
    hwaddr end = MIN(section->offset_within_address_space +
                     int128_get64(section->size),
                     slot->start_addr + slot->memory_size);

    if (start >= end) {
        return false;
    }
    *first = (start - slot->start_addr) / psize;
    *pages = DIV_ROUND_UP(end - slot->start_addr, psize) - *first;
    return true;
}

typedef int SlotFunc(KvmDirty *engine, uint32_t slot_id,
                     uint64_t first, uint64_t pages);

/* Takes kml_slots_lock.  The caller need not hold the BQL. */
static void foreach_slot_in_section(MemoryListener *listener,
                                    const MemoryRegionSection *section,
                                    SlotFunc *func)
{
    KVMMemoryListener *kml = container_of(listener, KVMMemoryListener,
                                          listener);
    uint64_t first, pages;

    QEMU_LOCK_GUARD(&kml_slots_lock);
    for (unsigned int i = 0; i < kml->nr_slots_allocated; i++) {
        KVMSlot *slot = &kml->slots[i];

        if (slot->memory_size &&
            slot_in_section(slot, section, &first, &pages)) {
            func(kvm_state->dirty->engine, slot->slot | kml->as_id << 16,
                 first, pages);
        }
    }
}

static int slot_sync(KvmDirty *engine, uint32_t slot_id,
                     uint64_t first, uint64_t pages)
{
    return kvmd_slot_sync(engine, slot_id);
}

/* A display wants the dirty pages of one region. */
static void kvm_dirty_log_sync(MemoryListener *listener,
                               MemoryRegionSection *section)
{
    sync_begin(kvm_state->dirty);
    foreach_slot_in_section(listener, section, slot_sync);
}

/* If this fails, the next sync finds the pages again: that only costs time. */
static int slot_clear(KvmDirty *engine, uint32_t slot_id,
                      uint64_t first, uint64_t pages)
{
    int ret = kvmd_slot_clear(engine, slot_id, first, pages);

    trace_kvm_clear_dirty_log(slot_id, first, pages);
    if (ret < 0) {
        error_report_once("re-arming pages of slot 0x%x failed: %s",
                          slot_id, strerror(-ret));
    }
    return ret;
}

/* May be called without the BQL. */
static void kvm_dirty_log_clear(MemoryListener *listener,
                                MemoryRegionSection *section)
{
    foreach_slot_in_section(listener, section, slot_clear);
}

/*
 * Rings hold the pages of all regions, and emptying them re-arms the pages, so
 * log_sync and log_clear have nothing to do.  The other mechanisms share the
 * callbacks, since set-dirty-tracking can change from one to another.
 */
void kvm_dirty_listener_init(KVMState *s, KVMMemoryListener *kml)
{
    kml->listener.log_global_after_sync = kvm_dirty_log_global_after_sync;
    kml->listener.log_sync_global = kvm_dirty_log_sync_global;
    if (!kvmd_ring_size(s->dirty->engine)) {
        kml->listener.log_sync = kvm_dirty_log_sync;
        kml->listener.log_clear = kvm_dirty_log_clear;
    }
}

/* The accelerator's properties */

static bool property_settable(KVMState *s, Error **errp)
{
    if (s->fd != -1) {
        error_setg(errp, "Cannot set properties after the accelerator has "
                   "been initialized");
        return false;
    }
    return true;
}

static char *get_dirty_tracking(Object *obj, Error **errp)
{
    KVMDirtyTracking *dirty = KVM_STATE(obj)->dirty;

    return g_strdup(kvmd_mechanism_name(dirty->config.mechanism));
}

static void set_dirty_tracking(Object *obj, const char *value, Error **errp)
{
    KVMState *s = KVM_STATE(obj);

    if (property_settable(s, errp) &&
        !kvmd_mechanism_parse(value, &s->dirty->config.mechanism)) {
        error_setg(errp, "'%s' is no way to track dirty pages: allowed are "
                   "auto, log, ring, wrprot, shared and dirty-bits", value);
    }
}

static void get_dirty_ring_size(Object *obj, Visitor *v, const char *name,
                                void *opaque, Error **errp)
{
    uint32_t value = KVM_STATE(obj)->dirty->config.ring_size;

    visit_type_uint32(v, name, &value, errp);
}

static void set_dirty_ring_size(Object *obj, Visitor *v, const char *name,
                                void *opaque, Error **errp)
{
    KVMState *s = KVM_STATE(obj);
    KvmDirtyConfig config = { .mechanism = KVMD_AUTO };
    GError *err = NULL;

    if (!property_settable(s, errp)) {
        return;
    }
    if (!visit_type_uint32(v, name, &config.ring_size, NULL)) {
        error_setg(errp, "the value is not a number from 0 to %u: allowed "
                   "are 0 (no ring) and powers of two", UINT32_MAX);
    } else if (!kvmd_config_check(&config, &err)) {
        propagate_gerror(errp, err);
    } else {
        s->dirty->config.ring_size = config.ring_size;
    }
}

static void get_split(Object *obj, Visitor *v, const char *name,
                      void *opaque, Error **errp)
{
    visit_type_OnOffAuto(v, name, &KVM_STATE(obj)->dirty->split, errp);
}

static void set_split(Object *obj, Visitor *v, const char *name,
                      void *opaque, Error **errp)
{
    KVMState *s = KVM_STATE(obj);

    if (property_settable(s, errp)) {
        visit_type_OnOffAuto(v, name, &s->dirty->split, errp);
    }
}

static void get_split_size(Object *obj, Visitor *v, const char *name,
                           void *opaque, Error **errp)
{
    visit_type_size(v, name, &KVM_STATE(obj)->dirty->split_size, errp);
}

static void set_split_size(Object *obj, Visitor *v, const char *name,
                           void *opaque, Error **errp)
{
    KVMState *s = KVM_STATE(obj);

    if (property_settable(s, errp)) {
        visit_type_size(v, name, &s->dirty->split_size, errp);
    }
}

void kvm_dirty_instance_init(KVMState *s)
{
    s->dirty = g_new0(KVMDirtyTracking, 1);
    s->dirty->split_size = KVMD_SPLIT_DEFAULT;
}

void kvm_dirty_instance_finalize(Object *obj)
{
    KVMDirtyTracking *dirty = KVM_STATE(obj)->dirty;

    if (dirty->overflow_bh) {
        qemu_bh_delete(dirty->overflow_bh);
    }
    g_free(dirty);
}

void kvm_dirty_class_init(ObjectClass *oc)
{
    object_class_property_add_str(oc, "dirty-tracking",
                                  get_dirty_tracking, set_dirty_tracking);
    object_class_property_set_description(oc, "dirty-tracking",
        "How dirty pages are tracked: auto (default), log, ring, wrprot, "
        "shared or dirty-bits");

    object_class_property_add(oc, "dirty-ring-size", "uint32",
                              get_dirty_ring_size, set_dirty_ring_size,
                              NULL, NULL);
    object_class_property_set_description(oc, "dirty-ring-size",
        "Entries of each vCPU's dirty ring (default: 0, no ring)");

    object_class_property_add(oc, "dirty-eager-split", "OnOffAuto",
                              get_split, set_split, NULL, NULL);
    object_class_property_set_description(oc, "dirty-eager-split",
        "Split huge pages ahead of the guest's writes while it is migrated");

    object_class_property_add(oc, "dirty-eager-split-chunk", "size",
                              get_split_size, set_split_size, NULL, NULL);
    object_class_property_set_description(oc, "dirty-eager-split-chunk",
        "Bytes that are split at a time (default: 16M)");
}

/* What the rest of QEMU asks */

/* QAPI's enumerations have the engine's values in the engine's order. */
QEMU_BUILD_BUG_ON((int)KVMD_AUTO != DIRTY_TRACKING_MECHANISM_AUTO);
QEMU_BUILD_BUG_ON((int)KVMD_LOG != DIRTY_TRACKING_MECHANISM_LOG);
QEMU_BUILD_BUG_ON((int)KVMD_RING != DIRTY_TRACKING_MECHANISM_RING);
QEMU_BUILD_BUG_ON((int)KVMD_WRPROT != DIRTY_TRACKING_MECHANISM_WRPROT);
QEMU_BUILD_BUG_ON((int)KVMD_SHARED != DIRTY_TRACKING_MECHANISM_SHARED);
QEMU_BUILD_BUG_ON((int)KVMD_DIRTY_BITS !=
                  DIRTY_TRACKING_MECHANISM_DIRTY_BITS);
QEMU_BUILD_BUG_ON((int)KVMD__MAX != DIRTY_TRACKING_MECHANISM__MAX);

QEMU_BUILD_BUG_ON((int)KVMD_CHOICE_AUTO != DIRTY_TRACKING_CHOICE_AUTO);
QEMU_BUILD_BUG_ON((int)KVMD_CHOICE_RING_SIZE !=
                  DIRTY_TRACKING_CHOICE_RING_SIZE);
QEMU_BUILD_BUG_ON((int)KVMD_CHOICE_NEW != DIRTY_TRACKING_CHOICE_OPTION);
QEMU_BUILD_BUG_ON((int)KVMD_CHOICE_SWITCH != DIRTY_TRACKING_CHOICE_COMMAND);

bool kvm_dirty_ring_enabled(void)
{
    return kvm_enabled() && kvm_dirty_ring_size() != 0;
}

uint32_t kvm_dirty_ring_size(void)
{
    return kvmd_ring_size(kvm_state->dirty->engine);
}

static bool kvm_dirty_tracking_clear_publishes(void)
{
    return kvmd_clear_publishes(kvm_state->dirty->engine);
}

static void kvm_dirty_tracking_begin(void)
{
    KVMDirtyTracking *dirty = kvm_state->dirty;
    bool rings = kvmd_ring_size(dirty->engine);

    dirty->split_wanted = runstate_is_running();
    dirty->rounds = 0;
    kvmd_stats(dirty->engine, &dirty->round_stats);
    /*
     * With rings, the first sync has to wait for vCPUs and releases the BQL
     * for that, while the migration holds the RAM list's lock.  A thread that
     * adds RAM would then wait for this lock with the BQL held, for ever.  The
     * next sync finds the same entries.  Those that an earlier migration left
     * are published now: the first sync takes them, and then the migration
     * takes off what was discarded since (virtio-mem), of which none may come
     * back.
     */
    if (rings) {
        kvmd_look(dirty->engine);
    }
    dirty->all_dirty = rings || kvm_dirty_tracking_clear_publishes();
}

static void kvm_dirty_tracking_end(void)
{
    KVMDirtyTracking *dirty = kvm_state->dirty;

    split_stop(dirty);
    dirty->all_dirty = false;   /* logging may have failed to begin */
}

static void kvm_dirty_tracking_sync_ahead(bool stop)
{
    trace_kvm_dirty_sync_ahead(stop);
    kvmd_sync_ahead(kvm_state->dirty->engine,
                    stop ? KVMD_AHEAD_STOP : KVMD_AHEAD_ROUND);
}

static void kvm_dirty_tracking_brake(void)
{
    kvmd_brake(kvm_state->dirty->engine);
}

static void kvm_dirty_tracking_look(void)
{
    kvmd_look(kvm_state->dirty->engine);
}

/* A page enters a ring once after each time that it was armed. */
static bool kvm_dirty_tracking_vcpu_writes(CPUState *cpu, uint64_t *writes)
{
    if (kvmd_ring_size(kvm_state->dirty->engine)) {
        *writes = cpu->dirty_pages;
        return true;
    }
    return cpu->kvm_dirty_vcpu &&
        kvmd_vcpu_faults(cpu->kvm_dirty_vcpu, writes);
}

static bool kvm_dirty_tracking_tells_writers(void)
{
    return kvmd_faults_tell(kvm_state->dirty->engine);
}

static bool kvm_dirty_tracking_set(DirtyTrackingMechanism mechanism,
                                   Error **errp)
{
    KvmDirty *engine = kvm_state->dirty->engine;
    GError *err = NULL;

    if (!kvmd_switch(engine, (KvmDirtyMechanism)mechanism, &err)) {
        propagate_gerror(errp, err);
        return false;
    }
    trace_kvm_dirty_init(kvmd_mechanism_name(kvmd_mechanism(engine)),
                         kvmd_reason(engine));
    return true;
}

static DirtyTrackingSplit *split_info(const KvmDirty *engine,
                                      const KvmDirtyStats *stats)
{
    static const OnOffAuto modes[] = {
        [KVMD_SPLIT_AUTO] = ON_OFF_AUTO_AUTO,
        [KVMD_SPLIT_ON] = ON_OFF_AUTO_ON,
        [KVMD_SPLIT_OFF] = ON_OFF_AUTO_OFF,
    };
    DirtyTrackingSplit *info = g_new0(DirtyTrackingSplit, 1);

    info->mode = modes[kvmd_split(engine)];
    info->active = stats->split_active;
    info->done = stats->split_done;
    info->total = stats->split_total;
    info->time = stats->split_ns;
    return info;
}

static DirtyTrackingRound *kvm_dirty_tracking_last_round(void)
{
    KVMDirtyTracking *dirty = kvm_state->dirty;

    return dirty->rounds ?
        &dirty->history[(dirty->rounds - 1) % ROUNDS_KEPT] : NULL;
}

static DirtyTrackingRoundList *kvm_dirty_tracking_rounds(void)
{
    const KVMDirtyTracking *dirty = kvm_state->dirty;
    DirtyTrackingRoundList *list = NULL, **tail = &list;
    uint64_t kept = MIN(dirty->rounds, ROUNDS_KEPT);

    for (uint64_t i = dirty->rounds - kept; i < dirty->rounds; i++) {
        QAPI_LIST_APPEND(tail, QAPI_CLONE(DirtyTrackingRound,
                                          &dirty->history[i % ROUNDS_KEPT]));
    }
    return list;
}

static DirtyTrackingObstacle obstacle_of(const GError *why_not)
{
    switch (why_not->code) {
    case KVMD_ERROR_REFUSED:
        return DIRTY_TRACKING_OBSTACLE_REFUSED;
    case KVMD_ERROR_STARTED:
        return DIRTY_TRACKING_OBSTACLE_STARTED;
    default:
        return DIRTY_TRACKING_OBSTACLE_MISSING;
    }
}

static DirtyTrackingPassedOverList *passed_over_list(const KvmDirty *engine)
{
    DirtyTrackingPassedOverList *list = NULL, **tail = &list;

    for (int i = 0; i < KVMD__MAX; i++) {
        const GError *why_not = kvmd_passed_over(engine, i);

        if (why_not) {
            DirtyTrackingPassedOver *one = g_new0(DirtyTrackingPassedOver, 1);

            one->mechanism = (DirtyTrackingMechanism)i;
            one->obstacle = obstacle_of(why_not);
            one->reason = g_strdup(why_not->message);
            QAPI_LIST_APPEND(tail, one);
        }
    }
    return list;
}

static DirtyTrackingInfo *kvm_dirty_tracking_info(void)
{
    KVMDirtyTracking *dirty = kvm_state->dirty;
    DirtyTrackingInfo *info = g_new0(DirtyTrackingInfo, 1);
    KvmDirtyStats stats;

    kvmd_stats(dirty->engine, &stats);
    info->mechanism = (DirtyTrackingMechanism)kvmd_mechanism(dirty->engine);
    info->chosen_by = (DirtyTrackingChoice)kvmd_choice(dirty->engine);
    info->reason = g_strdup(kvmd_reason(dirty->engine));
    info->passed_over = passed_over_list(dirty->engine);
    info->ring_size = kvmd_ring_size(dirty->engine);
    info->logged_slots = stats.logged_slots;
    info->pages = stats.pages;
    info->harvests = stats.harvests;
    info->harvest_time = stats.harvest_ns;
    info->rearm_time = stats.rearm_ns;
    info->publish_time = stats.publish_ns;
    info->bql_hold_time = dirty->bql_hold_ns;
    info->ring_full_exits = stats.ring_full_exits;
    info->ring_full_time = stats.ring_full_ns;
    info->overflows = stats.overflows;
    info->has_faults = stats.faults_known;
    info->faults = stats.faults;
    info->has_guest_time_lost = stats.faults_known;
    info->guest_time_lost = guest_time_lost(&stats);
    info->reaps = stats.reaps;
    info->reap_interval = stats.reaper_interval_ns;
    info->eager_split = split_info(dirty->engine, &stats);
    info->rounds = kvm_dirty_tracking_rounds();
    return info;
}

static const DirtyTrackingOps kvm_dirty_tracking_ops = {
    .info = kvm_dirty_tracking_info,
    .set = kvm_dirty_tracking_set,
    .begin = kvm_dirty_tracking_begin,
    .end = kvm_dirty_tracking_end,
    .sync_ahead = kvm_dirty_tracking_sync_ahead,
    .look = kvm_dirty_tracking_look,
    .brake = kvm_dirty_tracking_brake,
    .vcpu_writes = kvm_dirty_tracking_vcpu_writes,
    .tells_writers = kvm_dirty_tracking_tells_writers,
    .round = kvm_dirty_tracking_round,
    .last_round = kvm_dirty_tracking_last_round,
    .rounds = kvm_dirty_tracking_rounds,
    .clear_publishes = kvm_dirty_tracking_clear_publishes,
    .guessed = kvm_dirty_tracking_guessed,
    .may_guess = kvm_dirty_tracking_may_guess,
};
