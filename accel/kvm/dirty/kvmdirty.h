/*
 * libkvmdirty: learn which guest pages were written, and make new writes
 * visible again, for one KVM virtual machine.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Concepts
 *
 * Two words carry the whole library (docs/design.md defines them once):
 *
 *   harvest   take the pages that were written since the last harvest
 *   re-arm    write-protect harvested pages, so that the next write shows
 *
 * The library keeps one rule: nobody reads the contents of a page between the
 * page's harvest and its re-arm.  So it publishes pages, which is to hand them
 * to KvmDirtyVmm.publish(), after it has re-armed them.  Where kvmd_clears() is
 * true it publishes them before, and the caller re-arms them with
 * kvmd_slot_clear() before it reads their contents.
 *
 * A mechanism is a way to harvest and to re-arm.  kvmd_new() chooses one and
 * enables it, kvmd_switch() can exchange it while the VM runs.  From then on
 * the caller only has to
 *
 *   - set all memory slots with kvmd_slot_set();
 *   - tell of vCPUs with kvmd_vcpu_add() and kvmd_vcpu_remove(), and answer
 *     KVM_EXIT_DIRTY_RING_FULL with kvmd_vcpu_ring_full();
 *   - lend a thread to kvmd_reaper_run();
 *   - call kvmd_sync() whenever it wants to know what was written.
 *
 * The library needs glib and <linux/kvm.h>, nothing else.  A virtual machine
 * monitor (VMM) lends it the few things in KvmDirtyVmm.
 *
 * Locking: every function may be called from any thread, and none of them
 * needs a lock of the caller's.  One internal mutex serialises them.  The
 * library holds it while it calls publish, collected, overflowed and warn, so
 * these must not call back into the library.  It calls kick without the mutex.
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

/*
 * kvmd_mechanism_name:
 * @mechanism: any but KVMD__MAX
 *
 * Returns: "auto", "log", "ring", "wrprot", "shared" or "dirty-bits"; static
 * storage.
 */
const char *kvmd_mechanism_name(KvmDirtyMechanism mechanism);

/*
 * kvmd_mechanism_parse:
 * @name: one of these names
 * @mechanism: is set to what it stands for
 *
 * Returns: false if no mechanism is called @name.
 */
bool kvmd_mechanism_parse(const char *name, KvmDirtyMechanism *mechanism);

typedef struct KvmDirty KvmDirty;
typedef struct KvmDirtyVcpu KvmDirtyVcpu;

/*
 * What the virtual machine monitor lends.  NULL is allowed where it says
 * "optional".  @opaque is what kvmd_new() was given.
 */
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

    /*
     * Optional: @pages entries were taken from the ring of the vCPU that was
     * added with @vcpu.
     */
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
 * @config: checked for sense in itself, before there is a host to ask
 *
 * Returns: false with @error set (KVMD_ERROR_CONFIG) if it contradicts itself.
 */
bool kvmd_config_check(const KvmDirtyConfig *config, GError **error);

/*
 * kvmd_new:
 * @vmm: what the caller lends; copied
 * @opaque: passed to the functions of @vmm
 * @config: what the caller asks for
 *
 * Choose a mechanism and enable it for the VM behind vmm->vm_ioctl.  To be
 * called after KVM_CREATE_VM and before the first vCPU and the first slot.
 *
 * Returns: the engine, owned by the caller; NULL with @error set if @config
 * asks by name for what the host lacks, or its rings are not of that size.
 * KVMD_AUTO without a size never fails.
 */
KvmDirty *kvmd_new(const KvmDirtyVmm *vmm, void *opaque,
                   const KvmDirtyConfig *config, GError **error);

/*
 * kvmd_free:
 * @kvmd: the reaper has been stopped and joined, and every vCPU removed; slots
 *        may remain
 */
void kvmd_free(KvmDirty *kvmd);

/* Why a mechanism is in use. */
typedef enum KvmDirtyChoice {
    KVMD_CHOICE_AUTO,       /* KVMD_AUTO: it is the best that the host has */
    KVMD_CHOICE_RING_SIZE,  /* KVMD_AUTO with a ring size, which means rings */
    KVMD_CHOICE_NEW,        /* its name, given to kvmd_new() */
    KVMD_CHOICE_SWITCH,     /* its name, given to kvmd_switch() */
} KvmDirtyChoice;

/*
 * kvmd_mechanism, kvmd_choice, kvmd_reason:
 *
 * kvmd_switch() changes what these three and kvmd_passed_over(), kvmd_clears()
 * and kvmd_clear_publishes() return, and frees what they point to: call none of
 * them while another thread is in it.
 *
 * Returns: the mechanism in use, never KVMD_AUTO; why; and one sentence that
 * says so.
 */
KvmDirtyMechanism kvmd_mechanism(const KvmDirty *kvmd);
KvmDirtyChoice kvmd_choice(const KvmDirty *kvmd);
const char *kvmd_reason(const KvmDirty *kvmd);

/*
 * kvmd_passed_over:
 * @mechanism: one that KVMD_AUTO prefers to the one in use
 *
 * Returns: why KVMD_AUTO did not take @mechanism, as an error of KVMD_ERROR;
 * NULL if it did, or was not asked.
 */
const GError *kvmd_passed_over(const KvmDirty *kvmd,
                               KvmDirtyMechanism mechanism);

/*
 * kvmd_switch:
 * @mechanism: in use from now on; with KVMD_AUTO, the best one is
 *
 * Slots may be logged: their pages are all published.  Not to be called while
 * somebody counts on pages that kvmd_slot_clear() is yet to re-arm.
 *
 * Returns: false with @error set, and all as it was, if the host lacks what
 * that takes, if KVM cannot re-arm the pages that were found, or if it could
 * only have been enabled when the VM was made: that is so for rings, for
 * KVMD_DIRTY_BITS, and for KVMD_WRPROT and KVMD_SHARED if the VM was not made
 * with one of them or KVMD_AUTO.  A VM that was made with KVMD_DIRTY_BITS, by
 * its name or by KVMD_AUTO, can have only that or KVMD_LOG.
 */
bool kvmd_switch(KvmDirty *kvmd, KvmDirtyMechanism mechanism, GError **error);

/* Returns: entries per ring; 0 without rings.  Never changes. */
uint32_t kvmd_ring_size(const KvmDirty *kvmd);

/* Returns: true if kvmd_slot_clear() must re-arm pages before they are read. */
bool kvmd_clears(const KvmDirty *kvmd);

/*
 * kvmd_clear_publishes:
 *
 * Returns: true if kvmd_slot_clear() also publishes what was written before it
 * was called.  A caller that takes that before it reads need not read those
 * pages twice.
 */
bool kvmd_clear_publishes(const KvmDirty *kvmd);

/*
 * kvmd_slot_set:
 * @region: as for KVM_SET_USER_MEMORY_REGION
 * @tag: the caller's name for the slot's first page, given to publish(); taken
 *       when the slot comes, not when its flags change
 *
 * KVM_SET_USER_MEMORY_REGION, and what has to go before and after it.  All
 * of a VM's slots are set through this function, for two reasons:
 *  - Before a slot goes away (memory_size 0) its pages are harvested and
 *    published.  With rings the entries that name it are taken once more after
 *    it went and before its id can be used again.  So no write is lost, but one
 *    that the CPU itself still buffers (PML), and none is put down to its
 *    successor (I7).
 *  - To re-arm everything after a ring overflow, the library toggles
 *    KVM_MEM_LOG_DIRTY_PAGES, and must not race with the caller doing so.
 *
 * Returns: what the ioctl returned.
 */
int kvmd_slot_set(KvmDirty *kvmd,
                  const struct kvm_userspace_memory_region *region,
                  uint64_t tag);

/*
 * kvmd_sync:
 *
 * Harvest all logged slots and publish their pages.  Every write that a vCPU
 * completed before the call is published when it returns.
 *
 * Returns: 0, or -errno of the ioctl that failed; then more is published
 * rather than less.
 */
int kvmd_sync(KvmDirty *kvmd);

/*
 * kvmd_sync_ahead:
 *
 * Leave less to the kvmd_sync() that is about to follow, for which the caller
 * may need a lock that it does not need for this: reap the rings as they are,
 * with no vCPU asked to leave.  Does nothing where there are no rings.
 */
void kvmd_sync_ahead(KvmDirty *kvmd);

/*
 * kvmd_slot_sync:
 * @slot_id: the slot; nothing is done if it is not logged
 *
 * kvmd_sync() for one slot.  With rings it is kvmd_sync(), as a ring holds the
 * pages of every slot.
 *
 * Returns: as kvmd_sync().
 */
int kvmd_slot_sync(KvmDirty *kvmd, uint32_t slot_id);

/*
 * kvmd_slot_clear:
 * @slot_id: the slot; nothing is done if it is not logged
 * @first: its first page that the caller is about to read
 * @pages: how many it will read
 *
 * Re-arm those pages of the range that a sync has published and that were not
 * re-armed since; KVMD_WRPROT and KVMD_SHARED do so by whole regions of 2 MiB.
 * Where kvmd_clears() is false the pages are re-armed already, and nothing is
 * done.  Where kvmd_clear_publishes() is true, pages of the range that were
 * written meanwhile are published, and maybe others.
 *
 * Returns: 0; -EINVAL if the range ends beyond the slot; or -errno of the
 * ioctl that failed.  After an error the pages are still to be re-armed, and
 * the next sync publishes them again; but with KVMD_DIRTY_BITS they are armed,
 * and it publishes what was written since the last.
 */
int kvmd_slot_clear(KvmDirty *kvmd, uint32_t slot_id,
                    uint64_t first, uint64_t pages);

/*
 * kvmd_vcpu_add:
 * @id: with which KVM created the vCPU
 * @fd: of the vCPU; borrowed, and open until kvmd_vcpu_remove()
 * @vcpu: given to collected()
 *
 * Track a vCPU.  One that was removed may come back with the same id and the
 * same KVM vCPU, as VMMs do that park unplugged vCPUs; its ring stays mapped
 * until kvmd_free().
 *
 * Returns: a handle owned by @kvmd; NULL with @error set.
 */
KvmDirtyVcpu *kvmd_vcpu_add(KvmDirty *kvmd, unsigned long id, int fd,
                            void *vcpu, GError **error);

/*
 * kvmd_vcpu_remove:
 * @vcpu: outside KVM_RUN for good
 *
 * Publish what is left in its ring, and forget the VMM's handle of it.
 */
void kvmd_vcpu_remove(KvmDirtyVcpu *vcpu);

/*
 * kvmd_vcpu_ring_full:
 * @vcpu: left KVM_RUN with KVM_EXIT_DIRTY_RING_FULL; this is its thread
 *
 * Reap its own ring and no other, after which it may enter KVM_RUN again.
 */
void kvmd_vcpu_ring_full(KvmDirtyVcpu *vcpu);

/*
 * kvmd_reaper_run:
 *
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
 * @split: what kvmd_split_run() does with huge pages
 * @size: how many bytes it splits at a time
 *
 * Have KVM leave huge pages alone when logging begins.  Not to be called while
 * kvmd_split_run() runs.  Unless it is called, KVM does as its own parameters
 * say.
 *
 * Returns: false with @error set, and all as it was, if @size is not allowed,
 * or if KVM cannot do what @split asks for; KVMD_SPLIT_AUTO is then
 * KVMD_SPLIT_OFF and no error.
 */
bool kvmd_split_set(KvmDirty *kvmd, KvmDirtySplit split, uint64_t size,
                    GError **error);

/* Returns: what was set, but KVMD_SPLIT_OFF where KVM cannot split ahead. */
KvmDirtySplit kvmd_split(const KvmDirty *kvmd);

/*
 * kvmd_split_begin:
 *
 * Make ready to split the huge pages of what is being logged.
 *
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

/*
 * kvmd_stats:
 * @stats: filled in
 */
void kvmd_stats(KvmDirty *kvmd, KvmDirtyStats *stats);

/*
 * kvmd_guesses:
 *
 * Returns: how often pages were published without evidence that they were
 * written: all that are logged, or a slot, or a range, after an overflow or
 * because a harvest or a re-arm failed.  A publication that has begun is waited
 * for, and counts.  KVM is not asked.
 */
uint64_t kvmd_guesses(KvmDirty *kvmd);

#endif
