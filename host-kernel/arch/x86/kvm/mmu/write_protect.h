/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Write-protecting all guest memory, or a region of it, through non-leaf SPTEs.
 * A write fault makes the path to its page writable again, one table at a time;
 * before it makes an SPTE writable, it wrprots the SPTEs of the table below.
 * The terms are defined in write_protect.c; the protocol, and why it loses no
 * page, is in Documentation/virt/kvm/x86/dirty-tracking.rst.
 */
#ifndef __KVM_X86_MMU_WRITE_PROTECT_H
#define __KVM_X86_MMU_WRITE_PROTECT_H

#include <linux/jump_label.h>
#include <linux/kvm_host.h>

#include "mmu.h"
#include "mmu_internal.h"
#include "spte.h"

/* On once a VM has enabled it, so that until then no VM pays for a check. */
DECLARE_STATIC_KEY_FALSE(kvm_write_protect_used);

/*
 * In mmu.c: write-protects the shadow pages that map [start, end) of the slot,
 * by its reverse map.  Under mmu_lock for write, which it may drop meanwhile.
 */
void shadow_mmu_write_protect_slot_range(struct kvm *kvm,
					 const struct kvm_memory_slot *slot,
					 gfn_t start, gfn_t end);

#ifdef CONFIG_X86_64

/* A macro, so that @kvm is not even loaded while the key is off. */
#define kvm_write_protect_enabled(kvm)				\
	(static_branch_unlikely(&kvm_write_protect_used) &&	\
	 (kvm)->arch.dirty_tracking.write_protect)

/* Whether the SPTE, at this level, points to a table and is read-only. */
static inline bool is_wrprot_nonleaf_spte(u64 spte, int level)
{
	return is_shadow_present_pte(spte) && !is_writable_pte(spte) &&
	       !is_last_spte(spte, level);
}

/*
 * TDP MMU: mark the SPTE as one that is, or is about to become, writable.  A
 * leaf is marked after it has become writable and before its page is logged, a
 * non-leaf SPTE before it becomes writable.  Only faults and new tables make
 * SPTEs writable.
 *
 * An SPTE that comes to point to a new table is marked once more after that.
 *  Before the compare-and-exchange that links the table, other threads may have
 * linked one, wrprot the SPTE, which unmarks it, and zapped it; the
 * compare-and-exchange then succeeds, and the first mark is gone.
 */
static inline void tdp_mmu_mark_writable(struct kvm *kvm, u64 *sptep, u64 spte)
{
	struct kvm_mmu_page *sp;

	if (!kvm_write_protect_enabled(kvm) || !is_shadow_present_pte(spte) ||
	    !is_writable_pte(spte))
		return;

	sp = sptep_to_sp(sptep);
	if (sp->tdp_mmu_page)
		set_bit(spte_index(sptep), sp->writable_bitmap);
}

/* TDP MMU: all SPTEs of a table that is not linked yet are writable. */
static inline void tdp_mmu_mark_all_writable(struct kvm_mmu_page *sp)
{
	bitmap_fill(sp->writable_bitmap, SPTE_ENT_PER_PAGE);
}

/*
 * TDP MMU: make the non-leaf SPTE writable if it is wrprot, after all SPTEs of
 * the table that it points to are.  Flushes TLBs unless that is a table of
 * leaves.  Under mmu_lock for read and RCU; takes the table's wp_lock.
 */
void tdp_mmu_make_writable(struct kvm *kvm, u64 *sptep);

/*
 * TDP MMU: make all non-leaf SPTEs on the path to the page writable.  Returns
 * the last SPTE of the path, present or not, and its value in @spte.  Under
 * RCU; takes mmu_lock for read only if an SPTE is wrprot.
 */
u64 *tdp_mmu_make_path_writable(struct kvm_vcpu *vcpu, gfn_t gfn, u64 *spte);

/*
 * TDP MMU: whether the root can map the page.  If not, the page's indices into
 * the tables are those of another page.
 */
static inline bool tdp_mmu_covers(const struct kvm_mmu_page *root, gfn_t gfn)
{
	return !(gfn >> (root->role.level * SPTE_LEVEL_BITS));
}

/*
 * TDP MMU: the same of the vCPU's root and the page of a fault, which is else to be
 * emulated: whoever tried it again would do so for ever.
 */
bool tdp_mmu_covers_fault(struct kvm_vcpu *vcpu, const struct kvm_page_fault *fault);

/* TDP MMU: whether the SPTE points to the table. */
bool tdp_mmu_points_to(u64 spte, int level, struct kvm_mmu_page *child);

/*
 * TDP MMU: wrprot and unmark the SPTE.  A non-leaf SPTE under the wp_lock of
 * its table and of its child.
 */
void tdp_mmu_wrprot_and_unmark(struct kvm_mmu_page *sp, int index);

/*
 * Shadow MMU, all under mmu_lock for write.  shadow_mmu_init_gen() gives a new
 * table the VM's generation.  shadow_mmu_refresh() wrprots all SPTEs of a table
 * that has an older generation, and flushes TLBs unless they are leaves.  It
 * must be called before a writable SPTE comes to point to the table.
 *  shadow_mmu_make_writable() does so, and makes the SPTE writable.
 */
void shadow_mmu_init_gen(struct kvm *kvm, struct kvm_mmu_page *sp);
void shadow_mmu_refresh(struct kvm *kvm, struct kvm_mmu_page *sp);
void shadow_mmu_make_writable(struct kvm *kvm, u64 *sptep, int level);

/*
 * Shadow MMU: the root_count of a root has been incremented, or is about to be
 * decremented.  Under mmu_lock for write.
 */
void shadow_mmu_load_root(struct kvm *kvm, struct kvm_mmu_page *sp);
void shadow_mmu_unload_root(struct kvm_mmu_page *sp);

/*
 * Shadow MMU: write-protect all memory, TLB flush included.  Takes mmu_lock for
 * write.
 */
void shadow_mmu_wrprot_roots(struct kvm *kvm);

/*
 * Write-protect all memory, or [start, end) widened to whole 2 MiB, in all
 * address spaces.  TLBs have been flushed on return: no vCPU can write there
 * without a fault.  A signal stops kvm_mmu_write_protect_range(), which returns
 * the end of what it has write-protected, or @end.  May sleep; takes mmu_lock
 * for read, and for write only if the VM has shadow pages.
 */
void kvm_mmu_write_protect_all(struct kvm *kvm);
gfn_t kvm_mmu_write_protect_range(struct kvm *kvm, gfn_t start, gfn_t end);

#else

static inline bool kvm_write_protect_enabled(const struct kvm *kvm)
{
	return false;
}

static inline bool is_wrprot_nonleaf_spte(u64 spte, int level)
{
	return false;
}

static inline u64 *tdp_mmu_make_path_writable(struct kvm_vcpu *vcpu, gfn_t gfn,
					      u64 *spte)
{
	return NULL;
}

static inline void tdp_mmu_mark_writable(struct kvm *kvm, u64 *sptep, u64 spte) {}
static inline void shadow_mmu_init_gen(struct kvm *kvm, struct kvm_mmu_page *sp) {}
static inline void shadow_mmu_refresh(struct kvm *kvm, struct kvm_mmu_page *sp) {}
static inline void shadow_mmu_make_writable(struct kvm *kvm, u64 *sptep, int level) {}
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
