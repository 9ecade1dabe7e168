/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_X86_KVM_DIRTY_TRACKING_H
#define _ASM_X86_KVM_DIRTY_TRACKING_H

#include <linux/types.h>

/* x86's state of a VM's dirty tracking; in struct kvm_arch. */
struct kvm_arch_dirty_tracking {
	/* KVM_CAP_WRITE_PROTECT_ALL_MEM; fixed before the first vCPU. */
	bool write_protect;

	/* KVM_CAP_DIRTY_BITS; fixed before the first vCPU. */
	bool dirty_bits;

	/*
	 * The shadow MMU's: the generation of the last write-protect-all, which
	 * never wraps, and the loaded roots.  Under mmu_lock for write.
	 */
	u64 shadow_gen;
	struct list_head shadow_roots;

	/*
	 * KVM_CAP_EAGER_PAGE_SPLIT: whether it is enabled, the mode, and the
	 * chunk size in bytes.
	 */
	bool splits;
	u8 eager_split;
	u64 split_chunk;

	/* Whether the last split of a shadow page let go of mmu_lock instead. */
	bool split_yielded;
};

/*
 * The state of KVM_CAP_DIRTY_BITS for a slot that is logged; in
 * struct kvm_arch_memory_slot.  One allocation, which lives as long as the slot
 * has its dirty bitmap; NULL without the capability.  See mmu/dirty_bits.c.
 */
struct kvm_arch_slot_dirty_bits {
	/* A bit per page: the next collect logs it again. */
	unsigned long *relog;
	/* A bit per 2 MiB of guest memory: the next collect looks at it. */
	unsigned long *active_regions;
};

#endif
