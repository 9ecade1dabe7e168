/*
 * The memory ordering between KVM, which logs pages, and us.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A dirty ring:
 *
 * An entry of the ring (struct kvm_dirty_gfn) belongs to one party at a time,
 * and its flags word hands it over (KVM's API document, 8.29):
 *
 *   flags 0       KVM's: free, the vCPU that owns the ring may fill it
 *   ..._F_DIRTY   ours: slot and offset are a dirty page
 *   ..._F_RESET   KVM's: collected, KVM_RESET_DIRTY_RINGS re-arms the page
 *
 * KVM writes slot and offset and then, with release, DIRTY: we read the flags
 * with acquire before slot and offset.  We have read slot and offset when we
 * write RESET with release: KVM, which reads it with acquire, may then give
 * the entry to the vCPU again.
 *
 * A ring that overflows breaks the hand-over: the vCPU then fills entries
 * that are not free.  ring.c tells how that is noticed; what it read from
 * such an entry may be torn, and it treats all memory as dirty.  Entries that
 * KVM will not come back to before it has reset them are then ours to write.
 *
 * A shared bitmap: KVM sets a page's bit and then, with a full barrier
 * between, looks at the bit of the page's group in the summary and sets it
 * if it is clear.  We clear the summary's bit and then look at the words of
 * the group, both sequentially consistent and so in this order; a fence would
 * do as well, but ThreadSanitizer does not know fences.  So of the two, at
 * least one sees what the other did: either KVM finds the summary's bit clear
 * and sets it again, or we find the page.  Words are taken by an exchange,
 * since KVM may set other bits of them meanwhile; where nothing is seen
 * nothing is written, as a bit that is set later is for the next harvest.
 *
 * These are the only orderings, and this is the only file that has any.
 */

#ifndef KVMDIRTY_ORDERING_H
#define KVMDIRTY_ORDERING_H

#include <linux/kvm.h>
#include <stdint.h>

static inline uint32_t gfn_flags(const struct kvm_dirty_gfn *gfn)
{
    return __atomic_load_n(&gfn->flags, __ATOMIC_ACQUIRE);
}

static inline void gfn_give_back(struct kvm_dirty_gfn *gfn)
{
    __atomic_store_n(&gfn->flags, KVM_DIRTY_GFN_F_RESET, __ATOMIC_RELEASE);
}

/* Before gfn_give_back(), which orders it: KVM ignores a slot that is none. */
static inline void gfn_name_no_page(struct kvm_dirty_gfn *gfn)
{
    __atomic_store_n(&gfn->slot, UINT32_MAX, __ATOMIC_RELAXED);
}

/* Relaxed: a vCPU that overflows the ring may write them meanwhile. */
static inline uint32_t gfn_slot(const struct kvm_dirty_gfn *gfn)
{
    return __atomic_load_n(&gfn->slot, __ATOMIC_RELAXED);
}

static inline uint64_t gfn_offset(const struct kvm_dirty_gfn *gfn)
{
    return __atomic_load_n(&gfn->offset, __ATOMIC_RELAXED);
}

/*
 * A word of a bitmap or of a summary, which is 0 when this returns but for
 * later bits.
 */
static inline uint64_t bitmap_take(uint64_t *word)
{
    if (!__atomic_load_n(word, __ATOMIC_SEQ_CST)) {
        return 0;
    }
    return __atomic_exchange_n(word, 0, __ATOMIC_SEQ_CST);
}

#endif
