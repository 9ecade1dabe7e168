/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Splitting huge pages before a write fault does.  Each VM chooses whether KVM
 * does it, and how many pages at a time; for shadow pages as well as the TDP
 * MMU.
 */
#ifndef __KVM_X86_MMU_EAGER_SPLIT_H
#define __KVM_X86_MMU_EAGER_SPLIT_H

#include <linux/kvm_host.h>

/*
 * Whether this VM splits ahead: as it has chosen, or by kvm.eager_page_split.
 */
bool kvm_splits_eagerly(struct kvm *kvm);

/*
 * Splits the huge pages of a slot that is about to be logged, up to the VM's
 * chunk size.  Under slots_lock; the caller flushes TLBs.
 */
void kvm_split_slot_eagerly(struct kvm *kvm, const struct kvm_memory_slot *slot);

/*
 * Whether the split of a shadow page may let go of mmu_lock because others wait
 * for it: not if the one before has.  Where others always wait, nothing would
 * be split otherwise.
 */
bool kvm_split_may_yield(struct kvm *kvm);

/*
 * Counts a split ahead that has succeeded (0) or failed (-errno), and returns @r.
 * What a vCPU's fault splits, in 6.12, was not split ahead.
 */
int kvm_count_split(struct kvm *kvm, int r);

/*
 * In mmu.c: splits the huge shadow pages that map [start, end) of the slot.
 * Under mmu_lock for write, which it may drop meanwhile.
 */
void shadow_mmu_split_huge_pages(struct kvm *kvm,
				 const struct kvm_memory_slot *slot,
				 gfn_t start, gfn_t end);

/*
 * Splits the huge pages in [start, end) of all slots, stopping after the VM's
 * chunk size or on a signal.  Returns where it stopped.  Under slots_lock.
 */
gfn_t kvm_split_range(struct kvm *kvm, gfn_t start, gfn_t end);

#endif
