// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests of KVM_CAP_DIRTY_BITMAP_FD: the dirty bitmap of a slot, shared with
 * userspace, which can write anything to it at any time.
 */
#define _GNU_SOURCE /* for program_invocation_short_name */
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "kvm_util.h"
#include "test_util.h"
#include "processor.h"
#include "dirty_bitmap.h"
#include "dirty_tracking.h"
#include "mmu_stats.h"
#include "named_tests.h"
#include "selftest_release.h"
#include "test_mem.h"
#include "test_random.h"
#include "touching_guest.h"

#define LOG		KVM_MEM_LOG_DIRTY_PAGES
#define NEXT_SLOT	2

static const uint32_t fd_cap[] = { KVM_CAP_DIRTY_BITMAP_FD };

/* A VM with one slot, which is logged and its bitmap mapped. */
struct rig {
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	struct test_mem mem;
	struct shared_bitmap shared;
	unsigned long *got;
};

static bool protects_all(void)
{
	return kvm_has_cap(KVM_CAP_WRITE_PROTECT_ALL_MEM);
}

static void rig_create(struct rig *rig, uint64_t npages, uint64_t manual)
{
	memset(rig, 0, sizeof(*rig));
	rig->mem.slot = TEST_SLOT;
	rig->mem.gpa = TEST_GPA + 5 * PAGE_SIZE;
	rig->mem.npages = npages;
	TEST_ASSERT(test_mem_map(&rig->mem, VM_MEM_SRC_ANONYMOUS), "no memory");

	rig->vm = __vm_create(VM_SHAPE_DEFAULT, 1, 0);
	vm_enable_cap(rig->vm, KVM_CAP_DIRTY_BITMAP_FD, 0);
	if (manual)
		vm_enable_cap(rig->vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, manual);
	if (protects_all())
		vm_enable_cap(rig->vm, KVM_CAP_WRITE_PROTECT_ALL_MEM, 0);
	rig->vcpu = vm_vcpu_add(rig->vm, 0, guest_toucher);
	vcpu_args_set(rig->vcpu, 1, 0);

	guest_map(rig->vm, TEST_GPA, npages * PAGE_SIZE + PG_SIZE_2M);
	test_mem_set(rig->vm, &rig->mem, LOG);
	shared_bitmap_map(rig->vm, TEST_SLOT, npages, &rig->shared);
	rig->got = bitmap_zalloc(npages);
}

static void rig_free(struct rig *rig)
{
	shared_bitmap_unmap(&rig->shared);
	kvm_vm_free(rig->vm);
	test_mem_unmap(&rig->mem);
	free(rig->got);
}

static void rig_write(struct rig *rig, uint64_t page, uint64_t value)
{
	guest_write(rig->vcpu, rig->mem.gpa + page * PAGE_SIZE, value);
}

/* Makes the next write to each page show. */
static void rig_rearm(struct rig *rig)
{
	if (protects_all()) {
		vm_write_protect_all(rig->vm);
	} else {
		test_mem_set(rig->vm, &rig->mem, 0);
		test_mem_set(rig->vm, &rig->mem, LOG);
		shared_bitmap_unmap(&rig->shared);
		shared_bitmap_map(rig->vm, TEST_SLOT, rig->mem.npages,
				  &rig->shared);
	}
}

static uint64_t bits_of_map(const void *map, uint64_t size)
{
	return count_bits(map, size * 8);
}

/* KVM can read what it is asked, but not answer. */
static void refuse_answer(struct kvm_vm *vm, uint32_t slot)
{
	struct kvm_dirty_bitmap_fd desc = { .slot = slot };
	struct kvm_dirty_bitmap_fd *page = read_only_copy(&desc, sizeof(desc));

	TEST_ERRNO(__vm_ioctl(vm, KVM_GET_DIRTY_BITMAP_FD, page), EFAULT);
	munmap(page, PAGE_SIZE);
}

static void test_opt_in(void)
{
	struct kvm_dirty_bitmap_fd desc;
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = 100,
	};
	struct test_mem other = {
		.slot = NEXT_SLOT, .gpa = TEST_GPA + PG_SIZE_2M, .npages = 100,
	};
	struct rlimit limit, few;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int fd, i;

	TEST_ASSERT(kvm_check_cap(KVM_CAP_DIRTY_BITMAP_FD) > 0, "no capability");
	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	TEST_ASSERT(test_mem_map(&other, VM_MEM_SRC_ANONYMOUS), "no memory");
	vm = vm_create_with_one_vcpu(&vcpu, guest_toucher);
	test_mem_set(vm, &mem, LOG);
	TEST_ERRNO(__vm_get_dirty_bitmap_fd(vm, TEST_SLOT, 0, &desc), ENXIO);
	TEST_ERRNO(__vm_enable_cap_args(vm, KVM_CAP_DIRTY_BITMAP_FD, 0, 1, 0),
		   EINVAL);
	TEST_ERRNO(__vm_enable_cap_args(vm, KVM_CAP_DIRTY_BITMAP_FD, 1, 0, 0),
		   EINVAL);
	expect_unused_args(vm, KVM_CAP_DIRTY_BITMAP_FD, 0);
	TEST_ERRNO(__vm_get_dirty_bitmap_fd(vm, TEST_SLOT, 0, &desc), ENXIO);

	/* Even after vCPUs exist, but for slots that start logging then. */
	vm_enable_cap(vm, KVM_CAP_DIRTY_BITMAP_FD, 0);
	TEST_ERRNO(__vm_get_dirty_bitmap_fd(vm, TEST_SLOT, 0, &desc), ENOENT);
	test_mem_set(vm, &other, 0);
	TEST_ERRNO(__vm_get_dirty_bitmap_fd(vm, NEXT_SLOT, 0, &desc), ENOENT);
	TEST_ERRNO(__vm_get_dirty_bitmap_fd(vm, 3, 0, &desc), ENOENT);
	TEST_ERRNO(__vm_get_dirty_bitmap_fd(vm, 1 << 16 | TEST_SLOT, 0, &desc),
		   ENOENT);
	TEST_ERRNO(__vm_get_dirty_bitmap_fd(vm, 0xffff, 0, &desc), EINVAL);
	TEST_ERRNO(__vm_get_dirty_bitmap_fd(vm, 2 << 16, 0, &desc), EINVAL);
	TEST_ERRNO(__vm_get_dirty_bitmap_fd(vm, ~0U, 0, &desc), EINVAL);
	test_mem_set(vm, &other, LOG);
	TEST_ERRNO(__vm_get_dirty_bitmap_fd(vm, NEXT_SLOT, 1, &desc), EINVAL);
	TEST_ERRNO(__vm_get_dirty_bitmap_fd(vm, NEXT_SLOT, ~0U, &desc), EINVAL);
	TEST_ERRNO(__vm_ioctl(vm, KVM_GET_DIRTY_BITMAP_FD,
			      (struct kvm_dirty_bitmap_fd *)8), EFAULT);
	fd = __vm_get_dirty_bitmap_fd(vm, NEXT_SLOT, 0, &desc);
	TEST_ASSERT(fd >= 0, KVM_IOCTL_ERROR(KVM_GET_DIRTY_BITMAP_FD, fd));
	TEST_ASSERT(fcntl(fd, F_GETFD) == FD_CLOEXEC, "not close-on-exec");
	close(fd);

	/* What cannot be handed out leaves nothing behind. */
	TEST_ASSERT(!getrlimit(RLIMIT_NOFILE, &limit), "getrlimit failed");
	few = limit;
	few.rlim_cur = fd;
	TEST_ASSERT(!setrlimit(RLIMIT_NOFILE, &few), "setrlimit failed");
	for (i = 0; i < 3; i++)
		TEST_ERRNO(__vm_get_dirty_bitmap_fd(vm, NEXT_SLOT, 0, &desc),
			   EMFILE);
	TEST_ASSERT(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit failed");
	for (i = 0; i < 3; i++)
		refuse_answer(vm, NEXT_SLOT);

	test_mem_set(vm, &mem, 0);
	test_mem_set(vm, &mem, LOG);
	i = __vm_get_dirty_bitmap_fd(vm, TEST_SLOT, 0, &desc);
	TEST_ASSERT(i == fd, "fd %d instead of %d", i, fd);
	close(fd);
	test_mem_delete(vm, &mem);
	TEST_ERRNO(__vm_get_dirty_bitmap_fd(vm, TEST_SLOT, 0, &desc), ENOENT);
	kvm_vm_free(vm);

	/* Rings have no bitmap. */
	if (kvm_has_cap(KVM_CAP_DIRTY_LOG_RING)) {
		vm = vm_create(1);
		vm_enable_dirty_ring(vm, 4096 * sizeof(struct kvm_dirty_gfn));
		__vm_enable_cap_args(vm, KVM_CAP_DIRTY_BITMAP_FD, 0, 0, 0);
		test_mem_set(vm, &mem, LOG);
		TEST_ERRNO(__vm_get_dirty_bitmap_fd(vm, TEST_SLOT, 0, &desc),
			   ENXIO);
		kvm_vm_free(vm);
	}
	test_mem_unmap(&mem);
	test_mem_unmap(&other);
}

static void test_layout(void)
{
	static const uint64_t sizes[] = {
		1, 63, 64, 65, 511, 512, 513, 32767, 32768, 32769,
		64 * 512 * 3 + 1, 600000,
	};
	static const uint64_t modes[] = {
		0,
		KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE,
		KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE |
		KVM_DIRTY_LOG_INITIALLY_SET,
	};
	struct kvm_dirty_bitmap_fd *d;
	struct rig rig;
	uint64_t n, p, last;
	int i, mode;

	for (i = 0; i < ARRAY_SIZE(sizes) * ARRAY_SIZE(modes); i++) {
		n = sizes[i / ARRAY_SIZE(modes)];
		mode = i % ARRAY_SIZE(modes);
		rig_create(&rig, n, modes[mode]);
		d = &rig.shared.desc;
		TEST_ASSERT(!((d->bitmap_offset | d->bitmap_size |
			       d->summary_offset | d->summary_size) % PAGE_SIZE),
			    "not whole pages");
		TEST_ASSERT(d->bitmap_size * 8 >= n,
			    "a bitmap of %llu bytes for %lu pages",
			    d->bitmap_size, n);
		TEST_ASSERT(d->summary_size * 8 >=
			    DIV_ROUND_UP(n, KVM_DIRTY_SUMMARY_PAGES),
			    "a summary of %llu bytes for %lu pages",
			    d->summary_size, n);
		TEST_ASSERT(d->bitmap_offset + d->bitmap_size <= d->summary_offset ||
			    d->summary_offset + d->summary_size <= d->bitmap_offset,
			    "bitmap and summary overlap");

		if (mode == 2) {
			TEST_ASSERT_EQ(bits_of_map(rig.shared.bitmap, d->bitmap_size), n);
			p = shared_bitmap_harvest(&rig.shared, 0, n, rig.got);
			TEST_ASSERT(p == n, "%lu of %lu pages are in the summary",
				    p, n);
			memset(rig.got, 0, bitmap_size(n));
		}
		TEST_ASSERT_EQ(bits_of_map(rig.shared.bitmap, d->bitmap_size), 0UL);
		TEST_ASSERT_EQ(bits_of_map(rig.shared.summary, d->summary_size), 0UL);

		/* Exactly one bit in each. */
		if (mode == 2)
			rig_rearm(&rig);
		last = n - 1;
		rig_write(&rig, last, 1);
		TEST_ASSERT_EQ(bits_of_map(rig.shared.bitmap, d->bitmap_size), 1UL);
		TEST_ASSERT_EQ(bits_of_map(rig.shared.summary, d->summary_size), 1UL);
		TEST_ASSERT(test_bit(last, rig.shared.bitmap),
			    "page %lu is not dirty", last);
		TEST_ASSERT(test_bit(last / KVM_DIRTY_SUMMARY_PAGES,
				     rig.shared.summary),
			    "page %lu is not in the summary", last);
		rig_free(&rig);
	}
}

static void test_mmap(void)
{
	struct kvm_dirty_bitmap_fd *d;
	struct rig rig;
	uint64_t all, buf;
	void *map;
	int fd;

	rig_create(&rig, 40000, 0);
	d = &rig.shared.desc;
	fd = rig.shared.fd;
	all = max(d->bitmap_offset + d->bitmap_size,
		  d->summary_offset + d->summary_size);

	rig_write(&rig, 39999, 1);
	map = mmap(NULL, d->bitmap_size, PROT_READ, MAP_SHARED, fd,
		   d->bitmap_offset);
	TEST_ASSERT(map != MAP_FAILED, "mmap to read failed");
	TEST_ASSERT(test_bit(39999, (unsigned long *)map), "another bitmap");
	munmap(map, d->bitmap_size);

	/* One page of it. */
	map = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		   d->bitmap_offset + PAGE_SIZE);
	TEST_ASSERT(map != MAP_FAILED, "mmap of one page failed");
	TEST_ASSERT(test_bit(39999 - 32768, (unsigned long *)map),
		    "another page of the bitmap");
	/* Dropping a page from the page tables does not drop its bits. */
	madvise(map, PAGE_SIZE, MADV_DONTNEED);
	TEST_ASSERT(test_bit(39999 - 32768, (unsigned long *)map),
		    "MADV_DONTNEED cost a bit");
	TEST_ASSERT(mremap(map, PAGE_SIZE, 16 * PAGE_SIZE, MREMAP_MAYMOVE) ==
		    MAP_FAILED, "a mapping grew beyond the end");
	munmap(map, PAGE_SIZE);

	map = mmap(NULL, d->bitmap_size, PROT_READ, MAP_PRIVATE, fd, 0);
	TEST_ASSERT(map == MAP_FAILED && errno == EINVAL, "private mapping");
	map = mmap(NULL, d->bitmap_size, PROT_READ | PROT_WRITE, MAP_PRIVATE,
		   fd, 0);
	TEST_ASSERT(map == MAP_FAILED && errno == EINVAL, "private mapping");
	map = mmap(NULL, all + PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	TEST_ASSERT(map == MAP_FAILED && errno == EINVAL, "mapping too long");
	map = mmap(NULL, PAGE_SIZE, PROT_READ, MAP_SHARED, fd, all);
	TEST_ASSERT(map == MAP_FAILED && errno == EINVAL, "mapping of the end");
	map = mmap(NULL, PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 1UL << 50);
	TEST_ASSERT(map == MAP_FAILED, "mapping far beyond the end");
	map = mmap(NULL, PAGE_SIZE, PROT_READ, MAP_SHARED, fd, -PAGE_SIZE);
	TEST_ASSERT(map == MAP_FAILED, "mapping of a negative offset");

	/* It is nothing but memory. */
	TEST_ASSERT(read(fd, &buf, sizeof(buf)) < 0, "read");
	TEST_ASSERT(write(fd, &buf, sizeof(buf)) < 0, "write");
	TEST_ASSERT(pread(fd, &buf, sizeof(buf), 0) < 0, "pread");
	TEST_ASSERT(ftruncate(fd, all * 2) < 0, "ftruncate");
	TEST_ASSERT(ioctl(fd, KVM_GET_API_VERSION, 0) < 0, "ioctl");
	rig_free(&rig);
}

static void expect_got(struct rig *rig, const uint32_t *pages, int n,
		       uint64_t count, const char *what)
{
	int i;

	for (i = 0; i < n; i++)
		TEST_ASSERT(test_bit(pages[i], rig->got),
			    "%s: page %u is lost", what, pages[i]);
	TEST_ASSERT(count_bits(rig->got, rig->mem.npages) == count,
		    "%s: %lu pages instead of %lu", what,
		    count_bits(rig->got, rig->mem.npages), count);
	memset(rig->got, 0, bitmap_size(rig->mem.npages));
}

/* Random pages, harvested in parts, by the summary or by an ioctl. */
static void test_harvest(void)
{
	uint32_t pages[GUEST_LIST_MAX];
	struct rig rig;
	uint64_t seed = 7, n, i, round, first, part;
	unsigned long *want;

	rig_create(&rig, 64 * 512 * 5 + 321, 0);
	want = bitmap_zalloc(rig.mem.npages);
	for (round = 0; round < 60; round++) {
		n = 1 + random_below(&seed, round % 3 ? 20 : GUEST_LIST_MAX);
		memset(want, 0, bitmap_size(rig.mem.npages));
		for (i = 0; i < n; i++) {
			pages[i] = random_below(&seed, rig.mem.npages);
			set_bit(pages[i], want);
		}
		guest_list(rig.vcpu, GUEST_WRITE, rig.mem.gpa, pages, n, round);

		switch (round % 4) {
		case 0:
			kvm_vm_get_dirty_log(rig.vm, TEST_SLOT, rig.got);
			TEST_ASSERT(!count_bits(rig.shared.bitmap,
						rig.mem.npages),
				    "KVM_GET_DIRTY_LOG left bits in the bitmap");
			break;
		case 1:
			for (first = 0; first < rig.mem.npages; first += part) {
				part = (1 + random_below(&seed, 150)) *
				       KVM_DIRTY_SUMMARY_PAGES;
				shared_bitmap_harvest(&rig.shared, first, part,
						      rig.got);
			}
			break;
		default:
			shared_bitmap_harvest(&rig.shared, 0, rig.mem.npages,
					      rig.got);
			break;
		}
		expect_got(&rig, pages, n, count_bits(want, rig.mem.npages),
			   round % 4 ? "summary" : "KVM_GET_DIRTY_LOG");
		TEST_ASSERT_EQ(shared_bitmap_harvest(&rig.shared, 0, rig.mem.npages,
						     rig.got), 0UL);
		rig_rearm(&rig);
	}
	free(want);
	rig_free(&rig);
}

/* KVM_CLEAR_DIRTY_LOG takes bits out of the shared bitmap as well. */
static void test_clear(void)
{
	static const uint32_t pages[] = { 0, 63, 64, 1000, 1500, 1600 };
	struct rig rig;
	int i;

	rig_create(&rig, 1601, KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE);
	for (i = 0; i < 3; i++) {
		guest_list(rig.vcpu, GUEST_WRITE, rig.mem.gpa, pages,
			   ARRAY_SIZE(pages), i);
		kvm_vm_get_dirty_log(rig.vm, TEST_SLOT, rig.got);
		TEST_ASSERT_EQ(count_bits(rig.shared.bitmap, rig.mem.npages),
			       ARRAY_SIZE(pages));
		kvm_vm_clear_dirty_log(rig.vm, TEST_SLOT, rig.got, 0, 64);
		TEST_ASSERT(!test_bit(63, rig.shared.bitmap) &&
			    test_bit(64, rig.shared.bitmap), "cleared too much");
		kvm_vm_clear_dirty_log(rig.vm, TEST_SLOT, &rig.got[1], 64,
				       1601 - 64);
		expect_got(&rig, pages, ARRAY_SIZE(pages), ARRAY_SIZE(pages),
			   "manual");
		TEST_ASSERT_EQ(count_bits(rig.shared.bitmap, rig.mem.npages), 0UL);
	}
	/* What was harvested by the summary is not there to be cleared. */
	guest_list(rig.vcpu, GUEST_WRITE, rig.mem.gpa, pages, ARRAY_SIZE(pages), 9);
	TEST_ASSERT_EQ(shared_bitmap_harvest(&rig.shared, 0, rig.mem.npages, rig.got),
		       ARRAY_SIZE(pages));
	kvm_vm_clear_dirty_log(rig.vm, TEST_SLOT, rig.got, 0, 1601);
	rig_rearm(&rig);
	rig_write(&rig, 1600, 10);
	memset(rig.got, 0, bitmap_size(rig.mem.npages));
	shared_bitmap_harvest(&rig.shared, 0, rig.mem.npages, rig.got);
	expect_got(&rig, &pages[5], 1, 1, "after harvest and clear");
	rig_free(&rig);
}

/* Everything that is not a page of the slot must do nothing to anybody. */
static void test_hostile_bits(void)
{
	const uint64_t npages = 1000;	/* 40 bits of the last word */
	struct test_mem next = {
		.slot = NEXT_SLOT, .gpa = TEST_GPA + (5 + npages) * PAGE_SIZE,
		.npages = 200,
	};
	unsigned long bitmap[BITS_TO_LONGS(200)], *ones;
	struct shared_bitmap other;
	struct rig rig;
	int round, manual;

	ones = malloc(bitmap_size(npages));
	memset(ones, 0xff, bitmap_size(npages));
	for (manual = 0; manual < 2; manual++) {
		rig_create(&rig, npages,
			   manual ? KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE : 0);
		vm_enable_cap(rig.vm, KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT, 0);
		TEST_ASSERT(test_mem_map(&next, VM_MEM_SRC_ANONYMOUS), "no memory");
		test_mem_set(rig.vm, &next, LOG);
		shared_bitmap_map(rig.vm, NEXT_SLOT, next.npages, &other);
		guest_stride(rig.vcpu, GUEST_WRITE, next.gpa, PAGE_SIZE,
			     next.npages, 1);
		memset(bitmap, 0, sizeof(bitmap));
		shared_bitmap_harvest(&other, 0, next.npages, bitmap);
		TEST_ASSERT_EQ(count_bits(bitmap, next.npages), next.npages);

		for (round = 0; round < 6; round++) {
			memset(rig.shared.bitmap, 0xff,
			       rig.shared.desc.bitmap_size);
			memset(rig.shared.summary, round & 1 ? 0xff : 0xa5,
			       rig.shared.desc.summary_size);
			switch (round) {
			case 0:
				kvm_vm_get_dirty_log(rig.vm, TEST_SLOT, rig.got);
				break;
			case 1:
				vm_get_dirty_log_no_wp(rig.vm, TEST_SLOT, rig.got);
				break;
			case 2:
				rig_write(&rig, 999, 1);
				break;
			case 3:
				if (manual)
					kvm_vm_clear_dirty_log(rig.vm, TEST_SLOT,
							       ones, 0, npages);
				break;
			case 4:
				if (manual)
					kvm_vm_clear_dirty_log(rig.vm, TEST_SLOT,
						ones, 960, npages - 960);
				break;
			default:
				TEST_ERRNO(__vm_get_dirty_log(rig.vm, TEST_SLOT,
					KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
					(void *)8), EFAULT);
				break;
			}
			/* The neighbour is neither dirty nor protected. */
			guest_stride(rig.vcpu, GUEST_WRITE, next.gpa, PAGE_SIZE,
				     next.npages, 2);
			memset(bitmap, 0, sizeof(bitmap));
			shared_bitmap_harvest(&other, 0, next.npages, bitmap);
			TEST_ASSERT(!count_bits(bitmap, next.npages),
				    "round %d reached into the next slot", round);
			/* The slot itself still works. */
			memset(rig.shared.bitmap, 0, rig.shared.desc.bitmap_size);
			memset(rig.shared.summary, 0, rig.shared.desc.summary_size);
			vm_get_dirty_log_no_wp(rig.vm, TEST_SLOT, rig.got);
			if (!protects_all())
				continue;
			vm_write_protect_range(rig.vm, rig.mem.gpa, PAGE_SIZE);
			rig_write(&rig, 3, 2);
			TEST_ASSERT(test_bit(3, rig.shared.bitmap),
				    "round %d: page 3 is lost", round);
			guest_stride(rig.vcpu, GUEST_WRITE, next.gpa, PAGE_SIZE,
				     next.npages, 2);
			shared_bitmap_harvest(&other, 0, next.npages, bitmap);
		}
		shared_bitmap_unmap(&other);
		rig_free(&rig);
		test_mem_unmap(&next);
	}
	free(ones);
}

/* Bits are frozen when the slot goes, or its logging. */
static void test_slot_goes(void)
{
	struct shared_bitmap fresh;
	struct rig rig;
	int way;

	for (way = 0; way < 3; way++) {
		rig_create(&rig, 3000, 0);
		rig_write(&rig, 2999, 1);
		rig_write(&rig, 5, 1);
		if (way == 0) {
			test_mem_delete(rig.vm, &rig.mem);
			test_mem_set(rig.vm, &rig.mem, LOG);
		} else if (way == 1) {
			test_mem_set(rig.vm, &rig.mem, 0);
			rig_write(&rig, 6, 2);
			test_mem_set(rig.vm, &rig.mem, LOG);
		} else {
			/* Another size under the same number. */
			test_mem_delete(rig.vm, &rig.mem);
			rig.mem.npages = 100;
			test_mem_set(rig.vm, &rig.mem, LOG);
		}
		rig_write(&rig, 7, 3);
		shared_bitmap_map(rig.vm, TEST_SLOT, rig.mem.npages, &fresh);
		TEST_ASSERT_EQ(count_bits(fresh.bitmap, rig.mem.npages), 1UL);
		TEST_ASSERT(test_bit(7, fresh.bitmap), "page 7 is lost");
		TEST_ASSERT_EQ(count_bits(rig.shared.bitmap, 3000), 2UL);
		TEST_ASSERT(test_bit(2999, rig.shared.bitmap) &&
			    test_bit(5, rig.shared.bitmap),
			    "other bits are in the old bitmap");
		/* The old one is only memory now. */
		memset(rig.shared.bitmap, 0xff, rig.shared.desc.bitmap_size);
		memset(rig.shared.summary, 0xff, rig.shared.desc.summary_size);
		kvm_vm_get_dirty_log(rig.vm, TEST_SLOT, rig.got);
		TEST_ASSERT_EQ(count_bits(rig.got, rig.mem.npages), 1UL);
		shared_bitmap_unmap(&fresh);
		rig_free(&rig);
	}
}

static void test_slot_moves(void)
{
	struct shared_bitmap fresh;
	struct rig rig;

	rig_create(&rig, 300, 0);
	rig_write(&rig, 10, 1);
	rig.mem.gpa += 32 * PAGE_SIZE;
	test_mem_set(rig.vm, &rig.mem, LOG);
	rig_write(&rig, 20, 1);
	shared_bitmap_map(rig.vm, TEST_SLOT, rig.mem.npages, &fresh);
	TEST_ASSERT_EQ(shared_bitmap_harvest(&fresh, 0, 300, rig.got), 2UL);
	TEST_ASSERT(test_bit(10, rig.got) && test_bit(20, rig.got),
		    "other pages after a move");
	shared_bitmap_unmap(&fresh);
	rig_free(&rig);
}

/* Fd and mapping outlive the VM, in another process too. */
static void test_vm_goes(void)
{
	struct shared_bitmap again;
	struct rig rig;
	int go[2], status;
	pid_t pid;
	char c;

	rig_create(&rig, 50000, 0);
	rig_write(&rig, 49999, 1);
	TEST_ASSERT(!pipe(go), "pipe failed");
	pid = fork();
	TEST_ASSERT(pid >= 0, "fork failed");
	if (!pid) {
		/* The VM is the parent's alone. */
		close(go[1]);
		munmap(rig.vcpu->run, ioctl(rig.vm->kvm_fd,
					    KVM_GET_VCPU_MMAP_SIZE, 0));
		close(rig.vcpu->fd);
		close(rig.vm->fd);
		close(rig.vm->kvm_fd);
		if (read(go[0], &c, 1) != 1 || !test_bit(123, rig.shared.bitmap))
			_exit(1);
		/* The parent sees this. */
		__clear_bit(123, rig.shared.bitmap);
		if (read(go[0], &c, 1) != 0)
			_exit(2);
		if (count_bits(rig.shared.bitmap, 50000) != 1 ||
		    !test_bit(49999, rig.shared.bitmap))
			_exit(3);
		again.bitmap = mmap(NULL, PAGE_SIZE, PROT_READ, MAP_SHARED,
				    rig.shared.fd,
				    rig.shared.desc.bitmap_offset + PAGE_SIZE);
		if (again.bitmap == MAP_FAILED ||
		    !test_bit(49999 - 32768, again.bitmap))
			_exit(4);
		_exit(0);
	}
	close(go[0]);
	rig_write(&rig, 123, 1);
	TEST_ASSERT(write(go[1], "", 1) == 1, "write failed");
	while (test_bit(123, rig.shared.bitmap))
		usleep(1000);

	kvm_vm_free(rig.vm);
	TEST_ASSERT_EQ(count_bits(rig.shared.bitmap, 50000), 1UL);
	again = rig.shared;
	again.fd = dup(rig.shared.fd);
	again.bitmap = mmap(NULL, again.desc.bitmap_size, PROT_READ | PROT_WRITE,
			    MAP_SHARED, again.fd, again.desc.bitmap_offset);
	TEST_ASSERT(again.bitmap != MAP_FAILED, "no mmap without the VM");
	TEST_ASSERT(test_bit(49999, again.bitmap), "the bit is gone");
	again.summary = mmap(NULL, again.desc.summary_size, PROT_READ, MAP_SHARED,
			     again.fd, again.desc.summary_offset);
	TEST_ASSERT(test_bit(49999 / KVM_DIRTY_SUMMARY_PAGES, again.summary),
		    "the summary is gone");
	shared_bitmap_unmap(&again);
	shared_bitmap_unmap(&rig.shared);
	close(go[1]);
	TEST_ASSERT(waitpid(pid, &status, 0) == pid && !status,
		    "the child ended with 0x%x", status);
	test_mem_unmap(&rig.mem);
	free(rig.got);
}

static void test_many_slots(void)
{
	enum { SLOTS = 300 };
	static struct test_mem mem[SLOTS];
	static struct shared_bitmap shared[SLOTS];
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(fd_cap, 1, 1, &vcpu);
	unsigned long got[BITS_TO_LONGS(128)];
	uint64_t i, round, p;

	guest_map(vm, TEST_GPA, SLOTS * 128 * PAGE_SIZE);
	for (i = 0; i < SLOTS; i++) {
		mem[i].slot = i + 1;
		mem[i].gpa = TEST_GPA + i * 128 * PAGE_SIZE;
		mem[i].npages = 1 + i % 100;
		TEST_ASSERT(test_mem_map(&mem[i], VM_MEM_SRC_ANONYMOUS),
			    "no memory");
		test_mem_set(vm, &mem[i], LOG);
		shared_bitmap_map(vm, i + 1, mem[i].npages, &shared[i]);
	}
	for (round = 0; round < 2; round++) {
		for (i = 0; i < SLOTS; i++) {
			p = round ? 0 : mem[i].npages - 1;
			guest_write(vcpu, mem[i].gpa + p * PAGE_SIZE, i);
		}
		for (i = 0; i < SLOTS; i++) {
			p = round ? 0 : mem[i].npages - 1;
			memset(got, 0, sizeof(got));
			shared_bitmap_harvest(&shared[i], 0, mem[i].npages, got);
			/* One page only, or the second write was no fault. */
			if (round && mem[i].npages == 1)
				continue;
			TEST_ASSERT(test_bit(p, got) &&
				    count_bits(got, mem[i].npages) == 1,
				    "slot %lu: other pages than the one written",
				    i + 1);
		}
	}
	/* Half of the slots go before the VM, the others with it. */
	for (i = 0; i < SLOTS; i += 2)
		test_mem_delete(vm, &mem[i]);
	kvm_vm_free(vm);
	for (i = 0; i < SLOTS; i++) {
		shared_bitmap_unmap(&shared[i]);
		test_mem_unmap(&mem[i]);
	}
}

/* In bytes; what the kernel has allocated with vmalloc(). */
static uint64_t vmalloc_used(void)
{
	return meminfo_kib("VmallocUsed") << 10;
}

static void test_leaks(void)
{
	const uint64_t npages = 1UL << 20;	/* 128 KiB of bitmap */
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = npages,
	};
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(fd_cap, 1, 1, &vcpu);
	struct shared_bitmap shared;
	uint64_t before;
	int i;

	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(vm, &mem, 0);
	before = vmalloc_used();
	for (i = 0; i < 200; i++) {
		test_mem_set(vm, &mem, LOG);
		/* A reference that is not dropped would keep it for ever. */
		refuse_answer(vm, TEST_SLOT);
		if (i % 4)
			shared_bitmap_map(vm, TEST_SLOT, npages, &shared);
		if (i % 4 == 2)
			shared_bitmap_unmap(&shared);
		test_mem_set(vm, &mem, 0);
		if (i % 4 == 1 || i % 4 == 3)
			shared_bitmap_unmap(&shared);
	}
	/* vfree() is lazy. */
	for (i = 0; i < 50 && vmalloc_used() > before + 20 * npages / 8; i++)
		usleep(20000);
	TEST_ASSERT(vmalloc_used() <= before + 20 * npages / 8,
		    "%lu bytes of vmalloc became %lu", before, vmalloc_used());
	kvm_vm_free(vm);
	test_mem_unmap(&mem);
}

/* All at once, for KASAN and its like to judge. */
static struct rig stress;
static bool stress_done;

static void *stress_map(void *arg)
{
	struct kvm_dirty_bitmap_fd desc;
	uint64_t seed = (uintptr_t)&desc | 1;
	unsigned long *map;
	bool early;
	int fd, i;

	while (!READ_ONCE(stress_done)) {
		fd = __vm_get_dirty_bitmap_fd(stress.vm, TEST_SLOT, 0, &desc);
		if (fd < 0)
			continue;
		map = mmap(NULL, desc.bitmap_size + desc.summary_size,
			   PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		TEST_ASSERT(map != MAP_FAILED, "mmap failed: %s", strerror(errno));
		early = next_random(&seed) & 1;
		if (early)
			close(fd);
		/* Garbage, all over it. */
		for (i = 0; i < 200; i++)
			map[random_below(&seed, (desc.bitmap_size +
				desc.summary_size) / 8)] = next_random(&seed);
		munmap(map, desc.bitmap_size + desc.summary_size);
		if (!early)
			close(fd);
	}
	return NULL;
}

static void *stress_guest(void *arg)
{
	uint32_t list[64];
	uint64_t seed = 3;
	int i;

	while (!READ_ONCE(stress_done)) {
		for (i = 0; i < ARRAY_SIZE(list); i++)
			list[i] = random_below(&seed, stress.mem.npages);
		guest_list(stress.vcpu, GUEST_WRITE, stress.mem.gpa, list,
			   ARRAY_SIZE(list), 1);
	}
	return NULL;
}

static void *stress_log(void *arg)
{
	unsigned long *bitmap = bitmap_zalloc(stress.mem.npages);
	struct kvm_clear_dirty_log clear = {
		.slot = TEST_SLOT,
		.num_pages = stress.mem.npages,
		.dirty_bitmap = bitmap,
	};

	/* These fail while logging is off. */
	while (!READ_ONCE(stress_done)) {
		__vm_get_dirty_log(stress.vm, TEST_SLOT, 0, bitmap);
		__vm_ioctl(stress.vm, KVM_CLEAR_DIRTY_LOG, &clear);
		__vm_get_dirty_log(stress.vm, TEST_SLOT,
				   KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT, bitmap);
		if (protects_all())
			vm_write_protect_all(stress.vm);
	}
	free(bitmap);
	return NULL;
}

static void test_stress(void)
{
	void *(*functions[])(void *) = {
		stress_map, stress_map, stress_guest, stress_log,
	};
	pthread_t threads[ARRAY_SIZE(functions)];
	uint64_t seed = 11;
	time_t end;
	int i, manual;

	for (manual = 0; manual < 2; manual++) {
		rig_create(&stress, 70000 + 17,
			   manual ? KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE : 0);
		vm_enable_cap(stress.vm,
			      KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT, 0);
		WRITE_ONCE(stress_done, false);
		for (i = 0; i < ARRAY_SIZE(functions); i++)
			pthread_create(&threads[i], NULL, functions[i], NULL);
		/* The slot stays, for the guest's sake; its logging does not. */
		for (end = time(NULL) + 2; time(NULL) < end; ) {
			test_mem_set(stress.vm, &stress.mem, 0);
			usleep(random_below(&seed, 2000));
			test_mem_set(stress.vm, &stress.mem, LOG);
			usleep(random_below(&seed, 10000));
		}
		WRITE_ONCE(stress_done, true);
		for (i = 0; i < ARRAY_SIZE(functions); i++)
			pthread_join(threads[i], NULL);
		rig_free(&stress);
	}
}

static const struct named_test tests[] = {
	{ "opt-in", test_opt_in },
	{ "layout", test_layout },
	{ "mmap", test_mmap },
	{ "harvest", test_harvest },
	{ "clear", test_clear },
	{ "hostile-bits", test_hostile_bits },
	{ "slot-goes", test_slot_goes },
	{ "slot-moves", test_slot_moves },
	{ "vm-goes", test_vm_goes },
	{ "many-slots", test_many_slots },
	{ "leaks", test_leaks },
	{ "stress", test_stress },
};

int main(int argc, char *argv[])
{
	const char *only = named_argument(argc, argv, tests, ARRAY_SIZE(tests));

	TEST_REQUIRE(kvm_has_cap(KVM_CAP_DIRTY_BITMAP_FD));
	TEST_REQUIRE(kvm_has_cap(KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT));
	run_tests(tests, ARRAY_SIZE(tests), only);
	return 0;
}
