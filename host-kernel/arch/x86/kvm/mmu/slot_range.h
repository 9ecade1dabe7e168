/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __KVM_X86_MMU_SLOT_RANGE_H
#define __KVM_X86_MMU_SLOT_RANGE_H

#include <linux/kvm_host.h>
#include <linux/minmax.h>

typedef void (*slot_range_fn)(struct kvm *kvm,
			      const struct kvm_memory_slot *slot,
			      gfn_t start, gfn_t end);

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

#endif
