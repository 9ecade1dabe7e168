/*
 * The mechanism "dirty-bits": the CPUs' own dirty bits, which KVM collects
 * into its bitmap of each slot; the bitmap is mapped, as with "shared".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A dirty bit that is set stays set until it is collected, and a page that is
 * written after that has it set again: KVM_COLLECT_DIRTY_BITS, which flushes
 * the TLBs before it returns, is harvest and re-arm in one.  So neither can
 * come before the other (I2); a page that is read after a collect is armed
 * (I3); and a collect that failed has taken nothing that the next would not
 * find.
 *
 * kvmd_slot_clear() has therefore nothing to re-arm.  It collects all the
 * same, since it comes just before pages are read: what was written since the
 * sync is published then, and need not be read once more after the next sync.
 *
 * kvmd_sync_ahead() may collect for a sync, since a collect and the harvest
 * after it need no lock of the VMM's.  The sync then harvests only.  Nothing is
 * lost by that: a dirty bit waits for the next collect, and a page that is in
 * the bitmap without a collect, because of a fault, has one as well.
 *
 * The capability is for the life of the VM: KVM no longer write-protects
 * single pages, and a harvest without a collect misses writes.  With "log"
 * KVM collects by itself.
 */

#include "mechanism.h"

#include <linux/kvm_dirty_tracking.h>

/*
 * A collect of all memory lets go of all locks after so much of the guest's
 * address space: who waits for them may keep the whole VMM waiting.  KVM takes
 * 0.4 s for it at the worst, where all of it is dirty (four times COLLECT_STEP in
 * dirty_bits.c), and microseconds where nothing is.  Chunks end at
 * multiples of it, so that no region of KVM's is in two.
 */
#define CHUNK (UINT64_C(64) << 30)

/*
 * How many collects are made ahead of the last sync.  The first takes the dirty
 * bits of memory that is no longer written to, the second finds none and
 * wrprots it, the third finds it wrprot: the collect of the sync does not look
 * at it.  PACE_STOP_COLLECTS (migration/pace.h) has to be as many.
 */
#define COLLECTS_AHEAD 3

/* kvmd->state */
typedef struct DirtyBitsVm {
    bool brake;                 /* the next collect for a sync does so */
    bool collected;             /* for the next sync, and it need not collect */
    bool slot_came;             /* while memory was collected ahead */

    /*
     * Held while KVM collects, and while bitmaps are taken; whoever holds it
     * does not wait for the engine's lock.  KVM flushes the TLBs at the end of
     * a collect: until then a page that is in the bitmap can be written without
     * a trace, and may not be published.
     */
    GMutex lock;
    uint64_t from, next;        /* see dirty_bits_next() */
} DirtyBitsVm;

static bool dirty_bits_enable(KvmDirty *kvmd, GError **error)
{
    const char *name = kvmd_dirty_bits_ops.name;

    return kvmd_map_enable(kvmd, name, error) &&
        kvmd_cap_need(kvmd, KVMD_CAP_DIRTY_BITS, name, error);
}

static void dirty_bits_begin(KvmDirty *kvmd)
{
    DirtyBitsVm *vm = g_new0(DirtyBitsVm, 1);

    g_mutex_init(&vm->lock);
    kvmd->state = vm;
}

static void dirty_bits_end(KvmDirty *kvmd)
{
    DirtyBitsVm *vm = kvmd->state;

    g_mutex_clear(&vm->lock);
    g_clear_pointer(&kvmd->state, g_free);
}

/* Nobody has collected the pages of @slot. */
static void dirty_bits_slot_start(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    DirtyBitsVm *vm = kvmd->state;

    vm->collected = false;
    vm->slot_came = true;
    slot->state = g_new0(KvmDirtyMap, 1);
}

static void dirty_bits_slot_started(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    kvmd_map_open(kvmd, slot, slot->state);
}

static void dirty_bits_slot_stop(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    (void)kvmd;
    kvmd_map_close(slot->state);
    g_clear_pointer(&slot->state, g_free);
}

static int dirty_bits_collect(KvmDirty *kvmd, uint64_t gpa, uint64_t size,
                              uint64_t flags)
{
    struct kvm_collect_dirty_bits range = {
        .gpa = gpa, .size = size, .flags = flags,
    };

    return kvmd_vm_ioctl(kvmd, KVM_COLLECT_DIRTY_BITS, &range);
}

/* What KVM has collected is in the bitmap. */
static int dirty_bits_take(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                           uint64_t pages)
{
    return kvmd_map_harvest(kvmd, slot, slot->state, first, pages,
                            kvmd_publish_found);
}

/* Collect, and take from the bitmap then. */
static int dirty_bits_harvest(KvmDirty *kvmd, KvmDirtySlot *slot,
                              uint64_t first, uint64_t pages)
{
    int ret = dirty_bits_collect(kvmd, slot->region.guest_phys_addr +
                                 first * kvmd->page_size,
                                 pages * kvmd->page_size, 0);

    return ret < 0 ? ret : dirty_bits_take(kvmd, slot, first, pages);
}

static int dirty_bits_harvest_slot(KvmDirty *kvmd, KvmDirtySlot *slot,
                                   KvmDirtyHarvest *harvest)
{
    DirtyBitsVm *vm = kvmd->state;
    int ret;

    g_mutex_lock(&vm->lock);
    ret = kvmd_harvest_slot(kvmd, slot, harvest);
    g_mutex_unlock(&vm->lock);
    return ret;
}

static int dirty_bits_sync_slot(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    return dirty_bits_harvest_slot(kvmd, slot, dirty_bits_harvest);
}

static int dirty_bits_sync_collected(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    return dirty_bits_harvest_slot(kvmd, slot, dirty_bits_take);
}

static int dirty_bits_look_for_next(KvmDirty *kvmd, KvmDirtySlot *slot)
{
    DirtyBitsVm *vm = kvmd->state;
    uint64_t start = slot->region.guest_phys_addr;

    if (start + slot->region.memory_size > vm->from) {
        vm->next = MIN(vm->next, MAX(vm->from, start));
    }
    return 0;
}

/* Returns: the first address from @from on that is logged; or UINT64_MAX. */
static uint64_t dirty_bits_next(KvmDirty *kvmd, uint64_t from)
{
    DirtyBitsVm *vm = kvmd->state;

    vm->from = from;
    vm->next = UINT64_MAX;
    kvmd_slots_foreach_logged(kvmd, dirty_bits_look_for_next);
    return vm->next;
}

/* Whoever removes a slot meanwhile harvests and publishes what it has. */
static int dirty_bits_collect_unlocked(KvmDirty *kvmd, uint64_t gpa,
                                       uint64_t size, uint64_t flags)
{
    DirtyBitsVm *vm = kvmd->state;
    int64_t start, taken;
    int ret;

    g_mutex_unlock(&kvmd->lock);
    g_mutex_lock(&vm->lock);
    start = kvmd_now();
    ret = dirty_bits_collect(kvmd, gpa, size, flags);
    taken = kvmd_now() - start;
    g_mutex_unlock(&vm->lock);
    g_mutex_lock(&kvmd->lock);
    kvmd->stats.harvest_ns += taken;
    return ret;
}

/*
 * What several slots show is collected once for all of them: KVM takes what has
 * no dirty bit at a second look for idle.
 */
static int dirty_bits_collect_all(KvmDirty *kvmd)
{
    DirtyBitsVm *vm = kvmd->state;
    uint64_t flags = vm->brake ? KVM_COLLECT_DIRTY_BITS_WRPROT : 0;
    uint64_t gpa = dirty_bits_next(kvmd, 0), end;
    int ret = 0;

    vm->brake = false;
    kvmd->collects++;
    while (ret >= 0 && gpa != UINT64_MAX) {
        end = gpa - gpa % CHUNK + CHUNK;
        ret = dirty_bits_collect_unlocked(kvmd, gpa, end - gpa, flags);
        gpa = dirty_bits_next(kvmd, end);
    }
    if (--kvmd->collects == 0) {
        g_cond_broadcast(&kvmd->collects_ended);
    }
    return ret;
}

/*
 * What another thread says during the collect is for the next sync.  If the
 * collect for all slots fails, each slot has one of its own to fail with.
 */
static int dirty_bits_sync_all(KvmDirty *kvmd)
{
    DirtyBitsVm *vm = kvmd->state;
    int ret = 0;

    if (vm->collected) {
        vm->collected = false;
        vm->brake = false;
    } else {
        ret = dirty_bits_collect_all(kvmd);
    }
    return kvmd_slots_foreach_logged(kvmd, ret < 0 ? dirty_bits_sync_slot :
                                     dirty_bits_sync_collected);
}

static int dirty_bits_harvest_all(KvmDirty *kvmd)
{
    int ret = dirty_bits_collect_all(kvmd);

    if (ret < 0) {
        return ret;
    }
    kvmd_slots_foreach_logged(kvmd, dirty_bits_sync_collected);
    return 0;
}

static void dirty_bits_sync_ahead(KvmDirty *kvmd, KvmDirtyAhead of)
{
    DirtyBitsVm *vm = kvmd->state;
    int collects = of == KVMD_AHEAD_STOP ? COLLECTS_AHEAD : 1;

    vm->slot_came = false;
    while (collects > 0 && dirty_bits_harvest_all(kvmd) == 0) {
        collects--;
    }
    vm->collected = of == KVMD_AHEAD_ROUND && collects == 0 && !vm->slot_came;
}

static void dirty_bits_brake(KvmDirty *kvmd)
{
    DirtyBitsVm *vm = kvmd->state;

    vm->brake = kvmd_cap_enabled(kvmd, KVMD_CAP_DIRTY_BITS) &
        KVM_DIRTY_BITS_CAN_WRPROT;
}

/*
 * The slots of other address spaces show what was just collected for the
 * first.  A bitmap that is copied would be copied whole.  If it fails, the
 * pages are armed as the sync left them, and the next finds what was written
 * since.
 */
static int dirty_bits_clear(KvmDirty *kvmd, KvmDirtySlot *slot,
                            uint64_t first, uint64_t pages)
{
    const KvmDirtyMap *map = slot->state;
    DirtyBitsVm *vm = kvmd->state;
    int ret;

    if (kvmd_slot_space(slot) != 0 || !map->base) {
        return 0;
    }
    g_mutex_lock(&vm->lock);
    ret = kvmd_harvest_range(kvmd, slot, first, pages, dirty_bits_harvest);
    g_mutex_unlock(&vm->lock);
    return ret;
}

const KvmDirtyOps kvmd_dirty_bits_ops = {
    .name = "dirty-bits",
    .enable = dirty_bits_enable,
    .begin = dirty_bits_begin,
    .end = dirty_bits_end,
    .slot_start = dirty_bits_slot_start,
    .slot_started = dirty_bits_slot_started,
    .slot_stop = dirty_bits_slot_stop,
    .sync_slot = dirty_bits_sync_slot,
    .sync_all = dirty_bits_sync_all,
    .sync_ahead = dirty_bits_sync_ahead,
    .harvest_all = dirty_bits_harvest_all,
    .brake = dirty_bits_brake,
    .clear = dirty_bits_clear,
    .outlives_slot = true,
    .clear_publishes = true,
    .sees_dirty_bits = true,
};
