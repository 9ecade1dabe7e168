/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The functions of dirty tracking that KVM's MMU calls: mmu.c and tdp_mmu.c
 * where they change page tables, and x86.c where it changes slots.
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
 * Logs the page that an SPTE made by make_spte() maps, if the SPTE is writable.
 * The SPTE must be in place already.  Userspace may harvest the log at any
 * moment: a page that was logged first could be harvested, write-protected, and
 * become writable only then, without being logged again.
 */
static inline void log_writable_spte(struct kvm *kvm,
				     const struct kvm_memory_slot *slot,
				     gfn_t gfn, u64 spte)
{
	if (is_shadow_present_pte(spte) && is_writable_pte(spte) &&
	    kvm_slot_dirty_track_enabled(slot)) {
		mark_page_dirty_in_slot(kvm, slot, gfn);
		kvm_mark_relog(kvm, slot, gfn);
	}
}

/*
 * KVM_PRE_FAULT_MEMORY, of 6.11 and later, maps pages by a thread that does not run
 * the guest.  Who makes the last harvest has waited for vCPUs, and not for that
 * thread: it may have made an SPTE writable, and not have logged the page yet that
 * a vCPU has written by then.  So it maps no page of a logged slot writable.  Nor do
 * most prefetches for asynchronous page faults, which need it not, as vCPUs make them
 * in KVM_RUN: they are rare enough for one more fault.  And a vCPU whose tables are
 * shadow pages, as those of a nested guest are, is refused before it syncs them: that
 * makes SPTEs writable, too.
 */
static inline bool is_logged_prefetch(const struct kvm_page_fault *fault)
{
	return fault->prefetch && fault->slot &&
	       kvm_slot_dirty_track_enabled(fault->slot);
}

#endif
