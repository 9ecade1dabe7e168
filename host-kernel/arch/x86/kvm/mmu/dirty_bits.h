/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * KVM_CAP_DIRTY_BITS: the leaves of the TDP MMU stay writable, and the CPUs'
 * dirty bits in them tell which pages were written.  Only the SPTEs that point
 * to tables of leaves are wrprot and made writable, so that a collect need not
 * look at tables below which nobody writes.  The terms are defined in
 * write_protect.c and dirty_bits.c; the protocol, and why it loses no page, is
 * in Documentation/virt/kvm/x86/dirty-tracking.rst.
 */
#ifndef __KVM_X86_MMU_DIRTY_BITS_H
#define __KVM_X86_MMU_DIRTY_BITS_H

#include <linux/kvm_host.h>

#include "dirty_tracking.h"
#include "mmu.h"
#include "mmu_internal.h"
#include "spte.h"
#include "write_protect.h"

#ifdef CONFIG_X86_64

static inline bool kvm_dirty_bits_enabled(const struct kvm *kvm)
{
	return kvm_write_protect_enabled(kvm) && kvm_uses_dirty_bits(kvm);
}

/*
 * Whether @kvm can enable KVM_CAP_DIRTY_BITS or, if it is NULL, a VM that is
 * created now.
 */
bool kvm_mmu_has_dirty_bits(struct kvm *kvm);

void __tdp_mmu_mark_active(struct kvm *kvm, struct kvm_mmu_page *table);
void __tdp_mmu_lock_link(struct kvm *kvm, struct kvm_mmu_page *table);
void __tdp_mmu_unlock_link(struct kvm_mmu_page *table);
void __kvm_mark_relog(const struct kvm_memory_slot *slot, gfn_t gfn);
void __tdp_mmu_log_lost_dirty(struct kvm *kvm, int as_id, gfn_t gfn,
			      u64 old_spte, u64 new_spte, int level);
u64 __tdp_mmu_keep_dirty(u64 old_spte, u64 new_spte, int level);

/*
 * Marks the region that @table maps in all slots that have pages there: the
 * SPTE that points to @table is about to become writable.  The caller holds the
 * wp_lock of @table, or of the table that the SPTE is in, until it is.
 */
static inline void tdp_mmu_mark_active(struct kvm *kvm,
				       struct kvm_mmu_page *table)
{
	if (kvm_dirty_bits_enabled(kvm) && table->role.level == PG_LEVEL_4K)
		__tdp_mmu_mark_active(kvm, table);
}

/*
 * Around linking a new table, which no other thread knows yet.  Takes, and
 * releases, the wp_lock of the table that is going to point to @table.
 */
static inline void tdp_mmu_lock_link(struct kvm *kvm, struct kvm_mmu_page *table)
{
	if (kvm_dirty_bits_enabled(kvm))
		__tdp_mmu_lock_link(kvm, table);
}

static inline void tdp_mmu_unlock_link(struct kvm *kvm, struct kvm_mmu_page *table)
{
	if (kvm_dirty_bits_enabled(kvm))
		__tdp_mmu_unlock_link(table);
}

/*
 * The huge SPTE from which the SPTEs of the new table @sp are derived when it
 * is split.  Leaves are writable from the start, even if the huge SPTE was
 * wrprot.
 */
static inline u64 tdp_mmu_spte_to_split(struct kvm *kvm, struct kvm_mmu_page *sp,
					u64 huge_spte)
{
	if (kvm_dirty_bits_enabled(kvm) && sp->role.level == PG_LEVEL_4K &&
	    is_mmu_writable_spte(huge_spte))
		huge_spte |= PT_WRITABLE_MASK;
	return huge_spte;
}

/*
 * Marks a page for relog, after it was logged: it became writable in shadow
 * page tables, or lost its dirty bit, and may be written without a trace until
 * the next collect.
 */
static inline void kvm_mark_relog(struct kvm *kvm,
				  const struct kvm_memory_slot *slot, gfn_t gfn)
{
	if (kvm_dirty_bits_enabled(kvm))
		__kvm_mark_relog(slot, gfn);
}

/*
 * To be called when an SPTE has changed.  If a leaf went away with its dirty
 * bit, its pages are logged, since no collect will find the bit.
 */
static inline void tdp_mmu_log_lost_dirty(struct kvm *kvm, int as_id, gfn_t gfn,
					  u64 old_spte, u64 new_spte, int level)
{
	if (kvm_dirty_bits_enabled(kvm))
		__tdp_mmu_log_lost_dirty(kvm, as_id, gfn, old_spte, new_spte,
					 level);
}

/*
 * The leaf that a fault puts in the place of @old_spte, made of @new_spte.  If the
 * page was mapped already, it keeps its dirty bit.  The fault would log the page
 * only after a collect could have looked for the bit in vain.
 */
static inline u64 tdp_mmu_keep_dirty(struct kvm *kvm, u64 old_spte, u64 new_spte,
				     int level)
{
	if (kvm_dirty_bits_enabled(kvm))
		new_spte = __tdp_mmu_keep_dirty(old_spte, new_spte, level);
	return new_spte;
}

/*
 * Prepares @new, which takes the place of @old (or of none, NULL): if it is
 * logged by dirty bits, it gets the bitmaps for that, which are those of @old
 * if it keeps the dirty bitmap of @old.  All its regions are marked.  Returns 0
 * or -ENOMEM.  Under slots_lock.
 */
int kvm_mmu_prepare_slot_dirty_bits(struct kvm *kvm,
				    const struct kvm_memory_slot *old,
				    struct kvm_memory_slot *new);

/*
 * The slot is about to lose its dirty bitmap.  Logs the pages that are marked
 * for relog, for userspace that has the bitmap mapped, and frees the bitmaps
 * that kvm_mmu_prepare_slot_dirty_bits() has allocated.  If the slot is
 * deleted, TLBs have been flushed.
 */
void kvm_mmu_drop_slot_dirty_bits(struct kvm_memory_slot *slot);

/*
 * The logging of a slot has been turned on, and userspace may have got a bitmap
 * that is all ones.  Wrprots the shadow roots: no page of the slot may stay
 * writable in shadow page tables that was not logged when it became so.  TLBs
 * have been flushed on return.  Under slots_lock; takes mmu_lock for write.
 */
void kvm_mmu_start_dirty_bits(struct kvm *kvm);

/*
 * Collect [start, end), or @pages pages of @slot from its page @first on,
 * widened to whole regions.  TLBs have been flushed on return.  A signal stops
 * the first two, which return the end of what they have collected, or @end.
 * kvm_mmu_collect_and_wrprot() also wrprots the leaves that have a dirty bit.
 * Under slots_lock; may sleep.
 */
gfn_t kvm_mmu_collect_dirty_bits(struct kvm *kvm, gfn_t start, gfn_t end);
gfn_t kvm_mmu_collect_and_wrprot(struct kvm *kvm, gfn_t start, gfn_t end);
void kvm_mmu_collect_slot_dirty_bits(struct kvm *kvm,
				     struct kvm_memory_slot *slot,
				     gfn_t first, gfn_t pages);

#else

static inline bool kvm_dirty_bits_enabled(const struct kvm *kvm)
{
	return false;
}

static inline bool kvm_mmu_has_dirty_bits(struct kvm *kvm)
{
	return false;
}

static inline void kvm_mark_relog(struct kvm *kvm,
				  const struct kvm_memory_slot *slot, gfn_t gfn) {}

static inline int kvm_mmu_prepare_slot_dirty_bits(struct kvm *kvm,
						  const struct kvm_memory_slot *old,
						  struct kvm_memory_slot *new)
{
	return 0;
}

static inline void kvm_mmu_drop_slot_dirty_bits(struct kvm_memory_slot *slot) {}
static inline void kvm_mmu_start_dirty_bits(struct kvm *kvm) {}

static inline gfn_t kvm_mmu_collect_dirty_bits(struct kvm *kvm, gfn_t start,
					       gfn_t end)
{
	return end;
}

static inline gfn_t kvm_mmu_collect_and_wrprot(struct kvm *kvm, gfn_t start,
					       gfn_t end)
{
	return end;
}

static inline void kvm_mmu_collect_slot_dirty_bits(struct kvm *kvm,
						   struct kvm_memory_slot *slot,
						   gfn_t first, gfn_t pages) {}

#endif /* CONFIG_X86_64 */

#endif
