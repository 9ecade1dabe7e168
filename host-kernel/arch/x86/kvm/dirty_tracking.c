// SPDX-License-Identifier: GPL-2.0-only
/* x86's own capabilities and ioctls of fast dirty tracking. */

#include <linux/kvm_dirty_release.h>
#include <linux/kvm_dirty_tracking.h>
#include <linux/kvm_host.h>
#include <linux/moduleparam.h>

#include "dirty_tracking.h"
#include "mmu/dirty_bits.h"
#include "mmu/eager_split.h"
#include "mmu/write_protect.h"

static bool allowed = true;
module_param_named(dirty_tracking, allowed, bool, 0644);
MODULE_PARM_DESC(dirty_tracking, "Whether VMs may enable fast dirty tracking");

static bool has_logged_slot(struct kvm *kvm)
{
	struct kvm_memory_slot *slot;
	int i, bkt;

	for (i = 0; i < kvm_arch_nr_memslot_as_ids(kvm); i++)
		kvm_for_each_memslot(slot, bkt, __kvm_memslots(kvm, i))
			if (kvm_slot_dirty_track_enabled(slot))
				return true;
	return false;
}

/*
 * Calls @set under kvm->lock and slots_lock, unless the VM has had a vCPU or
 * has a slot that is logged.  Returns what @set does, or -EBUSY.
 */
static int set_early(struct kvm *kvm, int (*set)(struct kvm *kvm))
{
	int r;

	mutex_lock(&kvm->lock);
	mutex_lock(&kvm->slots_lock);
	if (kvm->created_vcpus || has_logged_slot(kvm))
		r = -EBUSY;
	else
		r = set(kvm);
	mutex_unlock(&kvm->slots_lock);
	mutex_unlock(&kvm->lock);
	return r;
}

static int set_nothing(struct kvm *kvm)
{
	return 0;
}

static int set_write_protect(struct kvm *kvm)
{
	kvm->arch.dirty_tracking.write_protect = true;
	return 0;
}

/*
 * There must be no vCPU yet, because writable SPTEs are marked from the first
 * table on.  Such a VM does not use logging by the CPU (PML), which does not
 * log writes through SPTEs that are writable and already dirty.  There must be
 * no logged slot either, as it may have turned PML on.
 */
static int enable_write_protect(struct kvm *kvm, const struct kvm_enable_cap *cap)
{
	int r;

	if (!IS_ENABLED(CONFIG_X86_64) || !kvm_dirty_tracking_takes(cap, 0))
		return -EINVAL;

	/*
	 * The key stays on for good, so a VM that is refused must not turn it
	 * on.
	 */
	r = set_early(kvm, set_nothing);
	if (r)
		return r;

	/* Not under kvm->lock: it takes locks that come before it. */
	static_branch_enable(&kvm_write_protect_used);
	return set_early(kvm, set_write_protect);
}

static int enable_eager_split(struct kvm *kvm, const struct kvm_enable_cap *cap)
{
	if (!kvm_dirty_tracking_takes(cap, 2) ||
	    cap->args[0] > KVM_EAGER_PAGE_SPLIT_OFF ||
	    !IS_ALIGNED(cap->args[1], KVM_HPAGE_SIZE(PG_LEVEL_2M)))
		return -EINVAL;

	mutex_lock(&kvm->slots_lock);
	WRITE_ONCE(kvm->arch.dirty_tracking.eager_split, cap->args[0]);
	WRITE_ONCE(kvm->arch.dirty_tracking.split_chunk, cap->args[1]);
	WRITE_ONCE(kvm->arch.dirty_tracking.splits, true);
	mutex_unlock(&kvm->slots_lock);
	return 0;
}

static int set_dirty_bits(struct kvm *kvm)
{
	if (!kvm_write_protect_enabled(kvm) ||
	    !kvm->dirty_tracking.bitmap_fd || kvm->dirty_ring_size)
		return -EINVAL;

	kvm->dirty_tracking.needs_bitmap = true;
	kvm->arch.dirty_tracking.dirty_bits = true;
	return 0;
}

/* A slot that is logged already would have no bitmap of active regions. */
static int enable_dirty_bits(struct kvm *kvm, const struct kvm_enable_cap *cap)
{
	if (!kvm_dirty_tracking_takes(cap, 0) || !kvm_mmu_has_dirty_bits(kvm))
		return -EINVAL;

	return set_early(kvm, set_dirty_bits);
}

/* Userspace that fetches without write-protecting must be able to re-arm. */
static int enable_fetch(struct kvm *kvm, const struct kvm_enable_cap *cap)
{
	if (!kvm_write_protect_enabled(kvm))
		return -EINVAL;

	return kvm_dirty_tracking_enable_cap(kvm, cap);
}

/* Whether a VM can have it, and whether it would give up PML. */
static int check_write_protect(void)
{
	if (!IS_ENABLED(CONFIG_X86_64))
		return 0;

	return 1 | (kvm_x86_ops.cpu_dirty_log_size ?
		    KVM_WRITE_PROTECT_DISABLES_CPU_LOG : 0);
}

int kvm_arch_dirty_tracking_check_extension(struct kvm *kvm, long ext)
{
	if (!READ_ONCE(allowed))
		return 0;

	switch (ext) {
	case KVM_CAP_WRITE_PROTECT_ALL_MEM:
		return check_write_protect();
	case KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT:
		return IS_ENABLED(CONFIG_X86_64);
	case KVM_CAP_EAGER_PAGE_SPLIT:
		return 1;
	case KVM_CAP_DIRTY_BITS:
		return kvm_mmu_has_dirty_bits(kvm) ?
		       1 | KVM_DIRTY_BITS_CAN_WRPROT : 0;
	default:
		return kvm_dirty_tracking_check_extension(ext);
	}
}

int kvm_arch_dirty_tracking_enable_cap(struct kvm *kvm,
				       const struct kvm_enable_cap *cap)
{
	if (!READ_ONCE(allowed))
		return -EINVAL;

	switch (cap->cap) {
	case KVM_CAP_WRITE_PROTECT_ALL_MEM:
		return enable_write_protect(kvm, cap);
	case KVM_CAP_EAGER_PAGE_SPLIT:
		return enable_eager_split(kvm, cap);
	case KVM_CAP_DIRTY_BITS:
		return enable_dirty_bits(kvm, cap);
	case KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT:
		return enable_fetch(kvm, cap);
	default:
		return kvm_dirty_tracking_enable_cap(kvm, cap);
	}
}

void kvm_arch_dirty_bitmap_drop(struct kvm_memory_slot *slot)
{
	kvm_mmu_drop_slot_dirty_bits(slot);
}

void kvm_arch_sync_dirty_log_range(struct kvm *kvm, struct kvm_memory_slot *slot,
				   u64 first, u64 pages)
{
	if (kvm_dirty_bits_enabled(kvm))
		kvm_mmu_collect_slot_dirty_bits(kvm, slot, first, pages);
	else
		kvm_arch_sync_dirty_log(kvm, slot);
}

static bool is_page_range(u64 gpa, u64 size)
{
	return PAGE_ALIGNED(gpa | size) && size && gpa + size > gpa;
}

static long write_protect_all(struct kvm *kvm)
{
	bool collects = kvm_dirty_bits_enabled(kvm);

	if (!kvm_write_protect_enabled(kvm))
		return -ENXIO;

	/* A collect relies on a TLB flush of each SPTE that is wrprot. */
	if (collects)
		mutex_lock(&kvm->slots_lock);
	kvm_mmu_write_protect_all(kvm);
	if (collects)
		mutex_unlock(&kvm->slots_lock);
	atomic64_inc(&kvm->stat.write_protect_all);
	return 0;
}

/* The argument of KVM_WRITE_PROTECT_RANGE and of the ioctls like it. */
struct tracked_range {
	__u64 gpa;
	__u64 size;
	__u64 flags;
};

static_assert(sizeof(struct tracked_range) == sizeof(struct kvm_write_protect_range));
static_assert(sizeof(struct tracked_range) == sizeof(struct kvm_collect_dirty_bits));
static_assert(sizeof(struct tracked_range) == sizeof(struct kvm_split_huge_pages));

typedef gfn_t (*range_fn)(struct kvm *kvm, gfn_t start, gfn_t end);

/*
 * Calls @fn for the range that userspace gives, under slots_lock; or @fn_flag,
 * which may be NULL, if userspace gives @flag.  Either returns where it stopped,
 * and userspace gets the rest of the range back.  Returns 1 if there is a rest,
 * 0 if not, or -errno.
 */
static long go_through(struct kvm *kvm, void __user *argp, range_fn fn,
		       u64 flag, range_fn fn_flag)
{
	struct tracked_range range;
	gfn_t end, stop;

	if (copy_from_user(&range, argp, sizeof(range)))
		return -EFAULT;
	if (range.flags & ~flag || !is_page_range(range.gpa, range.size))
		return -EINVAL;
	if (range.flags)
		fn = fn_flag;

	end = gpa_to_gfn(range.gpa + range.size);
	mutex_lock(&kvm->slots_lock);
	stop = fn(kvm, gpa_to_gfn(range.gpa), end);
	mutex_unlock(&kvm->slots_lock);

	range.gpa = gfn_to_gpa(stop);
	range.size = gfn_to_gpa(end - stop);
	if (copy_to_user(argp, &range, sizeof(range)))
		return -EFAULT;
	return range.size != 0;
}

static long write_protect_range(struct kvm *kvm, void __user *argp)
{
	long left;

	if (!kvm_write_protect_enabled(kvm))
		return -ENXIO;

	left = go_through(kvm, argp, kvm_mmu_write_protect_range, 0, NULL);
	if (left >= 0)
		atomic64_inc(&kvm->stat.write_protect_range);
	return left > 0 ? -EINTR : left;
}

static long collect_dirty_bits(struct kvm *kvm, void __user *argp)
{
	long left;

	if (!kvm_dirty_bits_enabled(kvm))
		return -ENXIO;

	left = go_through(kvm, argp, kvm_mmu_collect_dirty_bits,
			  KVM_COLLECT_DIRTY_BITS_WRPROT,
			  kvm_mmu_collect_and_wrprot);
	return left > 0 ? -EINTR : left;
}

static long split_huge_pages(struct kvm *kvm, void __user *argp)
{
	long left;

	if (!READ_ONCE(kvm->arch.dirty_tracking.splits))
		return -ENXIO;

	left = go_through(kvm, argp, kvm_split_range, 0, NULL);
	return left > 0 ? 0 : left;
}

long kvm_arch_dirty_tracking_vm_ioctl(struct kvm *kvm, unsigned int ioctl,
				      unsigned long arg)
{
	void __user *argp = (void __user *)arg;

	switch (ioctl) {
	case KVM_WRITE_PROTECT_ALL_MEM:
		return write_protect_all(kvm);
	case KVM_WRITE_PROTECT_RANGE:
		return write_protect_range(kvm, argp);
	case KVM_SPLIT_HUGE_PAGES:
		return split_huge_pages(kvm, argp);
	case KVM_COLLECT_DIRTY_BITS:
		return collect_dirty_bits(kvm, argp);
	default:
		return kvm_dirty_tracking_vm_ioctl(kvm, ioctl, arg);
	}
}
