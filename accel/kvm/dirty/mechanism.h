/*
 * The mechanisms of libkvmdirty: ways to harvest and to re-arm, each behind a
 * table of operations, and the functions that several of them share.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A mechanism keeps its private state in three places: kvmd->state for the VM,
 * slot->state for a slot while it is logged, and vcpu->state for a vCPU.  No
 * other code uses them.
 */

#ifndef KVMDIRTY_MECHANISM_H
#define KVMDIRTY_MECHANISM_H

#include "ground.h"

/*
 * How full the rings are.  1 stands for the number of entries that a vCPU can
 * always fill before it has to stop.
 */
typedef struct KvmDirtyFill {
    double most;                /* the fullest ring; 1 or more: reap it now */
    double grown;               /* largest increase since the last look */
} KvmDirtyFill;

/*
 * A mechanism.  Members that do not apply to it are NULL or false.
 */
struct KvmDirtyOps {
    const char *name;           /* kvmd_mechanism_name() */

    /*
     * Enable the capabilities that the mechanism needs for the VM.  This may
     * be called again, and the mechanism need not be used afterwards.
     * Returns: false with @error set if the host lacks or refuses one.
     */
    bool (*enable)(KvmDirty *kvmd, GError **error);

    /*
     * The mechanism is in use from now on, or no longer.  No slot is being
     * logged.
     */
    void (*begin)(KvmDirty *kvmd);
    void (*end)(KvmDirty *kvmd);

    /* Logging of @slot is about to begin, has begun, or has ended. */
    void (*slot_start)(KvmDirty *kvmd, KvmDirtySlot *slot);
    void (*slot_started)(KvmDirty *kvmd, KvmDirtySlot *slot);
    void (*slot_stop)(KvmDirty *kvmd, KvmDirtySlot *slot);
    /*
     * KVM has removed @slot while it was logged; slot_stop follows.  NULL if no
     * page was un-armed.
     */
    void (*slot_gone)(KvmDirty *kvmd, KvmDirtySlot *slot);

    /*
     * Harvest, re-arm (unless clear does that) and publish one slot.  NULL if
     * the mechanism can only sync all slots at once, with sync_all.
     */
    int (*sync_slot)(KvmDirty *kvmd, KvmDirtySlot *slot);
    /*
     * The same for all slots; if NULL, sync_slot is called for each.  This and
     * the next two may let go of kvmd->lock meanwhile, if there is a sync_slot.
     */
    int (*sync_all)(KvmDirty *kvmd);
    /*
     * Harvest and publish what can be had although vCPUs run.  If NULL, a look
     * calls sync_slot for each slot, and nothing is done ahead of a sync.
     * Returns: 0 or -errno; what KVM refused is left to the next sync.
     */
    int (*harvest_all)(KvmDirty *kvmd);
    /*
     * Do a part of the sync_all that is about to follow; if NULL, harvest_all
     * does it.
     */
    void (*sync_ahead)(KvmDirty *kvmd, KvmDirtyAhead of);
    /* The next harvest of all slots makes the guest fault. */
    void (*brake)(KvmDirty *kvmd);

    /*
     * Re-arm the pages of a range that sync_slot left un-armed, or harvest once
     * more; the range lies within the slot.  NULL if there is neither to do.
     */
    int (*clear)(KvmDirty *kvmd, KvmDirtySlot *slot,
                 uint64_t first, uint64_t pages);
    /* Whether there is, at present; if NULL, whenever clear is not NULL. */
    bool (*clears)(const KvmDirty *kvmd);

    /*
     * vcpu_add: @vcpu was added, and @fd is its file descriptor.  Returns:
     * false with @error set if the vCPU cannot be tracked.
     * vcpu_remove: @vcpu is about to be removed.
     * vcpu_full: @vcpu has left KVM with KVM_EXIT_DIRTY_RING_FULL.
     */
    bool (*vcpu_add)(KvmDirtyVcpu *vcpu, int fd, GError **error);
    void (*vcpu_remove)(KvmDirtyVcpu *vcpu);
    void (*vcpu_full)(KvmDirtyVcpu *vcpu);

    /*
     * For the reaper, which runs only if these are not NULL.  look tells how
     * full the rings are, and takes nothing.  reap takes the entries of those
     * rings that the last look found filled by @least or more.
     */
    KvmDirtyFill (*look)(KvmDirty *kvmd);
    void (*reap)(KvmDirty *kvmd, double least);

    /* A slot's log can still be harvested after KVM has removed the slot. */
    bool outlives_slot;

    /* A vCPU has to leave KVM before all its writes can be harvested. */
    bool kick_first;

    /*
     * The name, in messages, of a feature that KVM can only enable when the VM
     * is made, and never disables.  NULL if the mechanism uses none.
     */
    const char *for_life;

    /* clear also harvests, and publishes the pages that it found. */
    bool clear_publishes;

    /* See kvmd_faults_tell(). */
    bool may_not_fault;

    /* A harvest finds pages of which only the CPUs' dirty bits tell. */
    bool sees_dirty_bits;
};

extern const KvmDirtyOps kvmd_log_ops;
extern const KvmDirtyOps kvmd_ring_ops;
extern const KvmDirtyOps kvmd_wrprot_ops;
extern const KvmDirtyOps kvmd_shared_ops;
extern const KvmDirtyOps kvmd_dirty_bits_ops;

/* Whether clear has something to do, at present. */
static inline bool kvmd_wants_clear(const KvmDirty *kvmd)
{
    const KvmDirtyOps *ops = kvmd->ops;

    return ops->clears ? ops->clears(kvmd) : ops->clear != NULL;
}

/* region.c: regions of 2 MiB, each of which is re-armed as a whole. */

/* The regions of a slot that may have harvested pages that are un-armed. */
typedef struct KvmDirtyRegions {
    uint64_t *unarmed;          /* a bitmap, one bit for each region */
} KvmDirtyRegions;

/*
 * A mechanism that re-arms regions begins its slot->state with a
 * KvmDirtyRegions.  kvmd_regions_init() allocates the bitmap, and
 * kvmd_regions_fini() frees it.  kvmd_regions_found() marks the regions of the
 * pages that a harvest found, and then publishes these pages.
 */
void kvmd_regions_init(KvmDirty *kvmd, KvmDirtySlot *slot);
void kvmd_regions_fini(KvmDirtySlot *slot);
KvmDirtyFound kvmd_regions_found;

/*
 * Harvest @slot, and mark the regions of the pages that were found as
 * un-armed; after an error, mark all regions of the slot.
 */
int kvmd_regions_sync_slot(KvmDirty *kvmd, KvmDirtySlot *slot,
                           KvmDirtyHarvest *harvest);

/* Re-arm the regions of a range. */
int kvmd_regions_rearm(KvmDirty *kvmd, KvmDirtySlot *slot,
                       uint64_t first, uint64_t pages);

/* KVM has removed @slot: publish its regions that were not re-armed (I3). */
void kvmd_regions_gone(KvmDirty *kvmd, KvmDirtySlot *slot);

/* fetch.c: KVM copies a bitmap and leaves the page tables alone. */
bool kvmd_fetch_enable(KvmDirty *kvmd, const char *wanted_by, GError **error);
/* Harvest all of @slot, since KVM cannot copy a part of a bitmap. */
int kvmd_fetch(KvmDirty *kvmd, KvmDirtySlot *slot, KvmDirtyFound *found);

/* map.c: KVM's own bitmap of a slot, mapped. */
typedef struct KvmDirtyMap {
    void *base;                 /* NULL if it is not mapped */
    size_t size;
    uint64_t *bitmap;
    uint64_t *summary;
} KvmDirtyMap;

bool kvmd_map_enable(KvmDirty *kvmd, const char *wanted_by, GError **error);
/*
 * If KVM's bitmap cannot be mapped, the operator is told, and each harvest
 * fetches the bitmap instead.
 */
void kvmd_map_open(KvmDirty *kvmd, const KvmDirtySlot *slot, KvmDirtyMap *map);
void kvmd_map_close(KvmDirtyMap *map);
/* Harvest a range of @slot, or more of it. */
int kvmd_map_harvest(KvmDirty *kvmd, KvmDirtySlot *slot, const KvmDirtyMap *map,
                     uint64_t first, uint64_t pages, KvmDirtyFound *found);

/* ring.c: the most entries that a ring may have; 0 if there are no rings. */
uint32_t kvmd_ring_most(KvmDirty *kvmd);

/*
 * overflow.c: a page was written and nobody knows which, or a page that was
 * collected was not re-armed.  Re-arm all pages, and publish all pages.
 * @unarmed: whether the last such re-arm failed; set to whether this one did
 */
void kvmd_overflow(KvmDirty *kvmd, bool *unarmed);

#endif
