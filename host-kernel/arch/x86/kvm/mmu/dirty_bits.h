/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * KVM_CAP_DIRTY_BITS: the leaves of the TDP MMU stay writable, and the CPU's
 * dirty bits in them tell which pages were written.  Only the entries that
 * point to tables of leaves are closed and opened, so that a table that nobody
 * writes to is not looked at.
 * Documentation/virt/kvm/x86/dirty-tracking.rst has the protocol and the
 * argument.
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

/* Whether a VM that is made now could enable it, or @kvm can. */
bool kvm_mmu_has_dirty_bits(struct kvm *kvm);

void __tdp_mmu_note_opened(struct kvm *kvm, struct kvm_mmu_page *table);
void __tdp_mmu_begin_link(struct kvm *kvm, struct kvm_mmu_page *table);
void __tdp_mmu_end_link(struct kvm_mmu_page *table);
void __kvm_log_again(const struct kvm_memory_slot *slot, gfn_t gfn);
void __tdp_mmu_log_lost_dirty(struct kvm *kvm, int as_id, gfn_t gfn,
			      u64 old_spte, u64 new_spte, int level);

/*
 * The entry that points to @table is about to become writable, and does so
 * under the same lock: that of @table, or of the table that the entry is in.
 */
static inline void tdp_mmu_note_opened(struct kvm *kvm,
				       struct kvm_mmu_page *table)
{
	if (kvm_dirty_bits_enabled(kvm) && table->role.level == PG_LEVEL_4K)
		__tdp_mmu_note_opened(kvm, table);
}

/* Around putting a new table, which nobody knows yet, into its place. */
static inline void tdp_mmu_begin_link(struct kvm *kvm, struct kvm_mmu_page *table)
{
	if (kvm_dirty_bits_enabled(kvm))
		__tdp_mmu_begin_link(kvm, table);
}

static inline void tdp_mmu_end_link(struct kvm *kvm, struct kvm_mmu_page *table)
{
	if (kvm_dirty_bits_enabled(kvm))
		__tdp_mmu_end_link(table);
}

/*
 * What the SPTEs of the table @sp are made of when a huge one is split.  Leaves
 * are writable from the first on, even if the huge one was closed.
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
 * A page was logged when it became writable, or for a dirty bit that is no
 * more, and may be written, unseen, until the next collect: which logs it once
 * more.
 */
static inline void kvm_log_again(struct kvm *kvm,
				 const struct kvm_memory_slot *slot, gfn_t gfn)
{
	if (kvm_dirty_bits_enabled(kvm))
		__kvm_log_again(slot, gfn);
}

/*
 * An SPTE has changed: if a dirty bit went away with its leaf, nobody has
 * collected it.
 */
static inline void tdp_mmu_log_lost_dirty(struct kvm *kvm, int as_id, gfn_t gfn,
					  u64 old_spte, u64 new_spte, int level)
{
	if (kvm_dirty_bits_enabled(kvm))
		__tdp_mmu_log_lost_dirty(kvm, as_id, gfn, old_spte, new_spte,
					 level);
}

/*
 * Gives @new, which is about to be in use, what it needs to be logged by dirty
 * bits, if it is: what @old has, if @new keeps its bitmap.  @old may be NULL.
 * Returns 0 or -ENOMEM.
 */
int kvm_mmu_prepare_slot_dirty_bits(struct kvm *kvm,
				    const struct kvm_memory_slot *old,
				    struct kvm_memory_slot *new);

/*
 * The slot loses its dirty bitmap: what the next collect would have logged again
 * is logged now, for userspace that has the bitmap mapped, and what the function
 * above has allocated is freed.  If the slot is deleted, TLBs have been flushed.
 */
void kvm_mmu_drop_slot_dirty_bits(struct kvm_memory_slot *slot);

/*
 * Logs what the CPUs' dirty bits say of [start, end), widened to whole 2 MiB,
 * and clears them; TLBs are flushed on return.  A signal stops
 * collect_dirty_bits(), which returns the end of what was done, or @end.  May
 * sleep.
 */
gfn_t kvm_mmu_collect_dirty_bits(struct kvm *kvm, gfn_t start, gfn_t end);
void kvm_mmu_collect_slot_dirty_bits(struct kvm *kvm,
				     struct kvm_memory_slot *slot);

#else

static inline bool kvm_dirty_bits_enabled(const struct kvm *kvm)
{
	return false;
}

static inline bool kvm_mmu_has_dirty_bits(struct kvm *kvm)
{
	return false;
}

static inline void kvm_log_again(struct kvm *kvm,
				 const struct kvm_memory_slot *slot, gfn_t gfn) {}
static inline int kvm_mmu_prepare_slot_dirty_bits(struct kvm *kvm,
						  const struct kvm_memory_slot *old,
						  struct kvm_memory_slot *new)
{
	return 0;
}

static inline void kvm_mmu_drop_slot_dirty_bits(struct kvm_memory_slot *slot) {}
static inline gfn_t kvm_mmu_collect_dirty_bits(struct kvm *kvm, gfn_t start,
					       gfn_t end)
{
	return end;
}
static inline void kvm_mmu_collect_slot_dirty_bits(struct kvm *kvm,
						   struct kvm_memory_slot *slot) {}

#endif /* CONFIG_X86_64 */

#endif
