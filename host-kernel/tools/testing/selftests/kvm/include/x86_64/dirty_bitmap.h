/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Dirty bitmaps, with one bit per page of PAGE_SIZE: those that a test keeps,
 * and those that KVM shares by KVM_GET_DIRTY_BITMAP_FD.
 *
 * KVM sets the bit of a page and then the bit of its group in the summary.  A
 * group is KVM_DIRTY_SUMMARY_PAGES pages.
 */
#ifndef SELFTEST_KVM_DIRTY_BITMAP_H
#define SELFTEST_KVM_DIRTY_BITMAP_H

#include <string.h>

#include <linux/bitmap.h>
#include <linux/bitops.h>
#include <linux/kvm_dirty_tracking.h>

#include "kvm_util.h"

/* The dirty bitmap of a slot, mapped. */
struct shared_bitmap {
	int fd;
	uint64_t npages;
	struct kvm_dirty_bitmap_fd desc;
	unsigned long *bitmap;
	unsigned long *summary;
};

/*
 * Counts the bits that are set in the words that hold @npages bits.  It counts
 * the bits of the last word that stand for no page, too.
 */
uint64_t count_bits(const unsigned long *bitmap, uint64_t npages);

/*
 * Fails the test unless the pages that are set in @bitmap, of @npages, are @first,
 * @first + @stride, ... below @first + @n.  @what says after what that should be.
 */
void expect_stride(const unsigned long *bitmap, uint64_t npages, uint64_t first,
		   uint64_t n, uint64_t stride, const char *what);

/*
 * Fills @desc with ones but for @slot and @flags, so that a field that KVM does
 * not write shows.  Returns the file, which the caller closes, or -1 and errno.
 */
static inline int __vm_get_dirty_bitmap_fd(struct kvm_vm *vm, uint32_t slot,
					   uint32_t flags,
					   struct kvm_dirty_bitmap_fd *desc)
{
	memset(desc, 0xff, sizeof(*desc));
	desc->slot = slot;
	desc->flags = flags;
	return __vm_ioctl(vm, KVM_GET_DIRTY_BITMAP_FD, desc);
}

/*
 * Maps the dirty bitmap of @slot, which has @npages pages and is logged, and its
 * summary.  Fills @s, which the caller gives to shared_bitmap_unmap().  Fails
 * the test if KVM refuses.
 */
void shared_bitmap_map(struct kvm_vm *vm, uint32_t slot, uint64_t npages,
		       struct shared_bitmap *s);

/* Unmaps and closes what shared_bitmap_map() made.  The slot may be gone. */
void shared_bitmap_unmap(struct shared_bitmap *s);

/*
 * Moves the dirty pages of [@first, @first + @n) from @s to @bitmap: clears
 * their bits in @s, and sets them in @bitmap, which has a bit for each page of
 * the slot and is not cleared before.  @first and @n are in pages, and the range
 * covers whole groups, but for the end of the slot.  Writes may go on meanwhile.
 *
 * Returns how many pages it moved, those included that @bitmap had already.
 */
uint64_t shared_bitmap_harvest(struct shared_bitmap *s, uint64_t first,
			       uint64_t n, unsigned long *bitmap);

#endif /* SELFTEST_KVM_DIRTY_BITMAP_H */
