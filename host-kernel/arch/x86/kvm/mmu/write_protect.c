// SPDX-License-Identifier: GPL-2.0-only
/*
 * KVM_WRITE_PROTECT_ALL_MEM and KVM_WRITE_PROTECT_RANGE.
 *
 * Terms, which the other files of dirty tracking use as well:
 *
 *  - A leaf SPTE maps a page.  A non-leaf SPTE points to a page table, its
 *    child.
 *  - To wrprot an SPTE is to clear its W bit, to make it writable is to set the
 *    bit.  A non-leaf SPTE that is present and read-only is "wrprot": no page
 *    below it can be written, whatever the SPTEs below it say.
 *  - To zap an SPTE is to make it non-present, as elsewhere in KVM.
 *  - To log a page is to set its bit in the dirty bitmap of its slot, or to
 *    push it to a dirty ring.
 *  - To mark an SPTE, a page or a region is to set its bit in a bitmap that
 *    says where there may be work; to unmark it is to clear the bit.
 *  - Userspace harvests when it takes pages from the log, and re-arms when it
 *    has KVM write-protect them, so that later writes are logged again.
 *
 * The TDP MMU.  Four things hold:
 *
 *  (1) A writable SPTE is marked in the writable_bitmap of its table, unless it
 *      is a leaf whose page has yet to be logged, or its W bit is about to be
 *      cleared under the table's wp_lock.  SPTEs that are marked need not be
 *      writable.  With dirty bits this is about non-leaf SPTEs only.
 *  (2) A fault wrprots all SPTEs of a table (with dirty bits, all that are not
 *      leaves), and makes the SPTE that points to
 *      the table writable, within one critical section of the table's wp_lock.
 *      A wrprot of that SPTE takes the same lock.  So a fault that began
 *      before a write-protect does not make the SPTE writable after it.
 *  (3) Locks are taken from the top of the page tables down, and no more than
 *      two at a time: that of the table whose SPTEs are wrprot, and that of the
 *      table such an SPTE points to, so that a fault which is about to make
 *      that SPTE writable is waited for.
 *  (4) A CPU may use any state that an SPTE has had since the CPU last flushed
 *      its TLB, and of each level the state of another moment.  So the SPTEs of
 *      a table are flushed after they were wrprot and before the SPTE that
 *      points to the table becomes writable, unless they are leaves.
 *
 * Because of (1), a leaf is marked between becoming writable and its page being
 * logged: the next write-protect that matters to the page follows a harvest of
 * it, and therefore finds the mark.  No log tells about a non-leaf SPTE, so it
 * is marked before it becomes writable.  It is unmarked only together with
 * clearing its W bit: one that is found read-only may be about to become
 * writable.
 *
 * All of this happens under mmu_lock for read, so that SPTEs do not change
 * while another thread holds the lock for write, and under RCU, which keeps the
 * tables.  SPTEs change by compare-and-exchange.
 *
 * (4) needs no flush for leaves, because a CPU caches a leaf only as part of a
 * whole translation, with the permissions that all levels had when it made the
 * translation.  None that allows writing was made since the SPTE above was
 * wrprot and TLBs were flushed.  A non-leaf SPTE may be cached by itself, with
 * its W bit set, although the CPU read it for a read access below a wrprot
 * SPTE.
 *
 * The shadow MMU changes its page tables under mmu_lock for write, and a table
 * may have many parents.  There, each table has the generation of the last
 * write-protect-all that was applied to it, and write-protect-all wrprots the
 * SPTEs of the loaded roots only.  Its cost is that of as many tables as there
 * are loaded roots; there is no walk.
 */

#include <linux/kvm_dirty_release.h>
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

/* Returns whether the SPTE was writable. */
static bool clear_writable(u64 *sptep, int level)
{
	u64 old = READ_ONCE(*sptep), new;

	do {
		if (!is_shadow_present_pte(old) || !is_writable_pte(old))
			return false;
		new = old & ~PT_WRITABLE_MASK;
	} while (!try_cmpxchg64(sptep, &old, new));

	/*
	 * Without A/D bits, a writable SPTE is what says that a page is dirty.
	 */
	if (!spte_ad_enabled(old) && is_last_spte(old, level))
		kvm_set_pfn_dirty(spte_to_pfn(old));

	return true;
}

bool tdp_mmu_points_to(u64 spte, int level, struct kvm_mmu_page *child)
{
	return is_shadow_present_pte(spte) && !is_last_spte(spte, level) &&
	       spte_to_child_sp(spte) == child;
}

/* Unmarks the SPTE only if it clears the W bit: see the top of this file. */
void tdp_mmu_wrprot_and_unmark(struct kvm_mmu_page *sp, int index)
{
	clear_bit(index, sp->writable_bitmap);
	if (!clear_writable(&sp->spt[index], sp->role.level))
		set_bit(index, sp->writable_bitmap);
}

static void tdp_mmu_wrprot_entry(struct kvm_mmu_page *sp, int index)
{
	int level = sp->role.level;
	struct kvm_mmu_page *child;
	bool done = false;
	u64 spte;

	lockdep_assert_held(&sp->wp_lock);

	while (!done) {
		spte = READ_ONCE(sp->spt[index]);
		if (!is_shadow_present_pte(spte))
			return;

		if (is_last_spte(spte, level)) {
			tdp_mmu_wrprot_and_unmark(sp, index);
			return;
		}

		/*
		 * Even if the SPTE is read-only: without the child's lock, a
		 * fault that has already wrprot the child's SPTEs may be about
		 * to make this one writable.
		 */
		child = spte_to_child_sp(spte);
		spin_lock_nested(&child->wp_lock, SINGLE_DEPTH_NESTING);
		done = tdp_mmu_points_to(READ_ONCE(sp->spt[index]), level,
					 child);
		if (done)
			tdp_mmu_wrprot_and_unmark(sp, index);
		spin_unlock(&child->wp_lock);
	}
}

static void tdp_mmu_wrprot_leaves(struct kvm_mmu_page *sp)
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

static void tdp_mmu_wrprot_table(struct kvm *kvm, struct kvm_mmu_page *sp)
{
	int index;

	lockdep_assert_held(&sp->wp_lock);

	if (sp->role.level == PG_LEVEL_4K) {
		/* With dirty bits, leaves stay writable. */
		if (!kvm_dirty_bits_enabled(kvm))
			tdp_mmu_wrprot_leaves(sp);
		return;
	}

	for_each_set_bit(index, sp->writable_bitmap, SPTE_ENT_PER_PAGE)
		tdp_mmu_wrprot_entry(sp, index);
}

/*
 * All SPTEs of @sp are wrprot, and one that points to @sp is about to become
 * writable: see (4).  The flush is needed even if the caller found no writable
 * SPTE, as the thread that wrprot them may not have flushed TLBs yet.
 */
static void flush_wrprot_entries(struct kvm *kvm, const struct kvm_mmu_page *sp)
{
	if (sp->role.level > PG_LEVEL_4K)
		kvm_flush_remote_tlbs(kvm);
}

void tdp_mmu_make_writable(struct kvm *kvm, u64 *sptep)
{
	struct kvm_mmu_page *sp = sptep_to_sp(sptep), *child;
	u64 spte = READ_ONCE(*sptep);
	int level = sp->role.level;

	lockdep_assert_held_read(&kvm->mmu_lock);

	/* It may have changed since the caller read it. */
	if (!is_wrprot_nonleaf_spte(spte, level))
		return;

	child = spte_to_child_sp(spte);
	spin_lock(&child->wp_lock);
	spte = READ_ONCE(*sptep);
	if (is_wrprot_nonleaf_spte(spte, level) &&
	    tdp_mmu_points_to(spte, level, child)) {
		set_bit(spte_index(sptep), sp->writable_bitmap);
		tdp_mmu_mark_active(kvm, child);
		tdp_mmu_wrprot_table(kvm, child);
		flush_wrprot_entries(kvm, child);
		while (tdp_mmu_points_to(spte, level, child) &&
		       !try_cmpxchg64(sptep, &spte, spte | PT_WRITABLE_MASK))
			;
		atomic64_inc(&kvm->stat.write_protect_opened);
		trace_kvm_make_writable(child->gfn, level);
	}
	spin_unlock(&child->wp_lock);
}

bool tdp_mmu_covers_fault(struct kvm_vcpu *vcpu, const struct kvm_page_fault *fault)
{
	return tdp_mmu_covers(to_shadow_page(vcpu->arch.mmu->root.hpa), fault->gfn);
}

u64 *tdp_mmu_make_path_writable(struct kvm_vcpu *vcpu, gfn_t gfn, u64 *spte)
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
			tdp_mmu_make_writable(kvm, sptep);
			read_unlock(&kvm->mmu_lock);
		}

		spt = __va(*spte & SPTE_BASE_ADDR_MASK);
		level--;
	}
}

/* No vCPU runs on an invalid root, though one that rests may still hold it. */
static void tdp_mmu_wrprot_roots(struct kvm *kvm)
{
	struct kvm_mmu_page *root;

	read_lock(&kvm->mmu_lock);
	rcu_read_lock();
	list_for_each_entry_rcu(root, &kvm->arch.tdp_mmu_roots, link) {
		if (root->role.invalid)
			continue;
		spin_lock(&root->wp_lock);
		tdp_mmu_wrprot_table(kvm, root);
		spin_unlock(&root->wp_lock);
	}
	rcu_read_unlock();
	read_unlock(&kvm->mmu_lock);
}

/*
 * Wrprots the SPTE that covers @gfn, at the highest level at which all of what
 * it covers lies in [gfn, end), but not below 2 MiB.  It does so even below an
 * SPTE that is wrprot, since a fault may be about to make that one writable.
 * Returns the end of what the SPTE covers.
 */
static gfn_t tdp_mmu_wrprot_gfn(struct kvm_mmu_page *root, gfn_t gfn, gfn_t end)
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
			tdp_mmu_wrprot_entry(sp, index);
			spin_unlock(&sp->wp_lock);
			break;
		}
	}

	return ALIGN_DOWN(gfn, pages) + pages;
}

static void tdp_mmu_wrprot_gfn_range(struct kvm *kvm, gfn_t start, gfn_t end)
{
	struct kvm_mmu_page *root;
	gfn_t gfn;

	read_lock(&kvm->mmu_lock);
	rcu_read_lock();
	list_for_each_entry_rcu(root, &kvm->arch.tdp_mmu_roots, link) {
		if (root->role.invalid)
			continue;
		for (gfn = start; gfn < end && tdp_mmu_covers(root, gfn); )
			gfn = tdp_mmu_wrprot_gfn(root, gfn, end);
	}
	rcu_read_unlock();
	read_unlock(&kvm->mmu_lock);
}

static void shadow_mmu_wrprot_table(struct kvm *kvm, struct kvm_mmu_page *sp)
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

	shadow_mmu_wrprot_table(kvm, sp);
	flush_wrprot_entries(kvm, sp);
}

void shadow_mmu_make_writable(struct kvm *kvm, u64 *sptep, int level)
{
	u64 spte = *sptep;

	shadow_mmu_refresh(kvm, spte_to_child_sp(spte));

	/* Atomically: the CPU may set the accessed bit meanwhile. */
	set_bit(PT_WRITABLE_SHIFT, (unsigned long *)sptep);
	atomic64_inc(&kvm->stat.write_protect_opened);
	trace_kvm_make_writable(spte_to_child_sp(spte)->gfn, level);
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

void shadow_mmu_wrprot_roots(struct kvm *kvm)
{
	struct kvm_mmu_page *root;

	write_lock(&kvm->mmu_lock);
	kvm->arch.dirty_tracking.shadow_gen++;
	list_for_each_entry(root, &kvm->arch.dirty_tracking.shadow_roots,
			    shadow_root_link)
		shadow_mmu_wrprot_table(kvm, root);
	/*
	 * Under the lock: a root may be the child of another root, and has the
	 * current generation now.
	 */
	kvm_flush_remote_tlbs(kvm);
	write_unlock(&kvm->mmu_lock);
}

void kvm_mmu_write_protect_all(struct kvm *kvm)
{
	if (kvm_memslots_have_rmaps(kvm))
		shadow_mmu_wrprot_roots(kvm);

	if (kvm_has_tdp_mmu(kvm))
		tdp_mmu_wrprot_roots(kvm);

	kvm_flush_remote_tlbs(kvm);
	trace_kvm_write_protect_all(kvm->arch.dirty_tracking.shadow_gen);
}

/*
 * How many pages are write-protected between two checks for a signal: as many
 * as an SPTE of level 4 covers, or fewer if there are reverse maps to go
 * through.
 */
static gfn_t range_step(struct kvm *kvm)
{
	return KVM_PAGES_PER_HPAGE(kvm_memslots_have_rmaps(kvm) ?
				   PG_LEVEL_1G : PT64_ROOT_4LEVEL);
}

static void wrprot_range(struct kvm *kvm, gfn_t start, gfn_t end, void *unused)
{
	if (kvm_memslots_have_rmaps(kvm)) {
		write_lock(&kvm->mmu_lock);
		kvm_call_on_slot_ranges(kvm, start, end,
					shadow_mmu_write_protect_slot_range);
		write_unlock(&kvm->mmu_lock);
	}

	if (kvm_has_tdp_mmu(kvm))
		tdp_mmu_wrprot_gfn_range(kvm, start, end);
}

gfn_t kvm_mmu_write_protect_range(struct kvm *kvm, gfn_t start, gfn_t end)
{
	gfn_t aligned = ALIGN_DOWN(start, KVM_PAGES_PER_HPAGE(PG_LEVEL_2M));
	gfn_t stop;

	lockdep_assert_held(&kvm->slots_lock);

	stop = kvm_call_on_slot_steps(kvm, aligned,
				      ALIGN(end, KVM_PAGES_PER_HPAGE(PG_LEVEL_2M)),
				      range_step(kvm), wrprot_range, NULL);

	kvm_flush_remote_tlbs_range(kvm, aligned, stop - aligned);
	trace_kvm_write_protect_range(aligned, stop);
	return min(stop, end);
}
