/* SPDX-License-Identifier: GPL-2.0-only */
/* Walks over the parts of a range of guest memory that slots have. */
#ifndef __KVM_X86_MMU_SLOT_RANGE_H
#define __KVM_X86_MMU_SLOT_RANGE_H

#include <linux/kvm_host.h>

typedef void (*slot_range_fn)(struct kvm *kvm,
			      const struct kvm_memory_slot *slot,
			      gfn_t start, gfn_t end);
typedef void (*slot_step_fn)(struct kvm *kvm, gfn_t start, gfn_t end,
			     void *data);

/*
 * Calls @fn for the part of [start, end) that each slot has, in all address
 * spaces.  Under slots_lock.
 */
void kvm_call_on_slot_ranges(struct kvm *kvm, gfn_t start, gfn_t end,
			     slot_range_fn fn);

/*
 * The first page in [gfn, end) that any slot has, or @end.  Under slots_lock.
 */
gfn_t kvm_next_slot_page(struct kvm *kvm, gfn_t gfn, gfn_t end);

/*
 * Calls @fn for each step of [start, end) in which any slot has a page.  Steps
 * are aligned to @step, a power of two of pages.  A pending signal stops the
 * walk, but not before the first step.  Returns where the walk stopped, or
 * @end.  Under slots_lock; may sleep.
 */
gfn_t kvm_call_on_slot_steps(struct kvm *kvm, gfn_t start, gfn_t end,
			     gfn_t step, slot_step_fn fn, void *data);

#endif
