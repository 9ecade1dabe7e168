/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Included by mmu.c, as it calls what is static there: what write_protect.c and
 * eager_split.c have done to a range of a slot through its reverse map.
 */
#include "eager_split.h"
#include "write_protect.h"

#ifdef CONFIG_X86_64
void shadow_mmu_write_protect_slot_range(struct kvm *kvm,
					 const struct kvm_memory_slot *slot,
					 gfn_t start, gfn_t end)
{
	slot_handle_level_range(kvm, slot, slot_rmap_write_protect, PG_LEVEL_4K,
				KVM_MAX_HUGEPAGE_LEVEL, start, end - 1, true,
				false);
}
#endif

void shadow_mmu_split_huge_pages(struct kvm *kvm,
				 const struct kvm_memory_slot *slot,
				 gfn_t start, gfn_t end)
{
	kvm_shadow_mmu_try_split_huge_pages(kvm, slot, start, end, PG_LEVEL_4K);
}
