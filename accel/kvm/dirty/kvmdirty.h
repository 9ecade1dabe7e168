/*
 * libkvmdirty: learn which guest pages were written, and make new writes
 * visible again, for one KVM virtual machine.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Two words carry the whole library (docs/design.md defines them once):
 *
 *   harvest   take the pages that were written since the last harvest
 *   re-arm    write-protect harvested pages, so that the next write shows
 *
 * and one rule: no contents are read between a page's harvest and its re-arm.
 * So pages are published (handed to KvmDirtyVmm.publish) after they were
 * re-armed; or, where kvmd_clears() is true, before, and then they must be
 * re-armed with kvmd_slot_clear() before their contents are read.  Where
 * kvmd_clear_publishes() is true as well, that publishes more of them.
 *
 * The library needs glib and <linux/kvm.h>, nothing else; a virtual machine
 * monitor lends it the few things in KvmDirtyVmm.
 *
 * Locking: every function may be called from any thread, and none of them
 * needs a lock of the caller's.  One internal mutex serialises them; it is
 * held while publish, collected, overflowed and warn are called, so these must
 * not call back into the library.  kick is called without it.
 *
 * Units: pages are host pages; times are nanoseconds of CLOCK_MONOTONIC; a
 * slot id is KVM's, that is (address space << 16 | slot).
 *
 * Errors: an int is 0 or greater, or -errno.  A GError, in the domain
 * KVMD_ERROR, has one sentence for the user.
 */

#ifndef KVMDIRTY_H
#define KVMDIRTY_H

#include <glib.h>
#include <linux/kvm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Pages per word of a dirty bitmap, in KVM's ABI and in publish(). */
#define KVMD_WORD_PAGES 64

#define KVMD_ERROR (kvmd_error_quark())
GQuark kvmd_error_quark(void);

typedef enum KvmDirtyError {
    KVMD_ERROR_CONFIG,      /* what was asked for contradicts itself */
    KVMD_ERROR_HOST,        /* the host's KVM lacks it */
    KVMD_ERROR_REFUSED,     /* the host's KVM has it, and refuses it */
    KVMD_ERROR_STARTED,     /* only from the start of the VM, which is over */
} KvmDirtyError;

typedef enum KvmDirtyMechanism {
    KVMD_AUTO,              /* only to ask for: the best the host offers */
    KVMD_LOG,               /* KVM_GET_DIRTY_LOG and KVM_CLEAR_DIRTY_LOG */
    KVMD_RING,              /* KVM_CAP_DIRTY_LOG_RING and a reaper */
    KVMD_WRPROT,            /* KVM_GET_DIRTY_LOG, KVM_WRITE_PROTECT_RANGE */
    KVMD_SHARED,            /* mapped bitmaps, KVM_WRITE_PROTECT_RANGE */
    KVMD_DIRTY_BITS,        /* mapped bitmaps, KVM_COLLECT_DIRTY_BITS */
    KVMD__MAX
} KvmDirtyMechanism;

/* "auto", "log", "ring", "wrprot", "shared", "dirty-bits"; static storage. */
const char *kvmd_mechanism_name(KvmDirtyMechanism mechanism);

/* The mechanism called @name; false if there is none. */
bool kvmd_mechanism_parse(const char *name, KvmDirtyMechanism *mechanism);

typedef struct KvmDirty KvmDirty;
typedef struct KvmDirtyVcpu KvmDirtyVcpu;

/* What the virtual machine monitor lends.  NULL where it says "optional". */
typedef struct KvmDirtyVmm {
    /* An ioctl on the VM's file descriptor; @arg as KVM defines it. */
    int (*vm_ioctl)(void *opaque, unsigned long request, void *arg);

    /*
     * Pages of a slot are dirty: bit b of words[w] is page
     * @first + w * KVMD_WORD_PAGES + b of the slot that was set with @tag.
     * @first is a multiple of KVMD_WORD_PAGES; no bit lies past the slot's
     * end.  A page may be published that was not written; a page that was
     * written is always published.  @words is valid during the call only.
     */
    void (*publish)(void *opaque, uint64_t tag, uint64_t first,
                    const uint64_t *words, size_t n);

    /* Optional: @pages entries were taken from the ring of @vcpu. */
    void (*collected)(void *opaque, void *vcpu, uint32_t pages);

    /*
     * Optional: a ring overflowed, all logged pages were published for it, and
     * KvmDirtyStats.overflows is one more; on any thread.
     */
    void (*overflowed)(void *opaque);

    /*
     * Make every vCPU that is inside KVM_RUN leave it once, so that
     * what the CPU itself still buffers (PML) is in the rings.  Returns when
     * all have.
     */
    void (*kick)(void *opaque);

    /*
     * Optional: true while the reaper has to keep off the rings, because
     * full rings are what slows a vCPU down on purpose.
     */
    bool (*reaper_held)(void *opaque);

    /* One sentence for the operator's log. */
    void (*warn)(void *opaque, const char *message);
} KvmDirtyVmm;

typedef struct KvmDirtyConfig {
    KvmDirtyMechanism mechanism;
    /*
     * Entries per vCPU's ring: a power of two, or 0 for none.  With
     * KVMD_AUTO a size chooses KVMD_RING, if the host has rings, or else warns;
     * with KVMD_RING and 0 the largest ring up to KVMD_RING_DEFAULT is taken.
     */
    uint32_t ring_size;
} KvmDirtyConfig;

/*
 * A vCPU writes at most some million pages a second through KVM's fault
 * path, so that 65,536 entries (KVM's own maximum, 1 MiB per vCPU) last for
 * tens of milliseconds between two reaps.
 */
#define KVMD_RING_DEFAULT 65536

/*
 * kvmd_config_check:
 * Whether @config is in itself sensible, before there is a host to ask.
 * Returns: false with @error set (KVMD_ERROR_CONFIG) if not.
 */
bool kvmd_config_check(const KvmDirtyConfig *config, GError **error);

/*
 * kvmd_new:
 * Choose a mechanism and enable it for the VM behind vmm->vm_ioctl.  To be
 * called after KVM_CREATE_VM and before the first vCPU and the first slot.
 * @vmm is copied; @opaque is passed to its functions.
 * Returns: the engine, owned by the caller; NULL with @error set if @config
 * asks by name for what the host lacks, or its rings are not of that size.
 * KVMD_AUTO without a size never fails.
 */
KvmDirty *kvmd_new(const KvmDirtyVmm *vmm, void *opaque,
                   const KvmDirtyConfig *config, GError **error);

/*
 * kvmd_free:
 * Free @kvmd.  The reaper has been stopped and joined, and every vCPU
 * removed; slots may remain.
 */
void kvmd_free(KvmDirty *kvmd);

/* What a mechanism is in use for. */
typedef enum KvmDirtyChoice {
    KVMD_CHOICE_AUTO,       /* KVMD_AUTO: it is the best that the host has */
    KVMD_CHOICE_RING_SIZE,  /* KVMD_AUTO with a ring size, which means rings */
    KVMD_CHOICE_NEW,        /* its name, given to kvmd_new() */
    KVMD_CHOICE_SWITCH,     /* its name, given to kvmd_switch() */
} KvmDirtyChoice;

/*
 * The mechanism in use (never KVMD_AUTO), why, and one sentence that says so.
 * These and the next five may change with kvmd_switch(), and what they point to
 * is then freed: not while another thread is in it.
 */
KvmDirtyMechanism kvmd_mechanism(const KvmDirty *kvmd);
KvmDirtyChoice kvmd_choice(const KvmDirty *kvmd);
const char *kvmd_reason(const KvmDirty *kvmd);

/*
 * kvmd_passed_over:
 * Returns: why KVMD_AUTO did not take @mechanism, which it prefers to the one
 * in use, as an error of KVMD_ERROR; NULL if it did, or was not asked.
 */
const GError *kvmd_passed_over(const KvmDirty *kvmd,
                               KvmDirtyMechanism mechanism);

/*
 * kvmd_switch:
 * Use @mechanism, or with KVMD_AUTO the best one, from now on.  Slots may be
 * logged: their pages are all published.  Not while somebody counts on pages
 * that kvmd_slot_clear() is yet to re-arm.
 * Returns: false with @error set, and all as it was, if the host lacks what
 * that takes, if KVM cannot re-arm what was found, or if it could only have
 * been enabled when the VM was made: that is so for rings, for KVMD_DIRTY_BITS,
 * and for KVMD_WRPROT and KVMD_SHARED if the VM was not made with one of them or
 * KVMD_AUTO.  A VM that was made with
 * KVMD_DIRTY_BITS, by its name or by KVMD_AUTO, can have only that or KVMD_LOG.
 */
bool kvmd_switch(KvmDirty *kvmd, KvmDirtyMechanism mechanism, GError **error);

/* Entries per ring; 0 without rings. */
uint32_t kvmd_ring_size(const KvmDirty *kvmd);

/* True if pages must be re-armed with kvmd_slot_clear() before a copy. */
bool kvmd_clears(const KvmDirty *kvmd);

/*
 * True if kvmd_slot_clear() also publishes what was written before it was
 * called.  Who takes that before reading need not read those pages twice.
 */
bool kvmd_clear_publishes(const KvmDirty *kvmd);

/*
 * kvmd_slot_set:
 * KVM_SET_USER_MEMORY_REGION, and what has to go before and after it.  All
 * of a VM's slots are set through this function, since:
 *  - a slot that goes away (memory_size 0) has its pages harvested and
 *    published first; with rings the entries that name it are also taken
 *    after it went and before its id can be used again, so that no write is
 *    lost (but one that the CPU itself still buffers, with PML) and none is
 *    put down to its successor (I7);
 *  - re-arming everything after a ring overflow toggles
 *    KVM_MEM_LOG_DIRTY_PAGES, and must not race with the caller doing so.
 * @tag is the caller's name for the slot's first page, given to publish(); it
 * is taken when the slot comes, not when its flags change.
 * Returns: what the ioctl returned.
 */
int kvmd_slot_set(KvmDirty *kvmd,
                  const struct kvm_userspace_memory_region *region,
                  uint64_t tag);

/*
 * kvmd_sync:
 * Harvest all logged slots and publish their pages.  Every write that a vCPU
 * completed before the call is published when it returns.
 * Returns: 0, or -errno of the ioctl that failed; then more is published
 * rather than less.
 */
int kvmd_sync(KvmDirty *kvmd);

/*
 * kvmd_sync_ahead:
 * Leave less to the kvmd_sync() that is about to follow, which may need a lock
 * of the caller's that this does not: reap the rings as they are, with no vCPU
 * asked to leave.  Does nothing where there are no rings.
 */
void kvmd_sync_ahead(KvmDirty *kvmd);

/*
 * kvmd_slot_sync:
 * The same for one slot.  With rings this is kvmd_sync(), as a ring holds the
 * pages of every slot.
 */
int kvmd_slot_sync(KvmDirty *kvmd, uint32_t slot_id);

/*
 * kvmd_slot_clear:
 * Re-arm those pages of [@first, @first + @pages) that a sync has published
 * and that were not re-armed since; KVMD_WRPROT and KVMD_SHARED do so by whole
 * regions of 2 MiB.  Where kvmd_clears() is false the pages are re-armed
 * already, and nothing is done.  Where kvmd_clear_publishes() is true, pages of
 * the range that were written meanwhile are published, and maybe others.
 * Returns: 0; -EINVAL if the range ends beyond the slot; or -errno of the
 * ioctl that failed.  After an error the pages are still to be re-armed, and
 * the next sync publishes them again; but with KVMD_DIRTY_BITS they are armed,
 * and it publishes what was written since the last.
 */
int kvmd_slot_clear(KvmDirty *kvmd, uint32_t slot_id,
                    uint64_t first, uint64_t pages);

/*
 * kvmd_vcpu_add:
 * Track the vCPU behind @fd (borrowed, open until kvmd_vcpu_remove()), which
 * was created with the id @id.  A vCPU that was removed may come back with
 * the same id and the same KVM vCPU, as VMMs do that park unplugged vCPUs; its
 * ring stays mapped until kvmd_free().
 * @vcpu is given to collected().
 * Returns: a handle owned by @kvmd; NULL with @error set.
 */
KvmDirtyVcpu *kvmd_vcpu_add(KvmDirty *kvmd, unsigned long id, int fd,
                            void *vcpu, GError **error);

/*
 * kvmd_vcpu_remove:
 * Publish what is left in the ring of @vcpu, which is outside KVM_RUN for
 * good, and forget the VMM's handle of it.
 */
void kvmd_vcpu_remove(KvmDirtyVcpu *vcpu);

/*
 * kvmd_vcpu_ring_full:
 * Answer KVM_EXIT_DIRTY_RING_FULL, on the thread of @vcpu: reap its own ring
 * and no other, after which it may enter KVM_RUN again.
 */
void kvmd_vcpu_ring_full(KvmDirtyVcpu *vcpu);

/*
 * kvmd_reaper_run:
 * Reap the rings before they are full, until kvmd_reaper_stop().  The caller
 * lends the thread.  Returns at once where there are no rings.
 */
void kvmd_reaper_run(KvmDirty *kvmd);
void kvmd_reaper_stop(KvmDirty *kvmd);

/* Whether huge pages are split ahead of the guest's writes. */
typedef enum KvmDirtySplit {
    KVMD_SPLIT_AUTO,        /* if KVM can, and ahead of a guest that splits */
    KVMD_SPLIT_ON,          /* all of them */
    KVMD_SPLIT_OFF,         /* none: KVM splits one when it is written */
} KvmDirtySplit;

/*
 * What is split at a time: a multiple of KVMD_SPLIT_UNIT.  In the lab,
 * splitting 16 MiB takes KVM 0.24 million instructions, some 0.1 ms, for
 * which it keeps others from changing slots.
 */
#define KVMD_SPLIT_UNIT (UINT64_C(2) << 20)
#define KVMD_SPLIT_DEFAULT (UINT64_C(16) << 20)

/*
 * kvmd_split_set:
 * Have KVM leave huge pages alone when logging begins, and @split say what
 * kvmd_split_run() does with them, @size bytes at a time; not while it runs.
 * Unless this is called, KVM does as its own parameters say.
 * Returns: false with @error set, and all as it was, if @size is not allowed,
 * or if KVM cannot do what @split asks for; KVMD_SPLIT_AUTO is then
 * KVMD_SPLIT_OFF and no error.
 */
bool kvmd_split_set(KvmDirty *kvmd, KvmDirtySplit split, uint64_t size,
                    GError **error);

/* What was set, but KVMD_SPLIT_OFF where KVM cannot split ahead. */
KvmDirtySplit kvmd_split(const KvmDirty *kvmd);

/*
 * kvmd_split_begin:
 * Make ready to split the huge pages of what is being logged.
 * Returns: true if kvmd_split_run() is to be called, once, by a thread that
 * the caller lends; it returns when all is split, or soon after
 * kvmd_split_stop(), which may come at any time.
 */
bool kvmd_split_begin(KvmDirty *kvmd);
void kvmd_split_run(KvmDirty *kvmd);
void kvmd_split_stop(KvmDirty *kvmd);

/* Totals since kvmd_new(), but for what is said to be at present. */
typedef struct KvmDirtyStats {
    uint64_t pages;             /* published, but for those of overflows */
    uint64_t harvests;          /* that found a page */
    uint64_t harvest_ns;        /* fetching bitmaps, collecting entries */
    uint64_t rearm_ns;          /* KVM_CLEAR_DIRTY_LOG, KVM_RESET_DIRTY_RINGS */
    uint64_t publish_ns;        /* in publish() */
    uint64_t ring_full_exits;
    uint64_t ring_full_ns;      /* vCPU time spent in kvmd_vcpu_ring_full() */
    uint64_t overflows;         /* of a ring: all logged pages were published */
    /*
     * Write faults of armed pages, and the vCPU time that KVM took for them:
     * estimates of KVM's, if it has any.
     */
    bool faults_known;
    uint64_t faults;
    uint64_t fault_ns;
    uint64_t reaps;             /* by the reaper */
    uint64_t reaper_interval_ns; /* at present */
    uint32_t logged_slots;      /* at present */
    uint64_t split_ns;          /* splitting huge pages ahead */
    uint64_t split_done;        /* bytes, since the last kvmd_split_begin() */
    uint64_t split_total;       /* and what there was to go through */
    bool split_active;          /* at present */
} KvmDirtyStats;

void kvmd_stats(KvmDirty *kvmd, KvmDirtyStats *stats);

/*
 * kvmd_guesses:
 * Returns: how often pages were published that nothing tells were written: all
 * of those logged, of a slot or of a range, after an overflow, or because a
 * harvest or a re-arm failed.  A publication that has begun is waited for, and
 * counts.  KVM is not asked.
 */
uint64_t kvmd_guesses(KvmDirty *kvmd);

#endif
