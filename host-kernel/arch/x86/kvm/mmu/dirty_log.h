/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All of dirty tracking that the code which changes page tables calls: mmu.c,
 * tdp_mmu.c, and x86.c for slots.
 */
#ifndef __KVM_X86_MMU_DIRTY_LOG_H
#define __KVM_X86_MMU_DIRTY_LOG_H

#include <linux/kvm_host.h>

#include "dirty_bits.h"
#include "eager_split.h"
#include "spte.h"
#include "write_fault.h"
#include "write_protect.h"

/*
 * Log the page that an SPTE made by make_spte() maps, if the SPTE is writable.
 * Only once the SPTE is in place: userspace may harvest the log at any moment,
 * and a page that is logged first could be harvested, write-protected and only
 * then become writable, unlogged.
 */
static inline void log_writable_spte(struct kvm *kvm,
				     const struct kvm_memory_slot *slot,
				     gfn_t gfn, u64 spte)
{
	if (is_shadow_present_pte(spte) && is_writable_pte(spte) &&
	    kvm_slot_dirty_track_enabled(slot)) {
		mark_page_dirty_in_slot(kvm, slot, gfn);
		kvm_log_again(kvm, slot, gfn);
	}
}

#endif
