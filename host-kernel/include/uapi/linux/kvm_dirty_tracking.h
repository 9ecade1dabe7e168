/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * Fast dirty tracking for KVM: capabilities, ioctls and structures that
 * upstream does not have.  Their numbers are private: those of the capabilities
 * are far above upstream's, and those of the ioctls, 0xf0 to 0xf5, above them.
 * Documentation/virt/kvm/x86/dirty-tracking-api.rst describes each.
 */
#ifndef _UAPI_LINUX_KVM_DIRTY_TRACKING_H
#define _UAPI_LINUX_KVM_DIRTY_TRACKING_H

#include <linux/kvm.h>

/*
 * Capabilities of a VM, all off until KVM_ENABLE_CAP turns them on.
 * KVM_CHECK_EXTENSION returns 1 for each that the host has.  To that it adds
 * KVM_WRITE_PROTECT_DISABLES_CPU_LOG for KVM_CAP_WRITE_PROTECT_ALL_MEM, if that
 * is so, and KVM_DIRTY_BITS_CAN_WRPROT for KVM_CAP_DIRTY_BITS.
 */
#define KVM_CAP_WRITE_PROTECT_ALL_MEM		0x46440001
#define KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT	0x46440002
#define KVM_CAP_DIRTY_BITMAP_FD			0x46440003
#define KVM_CAP_EAGER_PAGE_SPLIT		0x46440004
#define KVM_CAP_DIRTY_BITS			0x46440005

/*
 * The host's CPUs log by themselves which pages a guest writes (PML).  KVM does
 * not use that log for a VM that enables KVM_CAP_WRITE_PROTECT_ALL_MEM, so the
 * guest takes a fault for each page that it writes, unless it enables
 * KVM_CAP_DIRTY_BITS as well.
 */
#define KVM_WRITE_PROTECT_DISABLES_CPU_LOG	(1U << 1)

/* KVM_COLLECT_DIRTY_BITS knows the flag KVM_COLLECT_DIRTY_BITS_WRPROT. */
#define KVM_DIRTY_BITS_CAN_WRPROT		(1U << 1)

/*
 * KVM_ENABLE_CAP(KVM_CAP_EAGER_PAGE_SPLIT): args[0] is one of these; args[1] is
 * the most that one ioctl may split, in bytes, either 0 (no limit) or a
 * multiple of 2 MiB.
 */
#define KVM_EAGER_PAGE_SPLIT_DEFAULT	0	/* as kvm.eager_page_split says */
#define KVM_EAGER_PAGE_SPLIT_ON		1
#define KVM_EAGER_PAGE_SPLIT_OFF	2

/*
 * In padding1 of struct kvm_dirty_log: copy the dirty bitmap and clear it, but
 * leave the page tables alone.
 */
#define KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT	(1U << 0)

/*
 * Write-protect all guest memory; on return no vCPU can write without logging.
 */
#define KVM_WRITE_PROTECT_ALL_MEM	_IO(KVMIO, 0xf0)

/*
 * The same for [gpa, gpa + size), widened to whole 2 MiB.  gpa and size return
 * the rest of the range, which is empty unless a signal was pending (EINTR);
 * the same call continues there.
 */
struct kvm_write_protect_range {
	__u64 gpa;		/* in and out */
	__u64 size;		/* in and out */
	__u64 flags;		/* must be 0 */
};

#define KVM_WRITE_PROTECT_RANGE	\
	_IOWR(KVMIO, 0xf1, struct kvm_write_protect_range)

/*
 * Returns a file descriptor whose mmap() maps the dirty bitmap of the slot
 * itself.  Bit n of the bitmap stands for page n of the slot.  Bit n of the
 * summary stands for KVM_DIRTY_SUMMARY_PAGES pages, from page n *
 * KVM_DIRTY_SUMMARY_PAGES on.  KVM sets it after the bit in the bitmap, so
 * userspace must clear it before it reads the bitmap.  Both are little-endian
 * arrays of 64-bit words.  Sizes are whole pages, and offsets are those to pass
 * to mmap().
 */
#define KVM_DIRTY_SUMMARY_PAGES	512

struct kvm_dirty_bitmap_fd {
	__u32 slot;		/* in: address space in bits 16-31 */
	__u32 flags;		/* in: must be 0 */
	__u64 bitmap_offset;	/* out */
	__u64 bitmap_size;
	__u64 summary_offset;
	__u64 summary_size;
};

#define KVM_GET_DIRTY_BITMAP_FD	\
	_IOWR(KVMIO, 0xf2, struct kvm_dirty_bitmap_fd)

/*
 * Split the huge pages in [gpa, gpa + size) down to 4 KiB.  Stops after the
 * chunk size or when a signal is pending; gpa and size return the rest of the
 * range, and size is 0 if there is none.
 */
struct kvm_split_huge_pages {
	__u64 gpa;		/* in and out */
	__u64 size;		/* in and out */
	__u64 flags;		/* must be 0 */
};

#define KVM_SPLIT_HUGE_PAGES	\
	_IOWR(KVMIO, 0xf3, struct kvm_split_huge_pages)

/*
 * Move the CPUs' dirty bits of [gpa, gpa + size), widened to whole 2 MiB, to
 * the dirty bitmaps of the slots there that are logged.  Userspace harvests the
 * bitmaps afterwards, and need not re-arm.  A signal stops it as it does
 * KVM_WRITE_PROTECT_RANGE.
 */
struct kvm_collect_dirty_bits {
	__u64 gpa;		/* in and out */
	__u64 size;		/* in and out */
	__u64 flags;
};

/* Write-protect the pages that are found: the next write to each is a fault. */
#define KVM_COLLECT_DIRTY_BITS_WRPROT	(1ULL << 0)

#define KVM_COLLECT_DIRTY_BITS	\
	_IOWR(KVMIO, 0xf5, struct kvm_collect_dirty_bits)

#endif
