/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fast dirty tracking, the part that is the same for all architectures: the
 * dirty bitmap as a file descriptor, and fetching the log without
 * write-protecting.  An architecture that offers it selects
 * HAVE_KVM_DIRTY_TRACKING and calls the functions at the end of this file from
 * its ioctls.
 */
#ifndef __LINUX_KVM_DIRTY_TRACKING_H
#define __LINUX_KVM_DIRTY_TRACKING_H

#include <linux/bitops.h>
#include <linux/jump_label.h>
#include <linux/kref.h>
#include <linux/types.h>

#include <uapi/linux/kvm_dirty_tracking.h>

struct kvm;
struct kvm_memory_slot;

/* The state of a VM; in struct kvm.  Only ever turned on, under slots_lock. */
struct kvm_dirty_tracking {
	bool log_without_write_protect;
	bool bitmap_fd;
	/*
	 * Set by an architecture that logs in ways for which there must be a
	 * bitmap: dirty rings cannot be enabled any more.  Under kvm->lock too.
	 */
	bool needs_bitmap;
};

#ifdef CONFIG_HAVE_KVM_DIRTY_TRACKING

/*
 * A slot's dirty bitmap that userspace can map.  One allocation holds the
 * bitmap, the summary and, not to be mapped, the second bitmap that
 * KVM_GET_DIRTY_LOG and KVM_CLEAR_DIRTY_LOG need.  The slot has a reference, and
 * so has each file.
 *
 * Userspace can write to the first two.  KVM sets bits in them, and trusts
 * nothing that it reads from them.
 */
struct kvm_dirty_bitmap {
	struct kref ref;
	unsigned long *bitmap;
	unsigned long *summary;
	unsigned long *second;
	size_t bitmap_size;
	size_t summary_size;
};

/* On once a VM wants such bitmaps: others do not pay for looking at a slot. */
DECLARE_STATIC_KEY_FALSE(kvm_dirty_bitmap_used);

/* Whether the slot has one.  A macro, as the slot is not known here. */
#define kvm_slot_has_shared_bitmap(slot)			\
	(static_branch_unlikely(&kvm_dirty_bitmap_used) &&	\
	 (slot)->shared_bitmap)

/* After the bit of page @rel_gfn of the slot has been set. */
static inline void kvm_dirty_bitmap_summarize(struct kvm_dirty_bitmap *bitmap,
					      unsigned long rel_gfn)
{
	unsigned long group = rel_gfn / KVM_DIRTY_SUMMARY_PAGES;

	/*
	 * That bit before the look at the summary; pairs with the exchange by
	 * which userspace clears the summary before it looks at the bitmap.
	 */
	smp_mb__after_atomic();
	if (!test_bit_le(group, bitmap->summary))
		set_bit_le(group, bitmap->summary);
}

/* Logs the pages that @bits says of word @word of the bitmap. */
void kvm_dirty_bitmap_log(struct kvm_dirty_bitmap *bitmap, unsigned long word,
			  unsigned long bits);

/*
 * Gives the slot a bitmap that can be mapped.  -ENOMEM if there is no memory.
 */
int kvm_dirty_bitmap_alloc(struct kvm *kvm, struct kvm_memory_slot *slot);

/*
 * Drops the slot's reference, after kvm_arch_dirty_bitmap_drop().
 */
void kvm_dirty_bitmap_drop(struct kvm_memory_slot *slot);

/*
 * The architecture's part: the slot has its bitmap for the last time, for which
 * the architecture logs what it still has to, and frees what it keeps for it.
 * Nobody else uses the slot any more.
 */
void kvm_arch_dirty_bitmap_drop(struct kvm_memory_slot *slot);

/*
 * The pages that word @i of the slot's bitmap can speak of: what userspace put
 * beyond must not be taken for pages.
 */
unsigned long kvm_dirty_word_mask(const struct kvm_memory_slot *slot,
				  unsigned long i);

/* Whether @log has flags, and the VM looks at them. */
bool kvm_dirty_log_has_flags(struct kvm *kvm, const struct kvm_dirty_log *log);

/*
 * What KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT asks for: copies the slot's bitmap
 * to userspace and clears it, under slots_lock.  -EINVAL if @log has another
 * flag; -EFAULT if it cannot be copied, and all of it stays dirty.
 */
int kvm_fetch_dirty_log(struct kvm_memory_slot *slot,
			const struct kvm_dirty_log *log);

/*
 * What the VM's ioctls ask if they know no better.  Not for this file: 0,
 * -EINVAL and -ENOTTY.
 */
int kvm_dirty_tracking_check_extension(long ext);
int kvm_dirty_tracking_enable_cap(struct kvm *kvm,
				  const struct kvm_enable_cap *cap);
long kvm_dirty_tracking_vm_ioctl(struct kvm *kvm, unsigned int ioctl,
				 unsigned long arg);

#else

/* No slot has one, and no VM can ask for it. */
struct kvm_dirty_bitmap {
	unsigned long *second;
};

#define kvm_slot_has_shared_bitmap(slot)	false

static inline void kvm_dirty_bitmap_summarize(struct kvm_dirty_bitmap *bitmap,
					      unsigned long rel_gfn) {}

static inline int kvm_dirty_bitmap_alloc(struct kvm *kvm,
					 struct kvm_memory_slot *slot)
{
	return -ENOMEM;
}

static inline void kvm_dirty_bitmap_drop(struct kvm_memory_slot *slot) {}

static inline unsigned long kvm_dirty_word_mask(const struct kvm_memory_slot *slot,
						unsigned long i)
{
	return ~0UL;
}

static inline bool kvm_dirty_log_has_flags(struct kvm *kvm,
					   const struct kvm_dirty_log *log)
{
	return false;
}

static inline int kvm_fetch_dirty_log(struct kvm_memory_slot *slot,
				      const struct kvm_dirty_log *log)
{
	return -EINVAL;
}

#endif /* CONFIG_HAVE_KVM_DIRTY_TRACKING */

#endif
