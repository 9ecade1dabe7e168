/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _ASM_X86_KVM_DIRTY_TRACKING_H
#define _ASM_X86_KVM_DIRTY_TRACKING_H

#include <linux/types.h>

/* What a VM has of fast dirty tracking; in struct kvm_arch. */
struct kvm_arch_dirty_tracking {
	/* KVM_CAP_WRITE_PROTECT_ALL_MEM; fixed before the first vCPU. */
	bool write_protect;

	/*
	 * Shadow pages: the generation of the last write-protect-all, which
	 * never wraps, and the roots that are loaded.  Under mmu_lock for
	 * write.
	 */
	u64 shadow_gen;
	struct list_head shadow_roots;

	/*
	 * KVM_CAP_EAGER_PAGE_SPLIT: whether it is enabled, the mode, and the
	 * most at a time in bytes.
	 */
	bool splits;
	u8 eager_split;
	u64 split_chunk;
};

#endif
