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
#include <linux/sched.h>
#include <linux/types.h>

#include <uapi/linux/kvm_dirty_tracking.h>

struct kvm;
struct kvm_enable_cap;
struct kvm_memory_slot;

/* The state of a VM; in struct kvm.  Only ever turned on, under slots_lock. */
struct kvm_dirty_tracking {
	bool log_without_write_protect;
	bool bitmap_fd;
	/*
	 * Set by an architecture, under kvm->lock as well, if the VM is going
	 * to log in a way that works with bitmaps only.  Dirty rings cannot be
	 * enabled any more then.
	 */
	bool needs_bitmap;
};

#ifdef CONFIG_HAVE_KVM_DIRTY_TRACKING

/*
 * A slot's dirty bitmap that userspace can map.  One allocation holds the
 * bitmap, the summary and, not to be mapped, the second bitmap that
 * KVM_GET_DIRTY_LOG and KVM_CLEAR_DIRTY_LOG need.  The slot has a reference,
 * and so has each file.
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

/*
 * On once a VM has enabled such bitmaps, so that until then no VM checks slots.
 */
DECLARE_STATIC_KEY_FALSE(kvm_dirty_bitmap_used);

/* Whether the slot has one.  A macro, as the slot's type is incomplete here. */
#define kvm_slot_has_shared_bitmap(slot)			\
	(static_branch_unlikely(&kvm_dirty_bitmap_used) &&	\
	 (slot)->shared_bitmap)

/* To be called after the bit of page @rel_gfn of the slot has been set. */
static inline void kvm_dirty_bitmap_summarize(struct kvm_dirty_bitmap *bitmap,
					      unsigned long rel_gfn)
{
	unsigned long group = rel_gfn / KVM_DIRTY_SUMMARY_PAGES;

	/*
	 * That bit must be visible before the summary is tested; pairs with the
	 * exchange by which userspace clears a summary bit before it reads the
	 * bitmap.
	 */
	smp_mb__after_atomic();
	if (!test_bit_le(group, bitmap->summary))
		set_bit_le(group, bitmap->summary);
}

/* Sets the bit of page @rel_gfn of the slot, and its summary bit. */
static inline void kvm_dirty_bitmap_mark(struct kvm_dirty_bitmap *bitmap,
					 unsigned long rel_gfn)
{
	set_bit_le(rel_gfn, bitmap->bitmap);
	kvm_dirty_bitmap_summarize(bitmap, rel_gfn);
}

/*
 * A bitmap has up to 2^25 words.  Who goes through all of them calls this for each, so
 * that others run meanwhile.  May sleep.
 */
static inline void kvm_dirty_bitmap_resched(unsigned long word)
{
	if (!(word % 4096))
		cond_resched();
}

/* Sets @bits in word @word of the bitmap, and the summary bit of that word. */
void kvm_dirty_bitmap_log(struct kvm_dirty_bitmap *bitmap, unsigned long word,
			  unsigned long bits);

/* Gives the slot a bitmap that can be mapped.  Returns 0 or -ENOMEM. */
int kvm_dirty_bitmap_alloc(struct kvm *kvm, struct kvm_memory_slot *slot);

/* Calls kvm_arch_dirty_bitmap_drop(), then drops the slot's reference. */
void kvm_dirty_bitmap_drop(struct kvm_memory_slot *slot);

/*
 * Implemented by the architecture: logs pages that it has not logged yet in the
 * slot's bitmap, which is about to go, and frees its own state for the bitmap.
 * No other thread uses the slot any more.
 */
void kvm_arch_dirty_bitmap_drop(struct kvm_memory_slot *slot);

/*
 * Implemented by the architecture: what kvm_arch_sync_dirty_log() does to a slot, at
 * least for its @pages pages from its page @first on.  Under slots_lock; may sleep.
 */
void kvm_arch_sync_dirty_log_range(struct kvm *kvm, struct kvm_memory_slot *slot,
				   u64 first, u64 pages);

/*
 * The bits of word @i of the slot's bitmap that stand for pages.  Userspace may
 * have set bits beyond the slot's end, which must not be taken for pages.
 */
unsigned long kvm_dirty_word_mask(const struct kvm_memory_slot *slot,
				  unsigned long i);

/* Whether @log has flags, and the VM has enabled them. */
bool kvm_dirty_log_has_flags(struct kvm *kvm, const struct kvm_dirty_log *log);

/*
 * KVM_GET_DIRTY_LOG with KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT: has the slot's
 * bitmap brought up to date, copies it to userspace and clears it, under
 * slots_lock.  Returns -EINVAL if @log has another flag, having done nothing, and
 * -EFAULT if the bitmap cannot be copied; all of its pages stay dirty then.
 */
int kvm_fetch_dirty_log(struct kvm *kvm, struct kvm_memory_slot *slot,
			const struct kvm_dirty_log *log);

/*
 * Whether @cap has no flags, and nothing in its arguments but for the first @used.
 * The others must be 0, so that they can get a meaning.
 */
bool kvm_dirty_tracking_takes(const struct kvm_enable_cap *cap, unsigned int used);

/*
 * Called by the architecture's ioctls on a VM for capabilities and ioctls that
 * it does not know.  Return 0, -EINVAL and -ENOTTY for those that are unknown
 * here, too.
 */
int kvm_dirty_tracking_check_extension(long ext);
int kvm_dirty_tracking_enable_cap(struct kvm *kvm,
				  const struct kvm_enable_cap *cap);
long kvm_dirty_tracking_vm_ioctl(struct kvm *kvm, unsigned int ioctl,
				 unsigned long arg);

#else

/* No slot has a bitmap that can be mapped, and no VM can ask for one. */
struct kvm_dirty_bitmap {
	unsigned long *second;
};

static inline bool
kvm_slot_has_shared_bitmap(const struct kvm_memory_slot *slot)
{
	return false;
}

static inline void kvm_dirty_bitmap_mark(struct kvm_dirty_bitmap *bitmap,
					 unsigned long rel_gfn) {}

static inline int kvm_dirty_bitmap_alloc(struct kvm *kvm,
					 struct kvm_memory_slot *slot)
{
	return -ENOMEM;
}

static inline void kvm_dirty_bitmap_drop(struct kvm_memory_slot *slot) {}

void kvm_arch_sync_dirty_log(struct kvm *kvm, struct kvm_memory_slot *slot);

static inline void kvm_arch_sync_dirty_log_range(struct kvm *kvm,
						 struct kvm_memory_slot *slot,
						 u64 first, u64 pages)
{
	kvm_arch_sync_dirty_log(kvm, slot);
}

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

static inline int kvm_fetch_dirty_log(struct kvm *kvm,
				      struct kvm_memory_slot *slot,
				      const struct kvm_dirty_log *log)
{
	return -EINVAL;
}

#endif /* CONFIG_HAVE_KVM_DIRTY_TRACKING */

#endif
