// SPDX-License-Identifier: GPL-2.0-only
/*
 * KVM_COLLECT_DIRTY_BITS.
 *
 * Each slot that is logged has a bit per 2 MiB in "opened".  What holds at every
 * moment but inside of a collect:
 *
 *  (1) A table of leaves that may have a dirty bit which was not collected has
 *      its bit in opened set, or the entry that points to it is closed, and TLBs
 *      flushed, since its dirty bits were cleared.
 *  (2) The bit is set under the lock under which the entry becomes writable.  A
 *      collect takes the bit away first, and then looks at the entry under both
 *      locks that this can be.  So it sees an open entry, or the bit is set
 *      after.
 *
 * Only a collect takes bits away, and it keeps those of what it found open, even
 * if it closes it: until it flushes TLBs the CPU may set dirty bits through what
 * was open.  Whatever closes entries does so under slots_lock, TLB flush
 * included, or, before it opens what is above them, under the lock of their
 * table, TLB flush included; and a collect flushes at once when it closes what it
 * will look at again.  So an entry that a collect finds closed has been flushed.
 *
 * Dirty bits are level-triggered: one that is set stays until it is collected,
 * or goes away with its SPTE.  Then the page is logged, and noted in "again": TLBs
 * are flushed later, if at all, so that it can be written after somebody has
 * taken it from the log.  The next collect logs it once more and flushes.
 * The same goes for pages of shadow page tables, which nobody's dirty bits are
 * looked at of: what became writable there is noted in "again", and a collect
 * closes all of it, after it has taken the notes.
 */

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

/* One slot's part of what is collected. */
struct collect {
	struct kvm *kvm;
	struct kvm_memory_slot *slot;
	u64 tables;
	u64 pages;
	bool flush;
};

bool kvm_mmu_has_dirty_bits(struct kvm *kvm)
{
	return kvm_ad_enabled() && (kvm ? is_tdp_mmu_enabled(kvm) :
					  kvm_tdp_mmu_is_on());
}

/* Wherever the slot is, or is moved to: its ends may lie inside of regions. */
static unsigned long opened_bits(const struct kvm_memory_slot *slot)
{
	return slot->npages / REGION_PAGES + 2;
}

static int alloc_slot(struct kvm_memory_slot *slot)
{
	size_t again = kvm_dirty_bitmap_bytes(slot);
	size_t opened = BITS_TO_LONGS(opened_bits(slot)) * sizeof(long);
	void *memory;

	memory = __vmalloc(again + opened, GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!memory)
		return -ENOMEM;

	slot->arch.dirty_bits.again = memory;
	slot->arch.dirty_bits.opened = memory + again;
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

	/* There may be dirty bits of before anywhere. */
	bitmap_fill(new->arch.dirty_bits.opened, opened_bits(new));
	return 0;
}

static unsigned long region_of(const struct kvm_memory_slot *slot, gfn_t gfn)
{
	return gfn / REGION_PAGES - slot->base_gfn / REGION_PAGES;
}

static void note_region(const struct kvm_memory_slot *slot, gfn_t gfn)
{
	unsigned long region = region_of(slot, gfn);

	/*
	 * What was noted of a page before the look at the bit; pairs with
	 * test_and_clear_bit() in collect_region().
	 */
	smp_mb();
	if (!test_bit(region, slot->arch.dirty_bits.opened))
		set_bit(region, slot->arch.dirty_bits.opened);
}

void __tdp_mmu_note_opened(struct kvm *kvm, struct kvm_mmu_page *table)
{
	struct kvm_memslots *slots =
		__kvm_memslots(kvm, kvm_mmu_page_as_id(table));
	struct kvm_memslot_iter iter;

	kvm_for_each_memslot_in_gfn_range(&iter, slots, table->gfn,
					  table->gfn + REGION_PAGES)
		if (kvm_slot_dirty_track_enabled(iter.slot))
			note_region(iter.slot, max(table->gfn,
						   iter.slot->base_gfn));
}

void __tdp_mmu_begin_link(struct kvm *kvm, struct kvm_mmu_page *table)
{
	spin_lock(&sptep_to_sp(rcu_dereference(table->ptep))->wp_lock);
	tdp_mmu_note_opened(kvm, table);
}

void __tdp_mmu_end_link(struct kvm_mmu_page *table)
{
	spin_unlock(&sptep_to_sp(rcu_dereference(table->ptep))->wp_lock);
}

void __kvm_log_again(const struct kvm_memory_slot *slot, gfn_t gfn)
{
	set_bit(gfn - slot->base_gfn, slot->arch.dirty_bits.again);
	note_region(slot, gfn);
}

/* There will be no collect that does. */
static void log_again(struct kvm_memory_slot *slot)
{
	unsigned long *again = slot->arch.dirty_bits.again;
	unsigned long word, bits;

	for (word = 0; word < BITS_TO_LONGS(slot->npages); word++) {
		bits = xchg(&again[word], 0);
		if (bits)
			kvm_dirty_bitmap_log(slot->shared_bitmap, word, bits);
	}
}

void kvm_mmu_drop_slot_dirty_bits(struct kvm_memory_slot *slot)
{
	if (!slot->arch.dirty_bits.again)
		return;

	log_again(slot);
	vfree(slot->arch.dirty_bits.again);
	memset(&slot->arch.dirty_bits, 0, sizeof(slot->arch.dirty_bits));
}

/* What @slot has of @pages pages from @gfn on, from its start: [*first, *end). */
static void clip(const struct kvm_memory_slot *slot, gfn_t gfn, gfn_t pages,
		 unsigned long *first, unsigned long *end)
{
	*first = max(gfn, slot->base_gfn) - slot->base_gfn;
	*end = min(gfn + pages - slot->base_gfn, (gfn_t)slot->npages);
}

static void log_words_again(const struct kvm_memory_slot *slot,
			    unsigned long word, unsigned long bits)
{
	atomic_long_or(bits,
		       (atomic_long_t *)&slot->arch.dirty_bits.again[word]);
	note_region(slot, slot->base_gfn + word * BITS_PER_LONG + __ffs(bits));
	note_region(slot, slot->base_gfn + word * BITS_PER_LONG + __fls(bits));
}

/*
 * All pages that a huge SPTE maps.  It lies in one slot, as long as the slot is
 * as it was when it was mapped.  Returns how many.
 */
static unsigned long log_huge(const struct kvm_memory_slot *slot, gfn_t gfn,
			      int level, bool again)
{
	unsigned long first, page, end, next, bits;

	clip(slot, gfn, KVM_PAGES_PER_HPAGE(level), &first, &end);
	for (page = first; page < end; page = next) {
		next = min(ALIGN_DOWN(page, BITS_PER_LONG) + BITS_PER_LONG, end);
		bits = GENMASK((next - 1) % BITS_PER_LONG, page % BITS_PER_LONG);
		kvm_dirty_bitmap_log(slot->shared_bitmap, page / BITS_PER_LONG,
				     bits);
		if (again)
			log_words_again(slot, page / BITS_PER_LONG, bits);
	}
	return end - first;
}

static bool is_dirty_leaf(u64 spte, int level)
{
	return is_shadow_present_pte(spte) && is_last_spte(spte, level) &&
	       is_dirty_spte(spte);
}

/* The leaves of a huge page that is split have its dirty bit. */
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

	if (!loses_dirty(old_spte, new_spte, level))
		return;

	slot = __gfn_to_memslot(__kvm_memslots(kvm, as_id), gfn);
	if (!slot || !kvm_slot_dirty_track_enabled(slot))
		return;

	log_huge(slot, gfn, level, true);
}

/* Returns whether it was set. */
static bool clear_dirty(u64 *sptep)
{
	u64 old = READ_ONCE(*sptep);

	do {
		if (!is_shadow_present_pte(old) || !(old & shadow_dirty_mask))
			return false;
	} while (!try_cmpxchg64(sptep, &old, old & ~shadow_dirty_mask));

	kvm_set_pfn_dirty(spte_to_pfn(old));
	return true;
}

/* Whether other slots can have a part of the region. */
static bool is_shared(const struct kvm_memory_slot *slot, gfn_t gfn)
{
	unsigned long first, end;

	clip(slot, gfn, REGION_PAGES, &first, &end);
	return end - first < REGION_PAGES;
}

/* Most of what a collect does. */
static __always_inline u64 all_bits_of_8(const u64 *sptes)
{
	/* What is set meanwhile is for the next collect. */
	return data_race(sptes[0] | sptes[1] | sptes[2] | sptes[3] |
			 sptes[4] | sptes[5] | sptes[6] | sptes[7]);
}

static unsigned long collect_some(u64 *sptes, unsigned long count)
{
	const u64 mask = shadow_dirty_mask;
	unsigned long bits = 0, i;

	for (i = 0; i < count; i++)
		if (READ_ONCE(sptes[i]) & mask && clear_dirty(&sptes[i]))
			bits |= BIT(i);
	return bits;
}

static unsigned long collect_8(u64 *sptes)
{
	return all_bits_of_8(sptes) & shadow_dirty_mask ?
	       collect_some(sptes, 8) : 0;
}

/* Which of up to BITS_PER_LONG leaves have been written; often, few have. */
static unsigned long collect_word(u64 *sptes, unsigned long count)
{
	unsigned long bits = 0, i;

	for (i = 0; i + 16 <= count; i += 16)
		if ((all_bits_of_8(&sptes[i]) | all_bits_of_8(&sptes[i + 8])) &
		    shadow_dirty_mask)
			bits |= (collect_8(&sptes[i]) |
				 collect_8(&sptes[i + 8]) << 8) << i;
	if (i < count)
		bits |= collect_some(&sptes[i], count - i) << i;
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
		bits = collect_word(sptes, next - page);
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
 * An entry was closed that is looked at again by this very collect, for another
 * slot or region, which takes it that what it finds closed has been flushed.
 */
static void flush_at_once(struct collect *c)
{
	kvm_flush_remote_tlbs(c->kvm);
}

/*
 * An entry that points to a table of leaves, under the lock of the table that it
 * is in.  Returns whether it was open.  Where nobody wrote since the last time,
 * it is closed.
 */
static bool collect_table(struct collect *c, u64 *sptep, u64 spte, gfn_t gfn)
{
	struct kvm_mmu_page *child = spte_to_child_sp(spte);
	unsigned long pages = 0;
	bool open = false;

	spin_lock_nested(&child->wp_lock, SINGLE_DEPTH_NESTING);
	spte = READ_ONCE(*sptep);
	/* Who zaps it logs what was written. */
	if (tdp_mmu_points_to(spte, PG_LEVEL_2M, child)) {
		open = is_writable_pte(spte);
		pages = collect_leaves(c, child->spt, gfn);
		if (open && !pages) {
			tdp_mmu_close_and_forget(sptep_to_sp(sptep),
						 spte_index(sptep));
			if (is_shared(c->slot, gfn))
				flush_at_once(c);
		}
		c->flush |= open || pages;
		c->pages += pages;
		c->tables++;
	}
	spin_unlock(&child->wp_lock);
	return open;
}

/*
 * A huge page that was writable before its slot was logged.  It does not become
 * so again; and it is not split while the lock is held.
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
 * The entry that maps the region, of 2 MiB or more; NULL if there is none.  Of
 * one that can point to a table of leaves only its table's lock says whether it
 * is present: see (2).  What comes to be below an entry further up that is not
 * present is noted after this.
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

/* Returns false if what was huge has become a table to go through. */
static bool collect_entry(struct collect *c, u64 *sptep, gfn_t gfn, bool *open)
{
	struct kvm_mmu_page *sp = sptep_to_sp(sptep);
	int level = sp->role.level;
	bool done = true;
	u64 spte;

	spin_lock(&sp->wp_lock);
	spte = READ_ONCE(*sptep);
	if (!is_shadow_present_pte(spte))
		*open = false;
	else if (is_last_spte(spte, level))
		*open = collect_huge(c, sptep, spte, level,
				     ALIGN_DOWN(gfn, KVM_PAGES_PER_HPAGE(level)));
	else if (level == PG_LEVEL_2M)
		*open = collect_table(c, sptep, spte, gfn);
	else
		done = false;
	spin_unlock(&sp->wp_lock);
	return done;
}

/* Returns whether the region was open. */
static bool collect_root(struct collect *c, struct kvm_mmu_page *root, gfn_t gfn)
{
	bool open;
	u64 *sptep;

	do {
		sptep = find_entry(root, gfn);
		if (!sptep)
			return false;
	} while (!collect_entry(c, sptep, gfn, &open));

	return open;
}

static bool collect_roots(struct collect *c, gfn_t gfn)
{
	struct kvm *kvm = c->kvm;
	struct kvm_mmu_page *root;
	bool open = false;

	read_lock(&kvm->mmu_lock);
	rcu_read_lock();
	list_for_each_entry_rcu(root, &kvm->arch.tdp_mmu_roots, link)
		if (kvm_mmu_page_as_id(root) == c->slot->as_id &&
		    tdp_mmu_covers(root, gfn))
			open |= collect_root(c, root, gfn);
	rcu_read_unlock();
	read_unlock(&kvm->mmu_lock);
	return open;
}

/* Words may reach into the regions beside: those pages are just earlier. */
static void collect_again(struct collect *c, gfn_t gfn)
{
	unsigned long *again = c->slot->arch.dirty_bits.again;
	unsigned long page, end, word, bits;

	clip(c->slot, gfn, REGION_PAGES, &page, &end);
	for (word = page / BITS_PER_LONG; word * BITS_PER_LONG < end; word++) {
		if (!READ_ONCE(again[word]))
			continue;
		bits = xchg(&again[word], 0);
		kvm_dirty_bitmap_log(c->slot->shared_bitmap, word, bits);
		c->pages += hweight_long(bits);
		c->flush = true;
	}
}

static void collect_region(struct collect *c, unsigned long region)
{
	gfn_t gfn = ALIGN_DOWN(c->slot->base_gfn, REGION_PAGES) +
		    region * REGION_PAGES;
	unsigned long *opened = c->slot->arch.dirty_bits.opened;

	/* This bit first: see (2). */
	if (!test_and_clear_bit(region, opened))
		return;

	collect_again(c, gfn);
	if (collect_roots(c, gfn))
		set_bit(region, opened);
}

static void collect_slot_range(struct collect *c, gfn_t start, gfn_t end)
{
	unsigned long region = region_of(c->slot, start);
	unsigned long last = region_of(c->slot, end - 1);

	for_each_set_bit_from(region, c->slot->arch.dirty_bits.opened, last + 1) {
		collect_region(c, region);
		cond_resched();
	}
}

/*
 * The notes of shadow pages have been taken: so what became writable before the
 * roots are closed is logged, and what does after is noted.
 */
static void finish_collect(struct collect *c, gfn_t start, gfn_t end)
{
	struct kvm *kvm = c->kvm;

	if (kvm_memslots_have_rmaps(kvm))
		shadow_mmu_close_roots(kvm);
	else if (c->flush)
		kvm_flush_remote_tlbs(kvm);

	atomic64_add(c->tables, &kvm->stat.dirty_bits_tables);
	atomic64_add(c->pages, &kvm->stat.dirty_bits_pages);
	trace_kvm_collect_dirty_bits(start, end, c->tables, c->pages);
}

void kvm_mmu_collect_slot_dirty_bits(struct kvm *kvm,
				     struct kvm_memory_slot *slot)
{
	struct collect c = { .kvm = kvm, .slot = slot };
	gfn_t end = slot->base_gfn + slot->npages;

	lockdep_assert_held(&kvm->slots_lock);

	collect_slot_range(&c, slot->base_gfn, end);
	finish_collect(&c, slot->base_gfn, end);
}

/* How much is collected without a look for a signal: some 10 ms at the worst. */
#define COLLECT_STEP	(16 * KVM_PAGES_PER_HPAGE(PG_LEVEL_1G))

static void collect_step(struct kvm *kvm, gfn_t start, gfn_t end, void *data)
{
	struct kvm_memslot_iter iter;
	struct collect *c = data;
	gfn_t slot_end;
	int i;

	for (i = 0; i < KVM_ADDRESS_SPACE_NUM; i++) {
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

gfn_t kvm_mmu_collect_dirty_bits(struct kvm *kvm, gfn_t start, gfn_t end)
{
	gfn_t aligned = ALIGN_DOWN(start, REGION_PAGES), stop;
	struct collect c = { .kvm = kvm };

	lockdep_assert_held(&kvm->slots_lock);

	stop = kvm_call_on_slot_steps(kvm, aligned, ALIGN(end, REGION_PAGES),
				      COLLECT_STEP, collect_step, &c);
	finish_collect(&c, aligned, stop);
	return min(stop, end);
}
