/*
 * The mechanisms of libkvmdirty: ways to harvest and to re-arm, each behind a
 * table of operations, and the verbs that several of them are made of.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A mechanism keeps what it has to know in three places that are its own:
 * kvmd->state for the VM, slot->state for a slot while that is logged, and
 * vcpu->state for a vCPU.  Nobody else looks into them.
 */

#ifndef KVMDIRTY_MECHANISM_H
#define KVMDIRTY_MECHANISM_H

#include "ground.h"

/*
 * How full rings are.  The unit is what a vCPU can fill before it has to stop.
 */
typedef struct KvmDirtyFill {
    double most;                /* of the fullest; from 1 on: reap it now */
    double grown;               /* what the fastest took since the last look */
} KvmDirtyFill;

/*
 * A mechanism.  Members that do not apply to one are NULL, or false.
 */
struct KvmDirtyOps {
    const char *name;           /* kvmd_mechanism_name() */

    /*
     * Have the VM offer what it needs; whoever does not use it notices
     * nothing.  Once enabled it may be enabled again.
     * Returns: false with @error set if the host lacks it.
     */
    bool (*enable)(KvmDirty *kvmd, GError **error);

    /* It is in use from now on, or no longer; no slot is being logged. */
    void (*begin)(KvmDirty *kvmd);
    void (*end)(KvmDirty *kvmd);

    /* Logging of @slot is about to begin; it has begun; it has ended. */
    void (*slot_start)(KvmDirty *kvmd, KvmDirtySlot *slot);
    void (*slot_started)(KvmDirty *kvmd, KvmDirtySlot *slot);
    void (*slot_stop)(KvmDirty *kvmd, KvmDirtySlot *slot);

    /*
     * Harvest, re-arm (if not left to clear) and publish one slot, or, if
     * NULL, only ever all at once with sync_all.
     */
    int (*sync_slot)(KvmDirty *kvmd, KvmDirtySlot *slot);
    /* The same for all slots; if NULL, sync_slot does it one by one. */
    int (*sync_all)(KvmDirty *kvmd);
    /* Leave less to the sync_all that is about to follow. */
    void (*sync_ahead)(KvmDirty *kvmd);

    /*
     * Re-arm what sync_slot left; the range is in the slot.  NULL if it never
     * leaves any.
     */
    int (*clear)(KvmDirty *kvmd, KvmDirtySlot *slot,
                 uint64_t first, uint64_t pages);
    /* If NULL, it leaves some whenever it has clear. */
    bool (*leaves_unarmed)(const KvmDirty *kvmd);

    /*
     * @vcpu has come, and @fd is its file descriptor; it is going; it has left
     * KVM with KVM_EXIT_DIRTY_RING_FULL.
     * vcpu_add returns false with @error set if it cannot be tracked.
     */
    bool (*vcpu_add)(KvmDirtyVcpu *vcpu, int fd, GError **error);
    void (*vcpu_remove)(KvmDirtyVcpu *vcpu);
    void (*vcpu_full)(KvmDirtyVcpu *vcpu);

    /*
     * For the reaper, which comes if these are not NULL: look how full things
     * are, without taking anything; and take from those that the last look
     * found filled by @least or more.
     */
    KvmDirtyFill (*look)(KvmDirty *kvmd);
    void (*reap)(KvmDirty *kvmd, double least);

    /* What was logged in a slot can be harvested after KVM removed it. */
    bool outlives_slot;

    /* A vCPU has to leave KVM before all that it wrote can be harvested. */
    bool kick_first;

    /*
     * What KVM takes when the VM is made, or never, and keeps to its end: as
     * messages call it.  NULL if there is nothing of the kind.
     */
    const char *for_life;

    /* clear harvests too, and publishes. */
    bool clear_publishes;

    /* It knows of pages that only the CPUs' dirty bits tell of. */
    bool sees_dirty_bits;
};

extern const KvmDirtyOps kvmd_log_ops;
extern const KvmDirtyOps kvmd_ring_ops;
extern const KvmDirtyOps kvmd_wrprot_ops;
extern const KvmDirtyOps kvmd_shared_ops;
extern const KvmDirtyOps kvmd_dirty_bits_ops;

/* Whether, at present, pages wait for clear after a sync. */
static inline bool kvmd_leaves_unarmed(const KvmDirty *kvmd)
{
    const KvmDirtyOps *ops = kvmd->ops;

    return ops->leaves_unarmed ? ops->leaves_unarmed(kvmd) : ops->clear != NULL;
}

/* region.c: regions of 2 MiB, which are re-armed at once. */

/* Of a slot: those that may have pages that are harvested and not re-armed. */
typedef struct KvmDirtyRegions {
    uint64_t *unarmed;          /* one bit each */
} KvmDirtyRegions;

/*
 * A slot's state of a mechanism that re-arms regions begins with its
 * KvmDirtyRegions.  These make them, free what they hold, and note what a
 * harvest found before it is published.
 */
void kvmd_regions_init(KvmDirty *kvmd, KvmDirtySlot *slot);
void kvmd_regions_fini(KvmDirtySlot *slot);
KvmDirtyFound kvmd_regions_found;

/* Harvest @slot, and leave what was found, all of it after an error. */
int kvmd_regions_sync_slot(KvmDirty *kvmd, KvmDirtySlot *slot,
                           KvmDirtyHarvest *harvest);

/* Re-arm the regions of a range. */
int kvmd_regions_rearm(KvmDirty *kvmd, KvmDirtySlot *slot,
                       uint64_t first, uint64_t pages);

/* fetch.c: KVM copies a bitmap and leaves the page tables alone. */
bool kvmd_fetch_enable(KvmDirty *kvmd, const char *wanted_by, GError **error);
/* All of @slot, since KVM copies that or nothing. */
int kvmd_fetch(KvmDirty *kvmd, KvmDirtySlot *slot, KvmDirtyFound *found);

/* map.c: KVM's own bitmap of a slot, mapped. */
typedef struct KvmDirtyMap {
    void *base;                 /* NULL if it is not mapped */
    size_t size;
    uint64_t *bitmap;
    uint64_t *summary;
} KvmDirtyMap;

bool kvmd_map_enable(KvmDirty *kvmd, const char *wanted_by, GError **error);
/* If it cannot be mapped, the operator is told, and it is fetched instead. */
void kvmd_map_open(KvmDirty *kvmd, const KvmDirtySlot *slot, KvmDirtyMap *map);
void kvmd_map_close(KvmDirtyMap *map);
/* Harvest a range of @slot, or more of it. */
int kvmd_map_harvest(KvmDirty *kvmd, KvmDirtySlot *slot, const KvmDirtyMap *map,
                     uint64_t first, uint64_t pages, KvmDirtyFound *found);

/* ring.c: the most entries that a ring may have; 0 if there are no rings. */
uint32_t kvmd_ring_most(KvmDirty *kvmd);

/*
 * overflow.c: some page that was written is unknown, or some page that is known
 * was not re-armed.  Re-arm all, and publish all.
 * @unarmed: that had failed before; whether it failed now
 */
void kvmd_overflow(KvmDirty *kvmd, bool *unarmed);

#endif
