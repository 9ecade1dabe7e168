// SPDX-License-Identifier: GPL-2.0-only
/*
 * KVM_COLLECT_DIRTY_BITS.  Terms, besides those of write_protect.c:
 *
 *  - To collect a region, 2 MiB of guest memory, is to move the dirty bits of
 *    its leaves to the dirty bitmap of the slot.
 *  - A region of a slot is active if it is marked in active_regions: the next
 *    collect has to look at it.
 *  - A page is marked for relog if it was logged, but may still be written
 *    without a trace until TLBs are flushed.  The next collect logs it again.
 *
 * What holds at every moment except inside of a collect:
 *
 *  (1) A region is active unless it cannot have a dirty bit that was not
 *      collected: the SPTE that points to its table of leaves is wrprot, TLBs
 *      were flushed after that, and a collect has cleared the dirty bits since.
 *  (2) A region is marked under the lock under which the SPTE that points to
 *      its table becomes writable.  A collect first unmarks the region and then
 *      reads that SPTE under both locks which this can be.  So either it finds
 *      the SPTE writable, or the region is marked afterwards.
 *
 * Only a collect unmarks regions.  If it finds the SPTE writable, it marks the
 * region again, even if it wrprots the SPTE: until TLBs are flushed, the CPU
 * may set dirty bits through the old SPTE.  Whatever else wrprots SPTEs flushes
 * TLBs either with slots_lock held, or, if it is a fault that is about to make
 * the SPTE above writable, with the wp_lock of their table held; and a collect
 * flushes at once when it wrprots an SPTE that it will read again.  So an SPTE
 * that a collect finds wrprot has been flushed.
 *
 * A dirty bit stays set until it is collected, or goes away with its SPTE.  In
 * the latter case the page is logged, and marked for relog: TLBs are flushed
 * later, if at all, so that the page may be written after userspace has
 * harvested it.  The next collect logs it again, and flushes.
 *
 * A collect that wrprots what it finds clears the W bit of a leaf together with
 * its dirty bit.  Nothing is concluded from that: the next write is a fault,
 * which makes the leaf writable and logs the page, and then sets the dirty bit
 * as well.  Its region stays active as it would have without.
 *
 * Pages that shadow page tables map are tracked by write faults, not by dirty
 * bits.  A page that becomes writable there is logged and marked for relog.  A
 * collect takes these marks, and if there were any, it then wrprots all loaded
 * shadow roots.  They are wrprot, too, when logging is turned on: pages that became
 * writable before that have no mark.
 */

#include <linux/kvm_dirty_release.h>
#include <linux/kvm_dirty_tracking.h>
#include <linux/kvm_host.h>
#include <linux/vmalloc.h>

#include "mmu.h"
#include "mmu_internal.h"
#include "dirty_bits.h"
#include "slot_range.h"
#include "spte.h"
#include "tdp_mmu.h"
#include "write_protect.h"
#include "write_protect_trace.h"

#define REGION_PAGES	KVM_PAGES_PER_HPAGE(PG_LEVEL_2M)

/* A collect, and the slot whose regions it is at. */
struct collect {
	struct kvm *kvm;
	struct kvm_memory_slot *slot;
	u64 clear;		/* from a leaf that has a dirty bit */
	u64 tables;
	u64 pages;
	bool flush;
	bool relog;		/* took a mark for relog */
};

bool kvm_mmu_has_dirty_bits(struct kvm *kvm)
{
	return kvm_ad_enabled() && (kvm ? kvm_has_tdp_mmu(kvm) :
					  kvm_tdp_mmu_is_on());
}

/* Two more than the slot fills: its ends may lie inside of regions. */
static unsigned long active_region_bits(const struct kvm_memory_slot *slot)
{
	return slot->npages / REGION_PAGES + 2;
}

static int alloc_slot(struct kvm_memory_slot *slot)
{
	size_t relog = kvm_dirty_bitmap_bytes(slot);
	size_t regions = BITS_TO_LONGS(active_region_bits(slot)) * sizeof(long);
	void *memory;

	memory = __vmalloc(relog + regions, GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!memory)
		return -ENOMEM;

	slot->arch.dirty_bits.relog = memory;
	slot->arch.dirty_bits.active_regions = memory + relog;
	return 0;
}

int kvm_mmu_prepare_slot_dirty_bits(struct kvm *kvm,
				    const struct kvm_memory_slot *old,
				    struct kvm_memory_slot *new)
{
	int r;

	if (!kvm_dirty_bits_enabled(kvm))
		return 0;

	if (!kvm_slot_dirty_track_enabled(new)) {
		memset(&new->arch.dirty_bits, 0, sizeof(new->arch.dirty_bits));
		return 0;
	}

	if (old && old->shared_bitmap == new->shared_bitmap) {
		new->arch.dirty_bits = old->arch.dirty_bits;
	} else {
		r = alloc_slot(new);
		if (r)
			return r;
	}

	/* Pages may have been written, and have dirty bits, before now. */
	bitmap_fill(new->arch.dirty_bits.active_regions, active_region_bits(new));
	return 0;
}

static unsigned long region_of(const struct kvm_memory_slot *slot, gfn_t gfn)
{
	return gfn / REGION_PAGES - slot->base_gfn / REGION_PAGES;
}

static void mark_region_active(const struct kvm_memory_slot *slot, gfn_t gfn)
{
	unsigned long region = region_of(slot, gfn);

	/*
	 * The caller's mark of a page must be visible before the region is
	 * tested; pairs with test_and_clear_bit() in collect_region().
	 */
	smp_mb();
	if (!test_bit(region, slot->arch.dirty_bits.active_regions))
		set_bit(region, slot->arch.dirty_bits.active_regions);
}

void __tdp_mmu_mark_active(struct kvm *kvm, struct kvm_mmu_page *table)
{
	struct kvm_memslots *slots =
		__kvm_memslots(kvm, kvm_mmu_page_as_id(table));
	struct kvm_memslot_iter iter;

	kvm_for_each_memslot_in_gfn_range(&iter, slots, table->gfn,
					  table->gfn + REGION_PAGES)
		if (kvm_slot_dirty_track_enabled(iter.slot))
			mark_region_active(iter.slot,
					   max(table->gfn, iter.slot->base_gfn));
}

void __tdp_mmu_lock_link(struct kvm *kvm, struct kvm_mmu_page *table)
{
	spin_lock(&sptep_to_sp(rcu_dereference(table->ptep))->wp_lock);
	tdp_mmu_mark_active(kvm, table);
}

void __tdp_mmu_unlock_link(struct kvm_mmu_page *table)
{
	spin_unlock(&sptep_to_sp(rcu_dereference(table->ptep))->wp_lock);
}

void __kvm_mark_relog(const struct kvm_memory_slot *slot, gfn_t gfn)
{
	set_bit(gfn - slot->base_gfn, slot->arch.dirty_bits.relog);
	mark_region_active(slot, gfn);
}

/* Logs the pages of one word that are marked for relog, and returns them. */
static unsigned long log_relog_word(struct kvm_memory_slot *slot, unsigned long word)
{
	unsigned long *relog = &slot->arch.dirty_bits.relog[word], bits;

	if (!READ_ONCE(*relog))
		return 0;

	bits = xchg(relog, 0);
	kvm_dirty_bitmap_log(slot->shared_bitmap, word, bits);
	return bits;
}

/* No collect of this slot follows that would do it. */
static void log_relog_pages(struct kvm_memory_slot *slot)
{
	unsigned long word;

	for (word = 0; word < BITS_TO_LONGS(slot->npages); word++) {
		log_relog_word(slot, word);
		kvm_dirty_bitmap_resched(word);
	}
}

void kvm_mmu_drop_slot_dirty_bits(struct kvm_memory_slot *slot)
{
	if (!slot->arch.dirty_bits.relog)
		return;

	log_relog_pages(slot);
	vfree(slot->arch.dirty_bits.relog);
	memset(&slot->arch.dirty_bits, 0, sizeof(slot->arch.dirty_bits));
}

/*
 * A bitmap that is all ones reports what was written until userspace takes it,
 * and dirty bits report what is written after that.  Nobody looks at the dirty
 * bits of shadow pages.  One that was writable before its slot was logged would
 * have neither a mark for relog nor a write fault to come: a write that follows
 * the harvest would be in no bitmap.
 */
void kvm_mmu_start_dirty_bits(struct kvm *kvm)
{
	lockdep_assert_held(&kvm->slots_lock);

	if (kvm_dirty_bits_enabled(kvm) && kvm_memslots_have_rmaps(kvm))
		shadow_mmu_wrprot_roots(kvm);
}

/*
 * The part of the @pages pages from @gfn on that @slot has, as page numbers
 * within the slot: [*first, *end).
 */
static void clip(const struct kvm_memory_slot *slot, gfn_t gfn, gfn_t pages,
		 unsigned long *first, unsigned long *end)
{
	*first = max(gfn, slot->base_gfn) - slot->base_gfn;
	*end = min(gfn + pages - slot->base_gfn, (gfn_t)slot->npages);
}

static void mark_words_relog(const struct kvm_memory_slot *slot,
			     unsigned long word, unsigned long bits)
{
	atomic_long_or(bits,
		       (atomic_long_t *)&slot->arch.dirty_bits.relog[word]);
	mark_region_active(slot, slot->base_gfn + word * BITS_PER_LONG + __ffs(bits));
	mark_region_active(slot, slot->base_gfn + word * BITS_PER_LONG + __fls(bits));
}

/*
 * Logs all pages that a leaf SPTE maps, and marks them for relog if @relog.
 * Returns how many there are.  A huge page lies in one slot, unless slots have
 * changed since it was mapped.
 *
 * The mark comes first.  Who zaps need not be a thread that the last harvest waits
 * for.  The last collect waits for it, by mmu_lock, but takes marks before that.  If it
 * comes too early for this mark, it comes before the log, too, and the harvest that
 * follows has the page.
 */
static unsigned long log_huge(const struct kvm_memory_slot *slot, gfn_t gfn,
			      int level, bool relog)
{
	unsigned long first, page, end, next, bits;

	clip(slot, gfn, KVM_PAGES_PER_HPAGE(level), &first, &end);
	for (page = first; page < end; page = next) {
		next = min(ALIGN_DOWN(page, BITS_PER_LONG) + BITS_PER_LONG, end);
		bits = GENMASK((next - 1) % BITS_PER_LONG, page % BITS_PER_LONG);
		if (relog)
			mark_words_relog(slot, page / BITS_PER_LONG, bits);
		kvm_dirty_bitmap_log(slot->shared_bitmap, page / BITS_PER_LONG,
				     bits);
	}
	return end - first;
}

static bool is_dirty_leaf(u64 spte, int level)
{
	return is_shadow_present_pte(spte) && is_last_spte(spte, level) &&
	       is_dirty_spte(spte);
}

/*
 * Not if a huge page is split: the leaves of the new table have its dirty bit.  A
 * split that is no compare-and-exchange may miss one that a CPU sets meanwhile.  Only
 * KVM_CLEAR_DIRTY_LOG makes one, of a huge page that has pages in its range, and has
 * collected that range just before, under the same slots_lock: no huge page there has
 * been writable since.
 */
static bool loses_dirty(u64 old_spte, u64 new_spte, int level)
{
	return is_dirty_leaf(old_spte, level) &&
	       !is_dirty_leaf(new_spte, level) &&
	       (!is_shadow_present_pte(new_spte) ||
		is_last_spte(new_spte, level));
}

void __tdp_mmu_log_lost_dirty(struct kvm *kvm, int as_id, gfn_t gfn,
			      u64 old_spte, u64 new_spte, int level)
{
	struct kvm_memory_slot *slot;
	int idx;

	if (!loses_dirty(old_spte, new_spte, level))
		return;

	/* Not all who zap leaves have it: guest_memfd and VFIO do not. */
	idx = srcu_read_lock(&kvm->srcu);
	slot = __gfn_to_memslot(__kvm_memslots(kvm, as_id), gfn);
	if (slot && kvm_slot_dirty_track_enabled(slot))
		log_huge(slot, gfn, level, true);
	srcu_read_unlock(&kvm->srcu, idx);
}

u64 __tdp_mmu_keep_dirty(u64 old_spte, u64 new_spte, int level)
{
	if (is_dirty_leaf(old_spte, level) && is_shadow_present_pte(new_spte))
		new_spte |= shadow_dirty_mask;
	return new_spte;
}

/*
 * Clears the bits @clear, one of which is the dirty bit, if that is set.
 * Returns whether it was.
 */
static bool clear_dirty(u64 *sptep, u64 clear)
{
	u64 old = READ_ONCE(*sptep);

	do {
		if (!is_shadow_present_pte(old) || !(old & shadow_dirty_mask))
			return false;
	} while (!try_cmpxchg64(sptep, &old, old & ~clear));

	kvm_set_pfn_dirty(spte_to_pfn(old));
	return true;
}

/* Whether other slots can have pages in the region. */
static bool is_shared(const struct kvm_memory_slot *slot, gfn_t gfn)
{
	unsigned long first, end;

	clip(slot, gfn, REGION_PAGES, &first, &end);
	return end - first < REGION_PAGES;
}

/* A collect spends most of its time here. */
static __always_inline u64 all_bits_of_8(const u64 *sptes)
{
	/* A dirty bit that is set meanwhile is left to the next collect. */
	return data_race(sptes[0] | sptes[1] | sptes[2] | sptes[3] |
			 sptes[4] | sptes[5] | sptes[6] | sptes[7]);
}

static unsigned long collect_some(u64 *sptes, unsigned long count, u64 clear)
{
	const u64 mask = shadow_dirty_mask;
	unsigned long bits = 0, i;

	for (i = 0; i < count; i++)
		if (READ_ONCE(sptes[i]) & mask && clear_dirty(&sptes[i], clear))
			bits |= BIT(i);
	return bits;
}

static unsigned long collect_8(u64 *sptes, u64 clear)
{
	return all_bits_of_8(sptes) & shadow_dirty_mask ?
	       collect_some(sptes, 8, clear) : 0;
}

/*
 * Collects up to BITS_PER_LONG leaves.  Returns a bit for each that was
 * written, which often is few of them.
 */
static unsigned long collect_word(u64 *sptes, unsigned long count, u64 clear)
{
	unsigned long bits = 0, i;

	for (i = 0; i + 16 <= count; i += 16)
		if ((all_bits_of_8(&sptes[i]) | all_bits_of_8(&sptes[i + 8])) &
		    shadow_dirty_mask)
			bits |= (collect_8(&sptes[i], clear) |
				 collect_8(&sptes[i + 8], clear) << 8) << i;
	if (i < count)
		bits |= collect_some(&sptes[i], count - i, clear) << i;
	return bits;
}

/* Returns how many pages were written. */
static unsigned long collect_leaves(struct collect *c, u64 *sptes, gfn_t gfn)
{
	unsigned long page, end, next, bits, pages = 0;

	clip(c->slot, gfn, REGION_PAGES, &page, &end);
	sptes += (c->slot->base_gfn + page) % SPTE_ENT_PER_PAGE;
	for (; page < end; page = next) {
		next = min(ALIGN_DOWN(page, BITS_PER_LONG) + BITS_PER_LONG, end);
		bits = collect_word(sptes, next - page, c->clear);
		sptes += next - page;
		if (bits) {
			kvm_dirty_bitmap_log(c->slot->shared_bitmap,
					     page / BITS_PER_LONG,
					     bits << page % BITS_PER_LONG);
			pages += hweight_long(bits);
		}
	}
	return pages;
}

/*
 * For an SPTE that was wrprot and that this collect will read again, for
 * another slot or region.  A collect relies on a flush of each SPTE that it
 * finds wrprot.
 */
static void flush_at_once(struct collect *c)
{
	kvm_flush_remote_tlbs(c->kvm);
}

/*
 * Collects the table of leaves that @sptep points to, and wrprots @sptep if no
 * leaf was written since the last collect.  Returns whether @sptep was
 * writable.  Under the wp_lock of the table that @sptep is in.
 */
static bool collect_table(struct collect *c, u64 *sptep, u64 spte, gfn_t gfn)
{
	struct kvm_mmu_page *child = spte_to_child_sp(spte);
	unsigned long pages = 0;
	bool writable = false;

	spin_lock_nested(&child->wp_lock, SINGLE_DEPTH_NESTING);
	spte = READ_ONCE(*sptep);
	/*
	 * If it was zapped meanwhile, that has logged the pages: who zaps logs
	 * before it gives up mmu_lock for write, or slots_lock.  The exception
	 * is a vCPU that zaps a huge page under mmu_lock for read, in 6.1.  It
	 * may log later, but before it leaves KVM_RUN, which whoever makes the
	 * last harvest waits for.
	 */
	if (tdp_mmu_points_to(spte, PG_LEVEL_2M, child)) {
		writable = is_writable_pte(spte);
		pages = collect_leaves(c, child->spt, gfn);
		if (writable && !pages) {
			tdp_mmu_wrprot_and_unmark(sptep_to_sp(sptep),
						  spte_index(sptep));
			if (is_shared(c->slot, gfn))
				flush_at_once(c);
		}
		c->flush |= writable || pages;
		c->pages += pages;
		c->tables++;
	}
	spin_unlock(&child->wp_lock);
	return writable;
}

/*
 * Collects a huge page, which was writable before its slot was logged, and
 * wrprots it: it does not become writable again.  Returns whether it was
 * writable.  It cannot be split while the wp_lock of its table is held.
 */
static bool collect_huge(struct collect *c, u64 *sptep, u64 spte, int level,
			 gfn_t gfn)
{
	const u64 mask = PT_WRITABLE_MASK | shadow_dirty_mask;

	do {
		if (!is_shadow_present_pte(spte) || !(spte & mask))
			return false;
	} while (!try_cmpxchg64(sptep, &spte, spte & ~mask));

	if (spte & shadow_dirty_mask) {
		kvm_set_pfn_dirty(spte_to_pfn(spte));
		c->pages += log_huge(c->slot, gfn, level, false);
	}
	if (level > PG_LEVEL_2M)
		flush_at_once(c);
	c->flush = true;
	return is_writable_pte(spte);
}

/*
 * The SPTE that maps the region, or points to its table of leaves; NULL if an
 * SPTE above that is not present.  A region below such an SPTE is marked later,
 * when its table is linked.  Whether the SPTE that is returned is present may
 * only be decided under the wp_lock of its table: see (2).
 */
static u64 *find_entry(struct kvm_mmu_page *sp, gfn_t gfn)
{
	u64 *sptep, spte;

	for (;; sp = spte_to_child_sp(spte)) {
		sptep = &sp->spt[SPTE_INDEX(gfn << PAGE_SHIFT, sp->role.level)];
		if (sp->role.level == PG_LEVEL_2M)
			return sptep;
		spte = READ_ONCE(*sptep);
		if (!is_shadow_present_pte(spte))
			return NULL;
		if (is_last_spte(spte, sp->role.level))
			return sptep;
	}
}

/* Returns false if the SPTE has come to point to a table above the leaves. */
static bool collect_entry(struct collect *c, u64 *sptep, gfn_t gfn, bool *writable)
{
	struct kvm_mmu_page *sp = sptep_to_sp(sptep);
	int level = sp->role.level;
	gfn_t first = ALIGN_DOWN(gfn, KVM_PAGES_PER_HPAGE(level));
	bool done = true;
	u64 spte;

	spin_lock(&sp->wp_lock);
	spte = READ_ONCE(*sptep);
	if (!is_shadow_present_pte(spte))
		*writable = false;
	else if (is_last_spte(spte, level))
		*writable = collect_huge(c, sptep, spte, level, first);
	else if (level == PG_LEVEL_2M)
		*writable = collect_table(c, sptep, spte, gfn);
	else
		done = false;
	spin_unlock(&sp->wp_lock);
	return done;
}

/* Returns whether the SPTE that leads to the region's leaves was writable. */
static bool collect_root(struct collect *c, struct kvm_mmu_page *root, gfn_t gfn)
{
	bool writable;
	u64 *sptep;

	do {
		sptep = find_entry(root, gfn);
		if (!sptep)
			return false;
	} while (!collect_entry(c, sptep, gfn, &writable));

	return writable;
}

static bool collect_roots(struct collect *c, gfn_t gfn)
{
	struct kvm *kvm = c->kvm;
	struct kvm_mmu_page *root;
	bool writable = false;

	read_lock(&kvm->mmu_lock);
	rcu_read_lock();
	list_for_each_entry_rcu(root, &kvm->arch.tdp_mmu_roots, link)
		if (kvm_mmu_page_as_id(root) == c->slot->as_id &&
		    tdp_mmu_covers(root, gfn))
			writable |= collect_root(c, root, gfn);
	rcu_read_unlock();
	read_unlock(&kvm->mmu_lock);
	return writable;
}

/*
 * Logs the pages of the region that are marked for relog.  A word of the bitmap
 * may have pages of the regions beside it, which are logged early then.
 */
static void collect_relog(struct collect *c, gfn_t gfn)
{
	unsigned long page, end, word, bits;

	clip(c->slot, gfn, REGION_PAGES, &page, &end);
	for (word = page / BITS_PER_LONG; word * BITS_PER_LONG < end; word++) {
		bits = log_relog_word(c->slot, word);
		c->pages += hweight_long(bits);
		c->flush |= bits != 0;
		c->relog |= bits != 0;
	}
}

static void collect_region(struct collect *c, unsigned long region)
{
	gfn_t gfn = ALIGN_DOWN(c->slot->base_gfn, REGION_PAGES) +
		    region * REGION_PAGES;
	unsigned long *active = c->slot->arch.dirty_bits.active_regions;

	/* First unmark the region, then read the SPTE: see (2). */
	if (!test_and_clear_bit(region, active))
		return;

	collect_relog(c, gfn);
	if (collect_roots(c, gfn))
		set_bit(region, active);
}

static void collect_slot_range(struct collect *c, gfn_t start, gfn_t end)
{
	unsigned long region = region_of(c->slot, start);
	unsigned long last = region_of(c->slot, end - 1);

	for_each_set_bit_from(region, c->slot->arch.dirty_bits.active_regions, last + 1) {
		collect_region(c, region);
		cond_resched();
	}
}

/*
 * All regions of the range have been collected, with their marks for relog.  So a
 * shadow page there that became writable before the roots are wrprot has been logged, or is
 * still marked, and one that becomes writable later is logged and marked then.
 * If no mark was taken, each writable shadow page has its mark still.
 */
static void finish_collect(struct collect *c, gfn_t start, gfn_t end)
{
	struct kvm *kvm = c->kvm;

	if (c->relog && kvm_memslots_have_rmaps(kvm))
		shadow_mmu_wrprot_roots(kvm);
	else if (c->flush)
		kvm_flush_remote_tlbs(kvm);

	atomic64_add(c->tables, &kvm->stat.dirty_bits_tables);
	atomic64_add(c->pages, &kvm->stat.dirty_bits_pages);
	trace_kvm_collect_dirty_bits(start, end, c->tables, c->pages);
}

void kvm_mmu_collect_slot_dirty_bits(struct kvm *kvm,
				     struct kvm_memory_slot *slot,
				     gfn_t first, gfn_t pages)
{
	struct collect c = {
		.kvm = kvm, .slot = slot, .clear = shadow_dirty_mask,
	};
	gfn_t start = slot->base_gfn + first, end = start + pages;

	lockdep_assert_held(&kvm->slots_lock);

	if (!pages)
		return;
	collect_slot_range(&c, start, end);
	finish_collect(&c, ALIGN_DOWN(start, REGION_PAGES), ALIGN(end, REGION_PAGES));
}

/* As much is collected between two checks for a signal: 0.1 s at the worst. */
#define COLLECT_STEP	(16 * KVM_PAGES_PER_HPAGE(PG_LEVEL_1G))

static void collect_step(struct kvm *kvm, gfn_t start, gfn_t end, void *data)
{
	struct kvm_memslot_iter iter;
	struct collect *c = data;
	gfn_t slot_end;
	int i;

	for (i = 0; i < kvm_arch_nr_memslot_as_ids(kvm); i++) {
		kvm_for_each_memslot_in_gfn_range(&iter, __kvm_memslots(kvm, i),
						  start, end) {
			c->slot = iter.slot;
			if (!kvm_slot_dirty_track_enabled(c->slot))
				continue;
			slot_end = c->slot->base_gfn + c->slot->npages;
			collect_slot_range(c, max(start, c->slot->base_gfn),
					   min(end, slot_end));
		}
	}
}

static gfn_t collect_range(struct kvm *kvm, gfn_t start, gfn_t end, u64 clear)
{
	gfn_t aligned = ALIGN_DOWN(start, REGION_PAGES), stop;
	struct collect c = { .kvm = kvm, .clear = clear };

	lockdep_assert_held(&kvm->slots_lock);

	stop = kvm_call_on_slot_steps(kvm, aligned, ALIGN(end, REGION_PAGES),
				      COLLECT_STEP, collect_step, &c);
	finish_collect(&c, aligned, stop);
	return min(stop, end);
}

gfn_t kvm_mmu_collect_dirty_bits(struct kvm *kvm, gfn_t start, gfn_t end)
{
	return collect_range(kvm, start, end, shadow_dirty_mask);
}

gfn_t kvm_mmu_collect_and_wrprot(struct kvm *kvm, gfn_t start, gfn_t end)
{
	return collect_range(kvm, start, end, shadow_dirty_mask | PT_WRITABLE_MASK);
}
