// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests of KVM_CAP_DIRTY_BITS and KVM_COLLECT_DIRTY_BITS: exactly what was
 * written since the last collect is in the bitmap, wherever it was written and
 * whatever has become of its mapping; and what nobody writes to is not looked at.
 */
#define _GNU_SOURCE /* for program_invocation_short_name */
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
#include "touching_guest.h"

#define LOG		KVM_MEM_LOG_DIRTY_PAGES
#define OTHER_SLOT	2

/* A VM with a slot that is logged, and what has been found in it. */
struct rig {
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	struct test_mem mem;
	struct shared_bitmap shared;
	unsigned long *got;
};

static void rig_log(struct rig *rig)
{
	test_mem_set(rig->vm, &rig->mem, LOG);
	shared_bitmap_map(rig->vm, rig->mem.slot, rig->mem.npages, &rig->shared);
}

/* All of it is written before it is logged. */
static bool rig_create(struct rig *rig, enum vm_mem_backing_src_type src,
		       uint64_t gpa, uint64_t npages, uint64_t manual)
{
	memset(rig, 0, sizeof(*rig));
	rig->mem.slot = TEST_SLOT;
	rig->mem.gpa = gpa;
	rig->mem.npages = npages;
	if (!test_mem_map(&rig->mem, src)) {
		print_skip("  no %s on this host",
			   vm_mem_backing_src_alias(src)->name);
		return false;
	}
	rig->vm = toucher_vm(dirty_bits_caps, ARRAY_SIZE(dirty_bits_caps), 1,
			     &rig->vcpu);
	if (manual)
		vm_enable_cap(rig->vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, manual);
	rig->got = bitmap_zalloc(npages);
	guest_map(rig->vm, gpa, npages * PAGE_SIZE + 4 * PG_SIZE_2M);
	test_mem_set(rig->vm, &rig->mem, 0);
	guest_stride(rig->vcpu, GUEST_WRITE, gpa, PAGE_SIZE, npages, 1);
	rig_log(rig);
	return true;
}

static void rig_free(struct rig *rig)
{
	shared_bitmap_unmap(&rig->shared);
	kvm_vm_free(rig->vm);
	test_mem_unmap(&rig->mem);
	free(rig->got);
}

/* What is in the bitmap already; returns how many pages. */
static uint64_t take(struct rig *rig)
{
	memset(rig->got, 0, bitmap_size(rig->mem.npages));
	return shared_bitmap_harvest(&rig->shared, 0, rig->mem.npages, rig->got);
}

static uint64_t collect_flags(struct rig *rig, uint64_t flags)
{
	vm_collect_dirty_bits_flags(rig->vm, rig->mem.gpa,
				    rig->mem.npages * PAGE_SIZE, flags);
	return take(rig);
}

static uint64_t collect(struct rig *rig)
{
	return collect_flags(rig, 0);
}

static uint64_t collect_and_wrprot(struct rig *rig)
{
	return collect_flags(rig, KVM_COLLECT_DIRTY_BITS_WRPROT);
}

/* What the last harvest found is pages 0, stride, ... of [first, first + n). */
static void expect(struct rig *rig, uint64_t first, uint64_t n, uint64_t stride,
		   const char *what)
{
	expect_stride(rig->got, rig->mem.npages, first, n, stride, what);
}

static void expect_pages(uint64_t got, uint64_t want, const char *what)
{
	TEST_ASSERT(got == want, "%s: %lu pages instead of %lu", what, got, want);
}

static void write_pages(struct rig *rig, uint64_t first, uint64_t n,
			uint64_t stride)
{
	guest_stride(rig->vcpu, GUEST_WRITE, rig->mem.gpa + first * PAGE_SIZE,
		     stride * PAGE_SIZE, DIV_ROUND_UP(n, stride), 2);
}

/*
 * Has KVM zap the mappings of the first @npages pages, and with them the dirty
 * bits.  KVM unmaps what userspace protects.
 */
static void zap(struct rig *rig, uint64_t npages)
{
	const size_t size = npages * PAGE_SIZE;
	void *hva = rig->mem.hva;

	TEST_ASSERT(!mprotect(hva, size, PROT_READ) &&
		    !mprotect(hva, size, PROT_READ | PROT_WRITE),
		    "mprotect failed: %s", strerror(errno));
}

static int enable(struct kvm_vm *vm, uint32_t flags, uint64_t arg)
{
	return __vm_enable_cap_args(vm, KVM_CAP_DIRTY_BITS, flags, arg, 0);
}

static void test_opt_in(void)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = PAGES_2M,
	};
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;

	vm = vm_create(1);
	TEST_ASSERT(vm_check_cap(vm, KVM_CAP_DIRTY_BITS) ==
		    (1 | KVM_DIRTY_BITS_CAN_WRPROT),
		    "KVM_CAP_DIRTY_BITS and its flag are not all on a VM");
	TEST_ERRNO(__vm_collect_dirty_bits(vm, 0, PAGE_SIZE, 0), ENXIO);

	/* Only with the two others, in any order. */
	TEST_ERRNO(enable(vm, 0, 0), EINVAL);
	vm_enable_cap(vm, KVM_CAP_DIRTY_BITMAP_FD, 0);
	TEST_ERRNO(enable(vm, 0, 0), EINVAL);
	vm_enable_cap(vm, KVM_CAP_WRITE_PROTECT_ALL_MEM, 0);
	TEST_ERRNO(enable(vm, 0, 1), EINVAL);
	TEST_ERRNO(enable(vm, 1, 0), EINVAL);
	expect_unused_args(vm, KVM_CAP_DIRTY_BITS, 0);

	/* What is logged already has not got all that it takes. */
	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(vm, &mem, LOG);
	TEST_ERRNO(enable(vm, 0, 0), EBUSY);
	test_mem_set(vm, &mem, 0);
	TEST_ERRNO(__vm_collect_dirty_bits(vm, 0, PAGE_SIZE, 0), ENXIO);
	vm_enable_cap(vm, KVM_CAP_DIRTY_BITS, 0);
	vm_collect_dirty_bits(vm, 0, PAGE_SIZE);

	if (kvm_has_cap(KVM_CAP_DIRTY_LOG_RING))
		TEST_ERRNO(__vm_enable_cap_args(vm, KVM_CAP_DIRTY_LOG_RING, 0,
						65536, 0), EINVAL);
	kvm_vm_free(vm);
	test_mem_unmap(&mem);

	/* Too late. */
	vm = toucher_vm(dirty_bits_caps, 2, 1, &vcpu);
	TEST_ERRNO(enable(vm, 0, 0), EBUSY);
	kvm_vm_free(vm);

	if (!kvm_has_cap(KVM_CAP_DIRTY_LOG_RING))
		return;
	vm = vm_create(1);
	vm_enable_dirty_ring(vm, 65536);
	vm_enable_cap(vm, KVM_CAP_WRITE_PROTECT_ALL_MEM, 0);
	vm_enable_cap(vm, KVM_CAP_DIRTY_BITMAP_FD, 0);
	TEST_ERRNO(enable(vm, 0, 0), EINVAL);
	kvm_vm_free(vm);
}

static void test_arguments(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(dirty_bits_caps,
				       ARRAY_SIZE(dirty_bits_caps), 1, &vcpu);
	uint64_t max = (vm->max_gfn + 1) * PAGE_SIZE;

	TEST_ERRNO(__vm_collect_dirty_bits(vm, 0, PAGE_SIZE, 2), EINVAL);
	TEST_ERRNO(__vm_collect_dirty_bits(vm, 0, PAGE_SIZE,
					   KVM_COLLECT_DIRTY_BITS_WRPROT | 2),
		   EINVAL);
	TEST_ERRNO(__vm_collect_dirty_bits(vm, 0, PAGE_SIZE, 1ULL << 63), EINVAL);
	TEST_ERRNO(__vm_write_protect_range(vm, 0, PAGE_SIZE,
					    KVM_COLLECT_DIRTY_BITS_WRPROT),
		   EINVAL);
	TEST_ERRNO(__vm_collect_dirty_bits(vm, 0, 0,
					   KVM_COLLECT_DIRTY_BITS_WRPROT),
		   EINVAL);
	TEST_ERRNO(__vm_collect_dirty_bits(vm, 1, PAGE_SIZE, 0), EINVAL);
	TEST_ERRNO(__vm_collect_dirty_bits(vm, 0, PAGE_SIZE - 1, 0), EINVAL);
	TEST_ERRNO(__vm_collect_dirty_bits(vm, 0, 0, 0), EINVAL);
	TEST_ERRNO(__vm_collect_dirty_bits(vm, -PAGE_SIZE, 2 * PAGE_SIZE, 0),
		   EINVAL);
	TEST_ERRNO(__vm_ioctl(vm, KVM_COLLECT_DIRTY_BITS,
			      (struct kvm_collect_dirty_bits *)8), EFAULT);

	/* There need not be anything, nor could there be. */
	vm_collect_dirty_bits(vm, 0, PAGE_SIZE);
	vm_collect_dirty_bits(vm, TEST_GPA, PG_SIZE_1G);
	vm_collect_dirty_bits(vm, max, PG_SIZE_1G);
	vm_collect_dirty_bits(vm, 0, EVERYTHING);
	vm_collect_dirty_bits_flags(vm, 0, EVERYTHING,
				    KVM_COLLECT_DIRTY_BITS_WRPROT);
	guest_finish(vcpu);
	kvm_vm_free(vm);
}

/* Again and again, by all shapes that a slot can have. */
static void harvests(enum vm_mem_backing_src_type src, uint64_t gpa,
		     uint64_t npages, uint64_t manual)
{
	uint64_t round, stride;
	struct rig rig;

	if (!rig_create(&rig, src, gpa, npages, manual))
		return;
	/* Dirty bits of before count as well, or all is set at first. */
	collect(&rig);

	expect_pages(collect(&rig), 0, "nothing written");
	for (round = 0; round < 12; round++) {
		stride = 1 + round * 7 % 64;
		write_pages(&rig, round, npages - round, stride);
		collect(&rig);
		expect(&rig, round, npages - round, stride, "written");
		/* So that tables are wrprot, unmarked, and writable again. */
		if (round & 1)
			expect_pages(collect(&rig), 0, "once more");
		if (round & 2)
			expect_pages(collect(&rig), 0, "once more still");
		if (round & 4)
			vm_write_protect_all(rig.vm);
		if (round & 8)
			vm_write_protect_range(rig.vm, gpa, npages * PAGE_SIZE);
	}

	write_pages(&rig, 1, npages - 1, 5);
	zap(&rig, npages);
	collect(&rig);
	expect(&rig, 1, npages - 1, 5, "written and zapped");
	rig_free(&rig);
}

static void test_harvest(void)
{
	const uint64_t all_set = KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE |
				 KVM_DIRTY_LOG_INITIALLY_SET;

	harvests(VM_MEM_SRC_ANONYMOUS, TEST_GPA, 2 * PAGES_2M, 0);
	harvests(VM_MEM_SRC_ANONYMOUS, TEST_GPA + 3 * PAGE_SIZE,
		 3 * PAGES_2M + 5, all_set);
	harvests(VM_MEM_SRC_ANONYMOUS, TEST_GPA + 511 * PAGE_SIZE, 70, 0);
	harvests(VM_MEM_SRC_SHMEM, TEST_GPA + PG_SIZE_1G - PG_SIZE_2M,
		 2 * PAGES_2M + 1, 0);
	harvests(VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, TEST_GPA, 4 * PAGES_2M, 0);
	harvests(VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, TEST_GPA, 4 * PAGES_2M,
		 all_set);
	harvests(VM_MEM_SRC_ANONYMOUS_HUGETLB_1GB, TEST_GPA, PAGES_1G, 0);
	harvests(VM_MEM_SRC_ANONYMOUS_HUGETLB_1GB, TEST_GPA, PAGES_1G, all_set);
}

/* Each 2 MiB costs a fault when it wakes up, and none while it is awake. */
static void test_made_writable(void)
{
	const uint64_t n = 8;
	uint64_t opened, tables, pages;
	struct rig rig;

	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS, TEST_GPA, n * PAGES_2M, 0))
		return;
	collect(&rig);
	write_pages(&rig, 0, n * PAGES_2M, 1);
	expect_pages(collect(&rig), n * PAGES_2M, "all");

	opened = vm_get_stat(rig.vm, "write_protect_opened");
	pages = vm_get_stat(rig.vm, "dirty_bits_pages");
	write_pages(&rig, 0, n * PAGES_2M, 1);
	expect_pages(collect(&rig), n * PAGES_2M, "all again");
	TEST_ASSERT_EQ(vm_get_stat(rig.vm, "write_protect_opened"), opened);
	pages += n * PAGES_2M;
	TEST_ASSERT_EQ(vm_get_stat(rig.vm, "dirty_bits_pages"), pages);

	/* The first finds them quiet, the second wrprot: then no more. */
	expect_pages(collect(&rig), 0, "quiet");
	expect_pages(collect(&rig), 0, "wrprot");
	tables = vm_get_stat(rig.vm, "dirty_bits_tables");
	expect_pages(collect(&rig), 0, "unmarked");
	TEST_ASSERT_EQ(vm_get_stat(rig.vm, "dirty_bits_tables"), tables);
	TEST_ASSERT_EQ(vm_get_stat(rig.vm, "dirty_bits_pages"), pages);

	write_pages(&rig, 0, 2 * PAGES_2M, 1);
	TEST_ASSERT_EQ(vm_get_stat(rig.vm, "write_protect_opened"), opened + 2);
	expect_pages(collect(&rig), 2 * PAGES_2M, "two of them");
	TEST_ASSERT_EQ(vm_get_stat(rig.vm, "dirty_bits_tables"), tables + 2);
	TEST_ASSERT_EQ(vm_get_stat(rig.vm, "dirty_bits_pages"), pages + 2 * PAGES_2M);
	rig_free(&rig);
}

/* Writes pages, and returns how many faults that was. */
static uint64_t faults_of(struct rig *rig, uint64_t first, uint64_t n,
			  uint64_t stride)
{
	uint64_t taken = vcpu_page_faults(rig->vcpu);

	write_pages(rig, first, n, stride);
	return vcpu_page_faults(rig->vcpu) - taken;
}

/*
 * What a collect finds, and write-protects, costs one fault at the next write;
 * what it does not find, and whatever one without the flag does, costs none.
 */
static void test_wrprot(void)
{
	const uint64_t n = 2 * PAGES_2M, found = DIV_ROUND_UP(n, 4);
	struct rig rig;
	int round;

	/* Huge pages would be split by the first writes. */
	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS, TEST_GPA, n, 0))
		return;
	collect(&rig);
	write_pages(&rig, 0, n, 1);
	collect(&rig);

	for (round = 0; round < 8; round++) {
		write_pages(&rig, 0, n, 4);
		collect_and_wrprot(&rig);
		expect(&rig, 0, n, 4, "found and write-protected");
		expect_pages(collect_and_wrprot(&rig), 0, "nothing written");

		/* So that the tables are wrprot, too; one fault is for both. */
		if (round & 1)
			collect(&rig);
		if (round & 2)
			vm_write_protect_all(rig.vm);
		if (round & 4)
			zap(&rig, PAGES_2M / 2);
		take(&rig);

		if (round == 0) {
			/* What was not found is as it was. */
			TEST_ASSERT_EQ(faults_of(&rig, 2, n - 2, 4), 2);
			TEST_ASSERT_EQ(faults_of(&rig, 0, n, 4), found);
			TEST_ASSERT_EQ(faults_of(&rig, 0, n, 4), 0);
			collect(&rig);
			expect(&rig, 0, n, 2, "by a fault, and without");
		}
		write_pages(&rig, 0, n, 3);
		collect(&rig);
		expect(&rig, 0, n, 3, "written again");
		/* No more: the collect before had no flag. */
		TEST_ASSERT_EQ(faults_of(&rig, 0, n, 3), 0);
		collect(&rig);
		expect(&rig, 0, n, 3, "without a fault");
	}

	/* A page that a fault has logged is lost neither by a zap nor a copy. */
	write_pages(&rig, 0, n, 5);
	collect_and_wrprot(&rig);
	write_pages(&rig, 0, n, 5);
	take(&rig);
	expect(&rig, 0, n, 5, "logged by a fault");
	collect_and_wrprot(&rig);
	expect(&rig, 0, n, 5, "found by its dirty bit");
	zap(&rig, n);
	expect_pages(collect(&rig), 0, "read-only and zapped");
	write_pages(&rig, 1, n - 1, 6);
	collect(&rig);
	expect(&rig, 1, n - 1, 6, "mapped again");
	rig_free(&rig);
}

/* Two slots in one table of leaves do not take each other's pages. */
static void test_neighbours(void)
{
	struct test_mem other = {
		.slot = OTHER_SLOT, .gpa = TEST_GPA + 100 * PAGE_SIZE,
		.npages = 200,
	};
	unsigned long got[BITS_TO_LONGS(200)] = { 0 };
	struct shared_bitmap shared;
	struct rig rig;
	int round;

	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS, TEST_GPA, 100, 0))
		return;
	TEST_ASSERT(test_mem_map(&other, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(rig.vm, &other, LOG);
	shared_bitmap_map(rig.vm, other.slot, other.npages, &shared);
	guest_stride(rig.vcpu, GUEST_WRITE, other.gpa, PAGE_SIZE, 200, 1);
	vm_collect_dirty_bits(rig.vm, 0, EVERYTHING);
	take(&rig);
	shared_bitmap_harvest(&shared, 0, 200, got);

	for (round = 0; round < 6; round++) {
		write_pages(&rig, 0, 100, 3);
		guest_stride(rig.vcpu, GUEST_WRITE, other.gpa, 7 * PAGE_SIZE, 29,
			     round);
		/* Of both, or of the first alone: GET is about one slot. */
		if (round & 1)
			vm_collect_dirty_bits(rig.vm, TEST_GPA, PAGE_SIZE);
		else
			kvm_vm_get_dirty_log(rig.vm, rig.mem.slot, rig.got);
		if (round & 1)
			take(&rig);
		expect(&rig, 0, 100, 3, "the first slot");
		memset(got, 0, sizeof(got));
		if (round & 2)
			vm_collect_dirty_bits(rig.vm, 0, EVERYTHING);
		else
			vm_collect_dirty_bits(rig.vm, other.gpa, PAGE_SIZE);
		expect_pages(shared_bitmap_harvest(&shared, 0, 200, got), 29,
			     "the other slot");
		vm_collect_dirty_bits(rig.vm, 0, EVERYTHING);
		vm_collect_dirty_bits(rig.vm, 0, EVERYTHING);
	}
	shared_bitmap_unmap(&shared);
	rig_free(&rig);
	test_mem_unmap(&other);
}

/* Each that goes through the page tables, at where nothing can be mapped. */
static void go_through(struct rig *rig, struct test_mem *mem)
{
	struct kvm_split_huge_pages split = {
		.gpa = mem->gpa, .size = mem->npages * PAGE_SIZE,
	};
	unsigned long *got = bitmap_zalloc(mem->npages);
	struct shared_bitmap shared;

	test_mem_set(rig->vm, mem, LOG);
	shared_bitmap_map(rig->vm, mem->slot, mem->npages, &shared);
	/* All of it, to begin with. */
	shared_bitmap_harvest(&shared, 0, mem->npages, got);
	memset(got, 0, bitmap_size(mem->npages));
	vm_collect_dirty_bits(rig->vm, mem->gpa, mem->npages * PAGE_SIZE);
	vm_write_protect_range(rig->vm, mem->gpa, mem->npages * PAGE_SIZE);
	TEST_ASSERT(!__vm_split_huge_pages(rig->vm, &split) && !split.size,
		    "pages are not split");
	expect_pages(shared_bitmap_harvest(&shared, 0, mem->npages, got), 0,
		     "where nothing is mapped");
	kvm_vm_get_dirty_log(rig->vm, mem->slot, got);
	expect_pages(count_bits(got, mem->npages), 0, "the log of nothing");
	shared_bitmap_unmap(&shared);
	free(got);
}

/*
 * A CPU may have more bits of guest-physical addresses than the page tables have
 * levels for.  Their indices begin anew there, with those of other slots.
 */
static void test_beyond(void)
{
	const uint64_t n = 2 * PAGES_2M;
	struct test_mem beyond = {
		.slot = OTHER_SLOT, .gpa = TEST_GPA + (1UL << 48), .npages = n,
	};
	uint64_t splits;
	struct rig rig;
	int round;

	/* Huge pages stay so until they are written to. */
	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS_THP, TEST_GPA, n,
			KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE |
			KVM_DIRTY_LOG_INITIALLY_SET))
		return;
	if (rig.vm->pa_bits <= 48) {
		print_skip("  no such addresses");
		rig_free(&rig);
		return;
	}
	vm_enable_cap(rig.vm, KVM_CAP_EAGER_PAGE_SPLIT, 0);
	TEST_ASSERT(test_mem_map(&beyond, VM_MEM_SRC_ANONYMOUS_THP), "no memory");
	memset(beyond.hva, 0, n * PAGE_SIZE);
	splits = vm_get_stat(rig.vm, "split_huge_pages");
	go_through(&rig, &beyond);
	TEST_ASSERT_EQ(vm_get_stat(rig.vm, "split_huge_pages"), splits);
	collect(&rig);
	for (round = 0; round < 6; round++) {
		write_pages(&rig, round, n - round, 3);
		go_through(&rig, &beyond);
		/* What has been split could be huge again. */
		if (round & 1)
			test_mem_set(rig.vm, &beyond, 0);
		collect(&rig);
		expect(&rig, round, n - round, 3, "below");
		expect_pages(collect(&rig), 0, "quiet");
		expect_pages(collect(&rig), 0, "wrprot");
	}
	rig_free(&rig);
	test_mem_unmap(&beyond);
}

/* What was written to a slot is in its bitmap when the slot is gone. */
static void test_slot_goes(void)
{
	uint64_t i;
	struct rig rig;

	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS, TEST_GPA, 2 * PAGES_2M, 0))
		return;
	collect(&rig);

	/* To where the regions of 2 MiB are others, and back. */
	for (i = 0; i < 4; i++) {
		write_pages(&rig, i, 2 * PAGES_2M - i, 11);
		rig.mem.gpa ^= i & 1 ? PG_SIZE_2M : 8 * PAGE_SIZE;
		vm_set_user_memory_region(rig.vm, rig.mem.slot, LOG, rig.mem.gpa,
					  rig.mem.npages * PAGE_SIZE,
					  rig.mem.hva);
		take(&rig);
		expect(&rig, i, 2 * PAGES_2M - i, 11, "moved");
		/* Once more, as nobody knows when TLBs were flushed. */
		collect(&rig);
		expect(&rig, i, 2 * PAGES_2M - i, 11, "moved and collected");
		expect_pages(collect(&rig), 0, "moved long ago");
		write_pages(&rig, 5, PAGES_2M, 3);
		collect(&rig);
		expect(&rig, 5, PAGES_2M, 3, "written where it is now");
	}

	write_pages(&rig, 1, 2 * PAGES_2M - 1, 13);
	test_mem_delete(rig.vm, &rig.mem);
	take(&rig);
	expect(&rig, 1, 2 * PAGES_2M - 1, 13, "deleted");
	vm_collect_dirty_bits(rig.vm, 0, EVERYTHING);
	expect_pages(take(&rig), 0, "deleted long ago");

	shared_bitmap_unmap(&rig.shared);
	rig_log(&rig);
	write_pages(&rig, 0, PAGES_2M, 1);
	expect_pages(collect(&rig), PAGES_2M, "a new slot");

	/* No collect will log once more what had been zapped. */
	write_pages(&rig, 3, PAGES_2M - 3, 17);
	zap(&rig, PAGES_2M);
	take(&rig);
	expect(&rig, 3, PAGES_2M - 3, 17, "zapped");
	test_mem_delete(rig.vm, &rig.mem);
	take(&rig);
	expect(&rig, 3, PAGES_2M - 3, 17, "zapped and deleted");
	rig_free(&rig);
}

static void log_with(uint64_t manual)
{
	struct rig rig;
	int round;

	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS, TEST_GPA + 9 * PAGE_SIZE,
			PAGES_2M + 70, manual))
		return;
	collect(&rig);
	for (round = 0; round < 4; round++) {
		write_pages(&rig, 3, PAGES_2M, 2);
		kvm_vm_get_dirty_log(rig.vm, rig.mem.slot, rig.got);
		expect(&rig, 3, PAGES_2M, 2, "get");
		if (!manual)
			continue;
		/* Copied after the clear; so this need not show any more. */
		write_pages(&rig, 3, PAGES_2M, 4);
		kvm_vm_clear_dirty_log(rig.vm, rig.mem.slot, rig.got, 0,
				       rig.mem.npages);
		kvm_vm_get_dirty_log(rig.vm, rig.mem.slot, rig.got);
		expect_pages(count_bits(rig.got, rig.mem.npages), 0, "cleared");
	}
	rig_free(&rig);
}

/* KVM_GET_DIRTY_LOG and KVM_CLEAR_DIRTY_LOG, which collect by themselves. */
static void test_log(void)
{
	log_with(0);
	log_with(KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE);
}

/* With no bit to clear, what the clear collects is left in the bitmap. */
static uint64_t clear_nothing(struct rig *rig, uint64_t first, uint64_t n)
{
	memset(rig->got, 0, bitmap_size(rig->mem.npages));
	kvm_vm_clear_dirty_log(rig->vm, rig->mem.slot, rig->got, first, n);
	return take(rig);
}

/*
 * KVM_CLEAR_DIRTY_LOG collects its range, and beyond it to the next 2 MiB only.
 * The slot begins with the last @skipped pages of such 2 MiB, if any.
 */
static void clear_ranges(uint64_t skipped)
{
	const uint64_t n = 4 * PAGES_2M + skipped, first = skipped + PAGES_2M;
	struct rig rig;

	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS,
			TEST_GPA + PG_SIZE_2M - skipped * PAGE_SIZE,
			n, KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE))
		return;
	collect(&rig);
	write_pages(&rig, 0, n, 4);

	expect_pages(clear_nothing(&rig, PAGES_2M, 0), 0, "no pages");
	expect_pages(clear_nothing(&rig, n, 0), 0, "no pages at the end");
	clear_nothing(&rig, first + PAGES_2M, 64);
	expect(&rig, first + PAGES_2M, PAGES_2M, 4, "the first pages of 2 MiB");
	clear_nothing(&rig, first - 64, 64);
	expect(&rig, first - PAGES_2M, PAGES_2M, 4, "the last pages of 2 MiB");
	expect_pages(clear_nothing(&rig, 0, n), (n - 2 * PAGES_2M) / 4, "the others");
	expect_pages(collect(&rig), 0, "after all");
	rig_free(&rig);
}

static void test_clear_range(void)
{
	clear_ranges(0);
	clear_ranges(64);
}

/* A fetch that KVM refuses has collected nothing. */
static void test_refused(void)
{
	struct rig rig;

	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS, TEST_GPA, PAGES_2M, 0))
		return;
	vm_enable_cap(rig.vm, KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT, 0);
	collect(&rig);
	write_pages(&rig, 0, PAGES_2M, 3);
	take(&rig);
	TEST_ERRNO(__vm_get_dirty_log(rig.vm, rig.mem.slot, 2, rig.got), EINVAL);
	expect_pages(take(&rig), 0, "refused");
	vm_get_dirty_log_no_wp(rig.vm, rig.mem.slot, rig.got);
	expect(&rig, 0, PAGES_2M, 3, "fetched");
	rig_free(&rig);
}

/* Collects while signals arrive; returns how many calls that took. */
static uint64_t collect_with_signals(void)
{
	const uint64_t size = 20 * PG_SIZE_1G, last = size - PAGE_SIZE;
	/* KVM has slots of its own below 4 GiB, on Intel's CPUs some more. */
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = 4 * PG_SIZE_1G,
		.npages = size / PAGE_SIZE,
	};
	unsigned long *got = bitmap_zalloc(mem.npages);
	struct shared_bitmap shared;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(dirty_bits_caps,
				       ARRAY_SIZE(dirty_bits_caps), 1, &vcpu);
	uint64_t calls;

	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	guest_map(vm, mem.gpa, PG_SIZE_2M);
	guest_map(vm, mem.gpa + size - PG_SIZE_2M, PG_SIZE_2M);
	test_mem_set(vm, &mem, LOG);
	shared_bitmap_map(vm, mem.slot, mem.npages, &shared);
	guest_write(vcpu, mem.gpa, 1);
	guest_write(vcpu, mem.gpa + last, 1);

	/* All of it is to be looked at, for the first time. */
	begin_alarms();
	calls = call_until_done(vm, KVM_COLLECT_DIRTY_BITS, 0, EVERYTHING);
	end_alarms();
	expect_pages(shared_bitmap_harvest(&shared, 0, mem.npages, got), 2,
		     "with signals");
	TEST_ASSERT(test_bit(0, got) && test_bit(mem.npages - 1, got),
		    "other pages than those");
	shared_bitmap_unmap(&shared);
	kvm_vm_free(vm);
	test_mem_unmap(&mem);
	free(got);
	return calls;
}

/*
 * A signal ends a collect, and nothing is lost by that.  One that arrives before
 * the call, or after its last look for one, ends none: so there are many rounds.
 */
static void test_signal(void)
{
	uint64_t calls = 0;
	int round, signals = 0;

	for (round = 1; round <= 20; round++) {
		calls += collect_with_signals();
		signals += nr_alarms;
		if (calls > round)
			break;
	}
	pr_info("  %lu calls, %d signals\n", calls, signals);
	TEST_ASSERT(calls > round || signals < 20, "no signal ended a call");
}

/* Pages that were split ahead do not fault one by one. */
static void test_split(void)
{
	struct kvm_split_huge_pages split = { .gpa = TEST_GPA };
	const uint64_t n = 4 * PAGES_2M;
	uint64_t taken;
	struct rig rig;

	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, TEST_GPA, n, 0))
		return;
	vm_enable_cap(rig.vm, KVM_CAP_EAGER_PAGE_SPLIT, 0);
	collect(&rig);
	split.size = n * PAGE_SIZE;
	TEST_ASSERT(!__vm_split_huge_pages(rig.vm, &split) && !split.size,
		    "pages are not split");
	taken = vcpu_page_faults(rig.vcpu);
	write_pages(&rig, 0, n, 1);
	taken = vcpu_page_faults(rig.vcpu) - taken;
	TEST_ASSERT(taken < 64, "%lu faults after a split", taken);
	expect_pages(collect(&rig), n, "split");
	write_pages(&rig, 0, n, 3);
	collect(&rig);
	expect(&rig, 0, n, 3, "split long ago");
	rig_free(&rig);
}

/* A page that would be mapped once more stays as it is, with its dirty bit. */
static void test_pre_fault(void)
{
	const uint64_t n = 2 * PAGES_2M;
	struct rig rig;

	if (!can_pre_fault()) {
		print_skip("no KVM_PRE_FAULT_MEMORY");
		return;
	}
	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS, TEST_GPA, n, 0))
		return;
	collect(&rig);
	write_pages(&rig, 0, n, 3);
	take(&rig);
	TEST_ASSERT(!__vcpu_pre_fault(rig.vcpu, rig.mem.gpa, n * PAGE_SIZE),
		    "KVM_PRE_FAULT_MEMORY: %s", strerror(errno));
	expect_pages(take(&rig), 0, "mapped again");
	expect_pages(collect(&rig), DIV_ROUND_UP(n, 3), "dirty bits that were kept");
	write_pages(&rig, 1, n - 1, 5);
	collect(&rig);
	expect(&rig, 1, n - 1, 5, "after that");
	rig_free(&rig);
}

static const struct named_test tests[] = {
	{ "opt-in", test_opt_in },
	{ "arguments", test_arguments },
	{ "harvest", test_harvest },
	{ "made-writable", test_made_writable },
	{ "wrprot", test_wrprot },
	{ "neighbours", test_neighbours },
	{ "beyond", test_beyond },
	{ "pre-fault", test_pre_fault },
	{ "slot-goes", test_slot_goes },
	{ "log", test_log },
	{ "clear-range", test_clear_range },
	{ "refused", test_refused },
	{ "split", test_split },
	{ "signal", test_signal },
};

int main(int argc, char *argv[])
{
	const char *only = named_argument(argc, argv, tests, ARRAY_SIZE(tests));

	TEST_REQUIRE(kvm_has_cap(KVM_CAP_DIRTY_BITS));
	run_tests(tests, ARRAY_SIZE(tests), only);
	return 0;
}
