// SPDX-License-Identifier: GPL-2.0-only
/* KVM_CAP_EAGER_PAGE_SPLIT and KVM_SPLIT_HUGE_PAGES. */

#include <linux/kvm_dirty_release.h>
#include <linux/kvm_dirty_tracking.h>
#include <linux/kvm_host.h>
#include <linux/sched/signal.h>

#include "x86.h"
#include "mmu.h"
#include "mmu_internal.h"
#include "tdp_mmu.h"
#include "eager_split.h"
#include "slot_range.h"

/* As many pages are split between two checks for a signal. */
#define SPLIT_STEP ((gfn_t)16 * KVM_PAGES_PER_HPAGE(PG_LEVEL_2M))

bool kvm_splits_eagerly(struct kvm *kvm)
{
	u8 mode = READ_ONCE(kvm->arch.dirty_tracking.eager_split);

	if (mode == KVM_EAGER_PAGE_SPLIT_DEFAULT)
		return READ_ONCE(eager_page_split) && kvm_has_tdp_mmu(kvm);
	return mode == KVM_EAGER_PAGE_SPLIT_ON;
}

/* Under slots_lock, as all splits ahead. */
bool kvm_split_may_yield(struct kvm *kvm)
{
	return !kvm->arch.dirty_tracking.split_yielded;
}

int kvm_count_split(struct kvm *kvm, int r)
{
	kvm->arch.dirty_tracking.split_yielded = r == -EAGAIN;
	if (!r)
		atomic64_inc(&kvm->stat.split_huge_pages);
	else if (r == -ENOMEM || r == -ENOSPC)
		atomic64_inc(&kvm->stat.split_failed);
	return r;
}

static void split_slot_range(struct kvm *kvm, const struct kvm_memory_slot *slot,
			     gfn_t start, gfn_t end)
{
	if (kvm_memslots_have_rmaps(kvm)) {
		write_lock(&kvm->mmu_lock);
		shadow_mmu_split_huge_pages(kvm, slot, start, end);
		write_unlock(&kvm->mmu_lock);
	}

	if (kvm_has_tdp_mmu(kvm)) {
		read_lock(&kvm->mmu_lock);
		kvm_tdp_mmu_try_split_huge_pages(kvm, slot, start, end,
						 PG_LEVEL_4K, true);
		read_unlock(&kvm->mmu_lock);
	}
}

static gfn_t chunk_pages(struct kvm *kvm)
{
	u64 chunk = READ_ONCE(kvm->arch.dirty_tracking.split_chunk);

	return chunk ? chunk >> PAGE_SHIFT : ~0ULL;
}

void kvm_split_slot_eagerly(struct kvm *kvm, const struct kvm_memory_slot *slot)
{
	gfn_t pages = min_t(gfn_t, slot->npages, chunk_pages(kvm));

	split_slot_range(kvm, slot, slot->base_gfn, slot->base_gfn + pages);
}

gfn_t kvm_split_range(struct kvm *kvm, gfn_t start, gfn_t end)
{
	gfn_t left = chunk_pages(kvm), gfn = start, step;

	lockdep_assert_held(&kvm->slots_lock);

	while (left) {
		gfn = kvm_next_slot_page(kvm, gfn, end);
		if (gfn == end)
			break;

		step = min3(left, end - gfn, SPLIT_STEP - gfn % SPLIT_STEP);
		kvm_call_on_slot_ranges(kvm, gfn, gfn + step, split_slot_range);
		gfn += step;
		left -= step;
		if (signal_pending(current))
			break;
		cond_resched();
	}
	return gfn;
}
