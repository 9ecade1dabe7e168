/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The ioctls of fast dirty tracking.  As elsewhere in the library, a function
 * whose name begins with __ returns what the ioctl does, -1 and errno included,
 * and its sibling fails the test if the ioctl fails.  Sizes are in bytes.
 */
#ifndef SELFTEST_KVM_DIRTY_TRACKING_H
#define SELFTEST_KVM_DIRTY_TRACKING_H

#include <errno.h>
#include <string.h>

#include <linux/kvm_dirty_tracking.h>

#include "kvm_util.h"
#include "test_util.h"

/* Fails the test unless @call returns -1 and sets errno to @err. */
#define TEST_ERRNO(call, err)						\
do {									\
	int __ret = (call);						\
									\
	TEST_ASSERT(__ret == -1 && errno == (err),			\
		    "%s gave %d, errno %d (%s), instead of errno %d (%s)", \
		    #call, __ret, errno, strerror(errno),		\
		    (err), strerror(err));				\
} while (0)

/* The size of a range of guest memory that begins at 0 and leaves nothing out. */
#define EVERYTHING		(~0ULL << PAGE_SHIFT)

#define NR_DIRTY_BITS_CAPS	3

/* What KVM_COLLECT_DIRTY_BITS takes, in this order, before the first vCPU. */
extern const uint32_t dirty_bits_caps[NR_DIRTY_BITS_CAPS];

/*
 * Returns a copy of the @size bytes at @data, at most a page of them, in a page
 * that neither the test nor an ioctl can write to.  The caller may munmap() the
 * page.
 */
void *read_only_copy(const void *data, size_t size);

static inline int __vm_enable_cap_args(struct kvm_vm *vm, uint32_t cap,
				       uint32_t flags, uint64_t arg0,
				       uint64_t arg1)
{
	struct kvm_enable_cap enable = {
		.cap = cap,
		.flags = flags,
		.args = { arg0, arg1 },
	};

	return __vm_ioctl(vm, KVM_ENABLE_CAP, &enable);
}

/*
 * Fails the test unless KVM refuses (EINVAL) to enable @cap if one of its four
 * arguments, but for the first @used, is not 0.
 */
void expect_unused_args(struct kvm_vm *vm, uint32_t cap, int used);

static inline int __vm_write_protect_all(struct kvm_vm *vm)
{
	return __vm_ioctl(vm, KVM_WRITE_PROTECT_ALL_MEM, NULL);
}

static inline void vm_write_protect_all(struct kvm_vm *vm)
{
	vm_ioctl(vm, KVM_WRITE_PROTECT_ALL_MEM, NULL);
}

static inline int __vm_write_protect_range(struct kvm_vm *vm, uint64_t gpa,
					   uint64_t size, uint64_t flags)
{
	struct kvm_write_protect_range range = {
		.gpa = gpa,
		.size = size,
		.flags = flags,
	};

	return __vm_ioctl(vm, KVM_WRITE_PROTECT_RANGE, &range);
}

static inline void vm_write_protect_range(struct kvm_vm *vm, uint64_t gpa,
					  uint64_t size)
{
	int ret = __vm_write_protect_range(vm, gpa, size, 0);

	TEST_ASSERT(!ret, KVM_IOCTL_ERROR(KVM_WRITE_PROTECT_RANGE, ret));
}

static inline int __vm_get_dirty_log(struct kvm_vm *vm, uint32_t slot,
				     uint32_t flags, void *bitmap)
{
	struct kvm_dirty_log log = {
		.slot = slot,
		.padding1 = flags,
		.dirty_bitmap = bitmap,
	};

	return __vm_ioctl(vm, KVM_GET_DIRTY_LOG, &log);
}

/* Copies and clears the bitmap of @slot, and leaves the page tables alone. */
static inline void vm_get_dirty_log_no_wp(struct kvm_vm *vm, uint32_t slot,
					  void *bitmap)
{
	int ret = __vm_get_dirty_log(vm, slot,
				     KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
				     bitmap);

	TEST_ASSERT(!ret, KVM_IOCTL_ERROR(KVM_GET_DIRTY_LOG, ret));
}

static inline int __vm_split_huge_pages(struct kvm_vm *vm,
					struct kvm_split_huge_pages *split)
{
	return __vm_ioctl(vm, KVM_SPLIT_HUGE_PAGES, split);
}

static inline int __vm_collect_dirty_bits(struct kvm_vm *vm, uint64_t gpa,
					  uint64_t size, uint64_t flags)
{
	struct kvm_collect_dirty_bits range = {
		.gpa = gpa,
		.size = size,
		.flags = flags,
	};

	return __vm_ioctl(vm, KVM_COLLECT_DIRTY_BITS, &range);
}

static inline void vm_collect_dirty_bits_flags(struct kvm_vm *vm, uint64_t gpa,
					       uint64_t size, uint64_t flags)
{
	int ret = __vm_collect_dirty_bits(vm, gpa, size, flags);

	TEST_ASSERT(!ret, KVM_IOCTL_ERROR(KVM_COLLECT_DIRTY_BITS, ret));
}

static inline void vm_collect_dirty_bits(struct kvm_vm *vm, uint64_t gpa,
					 uint64_t size)
{
	vm_collect_dirty_bits_flags(vm, gpa, size, 0);
}

/* How many signals the last begin_alarms() has led to. */
extern int nr_alarms;

/*
 * Sends the process a SIGALRM every 300 us until end_alarms(), or less often where
 * signals are slow.  A signal ends an ioctl that looks for one.
 */
void begin_alarms(void);
void end_alarms(void);

/*
 * Calls the ioctl @cmd, which takes a struct kvm_write_protect_range or one of
 * the same shape, until nothing of [@gpa, @gpa + @size) is left, as signals may
 * end a call.  Fails the test if a call that a signal ends has made no progress,
 * or fails otherwise.  Returns how many calls it made.
 */
uint64_t call_until_done(struct kvm_vm *vm, unsigned long cmd, uint64_t gpa,
			 uint64_t size);

#endif /* SELFTEST_KVM_DIRTY_TRACKING_H */
