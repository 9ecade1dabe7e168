/*
 * The bottom layer of libkvmdirty, which every file may use.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The library is a stack of three layers.  meson.build lists its files from
 * the bottom to the top, and a file calls only what is listed above it there:
 *
 *   ground.h      a virtual machine, its slots and vCPUs; publishing and
 *                 harvesting
 *   mechanism.h   the mechanisms, each behind a table of operations
 *   engine.h      the choice of a mechanism, and the public functions
 *
 * Locking: the caller of a function of this or the other two headers holds
 * kvmd->lock, unless the function's comment says otherwise.  What harvests all
 * slots may let go of it meanwhile: slots and vCPUs come and go then, and the
 * mechanism stays.
 */

#ifndef KVMDIRTY_GROUND_H
#define KVMDIRTY_GROUND_H

#include "kvmdirty.h"

/* The bits of a slot id that number the slot; those above are the space. */
#define KVMD_SLOT_ID_BITS 16

typedef struct KvmDirtyOps KvmDirtyOps;
typedef struct KvmDirtyKvmStats KvmDirtyKvmStats;

/* A slot that KVM has, or had until a moment ago. */
typedef struct KvmDirtySlot {
    struct kvm_userspace_memory_region region; /* as KVM has it */
    uint64_t tag;               /* the VMM's, for publish() */
    bool gone;                  /* KVM has removed it; ring entries remain */
    bool failure_told;          /* a harvest's, since the last kvmd_sync() */
    bool synced;                /* kvmd_sync() was called since it was set */
    void *state;                /* the mechanism's, while the slot is logged */
} KvmDirtySlot;

struct KvmDirtyVcpu {
    KvmDirty *kvmd;
    unsigned long id;
    void *vcpu;                 /* the VMM's; NULL while it is removed */
    void *state;                /* the mechanism's, until the VM ends */
    KvmDirtyKvmStats *kvm_stats; /* kvm-stats.c; NULL if KVM has none */
};

/* This project's KVM capabilities; once enabled, they stay enabled. */
typedef enum KvmDirtyCap {
    KVMD_CAP_PROTECT,           /* re-arm all memory, or a region, in O(1) */
    KVMD_CAP_FETCH,             /* harvest without re-arming */
    KVMD_CAP_MAP,               /* harvest by mapping KVM's bitmaps */
    KVMD_CAP_DIRTY_BITS,        /* collect the CPUs' dirty bits */
    KVMD_CAP__MAX
} KvmDirtyCap;

struct KvmDirty {
    GMutex lock;
    KvmDirtyVmm vmm;
    void *opaque;
    size_t page_size;
    int enabled[KVMD_CAP__MAX]; /* capability.c */
    KvmDirtyKvmStats *kvm_stats; /* kvm-stats.c; NULL if KVM has none */
    GPtrArray *spaces;          /* slot.c: per address space, its slots */
    GPtrArray *vcpus;           /* KvmDirtyVcpu *, removed ones too */
    KvmDirtyStats stats;
    uint64_t guesses;           /* kvmd_guesses() */

    const KvmDirtyOps *ops;     /* mechanism.h: the one in use */
    void *state;                /* the mechanism's, of the VM */
    unsigned collects;          /* without the lock; @ops stays meanwhile */
    GCond collects_ended;
    uint32_t ring_size;         /* entries per ring, a power of two, or 0 */

    KvmDirtySplit split;        /* split.c: KVMD_SPLIT_OFF if KVM cannot */
    GArray *split_ranges;       /* struct kvm_split_huge_pages, to be split */
    GCond split_wake;

    KvmDirtyMechanism mechanism; /* choice.c */
    KvmDirtyChoice choice;
    char *reason;
    GError *passed_over[KVMD__MAX]; /* why a better mechanism is not in use */

    GCond reaper_wake;          /* reaper.c */
    bool reaper_stop;
    int64_t reaper_interval;    /* microseconds */
    int64_t reaper_last;        /* g_get_monotonic_time() of its last pass */
    bool kick_first;            /* engine.c: const once kvmd_new() returns */
};

/* vm.c: the VM, reached through the VMM's callbacks. */

/* Returns: nanoseconds.  Called on any thread; no lock is needed. */
int64_t kvmd_now(void);

/*
 * Returns: the ioctl's return value, or -errno.  The ioctl is repeated after
 * -EINTR, which only a broken KVM returns without end.  No lock is needed.
 */
int kvmd_vm_ioctl(KvmDirty *kvmd, unsigned long request, void *arg);

/* One sentence for the operator's log. */
void kvmd_warn(KvmDirty *kvmd, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* capability.c: what KVM offers, and what is enabled for the VM. */

/* Returns: the answer of KVM_CHECK_EXTENSION; 0 if the ioctl failed. */
int kvmd_check_extension(KvmDirty *kvmd, long capability);

/* KVM_ENABLE_CAP with one argument.  Returns: 0 or -errno. */
int kvmd_enable_cap(KvmDirty *kvmd, uint32_t capability, uint64_t arg);

/*
 * kvmd_cap_need:
 * @cap: the capability to enable for the VM, unless it is enabled already
 * @wanted_by: the mechanism that needs @cap, for the sentence in @error
 *
 * Returns: false with @error set if KVM lacks or refuses @cap.
 */
bool kvmd_cap_need(KvmDirty *kvmd, KvmDirtyCap cap, const char *wanted_by,
                   GError **error);

/*
 * Returns: what KVM_CHECK_EXTENSION said of @cap when it was enabled, or 0.  It
 * holds for as long as the VM, although KVM may say later that new VMs cannot
 * have it (kvm.dirty_tracking=0).
 */
static inline int kvmd_cap_enabled(const KvmDirty *kvmd, KvmDirtyCap cap)
{
    return kvmd->enabled[cap];
}

/* kvm-stats.c: KVM's statistics of the VM or a vCPU; no lock is needed. */

/*
 * @fd: what KVM_GET_STATS_FD returned, or an error; it is owned from here on.
 * Returns: NULL if KVM has no statistics.
 */
KvmDirtyKvmStats *kvmd_kvm_stats_open(int fd);
void kvmd_kvm_stats_close(KvmDirtyKvmStats *stats);

/* Returns: false if there is no statistic called @name. */
bool kvmd_kvm_stat(const KvmDirtyKvmStats *stats, const char *name,
                   uint64_t *value);

/* slot.c: the table of slots. */

/* Returns: NULL if there is no such slot; @slot_id may be anything. */
KvmDirtySlot *kvmd_slot_get(KvmDirty *kvmd, uint32_t slot_id);
void kvmd_slot_put(KvmDirty *kvmd, uint32_t slot_id, KvmDirtySlot *slot);

/* Call @func on every logged slot.  Returns: its first error, or 0. */
int kvmd_slots_foreach_logged(KvmDirty *kvmd,
                              int (*func)(KvmDirty *, KvmDirtySlot *));
void kvmd_slots_free(KvmDirty *kvmd);

/* Call KVM_SET_USER_MEMORY_REGION.  Returns: the ioctl's return value. */
int kvmd_slot_region_set(KvmDirty *kvmd,
                         const struct kvm_userspace_memory_region *region);

/*
 * Set or clear the log flag of @slot in KVM; slot->region is left unchanged.
 * Returns: 0 or -errno.
 */
int kvmd_slot_log_flag(KvmDirty *kvmd, const KvmDirtySlot *slot, bool on);

static inline bool kvmd_slot_logged(const KvmDirtySlot *slot)
{
    return slot->region.flags & KVM_MEM_LOG_DIRTY_PAGES;
}

/*
 * The address space of @slot: space 0 has all of the guest's memory, other
 * spaces map parts of it again.
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

/* vcpu.c: the list of vCPUs. */

/* Returns: NULL if no vCPU ever had this id. */
KvmDirtyVcpu *kvmd_vcpu_get(KvmDirty *kvmd, unsigned long id);
KvmDirtyVcpu *kvmd_vcpu_new(KvmDirty *kvmd, unsigned long id);
void kvmd_vcpu_free(gpointer vcpu);

/* publish.c: hand pages to the VMM. */

/* Call KvmDirtyVmm.publish(); see there for the arguments. */
void kvmd_publish(KvmDirty *kvmd, const KvmDirtySlot *slot, uint64_t first,
                  const uint64_t *words, size_t n);

/*
 * Handle @n words that a harvest took from the bitmap of @slot, from page
 * @first on.  kvmd_publish_found() clears the bits past the slot's end, and
 * publishes and counts the pages of the others, if there are any.
 */
typedef void KvmDirtyFound(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                           uint64_t *words, size_t n);
KvmDirtyFound kvmd_publish_found;

/*
 * Publish all of @slot, or a range and maybe some pages before it, whether
 * they were written or not.  kvmd_publish_whole() returns 0.
 */
int kvmd_publish_whole(KvmDirty *kvmd, KvmDirtySlot *slot);
void kvmd_publish_range(KvmDirty *kvmd, const KvmDirtySlot *slot,
                        uint64_t first, uint64_t pages);

/* harvest.c: take pages from KVM, and measure how long this takes. */

/*
 * Take the dirty pages among the @pages pages of @slot from page @first on, or
 * among more pages of @slot, and pass them to a KvmDirtyFound.
 * Returns: 0, or -errno; after an error some pages may not have been taken.
 */
typedef int KvmDirtyHarvest(KvmDirty *kvmd, KvmDirtySlot *slot,
                            uint64_t first, uint64_t pages);

/* Harvest a range with @harvest.  Returns: the return value of @harvest. */
int kvmd_harvest_range(KvmDirty *kvmd, KvmDirtySlot *slot, uint64_t first,
                       uint64_t pages, KvmDirtyHarvest *harvest);

/*
 * Harvest all of @slot; if that fails, publish every page of it.  The operator
 * is told of a failure once between two calls of kvmd_sync(), and not by each
 * of the many syncs of a display.
 */
int kvmd_harvest_slot(KvmDirty *kvmd, KvmDirtySlot *slot,
                      KvmDirtyHarvest *harvest);

#endif
