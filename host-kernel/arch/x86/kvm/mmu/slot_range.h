/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __KVM_X86_MMU_SLOT_RANGE_H
#define __KVM_X86_MMU_SLOT_RANGE_H

#include <linux/kvm_host.h>
#include <linux/minmax.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

typedef void (*slot_range_fn)(struct kvm *kvm,
			      const struct kvm_memory_slot *slot,
			      gfn_t start, gfn_t end);
typedef void (*slot_step_fn)(struct kvm *kvm, gfn_t start, gfn_t end,
			     void *data);

/*
 * Calls @fn with what each slot, of all address spaces, has of [start, end).
 * Under slots_lock.
 */
static inline void call_on_slot_ranges(struct kvm *kvm, gfn_t start, gfn_t end,
				       slot_range_fn fn)
{
	const struct kvm_memory_slot *slot;
	struct kvm_memslot_iter iter;
	int i;

	for (i = 0; i < KVM_ADDRESS_SPACE_NUM; i++) {
		kvm_for_each_memslot_in_gfn_range(&iter, __kvm_memslots(kvm, i),
						  start, end) {
			slot = iter.slot;
			fn(kvm, slot, max(start, slot->base_gfn),
			   min(end, slot->base_gfn + slot->npages));
		}
	}
}

/* The first page at or after @gfn, before @end, that any slot has; or @end. */
static inline gfn_t next_slot_page(struct kvm *kvm, gfn_t gfn, gfn_t end)
{
	struct kvm_memslot_iter iter;
	gfn_t next = end;
	int i;

	for (i = 0; i < KVM_ADDRESS_SPACE_NUM; i++)
		kvm_for_each_memslot_in_gfn_range(&iter, __kvm_memslots(kvm, i),
						  gfn, end) {
			next = min(next, max(gfn, iter.slot->base_gfn));
			break;
		}
	return next;
}

/*
 * Calls @fn with each @step of [start, end), a power of two of pages to which
 * steps are aligned, in which there is a page of a slot.  Stops on a signal, but
 * not before the first step.  Returns where it stopped, or @end.  Under
 * slots_lock; may sleep.
 */
static inline gfn_t call_on_slot_steps(struct kvm *kvm, gfn_t start, gfn_t end,
				       gfn_t step, slot_step_fn fn, void *data)
{
	gfn_t gfn = start, page, next;

	while (gfn < end) {
		page = next_slot_page(kvm, gfn, end);
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

#endif
