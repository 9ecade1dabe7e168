/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Write-protecting all guest memory, or a region of it, through the entries at
 * the top of the page tables.  An upper entry is "closed" when it is present
 * and read-only: nothing under it can be written.  A write fault opens the path
 * to its page, one table at a time, closing what is under each of them first.
 * Documentation/virt/kvm/x86/dirty-tracking.rst has the protocol and the argument.
 */
#ifndef __KVM_X86_MMU_WRITE_PROTECT_H
#define __KVM_X86_MMU_WRITE_PROTECT_H

#include <linux/jump_label.h>
#include <linux/kvm_host.h>

#include "mmu.h"
#include "mmu_internal.h"
#include "spte.h"

/* On once a VM has enabled it: others do not pay for looking at themselves. */
DECLARE_STATIC_KEY_FALSE(kvm_write_protect_used);

/*
 * In mmu.c: write-protects the shadow pages that map [start, end) of the slot,
 * by its reverse map.  Under mmu_lock for write, which it may drop meanwhile.
 */
void shadow_mmu_write_protect_slot_range(struct kvm *kvm,
					 const struct kvm_memory_slot *slot,
					 gfn_t start, gfn_t end);

#ifdef CONFIG_X86_64

/* A macro, so that @kvm is not even loaded where the key is off. */
#define kvm_write_protect_enabled(kvm)				\
	(static_branch_unlikely(&kvm_write_protect_used) &&	\
	 (kvm)->arch.dirty_tracking.write_protect)

/* Whether the entry, at this level of the page tables, is closed. */
static inline bool spte_is_closed(u64 spte, int level)
{
	return is_shadow_present_pte(spte) && !is_writable_pte(spte) &&
	       !is_last_spte(spte, level);
}

/*
 * TDP MMU: remember that the entry is, or is about to become, writable.  For a
 * leaf: after it has become so and before the page is logged; for an entry that
 * points to a table: before.  Only faults and new tables make entries writable;
 * whatever else changes them does not.
 *
 * An entry that comes to point to a table is noted after, once more: somebody
 * may have linked a table first, had it closed, which takes the note away, and
 * had it zapped again, before the compare-and-exchange that then succeeds.
 */
static inline void tdp_mmu_note_writable(struct kvm *kvm, u64 *sptep, u64 spte)
{
	struct kvm_mmu_page *sp;

	if (!kvm_write_protect_enabled(kvm) || !is_shadow_present_pte(spte) ||
	    !is_writable_pte(spte))
		return;

	sp = sptep_to_sp(sptep);
	if (sp->tdp_mmu_page)
		set_bit(spte_index(sptep), sp->writable_bitmap);
}

/* TDP MMU: all entries of a table that is not linked yet are writable. */
static inline void tdp_mmu_note_all_writable(struct kvm_mmu_page *sp)
{
	bitmap_fill(sp->writable_bitmap, SPTE_ENT_PER_PAGE);
}

/*
 * TDP MMU: make the table that the entry points to writable, if it is closed;
 * flushes TLBs unless that is a table of leaves.  Under mmu_lock for read and
 * RCU.
 */
void tdp_mmu_open_entry(struct kvm *kvm, u64 *sptep);

/*
 * TDP MMU: open what is closed on the way to the page.  Returns the last entry
 * on that way, present or not, and what it was.  Under RCU; takes mmu_lock for
 * read only if something is closed.
 */
u64 *tdp_mmu_open_path(struct kvm_vcpu *vcpu, gfn_t gfn, u64 *spte);

/* TDP MMU: whether the root maps the page; if not, its indices wrap. */
static inline bool tdp_mmu_covers(const struct kvm_mmu_page *root, gfn_t gfn)
{
	return gfn < KVM_PAGES_PER_HPAGE(root->role.level + 1);
}

/* TDP MMU: whether the entry points to the table. */
bool tdp_mmu_points_to(u64 spte, int level, struct kvm_mmu_page *child);

/*
 * TDP MMU: close an entry.  If it points to a table, under the locks of both
 * tables.
 */
void tdp_mmu_close_and_forget(struct kvm_mmu_page *sp, int index);

/*
 * Shadow MMU, all under mmu_lock for write.  A table gets the VM's generation
 * when it is made; refresh() closes everything in a table that has an older
 * one, and flushes TLBs unless it is one of leaves, which must happen before an
 * entry that makes it writable points to it.
 */
void shadow_mmu_init_gen(struct kvm *kvm, struct kvm_mmu_page *sp);
void shadow_mmu_refresh(struct kvm *kvm, struct kvm_mmu_page *sp);
void shadow_mmu_open_entry(struct kvm *kvm, u64 *sptep, int level);

/*
 * Shadow MMU: root_count of a root has gone up, or is about to go down.
 * mmu_lock for write.
 */
void shadow_mmu_load_root(struct kvm *kvm, struct kvm_mmu_page *sp);
void shadow_mmu_unload_root(struct kvm_mmu_page *sp);

/* Shadow MMU: all memory, TLB flush included.  Takes mmu_lock. */
void shadow_mmu_close_roots(struct kvm *kvm);

/*
 * Write-protect all memory, or [start, end) widened to whole 2 MiB, in all
 * address spaces.  On return, TLBs included, no vCPU can write there without a
 * fault.  A signal stops write_protect_range(), which returns the end of what
 * was done, or @end.  May sleep; takes mmu_lock for read, and for write only if the VM has
 * shadow pages.
 */
void kvm_mmu_write_protect_all(struct kvm *kvm);
gfn_t kvm_mmu_write_protect_range(struct kvm *kvm, gfn_t start, gfn_t end);

#else

static inline bool kvm_write_protect_enabled(const struct kvm *kvm)
{
	return false;
}

static inline bool spte_is_closed(u64 spte, int level)
{
	return false;
}

static inline u64 *tdp_mmu_open_path(struct kvm_vcpu *vcpu, gfn_t gfn, u64 *spte)
{
	return NULL;
}

static inline void tdp_mmu_note_writable(struct kvm *kvm, u64 *sptep, u64 spte) {}
static inline void shadow_mmu_init_gen(struct kvm *kvm, struct kvm_mmu_page *sp) {}
static inline void shadow_mmu_refresh(struct kvm *kvm, struct kvm_mmu_page *sp) {}
static inline void shadow_mmu_open_entry(struct kvm *kvm, u64 *sptep, int level) {}
static inline void shadow_mmu_load_root(struct kvm *kvm, struct kvm_mmu_page *sp) {}
static inline void shadow_mmu_unload_root(struct kvm_mmu_page *sp) {}
static inline void kvm_mmu_write_protect_all(struct kvm *kvm) {}
static inline gfn_t kvm_mmu_write_protect_range(struct kvm *kvm, gfn_t start,
						gfn_t end)
{
	return end;
}

#endif /* CONFIG_X86_64 */

#endif
