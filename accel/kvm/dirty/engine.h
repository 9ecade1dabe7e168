/*
 * What the files of libkvmdirty share; kvmdirty.h is the public side.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Every function here wants kvmd->lock held, unless it says otherwise.
 */

#ifndef KVMDIRTY_ENGINE_H
#define KVMDIRTY_ENGINE_H

#include "kvmdirty.h"

typedef struct KvmDirtySlot {
    struct kvm_userspace_memory_region region; /* as KVM has it */
    uint64_t tag;
    bool gone;                  /* KVM has removed it, its entries remain */
    /*
     * "log" only: pages that were harvested and not yet re-armed.  As long
     * as no bit is set here that was not published, KVM_CLEAR_DIRTY_LOG
     * cannot lose a page.
     */
    uint64_t *harvested;
} KvmDirtySlot;

/* A mechanism.  Members that do not apply to one are NULL. */
typedef struct KvmDirtyOps {
    /* Enable it for the VM; false with @error set if the host lacks it. */
    bool (*enable)(KvmDirty *kvmd, GError **error);
    void (*disable)(KvmDirty *kvmd);

    /* Logging of @slot is about to begin; it has ended. */
    void (*slot_start)(KvmDirty *kvmd, KvmDirtySlot *slot);
    void (*slot_stop)(KvmDirty *kvmd, KvmDirtySlot *slot);

    /*
     * Harvest, re-arm (if not left to clear) and publish one slot, or, if
     * NULL, only ever all at once with sync_all.
     */
    int (*sync_slot)(KvmDirty *kvmd, KvmDirtySlot *slot);
    int (*sync_all)(KvmDirty *kvmd);

    /* Re-arm what sync_slot left. */
    int (*clear)(KvmDirty *kvmd, KvmDirtySlot *slot,
                 uint64_t first, uint64_t pages);
} KvmDirtyOps;

extern const KvmDirtyOps kvmd_log_ops;
extern const KvmDirtyOps kvmd_ring_ops;

struct KvmDirty {
    GMutex lock;
    KvmDirtyVmm vmm;
    void *opaque;
    KvmDirtyMechanism mechanism;
    const KvmDirtyOps *ops;
    char *reason;
    size_t page_size;
    GPtrArray *spaces;          /* slot.c: per address space, its slots */
    KvmDirtyStats stats;

    bool manual_protect;        /* log.c: re-armed by KVM_CLEAR_DIRTY_LOG */

    uint32_t ring_size;         /* ring.c: entries, a power of two, or 0 */
    GPtrArray *vcpus;           /* KvmDirtyVcpu *, removed ones too */
    KvmDirtyVcpu *owing;        /* whose last reset failed, or NULL */
    bool reset_failed;          /* and the operator knows */
    bool rearm_failed;          /* all pages stay dirty until it succeeds */

    GCond reaper_wake;          /* reaper.c */
    bool reaper_stop;
    int64_t reaper_interval;    /* microseconds */
    int64_t reaper_last;        /* g_get_monotonic_time() of its last pass */
};

/* engine.c */
int64_t kvmd_now(void);         /* nanoseconds; any thread, no lock */
int kvmd_vm_ioctl(KvmDirty *kvmd, unsigned long request, void *arg);
int kvmd_check_extension(KvmDirty *kvmd, long capability);
int kvmd_enable_cap(KvmDirty *kvmd, uint32_t capability, uint64_t arg);
void kvmd_publish(KvmDirty *kvmd, const KvmDirtySlot *slot, uint64_t first,
                  const uint64_t *words, size_t n);
void kvmd_warn(KvmDirty *kvmd, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* slot.c */
KvmDirtySlot *kvmd_slot_get(KvmDirty *kvmd, uint32_t slot_id);
/* Calls @func on every logged slot; returns its first error, or 0. */
int kvmd_slots_foreach_logged(KvmDirty *kvmd,
                              int (*func)(KvmDirty *, KvmDirtySlot *));
void kvmd_slots_free(KvmDirty *kvmd);

static inline bool kvmd_slot_logged(const KvmDirtySlot *slot)
{
    return slot->region.flags & KVM_MEM_LOG_DIRTY_PAGES;
}

static inline uint64_t kvmd_slot_pages(const KvmDirty *kvmd,
                                       const KvmDirtySlot *slot)
{
    return slot->region.memory_size / kvmd->page_size;
}

/* Words of a bitmap of @pages pages. */
static inline size_t kvmd_words(uint64_t pages)
{
    return (pages + KVMD_WORD_PAGES - 1) / KVMD_WORD_PAGES;
}

/*
 * overflow.c: a ring overflowed, or a reset failed: some page that was written
 * is unknown, or some page that is known was not re-armed.  Publish all.
 */
void kvmd_overflow(KvmDirty *kvmd);

/* overflow.c: publish every page of @slot, whatever KVM knows. Returns 0. */
int kvmd_publish_whole(KvmDirty *kvmd, KvmDirtySlot *slot);

/* ring.c: reap one ring, or all if @vcpu is NULL; returns the pages taken. */
uint64_t kvmd_ring_reap(KvmDirty *kvmd, KvmDirtyVcpu *vcpu);

/*
 * ring.c: the fill of the fullest ring since the last call, as entries
 * collected per entry it has (0.5: half a ring; may exceed 1).
 */
double kvmd_ring_take_fill(KvmDirty *kvmd);

/* reaper.c: a ring filled before the reaper came; logging has begun. */
void kvmd_reaper_hurry(KvmDirty *kvmd);
void kvmd_reaper_kick(KvmDirty *kvmd);

#endif
