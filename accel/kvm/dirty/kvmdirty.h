/*
 * libkvmdirty: learn which guest pages were written, and make new writes
 * visible again, for one KVM virtual machine.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Concepts
 *
 * Three terms are used throughout the library (docs/design.md defines them):
 *
 *   harvest   take the pages that were written since the last harvest
 *   re-arm    write-protect harvested pages, so that the next write shows
 *   publish   hand harvested pages to KvmDirtyVmm.publish()
 *
 * The library keeps one rule: nobody reads the contents of a page between the
 * page's harvest and its re-arm.  So it re-arms pages before it publishes
 * them.  Where kvmd_clears() is true, it publishes them first, and the caller
 * re-arms them with kvmd_slot_clear() before it reads their contents.
 *
 * A mechanism is a way to harvest and to re-arm.  kvmd_new() chooses one and
 * enables it; kvmd_switch() can exchange it while the VM runs.  From then on
 * the caller only has to
 *
 *   - set all memory slots with kvmd_slot_set();
 *   - announce vCPUs with kvmd_vcpu_add() and kvmd_vcpu_remove(), and answer
 *     KVM_EXIT_DIRTY_RING_FULL with kvmd_vcpu_ring_full();
 *   - lend a thread to kvmd_reaper_run();
 *   - call kvmd_sync() whenever it wants to know which pages were written.
 *
 * The library needs glib and Linux' headers, nothing else.  The virtual machine
 * monitor (VMM) provides the callbacks in KvmDirtyVmm.
 *
 * Locking: every function may be called from any thread, and none of them
 * needs a lock of the caller's.  One internal mutex serialises them, but for
 * the time that KVM takes to collect the dirty bits of all memory, or to split
 * huge pages.  The library may hold it while it calls any callback but kick, so
 * these must not call back into the library.
 *
 * Units: pages are host pages; times are nanoseconds of CLOCK_MONOTONIC; slot
 * ids are KVM's: (address space << 16 | slot).
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
    KVMD_ERROR_CONFIG,      /* the configuration contradicts itself */
    KVMD_ERROR_HOST,        /* the host's KVM lacks the feature */
    KVMD_ERROR_REFUSED,     /* the host's KVM has it, but refuses it */
    KVMD_ERROR_STARTED,     /* possible only at the start of the VM */
} KvmDirtyError;

typedef enum KvmDirtyMechanism {
    KVMD_AUTO,              /* a request only: the best the host offers */
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
 * @name: one of the names that kvmd_mechanism_name() returns
 * @mechanism: set to the mechanism of that name
 *
 * Returns: false if no mechanism is called @name.
 */
bool kvmd_mechanism_parse(const char *name, KvmDirtyMechanism *mechanism);

typedef struct KvmDirty KvmDirty;
typedef struct KvmDirtyVcpu KvmDirtyVcpu;

/*
 * The VMM's callbacks.  A callback may be NULL if its comment says "optional".
 * @opaque is the pointer that was passed to kvmd_new().
 */
typedef struct KvmDirtyVmm {
    /*
     * An ioctl on the VM's file descriptor; @arg as KVM defines it.  Several
     * threads may be in it.
     */
    int (*vm_ioctl)(void *opaque, unsigned long request, void *arg);

    /*
     * Optional: an ioctl on the file descriptor of the vCPU for which @vcpu was
     * passed to kvmd_vcpu_add(); called by that function only.
     */
    int (*vcpu_ioctl)(void *opaque, void *vcpu, unsigned long request,
                      void *arg);

    /*
     * Pages of a slot are dirty: bit b of words[w] is page
     * @first + w * KVMD_WORD_PAGES + b of the slot that was set with @tag.
     * @first is a multiple of KVMD_WORD_PAGES; no bit lies past the slot's
     * end.  Every page that was written is published; pages that were not
     * written may be published too.  @words is valid during the call only.
     */
    void (*publish)(void *opaque, uint64_t tag, uint64_t first,
                    const uint64_t *words, size_t n);

    /*
     * Optional: @pages entries were taken from the ring of the vCPU for which
     * @vcpu was passed to kvmd_vcpu_add().
     */
    void (*collected)(void *opaque, void *vcpu, uint32_t pages);

    /*
     * Optional: a ring overflowed.  The library has published all logged pages
     * and has incremented KvmDirtyStats.overflows.  Called on any thread.
     */
    void (*overflowed)(void *opaque);

    /*
     * Make every vCPU that is inside KVM_RUN leave it once, so that KVM moves
     * the pages that the CPU itself still buffers (PML) into the rings.
     * Returns when all these vCPUs have left.
     */
    void (*kick)(void *opaque);

    /*
     * Optional: true while the reaper must not touch the rings, because the
     * VMM slows vCPUs down by letting their rings fill.
     */
    bool (*reaper_held)(void *opaque);

    /* One sentence for the operator's log. */
    void (*warn)(void *opaque, const char *message);
} KvmDirtyVmm;

typedef struct KvmDirtyConfig {
    KvmDirtyMechanism mechanism;
    /*
     * Entries per vCPU's ring: a power of two, or 0.  With KVMD_AUTO, 0 means
     * no rings, and a size chooses KVMD_RING if the host has rings; if it has
     * none, the library warns and ignores the size.  With KVMD_RING, 0 means
     * the largest ring that KVM offers, up to KVMD_RING_DEFAULT.
     */
    uint32_t ring_size;
} KvmDirtyConfig;

/*
 * Through KVM's fault path a vCPU writes at most some million pages a second.
 * A ring of 65,536 entries (KVM's own maximum, 1 MiB per vCPU) thus holds the
 * writes of tens of milliseconds between two reaps.
 */
#define KVMD_RING_DEFAULT 65536

/*
 * kvmd_config_check:
 * @config: the configuration to check, without asking the host
 *
 * Returns: false with @error set (KVMD_ERROR_CONFIG) if @config contradicts
 * itself.
 */
bool kvmd_config_check(const KvmDirtyConfig *config, GError **error);

/*
 * kvmd_new:
 * @vmm: the caller's callbacks; copied
 * @opaque: passed to the callbacks
 * @config: what the caller asks for
 *
 * Choose a mechanism and enable it for the VM behind vmm->vm_ioctl.  To be
 * called after KVM_CREATE_VM and before the first vCPU and the first slot.
 *
 * Returns: the engine, owned by the caller; NULL with @error set if @config
 * names a mechanism that the host lacks, or a ring size that the host does not
 * support.  KVMD_AUTO without a size never fails.
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
 * kvmd_switch() changes the results of these three functions and of
 * kvmd_passed_over(), kvmd_clears() and kvmd_clear_publishes(), and frees the
 * objects that they return: call none of these functions while another thread
 * is in kvmd_switch().
 *
 * Returns: the mechanism in use, never KVMD_AUTO; why it is in use; and one
 * sentence that gives this reason.
 */
KvmDirtyMechanism kvmd_mechanism(const KvmDirty *kvmd);
KvmDirtyChoice kvmd_choice(const KvmDirty *kvmd);
const char *kvmd_reason(const KvmDirty *kvmd);

/*
 * kvmd_passed_over:
 * @mechanism: one that KVMD_AUTO prefers to the one in use
 *
 * Returns: why KVMD_AUTO did not take @mechanism, as an error of KVMD_ERROR;
 * NULL if KVMD_AUTO did take it, or the caller did not ask for KVMD_AUTO.
 */
const GError *kvmd_passed_over(const KvmDirty *kvmd,
                               KvmDirtyMechanism mechanism);

/*
 * kvmd_switch:
 * @mechanism: the one to use from now on; KVMD_AUTO stands for the best one
 *
 * Slots may be logged; the library then publishes all of their pages.  Not to
 * be called while any thread has pages that it still has to re-arm with
 * kvmd_slot_clear() before it reads them.
 *
 * Returns: false with @error set and nothing changed, if
 *  - the host lacks what @mechanism needs;
 *  - KVM cannot re-arm the pages that were found; or
 *  - @mechanism can only be enabled when the VM is made.  This holds for
 *    rings, for KVMD_DIRTY_BITS, and for KVMD_WRPROT and KVMD_SHARED if the VM
 *    was not made with one of them or KVMD_AUTO.  A VM that was made with
 *    KVMD_DIRTY_BITS, by its name or by KVMD_AUTO, can only use
 *    KVMD_DIRTY_BITS or KVMD_LOG; and a VM that was made with rings always
 *    keeps them.
 */
bool kvmd_switch(KvmDirty *kvmd, KvmDirtyMechanism mechanism, GError **error);

/* Returns: entries per ring; 0 without rings.  Never changes. */
uint32_t kvmd_ring_size(const KvmDirty *kvmd);

/*
 * kvmd_clears:
 *
 * Returns: true if the caller must call kvmd_slot_clear() on published pages
 * before it reads them.  With KVMD_DIRTY_BITS such a call only brings forward
 * what the next sync would find.
 */
bool kvmd_clears(const KvmDirty *kvmd);

/*
 * kvmd_clear_publishes:
 *
 * Returns: true if kvmd_slot_clear() also publishes the pages that were
 * written before the call.  A caller that takes them before it reads the pages
 * need not read them a second time after the next sync.
 */
bool kvmd_clear_publishes(const KvmDirty *kvmd);

/*
 * kvmd_faults_tell:
 * Returns: whether each vCPU that writes takes faults for that; with
 * KVMD_DIRTY_BITS, after kvmd_brake().  False with KVMD_LOG: a CPU may log by
 * itself (PML), KVM may collect dirty bits, and Linux before 5.19 does not
 * count faults that make a page writable which is mapped.
 */
bool kvmd_faults_tell(const KvmDirty *kvmd);

/*
 * kvmd_slot_set:
 * @region: as for KVM_SET_USER_MEMORY_REGION
 * @tag: the caller's name for the slot's first page, passed to publish(); used
 *       when the slot is added, ignored when its flags change
 *
 * Call KVM_SET_USER_MEMORY_REGION, and do the work that belongs before and
 * after it.  All slots that KVM may log are set through this function, for two
 * reasons:
 *  - Before a slot is removed (memory_size 0), the library harvests and
 *    publishes its pages.  With rings it takes the entries that name the slot
 *    once more after the removal, before the slot's id can be used again (I7).
 *    So no write is attributed to a later slot with the same id.  Lost are
 *    those that the CPU itself still buffers (PML) and, with KVMD_LOG and
 *    KVMD_WRPROT, those between the last KVM_GET_DIRTY_LOG and the removal.
 *  - To re-arm everything after a ring overflow, the library toggles
 *    KVM_MEM_LOG_DIRTY_PAGES.  The caller must not change that flag meanwhile.
 *
 * Returns: the ioctl's return value.
 */
int kvmd_slot_set(KvmDirty *kvmd,
                  const struct kvm_userspace_memory_region *region,
                  uint64_t tag);

/*
 * kvmd_sync:
 *
 * Harvest all logged slots and publish their pages.  Every write that a vCPU
 * completed before the call is published when it returns, unless
 * kvmd_sync_ahead() was called with KVMD_AHEAD_ROUND since the last sync.
 *
 * Returns: 0, or -errno of the ioctl that failed; the library has then
 * published too many pages rather than too few.
 */
int kvmd_sync(KvmDirty *kvmd);

/* What comes with the kvmd_sync() that a kvmd_sync_ahead() is ahead of. */
typedef enum KvmDirtyAhead {
    KVMD_AHEAD_ROUND,       /* another round: the guest goes on */
    KVMD_AHEAD_STOP,        /* the end: the guest is stopped before the sync */
} KvmDirtyAhead;

/*
 * kvmd_sync_ahead:
 * @of: what comes with the sync
 *
 * Do a part of the kvmd_sync() that is about to follow.  A caller that needs a
 * lock for kvmd_sync() need not hold it here, and needs it for less time then;
 * but no two threads may be in this function.
 *  - With rings, they are reaped as they are, without making any vCPU leave
 *    KVM_RUN.
 *  - With KVMD_DIRTY_BITS and KVMD_AHEAD_ROUND, all slots are harvested and
 *    published.  The next kvmd_sync() then publishes what was written before
 *    this call, and leaves what was written since to the sync after it.
 *  - With KVMD_DIRTY_BITS and KVMD_AHEAD_STOP, memory to which nobody writes
 *    any more is harvested so often that the sync need not look at it.  That
 *    sync leaves nothing, whatever was done ahead before.
 *  - With the others nothing is done.
 */
void kvmd_sync_ahead(KvmDirty *kvmd, KvmDirtyAhead of);

/*
 * kvmd_brake:
 *
 * Have the guest pay a fault for its next write to each page that the next
 * kvmd_look(), kvmd_sync_ahead() or kvmd_sync() finds, as it does with all
 * mechanisms but KVMD_DIRTY_BITS.  This is for a guest that writes faster than
 * its pages can be sent.  It is over with the first of these calls, and has no
 * effect on kvmd_slot_sync() and kvmd_slot_clear().  Nothing is done with
 * another mechanism, and where KVM cannot write-protect what it collects.
 */
void kvmd_brake(KvmDirty *kvmd);

/*
 * kvmd_look:
 *
 * Publish what was written up to now, except what a CPU still buffers.  No sync
 * follows: where kvmd_clears() is true, the pages are un-armed as after one.
 * A slot may be left alone until kvmd_sync() was called since it was set: the
 * caller of kvmd_slot_set() may have more to do before kvmd_slot_clear() can be
 * called for its pages.
 */
void kvmd_look(KvmDirty *kvmd);

/*
 * kvmd_slot_sync:
 * @slot_id: the slot; nothing is done if it is not logged
 *
 * kvmd_sync() for one slot.  With rings, all slots are synced, since a ring
 * holds the pages of every slot.
 *
 * Returns: as kvmd_sync().
 */
int kvmd_slot_sync(KvmDirty *kvmd, uint32_t slot_id);

/*
 * kvmd_slot_clear:
 * @slot_id: the slot; nothing is done if it is not logged
 * @first: the first page of the slot that the caller is about to read
 * @pages: how many pages the caller is about to read
 *
 * Re-arm those pages of the range that a sync has published and that were not
 * re-armed since; KVMD_WRPROT and KVMD_SHARED do so by whole regions of 2 MiB.
 * Where kvmd_clears() is false, the pages are re-armed already, and the
 * function does nothing.  Where kvmd_clear_publishes() is true, the function
 * publishes pages of the range that were written meanwhile, and possibly
 * others.
 *
 * Returns: 0; -EINVAL if the range ends beyond the slot; or -errno of the
 * ioctl that failed.  After an error the pages are still to be re-armed, and
 * the next sync publishes them again.  With KVMD_DIRTY_BITS the pages are
 * armed even after an error, and the next sync publishes those that were
 * written since the last sync.
 */
int kvmd_slot_clear(KvmDirty *kvmd, uint32_t slot_id,
                    uint64_t first, uint64_t pages);

/*
 * kvmd_vcpu_add:
 * @id: the id that was passed to KVM_CREATE_VCPU
 * @fd: the vCPU's file descriptor; borrowed, and open until kvmd_vcpu_remove()
 * @vcpu: the VMM's pointer for the vCPU, passed to collected()
 *
 * Track a vCPU.  A VMM that parks unplugged vCPUs may add a removed vCPU
 * again, with the same id and the same KVM vCPU: its ring stays mapped until
 * kvmd_free().  The vCPU must not be inside KVM_RUN: vcpu_ioctl() would wait.
 *
 * Returns: a handle owned by @kvmd; NULL with @error set.
 */
KvmDirtyVcpu *kvmd_vcpu_add(KvmDirty *kvmd, unsigned long id, int fd,
                            void *vcpu, GError **error);

/*
 * kvmd_vcpu_remove:
 * @vcpu: a vCPU that has left KVM_RUN for good
 *
 * Publish the entries that are left in the vCPU's ring, and forget the VMM's
 * pointer for it.
 */
void kvmd_vcpu_remove(KvmDirtyVcpu *vcpu);

/*
 * kvmd_vcpu_ring_full:
 * @vcpu: left KVM_RUN with KVM_EXIT_DIRTY_RING_FULL; this is its thread
 *
 * Reap the ring of @vcpu and no other.  The vCPU may then enter KVM_RUN again.
 */
void kvmd_vcpu_ring_full(KvmDirtyVcpu *vcpu);

/*
 * kvmd_vcpu_faults:
 * @faults: set to the number of faults since the vCPU was made by which KVM
 *          mapped a page for it, or made one writable
 *
 * Where kvmd_faults_tell() is true, the difference between two calls tells
 * which vCPUs write how much, compared to each other.
 *
 * Returns: false if KVM does not count the faults of a vCPU (Linux does since
 * 5.14), if the VMM has no vcpu_ioctl(), or if @vcpu was removed.
 */
bool kvmd_vcpu_faults(KvmDirtyVcpu *vcpu, uint64_t *faults);

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
    KVMD_SPLIT_OFF,         /* none: KVM splits a page when it is written */
} KvmDirtySplit;

/*
 * How many bytes are split at a time: a multiple of KVMD_SPLIT_UNIT.  In the
 * lab KVM needs 0.24 million instructions, some 0.1 ms, to split 16 MiB; no
 * thread can change slots during that time.
 */
#define KVMD_SPLIT_UNIT (UINT64_C(2) << 20)
#define KVMD_SPLIT_DEFAULT (UINT64_C(16) << 20)

/*
 * kvmd_split_set:
 * @split: what kvmd_split_run() does with huge pages
 * @size: how many bytes kvmd_split_run() splits at a time
 *
 * Make KVM leave huge pages alone when logging begins.  Not to be called while
 * kvmd_split_run() runs.  If this function is never called, KVM's own
 * parameters decide.
 *
 * Returns: false with @error set and nothing changed, if @size is not allowed,
 * or if KVM cannot do what @split asks for.  If KVM cannot do what
 * KVMD_SPLIT_AUTO asks for, that is no error: KVMD_SPLIT_OFF is set instead.
 */
bool kvmd_split_set(KvmDirty *kvmd, KvmDirtySplit split, uint64_t size,
                    GError **error);

/* Returns: the mode that was set; KVMD_SPLIT_OFF if KVM cannot split ahead. */
KvmDirtySplit kvmd_split(const KvmDirty *kvmd);

/*
 * kvmd_split_begin:
 *
 * Prepare to split the huge pages of all slots that are being logged.
 *
 * Returns: true if the caller has to call kvmd_split_run() once, on a thread
 * that it lends.  kvmd_split_run() returns when nothing is left to split, or
 * soon after kvmd_split_stop(), which may be called at any time.
 */
bool kvmd_split_begin(KvmDirty *kvmd);
void kvmd_split_run(KvmDirty *kvmd);
void kvmd_split_stop(KvmDirty *kvmd);

/* Totals since kvmd_new(), unless a comment says "at present". */
typedef struct KvmDirtyStats {
    uint64_t pages;             /* published, except those of overflows */
    uint64_t harvests;          /* those that found a page */
    uint64_t harvest_ns;        /* fetching bitmaps, collecting entries */
    uint64_t rearm_ns;          /* KVM_CLEAR_DIRTY_LOG, KVM_RESET_DIRTY_RINGS */
    uint64_t publish_ns;        /* in publish() */
    uint64_t ring_full_exits;
    uint64_t ring_full_ns;      /* vCPU time spent in kvmd_vcpu_ring_full() */
    uint64_t overflows;         /* of rings: all logged pages are published */
    /*
     * Write faults of armed pages, and the vCPU time that they took, as KVM
     * estimates them; known only if KVM has these estimates.
     */
    bool faults_known;
    uint64_t faults;
    uint64_t fault_ns;
    uint64_t reaps;             /* by the reaper */
    uint64_t reaper_interval_ns; /* at present */
    uint32_t logged_slots;      /* at present */
    uint64_t split_ns;          /* splitting huge pages ahead */
    uint64_t split_done;        /* bytes, since the last kvmd_split_begin() */
    uint64_t split_total;       /* bytes to go through, at that call */
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
 * Returns: how often the library published pages without evidence that they
 * were written: all logged pages, a slot or a range, after an overflow, because
 * a harvest or a re-arm failed, as a slot went that had un-armed pages, or in
 * kvmd_switch().  The function waits for a publication
 * that has begun, and counts it.  It does not call KVM.
 */
uint64_t kvmd_guesses(KvmDirty *kvmd);

#endif
