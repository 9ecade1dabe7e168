/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Included by mmu.c, as it calls what is static there: the fast page fault's
 * way to a leaf that can be written only if all of its path can.
 */

/* Between walk_shadow_page_lockless_{begin,end}. */
static bool shadow_path_is_closed(struct kvm_vcpu *vcpu, gpa_t gpa)
{
	struct kvm_shadow_walk_iterator iterator;
	u64 spte;

	for_each_shadow_entry_lockless(vcpu, gpa, iterator, spte)
		if (spte_is_closed(spte, iterator.level))
			return true;

	return false;
}

/*
 * As fast_pf_get_last_sptep(), for a write in a VM that write-protects by its
 * upper entries: opens the path, or says that nothing is mapped if that takes
 * mmu_lock for write.
 */
static noinline u64 *fast_pf_open_path(struct kvm_vcpu *vcpu,
				       struct kvm_page_fault *fault, u64 *spte)
{
	bool closed;
	u64 *sptep;

	if (is_tdp_mmu(vcpu->arch.mmu))
		return tdp_mmu_open_path(vcpu, fault->gfn, spte);

	closed = shadow_path_is_closed(vcpu, fault->addr);
	sptep = fast_pf_get_last_sptep(vcpu, fault->addr, spte);
	if (closed)
		*spte = 0;
	return sptep;
}
