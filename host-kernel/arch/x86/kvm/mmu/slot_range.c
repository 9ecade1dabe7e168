// SPDX-License-Identifier: GPL-2.0-only
/* Walks over the parts of a range of guest memory that slots have. */

#include <linux/kvm_dirty_release.h>
#include <linux/kvm_host.h>
#include <linux/minmax.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "slot_range.h"

void kvm_call_on_slot_ranges(struct kvm *kvm, gfn_t start, gfn_t end,
			     slot_range_fn fn)
{
	const struct kvm_memory_slot *slot;
	struct kvm_memslot_iter iter;
	int i;

	for (i = 0; i < kvm_arch_nr_memslot_as_ids(kvm); i++) {
		kvm_for_each_memslot_in_gfn_range(&iter, __kvm_memslots(kvm, i),
						  start, end) {
			slot = iter.slot;
			fn(kvm, slot, max(start, slot->base_gfn),
			   min(end, slot->base_gfn + slot->npages));
		}
	}
}

gfn_t kvm_next_slot_page(struct kvm *kvm, gfn_t gfn, gfn_t end)
{
	struct kvm_memslot_iter iter;
	gfn_t next = end;
	int i;

	for (i = 0; i < kvm_arch_nr_memslot_as_ids(kvm); i++)
		kvm_for_each_memslot_in_gfn_range(&iter, __kvm_memslots(kvm, i),
						  gfn, end) {
			next = min(next, max(gfn, iter.slot->base_gfn));
			break;
		}
	return next;
}

gfn_t kvm_call_on_slot_steps(struct kvm *kvm, gfn_t start, gfn_t end,
			     gfn_t step, slot_step_fn fn, void *data)
{
	gfn_t gfn = start, page, next;

	while (gfn < end) {
		page = kvm_next_slot_page(kvm, gfn, end);
		if (page == end)
			return end;
		gfn = max(gfn, ALIGN_DOWN(page, step));
		next = min(end, ALIGN_DOWN(gfn, step) + step);
		fn(kvm, gfn, next, data);
		gfn = next;
		if (signal_pending(current))
			break;
		cond_resched();
	}
	return gfn;
}
