// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests of KVM_CAP_EAGER_PAGE_SPLIT and KVM_SPLIT_HUGE_PAGES: how many pages of
 * which size a VM has mapped tells what was split.
 */
#define _GNU_SOURCE /* for program_invocation_short_name */
#include <time.h>

#include "kvm_util.h"
#include "test_util.h"
#include "processor.h"
#include "dirty_bitmap.h"
#include "dirty_tracking.h"
#include "named_tests.h"
#include "selftest_release.h"
#include "test_mem.h"
#include "touching_guest.h"

#define LOG		KVM_MEM_LOG_DIRTY_PAGES
#define NR_HUGE		8UL
#define NR_PAGES	(NR_HUGE * PAGES_2M)

/* A VM whose slot is mapped by huge pages, all of them written to. */
struct rig {
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	struct test_mem mem;
	uint64_t pages_4k;	/* before anything was split */
	uint64_t pages_huge;
};

static uint64_t mapped(struct rig *rig, const char *size)
{
	return vm_get_stat(rig->vm, size);
}

static bool rig_create_with(struct rig *rig, const uint32_t *caps, int nr_caps,
			    enum vm_mem_backing_src_type src, uint64_t npages,
			    uint64_t manual)
{
	uint64_t p;

	memset(rig, 0, sizeof(*rig));
	rig->mem.slot = TEST_SLOT;
	rig->mem.gpa = TEST_GPA;
	rig->mem.npages = npages;
	if (!test_mem_map(&rig->mem, src)) {
		print_skip("  no %s on this host",
			   vm_mem_backing_src_alias(src)->name);
		return false;
	}
	rig->vm = toucher_vm(caps, nr_caps, 1, &rig->vcpu);
	vm_enable_cap(rig->vm, KVM_CAP_EAGER_PAGE_SPLIT, 0);
	if (manual)
		vm_enable_cap(rig->vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, manual);
	test_mem_set(rig->vm, &rig->mem, 0);
	guest_map(rig->vm, TEST_GPA, npages * PAGE_SIZE);
	for (p = 0; p < npages; p++)
		*(uint64_t *)(rig->mem.hva + p * PAGE_SIZE + 8) = p;
	guest_stride(rig->vcpu, GUEST_WRITE, TEST_GPA, PAGE_SIZE, npages, 1);
	rig->pages_4k = mapped(rig, "pages_4k");
	rig->pages_huge = mapped(rig, "pages_2m") + mapped(rig, "pages_1g");
	return true;
}

static bool rig_create(struct rig *rig, enum vm_mem_backing_src_type src,
		       uint64_t npages, uint64_t manual)
{
	return rig_create_with(rig, NULL, 0, src, npages, manual);
}

static void rig_free(struct rig *rig)
{
	uint64_t p;

	/* Whatever happened to the mapping, the memory is what it was. */
	for (p = 0; p < rig->mem.npages; p++)
		TEST_ASSERT(*(uint64_t *)(rig->mem.hva + p * PAGE_SIZE + 8) == p,
			    "page %lu holds something else", p);
	kvm_vm_free(rig->vm);
	test_mem_unmap(&rig->mem);
}

static void set_mode(struct kvm_vm *vm, uint64_t mode, uint64_t chunk)
{
	int ret = __vm_enable_cap_args(vm, KVM_CAP_EAGER_PAGE_SPLIT, 0, mode, chunk);

	TEST_ASSERT(!ret, KVM_IOCTL_ERROR(KVM_ENABLE_CAP, ret));
}

static void expect_split(struct rig *rig, uint64_t huge, const char *what)
{
	uint64_t now_2m = mapped(rig, "pages_2m");
	uint64_t now_4k = mapped(rig, "pages_4k");

	TEST_ASSERT(now_2m == rig->pages_huge - huge,
		    "%s: %lu huge pages are left instead of %lu", what, now_2m,
		    rig->pages_huge - huge);
	TEST_ASSERT(now_4k == rig->pages_4k + huge * PAGES_2M,
		    "%s: %lu small pages instead of %lu", what, now_4k,
		    rig->pages_4k + huge * PAGES_2M);
}

/* One call, which must not fail; returns how many bytes it got on. */
static uint64_t split(struct kvm_vm *vm, struct kvm_split_huge_pages *args)
{
	struct kvm_split_huge_pages was = *args;
	int ret = __vm_split_huge_pages(vm, args);

	TEST_ASSERT(!ret || errno == EINTR, KVM_IOCTL_ERROR(SPLIT, ret));
	TEST_ASSERT(args->gpa + args->size == was.gpa + was.size &&
		    args->size <= was.size && !args->flags,
		    "gpa 0x%llx, size 0x%llx became gpa 0x%llx, size 0x%llx",
		    was.gpa, was.size, args->gpa, args->size);
	return was.size - args->size;
}

static void test_arguments(void)
{
	struct kvm_split_huge_pages args;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int vcpus;

	TEST_ASSERT(kvm_check_cap(KVM_CAP_EAGER_PAGE_SPLIT) > 0, "no capability");
	for (vcpus = 0; vcpus < 2; vcpus++) {
		vm = vm_create(1);
		if (vcpus) {
			vcpu = vm_vcpu_add(vm, 0, guest_toucher);
			vcpu_args_set(vcpu, 1, 0);
			guest_finish(vcpu);
		}
		TEST_ERRNO(__vm_enable_cap_args(vm, KVM_CAP_EAGER_PAGE_SPLIT,
						0, 3, 0), EINVAL);
		TEST_ERRNO(__vm_enable_cap_args(vm, KVM_CAP_EAGER_PAGE_SPLIT,
						0, ~0ULL, 0), EINVAL);
		TEST_ERRNO(__vm_enable_cap_args(vm, KVM_CAP_EAGER_PAGE_SPLIT,
						1, 0, 0), EINVAL);
		TEST_ERRNO(__vm_enable_cap_args(vm, KVM_CAP_EAGER_PAGE_SPLIT,
						0, 1, PAGE_SIZE), EINVAL);
		TEST_ERRNO(__vm_enable_cap_args(vm, KVM_CAP_EAGER_PAGE_SPLIT,
						0, 1, PG_SIZE_2M + 1), EINVAL);
		TEST_ERRNO(__vm_enable_cap_args(vm, KVM_CAP_EAGER_PAGE_SPLIT,
						0, 2, PG_SIZE_2M / 2), EINVAL);
		expect_unused_args(vm, KVM_CAP_EAGER_PAGE_SPLIT, 2);

#define SPLIT(g, s, f)							\
({									\
	args = (struct kvm_split_huge_pages) {				\
		.gpa = (g), .size = (s), .flags = (f),			\
	};								\
	__vm_split_huge_pages(vm, &args);				\
})
		TEST_ERRNO(SPLIT(0, PAGE_SIZE, 0), ENXIO);
		TEST_ERRNO(SPLIT(0, 0, 1), ENXIO);
		for (int mode = 0; mode < 3; mode++) {
			set_mode(vm, mode, 0);
			TEST_ERRNO(SPLIT(0, PAGE_SIZE, 1), EINVAL);
			TEST_ERRNO(SPLIT(0, PAGE_SIZE, 1ULL << 63), EINVAL);
			TEST_ERRNO(SPLIT(1, PAGE_SIZE, 0), EINVAL);
			TEST_ERRNO(SPLIT(0, PAGE_SIZE - 1, 0), EINVAL);
			TEST_ERRNO(SPLIT(0, 0, 0), EINVAL);
			TEST_ERRNO(SPLIT(TEST_GPA, 0, 0), EINVAL);
			TEST_ERRNO(SPLIT(-PAGE_SIZE, 2 * PAGE_SIZE, 0), EINVAL);
			TEST_ERRNO(SPLIT(2 * PAGE_SIZE, -PAGE_SIZE, 0), EINVAL);
			TEST_ERRNO(__vm_ioctl(vm, KVM_SPLIT_HUGE_PAGES,
				(struct kvm_split_huge_pages *)8), EFAULT);

			/* There need not be anything. */
			TEST_ASSERT(!SPLIT(0, PAGE_SIZE, 0) && !args.size,
				    "the first page");
			TEST_ASSERT(!SPLIT(TEST_GPA, PG_SIZE_1G, 0) && !args.size,
				    "no slot");
		}
		kvm_vm_free(vm);
	}
}

/* KVM cannot say how far it got: so it is asked again, and says it then. */
static void test_answer(void)
{
	struct kvm_split_huge_pages args = {
		.gpa = TEST_GPA, .size = NR_PAGES * PAGE_SIZE,
	};
	struct rig rig;
	void *page;

	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, NR_PAGES, 0))
		return;
	page = read_only_copy(&args, sizeof(args));
	TEST_ERRNO(__vm_split_huge_pages(rig.vm, page), EFAULT);
	TEST_ASSERT(!memcmp(page, &args, sizeof(args)), "it was written to");
	munmap(page, PAGE_SIZE);
	while (args.size)
		split(rig.vm, &args);
	expect_split(&rig, NR_HUGE, "after EFAULT");
	rig_free(&rig);
}

/* What happens when logging starts. */
static void test_log_start(enum vm_mem_backing_src_type src)
{
	static const char * const names[] = { "default", "on", "off" };
	uint64_t mode, want, before;
	struct rig rig;
	FILE *f;
	int c;

	for (mode = 0; mode < 3; mode++) {
		if (!rig_create(&rig, src, NR_PAGES, 0))
			return;
		if (rig.pages_huge != NR_HUGE) {
			print_skip("  only %lu pages are huge", rig.pages_huge);
			rig_free(&rig);
			return;
		}
		set_mode(rig.vm, mode, 0);
		before = vm_get_stat(rig.vm, "split_huge_pages");
		want = mode == KVM_EAGER_PAGE_SPLIT_ON ? NR_HUGE : 0;
		if (mode == KVM_EAGER_PAGE_SPLIT_DEFAULT) {
			f = fopen("/sys/module/kvm/parameters/tdp_mmu", "r");
			c = f ? fgetc(f) : 'N';
			if (f)
				fclose(f);
			f = fopen("/sys/module/kvm/parameters/eager_page_split", "r");
			if (f && fgetc(f) == 'Y' && c == 'Y')
				want = NR_HUGE;
			if (f)
				fclose(f);
		}
		test_mem_set(rig.vm, &rig.mem, LOG);
		expect_split(&rig, want, names[mode]);
		/* What a fault splits was not split ahead. */
		guest_stride(rig.vcpu, GUEST_WRITE, TEST_GPA, PAGE_SIZE, 1, 2);
		TEST_ASSERT_EQ(vm_get_stat(rig.vm, "split_huge_pages"), before + want);
		rig_free(&rig);
	}
}

static void test_log_starts(void)
{
	test_log_start(VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB);
	test_log_start(VM_MEM_SRC_SHARED_HUGETLB);
	if (thp_configured())
		test_log_start(VM_MEM_SRC_ANONYMOUS_THP);
}

/* Initially all set: nothing is protected or split before it is cleared. */
static void test_clear(void)
{
	unsigned long bitmap[BITS_TO_LONGS(NR_PAGES)];
	struct rig rig;
	uint64_t mode;

	for (mode = KVM_EAGER_PAGE_SPLIT_ON; mode <= KVM_EAGER_PAGE_SPLIT_OFF;
	     mode++) {
		if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, NR_PAGES,
				KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE |
				KVM_DIRTY_LOG_INITIALLY_SET))
			return;
		set_mode(rig.vm, mode, 0);
		test_mem_set(rig.vm, &rig.mem, LOG);
		expect_split(&rig, 0, "initially all set");
		kvm_vm_get_dirty_log(rig.vm, TEST_SLOT, bitmap);
		kvm_vm_clear_dirty_log(rig.vm, TEST_SLOT, bitmap, 0, PAGES_2M);
		if (mode == KVM_EAGER_PAGE_SPLIT_ON)
			expect_split(&rig, 1, "clear");
		else
			TEST_ASSERT(mapped(&rig, "pages_4k") == rig.pages_4k,
				    "off, and split by KVM_CLEAR_DIRTY_LOG");
		rig_free(&rig);
	}
}

/*
 * Initially all set, and nothing is split ahead: a clear of two pages has to
 * protect the huge page that the second one is the first page of.
 */
static void test_clear_at_border(void)
{
	const uint64_t before = 48, npages = before + PAGES_2M;
	unsigned long *bitmap = bitmap_zalloc(npages);
	struct test_mem mem;
	struct rig rig;

	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, NR_PAGES,
			KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE |
			KVM_DIRTY_LOG_INITIALLY_SET))
		return;
	set_mode(rig.vm, KVM_EAGER_PAGE_SPLIT_OFF, 0);
	test_mem_delete(rig.vm, &rig.mem);
	mem = rig.mem;
	mem.gpa += (PAGES_2M - before) * PAGE_SIZE;
	mem.hva += (PAGES_2M - before) * PAGE_SIZE;
	mem.npages = npages;
	test_mem_set(rig.vm, &mem, 0);
	guest_stride(rig.vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, npages, 1);
	test_mem_set(rig.vm, &mem, LOG);

	set_bit(before - 1, bitmap);
	set_bit(before, bitmap);
	kvm_vm_clear_dirty_log(rig.vm, TEST_SLOT, bitmap, 0, npages);
	guest_stride(rig.vcpu, GUEST_WRITE, mem.gpa + before * PAGE_SIZE,
		     PAGE_SIZE, 1, 2);
	kvm_vm_get_dirty_log(rig.vm, TEST_SLOT, bitmap);
	TEST_ASSERT(!test_bit(before - 1, bitmap), "it was not written");
	TEST_ASSERT(test_bit(before, bitmap), "the write to page %lu is lost",
		    before);
	test_mem_delete(rig.vm, &mem);
	rig_free(&rig);
	free(bitmap);
}

/* There is nothing before the first page of all memory. */
static void test_first_page(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(NULL, 0, 1, &vcpu);
	uint64_t npages = memslot2region(vm, 0)->region.memory_size / PAGE_SIZE;
	unsigned long *bitmap = bitmap_zalloc(npages);

	TEST_ASSERT_EQ(memslot2region(vm, 0)->region.guest_phys_addr, 0ULL);
	set_mode(vm, KVM_EAGER_PAGE_SPLIT_ON, 0);
	vm_enable_cap(vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
		      KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE |
		      KVM_DIRTY_LOG_INITIALLY_SET);
	guest_finish(vcpu);
	vm_mem_region_set_flags(vm, 0, LOG);
	set_bit(0, bitmap);
	kvm_vm_clear_dirty_log(vm, 0, bitmap, 0, npages);
	kvm_vm_get_dirty_log(vm, 0, bitmap);
	TEST_ASSERT_EQ(count_bits(bitmap, npages), npages - 1);
	TEST_ASSERT(!test_bit(0, bitmap), "it is still dirty");
	guest_finish(vcpu);
	kvm_vm_free(vm);
	free(bitmap);
}

/*
 * The reset of an empty ring is about no page.  All of this VM, whose code and data
 * are in slot 0, is mapped by huge pages.
 */
static void test_reset_of_nothing(void)
{
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	uint64_t huge;

	if (!kvm_has_cap(KVM_CAP_DIRTY_LOG_RING)) {
		print_skip("no dirty rings");
		return;
	}
	vm = vm_without_memory();
	vm_userspace_mem_region_add(vm, VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, 0, 0,
				    NR_PAGES, 0);
	kvm_vm_elf_load(vm, program_invocation_name);
	vm_has_memory(vm);
	vm_enable_dirty_ring(vm, 65536);
	vm_enable_cap(vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
		      KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE |
		      KVM_DIRTY_LOG_INITIALLY_SET);
	set_mode(vm, KVM_EAGER_PAGE_SPLIT_ON, 0);
	add_touchers(vm, 1, &vcpu);
	guest_finish(vcpu);
	vm_mem_region_set_flags(vm, 0, LOG);
	huge = vm_get_stat(vm, "pages_2m");
	TEST_ASSERT(huge, "there are no huge pages");
	TEST_ASSERT_EQ(kvm_vm_reset_dirty_ring(vm), 0U);
	TEST_ASSERT_EQ((uint64_t)vm_get_stat(vm, "pages_2m"), huge);
	kvm_vm_free(vm);
}

static void test_range(void)
{
	struct kvm_split_huge_pages args;
	struct rig rig;

	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, NR_PAGES, 0))
		return;

	/* What is not huge, or not there. */
	args = (struct kvm_split_huge_pages) { .gpa = 0, .size = TEST_GPA };
	split(rig.vm, &args);
	TEST_ASSERT_EQ(args.size, 0ULL);
	expect_split(&rig, 0, "other memory");
	args.gpa = TEST_GPA + NR_PAGES * PAGE_SIZE;
	args.size = PG_SIZE_1G;
	split(rig.vm, &args);
	TEST_ASSERT_EQ(args.size, 0ULL);
	expect_split(&rig, 0, "memory that is not there");

	args.gpa = TEST_GPA + PG_SIZE_2M;
	args.size = 2 * PG_SIZE_2M;
	split(rig.vm, &args);
	TEST_ASSERT_EQ(args.size, 0ULL);
	expect_split(&rig, 2, "two pages");

	/* Again, and with neighbours. */
	args.gpa = TEST_GPA;
	args.size = 4 * PG_SIZE_2M;
	split(rig.vm, &args);
	TEST_ASSERT_EQ(args.size, 0ULL);
	expect_split(&rig, 4, "four pages");

	args.gpa = 0;
	args.size = -PAGE_SIZE;
	while (args.size)
		split(rig.vm, &args);
	expect_split(&rig, NR_HUGE, "all");

	/* Nothing faults, and nothing becomes huge again by that. */
	guest_stride(rig.vcpu, GUEST_WRITE, TEST_GPA, PAGE_SIZE, NR_PAGES, 2);
	expect_split(&rig, NR_HUGE, "written");
	rig_free(&rig);
}

static void test_chunk(void)
{
	const uint64_t chunk = 3;	/* huge pages */
	struct kvm_split_huge_pages args;
	struct rig rig;
	uint64_t left, now, calls;

	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, NR_PAGES, 0))
		return;
	set_mode(rig.vm, KVM_EAGER_PAGE_SPLIT_ON, chunk * PG_SIZE_2M);
	args.gpa = TEST_GPA;
	args.size = NR_PAGES * PAGE_SIZE;
	args.flags = 0;
	left = NR_HUGE;
	for (calls = 0; args.size; calls++) {
		TEST_ASSERT(calls < 100, "it never ends");
		split(rig.vm, &args);
		now = mapped(&rig, "pages_2m");
		TEST_ASSERT(left - now <= chunk,
			    "one call split %lu pages instead of up to %lu",
			    left - now, chunk);
		/* What is said to be done is done. */
		TEST_ASSERT(now <= DIV_ROUND_UP(args.size, PG_SIZE_2M),
			    "%lu huge pages in 0x%llx bytes", now, args.size);
		left = now;
	}
	TEST_ASSERT(calls >= NR_HUGE / chunk, "only %lu calls", calls);
	expect_split(&rig, NR_HUGE, "by chunks");
	rig_free(&rig);

	/* Starting the log is one ioctl, too. */
	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, NR_PAGES, 0))
		return;
	set_mode(rig.vm, KVM_EAGER_PAGE_SPLIT_ON, chunk * PG_SIZE_2M);
	test_mem_set(rig.vm, &rig.mem, LOG);
	now = mapped(&rig, "pages_2m");
	TEST_ASSERT(now >= NR_HUGE - chunk && now < NR_HUGE,
		    "starting the log left %lu huge pages of %lu", now, NR_HUGE);
	rig_free(&rig);
}

/*
 * Split while logged: each page is as protected as it was, or its dirty bit
 * tells.
 */
static void test_logged_with(const uint32_t *caps, int nr_caps)
{
	unsigned long *bitmap = bitmap_zalloc(NR_PAGES);
	struct kvm_split_huge_pages args = {
		.gpa = TEST_GPA, .size = NR_PAGES * PAGE_SIZE,
	};
	struct rig rig;

	if (!rig_create_with(&rig, caps, nr_caps,
			     VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, NR_PAGES, 0))
		return;
	set_mode(rig.vm, KVM_EAGER_PAGE_SPLIT_OFF, 0);
	test_mem_set(rig.vm, &rig.mem, LOG);
	expect_split(&rig, 0, "off");
	while (args.size)
		split(rig.vm, &args);
	expect_split(&rig, NR_HUGE, "split while logged");
	kvm_vm_get_dirty_log(rig.vm, TEST_SLOT, bitmap);
	/* Dirty bits may be of before. */
	if (nr_caps < 2)
		TEST_ASSERT_EQ(count_bits(bitmap, NR_PAGES), 0UL);
	guest_stride(rig.vcpu, GUEST_WRITE, TEST_GPA, 3 * PAGE_SIZE,
		     NR_PAGES / 3, 3);
	kvm_vm_get_dirty_log(rig.vm, TEST_SLOT, bitmap);
	TEST_ASSERT_EQ(count_bits(bitmap, NR_PAGES), NR_PAGES / 3);
	guest_stride(rig.vcpu, GUEST_WRITE, TEST_GPA, PAGE_SIZE, NR_PAGES, 4);
	kvm_vm_get_dirty_log(rig.vm, TEST_SLOT, bitmap);
	TEST_ASSERT_EQ(count_bits(bitmap, NR_PAGES), NR_PAGES);
	rig_free(&rig);
	free(bitmap);
}

/* Whichever way starting the log has protected them. */
static void test_logged(void)
{
	test_logged_with(NULL, 0);
	if (kvm_has_cap(KVM_CAP_WRITE_PROTECT_ALL_MEM))
		test_logged_with(dirty_bits_caps, 1);
	if (kvm_has_cap(KVM_CAP_DIRTY_BITS))
		test_logged_with(dirty_bits_caps, ARRAY_SIZE(dirty_bits_caps));
}

/* A signal ends a call; nothing is lost by that. */
static void test_signal(void)
{
	const uint64_t nr_huge = 128;
	struct kvm_split_huge_pages args = {
		.gpa = TEST_GPA, .size = nr_huge * PG_SIZE_2M,
	};
	struct rig rig;
	uint64_t calls = 0;

	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB,
			nr_huge * PAGES_2M, 0))
		return;
	begin_alarms();
	for (; args.size; calls++) {
		TEST_ASSERT(calls < 1000000, "it never ends");
		split(rig.vm, &args);
	}
	end_alarms();
	expect_split(&rig, nr_huge, "with signals");
	pr_info("  %lu calls, %d signals\n", calls, nr_alarms);
	TEST_ASSERT(calls > 1 || nr_alarms < 3, "no signal ended a call");
	rig_free(&rig);
}

/* A page of 1 GiB goes by way of 2 MiB, by chunks as well. */
static void test_gigantic(void)
{
	struct kvm_split_huge_pages args;
	struct rig rig;
	uint64_t chunk, was, now;

	for (chunk = 0; chunk <= 64; chunk += 64) {
		if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS_HUGETLB_1GB,
				PAGES_1G, 0))
			return;
		if (mapped(&rig, "pages_1g") != 1) {
			print_skip("  1 GiB is not mapped as one page");
			rig_free(&rig);
			return;
		}
		set_mode(rig.vm, KVM_EAGER_PAGE_SPLIT_OFF, chunk * PG_SIZE_2M);
		args.gpa = TEST_GPA;
		args.size = PG_SIZE_1G;
		args.flags = 0;
		was = rig.pages_4k;
		while (args.size) {
			split(rig.vm, &args);
			now = mapped(&rig, "pages_4k");
			TEST_ASSERT(!chunk || now - was <= chunk * PAGES_2M,
				    "one call made %lu pages", now - was);
			was = now;
		}
		TEST_ASSERT_EQ(was, rig.pages_4k + PAGES_1G);
		TEST_ASSERT_EQ(mapped(&rig, "pages_2m") + mapped(&rig, "pages_1g"), 0UL);
		rig_free(&rig);
	}
}

static bool write_number(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	bool ok;

	if (fd < 0)
		return false;
	ok = write(fd, text, strlen(text)) == strlen(text);
	close(fd);
	return ok;
}

#define FAIL	"/sys/kernel/debug/failslab/"

/* No memory: it is not split, which is counted and goes no further. */
static void test_no_memory(void)
{
	struct kvm_split_huge_pages args = {
		.gpa = TEST_GPA, .size = NR_PAGES * PAGE_SIZE,
	};
	uint64_t failed;
	struct rig rig;
	int fail, ret;

	/* Open all the while: to open it takes memory, too. */
	fail = open("/proc/self/make-it-fail", O_WRONLY);
	if (fail < 0 || !write_number(FAIL "task-filter", "Y")) {
		print_skip("  no fault injection");
		return;
	}
	if (!rig_create(&rig, VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, NR_PAGES, 0))
		return;
	set_mode(rig.vm, KVM_EAGER_PAGE_SPLIT_ON, 0);
	failed = vm_get_stat(rig.vm, "split_failed");
	write_number(FAIL "ignore-gfp-wait", "N");
	write_number(FAIL "cache-filter", "N");
	write_number(FAIL "verbose", "0");
	write_number(FAIL "interval", "1");
	write_number(FAIL "times", "-1");
	write_number(FAIL "probability", "100");
	TEST_ASSERT(write(fail, "1", 1) == 1, "no task to fail");
	ret = __vm_split_huge_pages(rig.vm, &args);
	TEST_ASSERT(write(fail, "0", 1) == 1, "everything fails from now on");
	close(fail);
	write_number(FAIL "probability", "0");
	write_number(FAIL "task-filter", "N");
	TEST_ASSERT(!ret || errno == ENOMEM, KVM_IOCTL_ERROR(SPLIT, ret));
	TEST_ASSERT(vm_get_stat(rig.vm, "split_failed") > failed,
		    "the failure was not counted");
	TEST_ASSERT(mapped(&rig, "pages_2m"), "it was split without memory");

	guest_stride(rig.vcpu, GUEST_WRITE, TEST_GPA, PAGE_SIZE, NR_PAGES, 5);
	args.gpa = TEST_GPA;
	args.size = NR_PAGES * PAGE_SIZE;
	while (args.size)
		split(rig.vm, &args);
	expect_split(&rig, NR_HUGE, "with memory again");
	rig_free(&rig);
}

static const struct named_test tests[] = {
	{ "arguments", test_arguments },
	{ "answer", test_answer },
	{ "log-start", test_log_starts },
	{ "clear", test_clear },
	{ "clear-at-border", test_clear_at_border },
	{ "first-page", test_first_page },
	{ "reset-of-nothing", test_reset_of_nothing },
	{ "range", test_range },
	{ "chunk", test_chunk },
	{ "logged", test_logged },
	{ "signal", test_signal },
	{ "gigantic", test_gigantic },
	{ "no-memory", test_no_memory },
};

int main(int argc, char *argv[])
{
	const char *only = named_argument(argc, argv, tests, ARRAY_SIZE(tests));

	TEST_REQUIRE(kvm_has_cap(KVM_CAP_EAGER_PAGE_SPLIT));
	/* The shadow of a guest's own page tables is another matter. */
	TEST_REQUIRE(kvm_is_tdp_enabled());
	run_tests(tests, ARRAY_SIZE(tests), only);
	return 0;
}
