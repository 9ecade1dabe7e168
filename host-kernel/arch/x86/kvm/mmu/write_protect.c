// SPDX-License-Identifier: GPL-2.0-only
/*
 * KVM_WRITE_PROTECT_ALL_MEM and KVM_WRITE_PROTECT_RANGE.
 *
 * The TDP MMU.  Four things hold, at every moment:
 *
 *  (1) An entry of a table that is writable has its bit in writable_bitmap set,
 *      or it is a leaf whose page has yet to be logged.  The bitmap may say too
 *      much, never too little.
 *  (2) All entries of a table are closed under its wp_lock, and so is the table
 *      opened.  So who opens a table has either closed all of its entries
 *      before a later write-protect closes it again, or starts after that.
 *  (3) Locks are taken from the top down, and no more than two at a time: that
 *      of the table whose entries are closed, and that of the table such an
 *      entry points to, whose opening it must not overtake.
 *  (4) A CPU goes by what each level of the tables was at any time since it last
 *      flushed, and not all by the same time.  So the entries of a table were
 *      flushed after they were closed, and before the entry that points to them
 *      is opened; but for leaves.
 *
 * (1) is why the bit of a leaf is set between making it writable and logging
 * the page: a write-protect that matters to this page follows a harvest of it,
 * and so finds the bit.  Entries that point to tables do not have such a log;
 * their bit comes first.  It is taken away only together with the W bit: one
 * that is found not writable may be about to become so.
 *
 * All of it happens under mmu_lock for read, so that nobody who has it for
 * write finds entries closed behind its back, and under RCU, which keeps the
 * tables.  Entries change by compare-and-exchange.
 *
 * (4) does without a flush for leaves, since of these a CPU keeps nothing but
 * whole translations: with what all levels allowed when it made them.  Since the
 * table of leaves was closed, and TLBs flushed, none has been made that allows
 * writing.  Of an entry further up a CPU may keep the W bit, though it has read
 * the entry on the way to a read, with everything above closed.
 *
 * The shadow MMU changes its page tables under mmu_lock for write, and a table
 * may have many parents.  There, each table carries the generation of the last
 * write-protect-all that it has seen, and write-protect-all closes the loaded
 * roots only: it costs as many tables as there are roots loaded, and no walk.
 */

#include <linux/kvm_host.h>

#include "mmu.h"
#include "mmu_internal.h"
#include "dirty_bits.h"
#include "slot_range.h"
#include "spte.h"
#include "write_protect.h"

#define CREATE_TRACE_POINTS
#include "write_protect_trace.h"

DEFINE_STATIC_KEY_FALSE(kvm_write_protect_used);

/* Returns whether the entry was writable. */
static bool clear_writable(u64 *sptep, int level)
{
	u64 old = READ_ONCE(*sptep), new;

	do {
		if (!is_shadow_present_pte(old) || !is_writable_pte(old))
			return false;
		new = old & ~PT_WRITABLE_MASK;
	} while (!try_cmpxchg64(sptep, &old, new));

	/* Without A/D bits, being writable is what says that a page is dirty. */
	if (!spte_ad_enabled(old) && is_last_spte(old, level))
		kvm_set_pfn_dirty(spte_to_pfn(old));

	return true;
}

bool tdp_mmu_points_to(u64 spte, int level, struct kvm_mmu_page *child)
{
	return is_shadow_present_pte(spte) && !is_last_spte(spte, level) &&
	       spte_to_child_sp(spte) == child;
}

/* Takes the bit away together with the W bit, or not at all. */
void tdp_mmu_close_and_forget(struct kvm_mmu_page *sp, int index)
{
	clear_bit(index, sp->writable_bitmap);
	if (!clear_writable(&sp->spt[index], sp->role.level))
		set_bit(index, sp->writable_bitmap);
}

static void tdp_mmu_close_entry(struct kvm_mmu_page *sp, int index)
{
	int level = sp->role.level;
	struct kvm_mmu_page *child;
	bool closed = false;
	u64 spte;

	lockdep_assert_held(&sp->wp_lock);

	while (!closed) {
		spte = READ_ONCE(sp->spt[index]);
		if (!is_shadow_present_pte(spte))
			return;

		if (is_last_spte(spte, level)) {
			tdp_mmu_close_and_forget(sp, index);
			return;
		}

		/*
		 * Only with the child's lock does it say anything that the
		 * entry is read-only: else, somebody who has closed the child's
		 * entries already may be about to open it.
		 */
		child = spte_to_child_sp(spte);
		spin_lock_nested(&child->wp_lock, SINGLE_DEPTH_NESTING);
		closed = tdp_mmu_points_to(READ_ONCE(sp->spt[index]), level,
					   child);
		if (closed)
			tdp_mmu_close_and_forget(sp, index);
		spin_unlock(&child->wp_lock);
	}
}

static void tdp_mmu_close_leaves(struct kvm_mmu_page *sp)
{
	u64 *sptes = sp->spt;
	unsigned long bits;
	int word;

	for (word = 0; word < BITS_TO_LONGS(SPTE_ENT_PER_PAGE); word++) {
		if (READ_ONCE(sp->writable_bitmap[word])) {
			bits = xchg(&sp->writable_bitmap[word], 0);
			for (; bits; bits &= bits - 1)
				clear_writable(&sptes[__ffs(bits)], PG_LEVEL_4K);
		}
		sptes += BITS_PER_LONG;
	}
}

static void tdp_mmu_close_table(struct kvm *kvm, struct kvm_mmu_page *sp)
{
	int index;

	lockdep_assert_held(&sp->wp_lock);

	if (sp->role.level == PG_LEVEL_4K) {
		/* Else, it is their dirty bits that tell. */
		if (!kvm_dirty_bits_enabled(kvm))
			tdp_mmu_close_leaves(sp);
		return;
	}

	for_each_set_bit(index, sp->writable_bitmap, SPTE_ENT_PER_PAGE)
		tdp_mmu_close_entry(sp, index);
}

/*
 * All entries of @sp are closed, and one that points to @sp is about to become
 * writable: see (4).  Even if this opening found none to close, since whoever
 * closed them may not have flushed TLBs yet.
 */
static void flush_closed(struct kvm *kvm, const struct kvm_mmu_page *sp)
{
	if (sp->role.level > PG_LEVEL_4K)
		kvm_flush_remote_tlbs(kvm);
}

void tdp_mmu_open_entry(struct kvm *kvm, u64 *sptep)
{
	struct kvm_mmu_page *sp = sptep_to_sp(sptep), *child;
	u64 spte = READ_ONCE(*sptep);
	int level = sp->role.level;

	lockdep_assert_held_read(&kvm->mmu_lock);

	/* What was closed may be gone. */
	if (!spte_is_closed(spte, level))
		return;

	child = spte_to_child_sp(spte);
	spin_lock(&child->wp_lock);
	spte = READ_ONCE(*sptep);
	if (spte_is_closed(spte, level) && tdp_mmu_points_to(spte, level, child)) {
		set_bit(spte_index(sptep), sp->writable_bitmap);
		tdp_mmu_note_opened(kvm, child);
		tdp_mmu_close_table(kvm, child);
		flush_closed(kvm, child);
		while (tdp_mmu_points_to(spte, level, child) &&
		       !try_cmpxchg64(sptep, &spte, spte | PT_WRITABLE_MASK))
			;
		atomic64_inc(&kvm->stat.write_protect_opened);
		trace_kvm_write_protect_open(child->gfn, level);
	}
	spin_unlock(&child->wp_lock);
}

u64 *tdp_mmu_open_path(struct kvm_vcpu *vcpu, gfn_t gfn, u64 *spte)
{
	struct kvm_mmu *mmu = vcpu->arch.mmu;
	struct kvm *kvm = vcpu->kvm;
	u64 *spt = __va(mmu->root.hpa), *sptep;
	int level = mmu->root_role.level;

	if (!tdp_mmu_covers(sptep_to_sp(spt), gfn)) {
		*spte = 0;
		return spt;
	}

	for (;;) {
		sptep = spt + SPTE_INDEX(gfn << PAGE_SHIFT, level);
		*spte = READ_ONCE(*sptep);
		if (!is_shadow_present_pte(*spte) || is_last_spte(*spte, level))
			return sptep;

		if (unlikely(!is_writable_pte(*spte))) {
			read_lock(&kvm->mmu_lock);
			tdp_mmu_open_entry(kvm, sptep);
			read_unlock(&kvm->mmu_lock);
		}

		spt = __va(*spte & SPTE_BASE_ADDR_MASK);
		level--;
	}
}

static void tdp_mmu_close_roots(struct kvm *kvm)
{
	struct kvm_mmu_page *root;

	read_lock(&kvm->mmu_lock);
	rcu_read_lock();
	list_for_each_entry_rcu(root, &kvm->arch.tdp_mmu_roots, link) {
		spin_lock(&root->wp_lock);
		tdp_mmu_close_table(kvm, root);
		spin_unlock(&root->wp_lock);
	}
	rcu_read_unlock();
	read_unlock(&kvm->mmu_lock);
}

/*
 * Closes the entry that covers @gfn, at the highest level at which it lies in
 * [gfn, end), but not below 2 MiB.  Whether something above it is closed does
 * not matter: it could be about to be opened.  Returns the end of what it
 * covers.
 */
static gfn_t tdp_mmu_close_one(struct kvm_mmu_page *root, gfn_t gfn, gfn_t end)
{
	struct kvm_mmu_page *sp = root;
	int level = sp->role.level, index;
	gfn_t pages;
	u64 spte;

	for (;; sp = spte_to_child_sp(spte), level--) {
		index = SPTE_INDEX(gfn << PAGE_SHIFT, level);
		pages = KVM_PAGES_PER_HPAGE(level);
		spte = READ_ONCE(sp->spt[index]);

		if (!is_shadow_present_pte(spte))
			break;

		if (is_last_spte(spte, level) || level == PG_LEVEL_2M ||
		    (IS_ALIGNED(gfn, pages) && end - gfn >= pages)) {
			spin_lock(&sp->wp_lock);
			tdp_mmu_close_entry(sp, index);
			spin_unlock(&sp->wp_lock);
			break;
		}
	}

	return ALIGN_DOWN(gfn, pages) + pages;
}

static void tdp_mmu_close_range(struct kvm *kvm, gfn_t start, gfn_t end)
{
	struct kvm_mmu_page *root;
	gfn_t gfn;

	read_lock(&kvm->mmu_lock);
	rcu_read_lock();
	list_for_each_entry_rcu(root, &kvm->arch.tdp_mmu_roots, link)
		for (gfn = start; gfn < end && tdp_mmu_covers(root, gfn); )
			gfn = tdp_mmu_close_one(root, gfn, end);
	rcu_read_unlock();
	read_unlock(&kvm->mmu_lock);
}

static void shadow_mmu_close_table(struct kvm *kvm, struct kvm_mmu_page *sp)
{
	int index;

	lockdep_assert_held_write(&kvm->mmu_lock);

	for (index = 0; index < SPTE_ENT_PER_PAGE; index++)
		clear_writable(&sp->spt[index], sp->role.level);
	sp->shadow_gen = kvm->arch.dirty_tracking.shadow_gen;
}

void shadow_mmu_init_gen(struct kvm *kvm, struct kvm_mmu_page *sp)
{
	sp->shadow_gen = kvm->arch.dirty_tracking.shadow_gen;
}

void shadow_mmu_refresh(struct kvm *kvm, struct kvm_mmu_page *sp)
{
	if (sp->shadow_gen == kvm->arch.dirty_tracking.shadow_gen)
		return;

	shadow_mmu_close_table(kvm, sp);
	flush_closed(kvm, sp);
}

void shadow_mmu_open_entry(struct kvm *kvm, u64 *sptep, int level)
{
	u64 spte = *sptep;

	shadow_mmu_refresh(kvm, spte_to_child_sp(spte));

	/* The CPU may set the accessed bit meanwhile. */
	set_bit(PT_WRITABLE_SHIFT, (unsigned long *)sptep);
	atomic64_inc(&kvm->stat.write_protect_opened);
	trace_kvm_write_protect_open(spte_to_child_sp(spte)->gfn, level);
}

void shadow_mmu_load_root(struct kvm *kvm, struct kvm_mmu_page *sp)
{
	if (sp->root_count == 1)
		list_add(&sp->shadow_root_link,
			 &kvm->arch.dirty_tracking.shadow_roots);
	shadow_mmu_refresh(kvm, sp);
}

void shadow_mmu_unload_root(struct kvm_mmu_page *sp)
{
	if (sp->root_count == 1)
		list_del(&sp->shadow_root_link);
}

void shadow_mmu_close_roots(struct kvm *kvm)
{
	struct kvm_mmu_page *root;

	write_lock(&kvm->mmu_lock);
	kvm->arch.dirty_tracking.shadow_gen++;
	list_for_each_entry(root, &kvm->arch.dirty_tracking.shadow_roots,
			    shadow_root_link)
		shadow_mmu_close_table(kvm, root);
	/* A root may be another's child, and has the present generation now. */
	kvm_flush_remote_tlbs(kvm);
	write_unlock(&kvm->mmu_lock);
}

void kvm_mmu_write_protect_all(struct kvm *kvm)
{
	if (kvm_memslots_have_rmaps(kvm))
		shadow_mmu_close_roots(kvm);

	if (is_tdp_mmu_enabled(kvm))
		tdp_mmu_close_roots(kvm);

	kvm_flush_remote_tlbs(kvm);
	trace_kvm_write_protect_all(kvm->arch.dirty_tracking.shadow_gen);
}

/*
 * How much is closed without a look for a signal: what an entry of a root maps,
 * or less where the pages are gone through.
 */
static gfn_t range_step(struct kvm *kvm)
{
	return KVM_PAGES_PER_HPAGE(kvm_memslots_have_rmaps(kvm) ?
				   PG_LEVEL_1G : PT64_ROOT_4LEVEL);
}

static void close_range(struct kvm *kvm, gfn_t start, gfn_t end, void *unused)
{
	if (kvm_memslots_have_rmaps(kvm)) {
		write_lock(&kvm->mmu_lock);
		kvm_call_on_slot_ranges(kvm, start, end,
					shadow_mmu_write_protect_slot_range);
		write_unlock(&kvm->mmu_lock);
	}

	if (is_tdp_mmu_enabled(kvm))
		tdp_mmu_close_range(kvm, start, end);
}

gfn_t kvm_mmu_write_protect_range(struct kvm *kvm, gfn_t start, gfn_t end)
{
	gfn_t aligned = ALIGN_DOWN(start, KVM_PAGES_PER_HPAGE(PG_LEVEL_2M));
	gfn_t stop;

	lockdep_assert_held(&kvm->slots_lock);

	stop = kvm_call_on_slot_steps(kvm, aligned,
				      ALIGN(end, KVM_PAGES_PER_HPAGE(PG_LEVEL_2M)),
				      range_step(kvm), close_range, NULL);

	kvm_flush_remote_tlbs_with_address(kvm, aligned, stop - aligned);
	trace_kvm_write_protect_range(aligned, stop);
	return min(stop, end);
}
