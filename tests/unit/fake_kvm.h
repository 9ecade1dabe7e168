/*
 * A KVM made of ordinary memory, to run the engine on.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * It does what virt/kvm/dirty_ring.c and the x86 MMU of Linux 6.1 do, as far
 * as the engine can tell.  A page is writable or not.  A write to a page that
 * is not writable makes it so, and then logs it (I1) in the ring of the vCPU
 * or the bitmap of the slot.  A re-arm makes the page read-only again.  A vCPU
 * stores to a page only while that is writable, so a page that was not
 * re-armed changes without anybody knowing, as in a real guest.
 *
 * A store also sets the page's dirty bit.  In a VM with KVM_CAP_DIRTY_BITS
 * nothing else tells of it: a write to a region that is wrprot makes the
 * region writable and logs nothing.  Only a collect moves dirty bits to the
 * bitmap, and wrprots idle regions.  A collect that brakes also wrprots each
 * page that it finds; a write to such a page makes it writable and logs it.
 *
 * Guest memory is one uint64_t (a stamp) per page, which lies at the
 * userspace_addr of the slot.
 *
 * Locks are those of the kernel: slots_lock serialises the ioctls, mmu_lock
 * guards the page tables.  A vCPU takes only mmu_lock.
 */

#ifndef FAKE_KVM_H
#define FAKE_KVM_H

#include <glib.h>
#include <linux/kvm.h>
#include <linux/kvm_dirty_tracking.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_SPACES 2
#define FAKE_SLOTS 32
/* The smallest range of KVM_WRITE_PROTECT_RANGE. */
#define FAKE_REGION (UINT64_C(2) << 20)
#define FAKE_INJECTIONS 4

/* Points at which a test may have vCPUs run. */
typedef enum FakePoint {
    FAKE_RESET_BEGIN,
    FAKE_RESET_FLAGS,           /* the flags of an entry were read */
    FAKE_RESET_SLOT,            /* and its slot */
    FAKE_RESET_OFFSET,          /* and its offset */
    FAKE_RESET_FREED,           /* the entry is free, its page not re-armed */
    FAKE_RESET_END,
    FAKE_REGION_BEGIN,          /* before KVM_SET_USER_MEMORY_REGION acts */
    FAKE_REGION_END,
    FAKE_LOG_BEGIN,             /* KVM_GET_DIRTY_LOG, KVM_CLEAR_DIRTY_LOG */
    FAKE_LOG_END,
    FAKE_PROTECT_BEGIN,         /* KVM_WRITE_PROTECT_ALL_MEM, _RANGE */
    FAKE_PROTECT_END,
    FAKE_SPLIT_BEGIN,           /* KVM_SPLIT_HUGE_PAGES */
    FAKE_COLLECT_BEGIN,         /* KVM_COLLECT_DIRTY_BITS */
    FAKE_COLLECT_END,
} FakePoint;

/* Capabilities of a patched KVM. */
typedef enum FakePatched {
    FAKE_CAN_PROTECT = 1,       /* KVM_CAP_WRITE_PROTECT_ALL_MEM */
    FAKE_CAN_FETCH = 2,         /* KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT */
    FAKE_CAN_MAP = 4,           /* KVM_CAP_DIRTY_BITMAP_FD */
    FAKE_CAN_SPLIT = 8,         /* KVM_CAP_EAGER_PAGE_SPLIT */
    FAKE_CAN_COLLECT = 16,      /* KVM_CAP_DIRTY_BITS */
} FakePatched;

/* All of them, and all that need no dirty bits of the MMU and the CPU. */
#define FAKE_PATCHED (FAKE_WITHOUT_DIRTY_BITS | FAKE_CAN_COLLECT)
#define FAKE_WITHOUT_DIRTY_BITS \
    (FAKE_CAN_PROTECT | FAKE_CAN_FETCH | FAKE_CAN_MAP | FAKE_CAN_SPLIT)

/* Pages of a huge page of 2 MiB. */
#define FAKE_HUGE 512

/* The kind of KVM; to be set before the engine is made. */
typedef struct FakeConfig {
    int ring_max;               /* bytes of the largest ring; 0: no rings */
    uint32_t reserve;           /* entries behind the soft limit: 64, or 576
                                   where the CPU logs (PML) */
    bool tiny_rings;            /* less than a page is accepted (real: no) */
    int manual_caps;            /* of KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2 */
    bool manual_refused;        /* offered, but enabling it fails */
    int patched;                /* FakePatched */
    bool cpu_log;               /* the CPU has one, which protecting disables */
    int patched_refused;        /* of these: offered, but enabling fails */
    bool no_brake;              /* a collect knows no flag */
} FakeConfig;

#define FAKE_RING_MAX (65536 * (int)sizeof(struct kvm_dirty_gfn))
#define FAKE_MANUAL_CAPS \
    (KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE | KVM_DIRTY_LOG_INITIALLY_SET)

/* Linux 6.1 on a CPU without PML. */
#define FAKE_LINUX_6_1 \
    .ring_max = FAKE_RING_MAX, .reserve = 64, .manual_caps = FAKE_MANUAL_CAPS

typedef struct FakeSlot {
    struct kvm_userspace_memory_region region;
    uint64_t pages;
    bool *writable;
    bool *dirty_bit;            /* the CPU's */
    bool *braked;               /* not writable, wherever it is */
    bool *huge;                 /* per FAKE_HUGE pages: mapped by a huge page */
    uint64_t *dirty;            /* the bitmap; NULL if there is none */
    uint64_t *summary;          /* and its summary, if it can be mapped */
    int fd;                     /* of both; -1 if it cannot */
    size_t bitmap_size;         /* bytes, whole host pages */
    size_t summary_size;
} FakeSlot;

typedef struct FakeKvm FakeKvm;

typedef struct FakeVcpu {
    FakeKvm *kvm;
    unsigned long id;
    int fd;
    struct kvm_dirty_gfn *gfns;
    size_t mapped;
    void *map;
    uint32_t dirty_index;       /* written by the vCPU */
    uint32_t reset_index;       /* written under slots_lock */
    uint64_t lost;              /* entries overwritten before their reset */
    struct {
        bool active;
        uint32_t slot_id;
        uint64_t page;
        uint64_t stamp;
    } write;
} FakeVcpu;

typedef struct FakeInjection {
    unsigned long request;
    int err;
    int times;                  /* negative: for ever */
    bool late;                  /* it does what was asked for nevertheless */
} FakeInjection;

struct FakeKvm {
    FakeConfig config;
    GMutex slots_lock;
    GMutex mmu_lock;
    FakeSlot *slots[FAKE_SPACES][FAKE_SLOTS];
    GPtrArray *vcpus;
    uint32_t ring_size;         /* entries; 0 if not enabled */
    uint64_t manual;            /* the flags enabled */
    int patched;                /* FakePatched, enabled */
    uint64_t split_mode;        /* KVM_CAP_EAGER_PAGE_SPLIT's arguments */
    uint64_t split_chunk;
    int stats_fd;               /* what KVM_GET_STATS_FD gives a copy of */
    int stats_given;            /* the last of these; -1 before that */
    uint64_t faults, fault_ns;  /* what that says of write faults */

    /* A test with no other thread may change these at any time. */
    bool soft_limit_off;        /* this KVM lets a vCPU fill on */
    /*
     * A reset returns after so many entries, so many times, as if a signal
     * were pending.  A thread that blocks its signals is not affected, unless
     * the reset stops for task work, which nobody can block.
     */
    int reset_stops_after;
    int reset_stops;
    bool reset_stops_by_work;
    /*
     * As in Linux 6.16 to at least 6.18, the reset then frees and counts
     * entries that it had gathered to re-arm together, but never re-arms them.
     */
    bool reset_drops_group;
    bool unmappable;            /* no bitmap's file can be mapped */
    /* The false answers of a broken KVM. */
    int reset_says;             /* entries reset, so many times */
    int reset_lies;
    bool reset_idles;           /* and then it has not reset any */
    bool map_lies;              /* where the bitmap and the summary are */
    struct kvm_dirty_bitmap_fd map_says;
    FakeInjection inject[FAKE_INJECTIONS];
    void (*hook)(void *opaque, FakePoint point, FakeVcpu *vcpu);
    void *hook_opaque;
    /* Under mmu_lock: KVM has logged a page. */
    void (*logged)(void *opaque, uint32_t slot_id, uint64_t page);
    void *logged_opaque;

    /* How often each was called, under slots_lock. */
    unsigned resets, region_sets, gets, clears;
    unsigned protects, range_protects, maps, splits, collects;
    unsigned brakes;            /* of the collects */
    unsigned ioctls;            /* all of them */
    uint64_t rearmed;           /* pages, by resets */
};

FakeKvm *fake_new(const FakeConfig *config);
void fake_free(FakeKvm *k);

/* KvmDirtyVmm.vm_ioctl with @opaque a FakeKvm. */
int fake_vm_ioctl(void *opaque, unsigned long request, void *arg);

/* Sets what KVM's statistics say of write faults. */
void fake_set_faults(FakeKvm *k, uint64_t faults, uint64_t ns);

/* @request fails with @err for the next @times (negative: for ever). */
void fake_fail(FakeKvm *k, unsigned long request, int err, int times);
/* The same, but KVM has done what @request asks for. */
void fake_fail_late(FakeKvm *k, unsigned long request, int err, int times);
/* None of these fails any more. */
void fake_fail_no_more(FakeKvm *k);

/* KVM_CREATE_VCPU; lives until fake_free(), as one in KVM does. */
FakeVcpu *fake_vcpu_new(FakeKvm *k, unsigned long id);

/* KVM fills the next entry of the ring of @v with any content. */
void fake_vcpu_fill(FakeVcpu *v, const struct kvm_dirty_gfn *gfn);

/* False: KVM_RUN returns at once with KVM_EXIT_DIRTY_RING_FULL. */
bool fake_vcpu_enters(const FakeVcpu *v);

/* Entries that KVM takes for used. */
uint32_t fake_vcpu_used(const FakeVcpu *v);

/*
 * The vCPU stores @stamp in a page: begin, then step until it says true.
 * Between two steps others may run.  A page of no slot is nobody's memory.
 */
void fake_write_begin(FakeVcpu *v, uint32_t slot_id, uint64_t page,
                      uint64_t stamp);
bool fake_write_step(FakeVcpu *v);
void fake_write(FakeVcpu *v, uint32_t slot_id, uint64_t page, uint64_t stamp);

/*
 * Whether KVM will tell of the next write to the page: the page is not
 * writable, or is in a ring or bitmap that was not harvested.  Also true where
 * the slot is not logged, and nobody asks.
 */
bool fake_page_armed(FakeKvm *k, uint32_t slot_id, uint64_t page);
bool fake_page_writable(FakeKvm *k, uint32_t slot_id, uint64_t page);

/* Map the slot by huge pages, as far as they fit. */
void fake_map_huge(FakeKvm *k, uint32_t slot_id);
/* How many huge pages are left in all slots. */
uint64_t fake_huge_pages(FakeKvm *k);

#endif
