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

/* Of a slot id; those above are the address space. */
#define KVMD_SLOT_ID_BITS 16

typedef struct KvmDirtyVmStats KvmDirtyVmStats;

typedef struct KvmDirtySlot {
    struct kvm_userspace_memory_region region; /* as KVM has it */
    uint64_t tag;
    bool gone;                  /* KVM has removed it, its entries remain */
    bool failure_told;          /* of a harvest, since the last kvmd_sync() */
    /*
     * "log" only: pages that were harvested and not yet re-armed.  As long
     * as no bit is set here that was not published, KVM_CLEAR_DIRTY_LOG
     * cannot lose a page.
     */
    uint64_t *harvested;
    /*
     * protect.c: the regions that are, as bits; NULL where a harvest leaves
     * none.
     */
    uint64_t *unarmed;
    struct {                    /* shared.c: KVM's own bitmap of the slot */
        void *base;             /* NULL if it is not mapped */
        size_t size;
        uint64_t *bitmap;
        uint64_t *summary;
    } map;
} KvmDirtySlot;

/*
 * Give the dirty pages of @pages pages from @first on, or of more of @slot, to
 * kvmd_protect_found().  Returns: 0, or -errno; then some may not be found.
 */
typedef int KvmDirtyHarvest(KvmDirty *kvmd, KvmDirtySlot *slot,
                            uint64_t first, uint64_t pages);

/*
 * A mechanism.  Members that do not apply to one are NULL, or false.
 */
typedef struct KvmDirtyOps {
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

    KvmDirtyHarvest *harvest;   /* wrprot, shared */

    /*
     * Harvest, re-arm (if not left to clear) and publish one slot, or, if
     * NULL, only ever all at once with sync_all.
     */
    int (*sync_slot)(KvmDirty *kvmd, KvmDirtySlot *slot);
    int (*sync_all)(KvmDirty *kvmd);

    /* What was logged in a slot can be harvested after KVM removed it. */
    bool outlives_slot;

    /*
     * Re-arm what sync_slot left; the range is in the slot.  NULL if it never
     * leaves any.
     */
    int (*clear)(KvmDirty *kvmd, KvmDirtySlot *slot,
                 uint64_t first, uint64_t pages);

    /* clear harvests too, and publishes. */
    bool clear_publishes;

    /* It knows of pages that only the CPUs' dirty bits tell of. */
    bool sees_dirty_bits;
} KvmDirtyOps;

extern const KvmDirtyOps kvmd_log_ops;
extern const KvmDirtyOps kvmd_ring_ops;
extern const KvmDirtyOps kvmd_wrprot_ops;
extern const KvmDirtyOps kvmd_shared_ops;
extern const KvmDirtyOps kvmd_dirty_bits_ops;

struct KvmDirty {
    GMutex lock;
    KvmDirtyVmm vmm;
    void *opaque;
    KvmDirtyMechanism mechanism;
    const KvmDirtyOps *ops;
    KvmDirtyChoice choice;
    char *reason;
    GError *passed_over[KVMD__MAX]; /* why a better mechanism is not in use */
    size_t page_size;
    GPtrArray *spaces;          /* slot.c: per address space, its slots */
    KvmDirtyStats stats;
    KvmDirtyVmStats *vm_stats;  /* vm_stats.c; NULL if KVM has none */

    bool manual_protect;        /* log.c: re-armed by KVM_CLEAR_DIRTY_LOG */

    bool can_protect;           /* protect.c: a region is re-armed in O(1) */
    bool can_fetch;             /* wrprot.c: and harvested without re-arm */
    bool can_map;               /* shared.c: by mapping KVM's bitmap */
    bool dirty_bits;            /* dirty-bits.c: the VM has them, for good */

    KvmDirtySplit split;        /* split.c: KVMD_SPLIT_OFF if KVM cannot */
    GArray *split_ranges;       /* struct kvm_split_huge_pages, to be done */
    GCond split_wake;

    bool rearm_failed;          /* all pages stay dirty until it succeeds */
    uint64_t guesses;           /* kvmd_guesses() */

    uint32_t ring_size;         /* ring.c: entries, a power of two, or 0 */
    GPtrArray *vcpus;           /* KvmDirtyVcpu *, removed ones too */
    KvmDirtyVcpu *owing;        /* whose last reset failed, or NULL */
    bool reset_failed;          /* and the operator knows */

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
/* Publish what is found, and leave nothing un-armed; 0 or -errno. */
int kvmd_slots_rearm(KvmDirty *kvmd);
/*
 * End the logging of all slots, of which nothing is un-armed: should the log
 * flag stay, so would that.  And begin it again; then everything is published.
 */
void kvmd_slots_pause(KvmDirty *kvmd);
void kvmd_slots_resume(KvmDirty *kvmd);
/* Take the log flag from @slot in KVM, or give it back; 0 or -errno. */
int kvmd_slot_log_flag(KvmDirty *kvmd, const KvmDirtySlot *slot, bool on);
void kvmd_slots_free(KvmDirty *kvmd);

static inline bool kvmd_slot_logged(const KvmDirtySlot *slot)
{
    return slot->region.flags & KVM_MEM_LOG_DIRTY_PAGES;
}

/*
 * The address space @slot is in: 0 has all of the guest's memory, others show
 * parts of it again.
 */
static inline uint32_t kvmd_slot_space(const KvmDirtySlot *slot)
{
    return slot->region.slot >> KVMD_SLOT_ID_BITS;
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

/* How many pages are set in @n words of a bitmap. */
static inline uint64_t kvmd_count_pages(const uint64_t *words, size_t n)
{
    uint64_t pages = 0;

    for (size_t i = 0; i < n; i++) {
        pages += __builtin_popcountll(words[i]);
    }
    return pages;
}

/*
 * Of @n words of the bitmap of @slot, from page @first on, clear what is behind
 * its end: no KVM that is right sets it.
 */
static inline void kvmd_trim(const KvmDirty *kvmd, const KvmDirtySlot *slot,
                             uint64_t first, uint64_t *words, size_t n)
{
    uint64_t pages = kvmd_slot_pages(kvmd, slot) - first;

    if (n && pages < n * KVMD_WORD_PAGES) {
        words[n - 1] &= GUINT64_TO_LE(
            ~(~UINT64_C(0) << pages % KVMD_WORD_PAGES));
    }
}

/*
 * log.c: a harvest of @slot failed with @ret: publish all of it.  The operator
 * is told, but not by each of the many syncs of a display.
 */
void kvmd_harvest_failed(KvmDirty *kvmd, KvmDirtySlot *slot, int ret);

/*
 * protect.c: what wrprot and shared have in common, which is to re-arm regions
 * at once; and the ring, which re-arms all memory after an overflow.
 */
bool kvmd_protect_enable(KvmDirty *kvmd, KvmDirtyMechanism wanted_by,
                         GError **error);
/* Enable @capability, called @name, which @wanted_by cannot do without. */
bool kvmd_protect_enable_cap(KvmDirty *kvmd, KvmDirtyMechanism wanted_by,
                             uint32_t capability, const char *name,
                             GError **error);
int kvmd_protect_all(KvmDirty *kvmd);
/* Harvest a range, or all of a slot, which is published whole if that fails. */
int kvmd_harvest_range(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                       uint64_t pages, KvmDirtyHarvest *harvest);
int kvmd_harvest_slot(KvmDirty *kvmd, KvmDirtySlot *slot,
                      KvmDirtyHarvest *harvest);
int kvmd_protect_sync_slot(KvmDirty *kvmd, KvmDirtySlot *slot);
int kvmd_protect_sync_all(KvmDirty *kvmd);
int kvmd_protect_clear(KvmDirty *kvmd, KvmDirtySlot *slot,
                       uint64_t first, uint64_t pages);
/*
 * A harvest took these @n words of the slot's bitmap, from page @first on;
 * they are trimmed.
 */
void kvmd_protect_found(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                        uint64_t *words, size_t n);
void kvmd_protect_slot_start(KvmDirty *kvmd, KvmDirtySlot *slot);
void kvmd_protect_slot_stop(KvmDirty *kvmd, KvmDirtySlot *slot);

/*
 * vm_stats.c: KVM's statistics of the VM; no lock is needed.
 * kvmd_vm_stats_open() returns NULL where KVM has none, and kvmd_vm_stat()
 * false for a name that there is not.
 */
KvmDirtyVmStats *kvmd_vm_stats_open(KvmDirty *kvmd);
void kvmd_vm_stats_close(KvmDirtyVmStats *stats);
bool kvmd_vm_stat(const KvmDirtyVmStats *stats, const char *name,
                  uint64_t *value);

/* wrprot.c: also for a slot whose bitmap shared.c could not map. */
bool kvmd_wrprot_enable(KvmDirty *kvmd, KvmDirtyMechanism wanted_by,
                        GError **error);
KvmDirtyHarvest kvmd_wrprot_harvest;

/* shared.c: also for dirty-bits. */
bool kvmd_shared_enable(KvmDirty *kvmd, KvmDirtyMechanism wanted_by,
                        GError **error);
void kvmd_shared_slot_started(KvmDirty *kvmd, KvmDirtySlot *slot);
void kvmd_shared_slot_stop(KvmDirty *kvmd, KvmDirtySlot *slot);
KvmDirtyHarvest kvmd_shared_harvest;

/*
 * overflow.c: a ring overflowed, or a reset failed: some page that was written
 * is unknown, or some page that is known was not re-armed.  Publish all.
 */
void kvmd_overflow(KvmDirty *kvmd);

/*
 * overflow.c: publish every page of @slot, or of a range, whatever KVM knows.
 * kvmd_publish_whole() returns 0.
 */
int kvmd_publish_whole(KvmDirty *kvmd, KvmDirtySlot *slot);
void kvmd_publish_range(KvmDirty *kvmd, const KvmDirtySlot *slot,
                        uint64_t first, uint64_t pages);

/* ring.c: the most entries that a ring may have; 0 if there are no rings. */
uint32_t kvmd_ring_most(KvmDirty *kvmd);

/* ring.c: reap one ring, or all if @vcpu is NULL; returns the pages taken. */
uint64_t kvmd_ring_reap(KvmDirty *kvmd, KvmDirtyVcpu *vcpu);

/*
 * ring.c: look at the rings without reaping them, which reads 16 entries of a
 * ring of 65,536.  Then reap those that the look found filled by @least or
 * more.  The unit is what a vCPU can fill before it has to stop.
 */
typedef struct KvmDirtyFill {
    double most;                /* of the fullest; from 1 on: reap it now */
    double grown;               /* what the fastest took since the last look */
} KvmDirtyFill;
KvmDirtyFill kvmd_ring_look(KvmDirty *kvmd);
void kvmd_ring_reap_filled(KvmDirty *kvmd, double least);

/* reaper.c: a ring filled before the reaper came; logging has begun. */
void kvmd_reaper_hurry(KvmDirty *kvmd);
void kvmd_reaper_kick(KvmDirty *kvmd);

#endif
