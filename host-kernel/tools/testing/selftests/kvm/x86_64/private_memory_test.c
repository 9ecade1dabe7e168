// SPDX-License-Identifier: GPL-2.0-only
/*
 * A VM with private memory (KVM_SET_USER_MEMORY_REGION2), which KVM does not log.
 * Its other slots are logged as ever: exactly what was written there is found.
 * No harvest or re-arm takes anything from the private pages, or from those that
 * become shared and private again.
 */
#define _GNU_SOURCE /* for program_invocation_short_name */
#include "kvm_util.h"
#include "test_util.h"
#include "processor.h"
#include "dirty_bitmap.h"
#include "dirty_tracking.h"
#include "named_tests.h"
#include "selftest_release.h"
#include "test_mem.h"
#include "touching_guest.h"

#ifdef KVM_CAP_GUEST_MEMFD

#define LOG		KVM_MEM_LOG_DIRTY_PAGES

/* The pages of the slot that is logged, and which of them are written. */
#define NPAGES		(2 * PAGES_2M)
#define STRIDE		3UL

/* In the same GiB, so that one table refers to what is logged and what is not. */
#define PRIVATE_SLOT	2
#define PRIVATE_GPA	(TEST_GPA + 8 * PG_SIZE_2M)
#define PRIVATE_PAGES	(2 * PAGES_2M)
#define PRIVATE_SIZE	(PRIVATE_PAGES * PAGE_SIZE)
#define HALF		(PRIVATE_SIZE / 2)

/* How many of dirty_bits_caps a VM has. */
#define WRITE_PROTECT	2
#define DIRTY_BITS	NR_DIRTY_BITS_CAPS

/* A VM with a slot that is logged and one that is private. */
struct rig {
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	struct test_mem mem;
	struct shared_bitmap shared;
	unsigned long *got;
	int nr_caps;
	int memfd;
};

static void rig_create(struct rig *rig, int nr_caps)
{
	const struct vm_shape shape = {
		.mode = VM_MODE_DEFAULT,
		.type = KVM_X86_SW_PROTECTED_VM,
	};

	memset(rig, 0, sizeof(*rig));
	rig->nr_caps = nr_caps;
	rig->mem.slot = TEST_SLOT;
	rig->mem.gpa = TEST_GPA;
	rig->mem.npages = NPAGES;
	TEST_ASSERT(test_mem_map(&rig->mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	rig->got = bitmap_zalloc(NPAGES);
	rig->vm = __vm_create(shape, 1, 0);
	add_touchers_with(rig->vm, dirty_bits_caps, nr_caps, 1, &rig->vcpu);
	rig->memfd = vm_create_guest_memfd(rig->vm, PRIVATE_SIZE, 0);
	vm_mem_add(rig->vm, VM_MEM_SRC_ANONYMOUS, PRIVATE_GPA, PRIVATE_SLOT,
		   PRIVATE_PAGES, KVM_MEM_GUEST_MEMFD, rig->memfd, 0);
	vm_mem_set_private(rig->vm, PRIVATE_GPA, PRIVATE_SIZE);
	guest_map(rig->vm, TEST_GPA, PRIVATE_GPA + PRIVATE_SIZE - TEST_GPA);
	test_mem_set(rig->vm, &rig->mem, LOG);
	shared_bitmap_map(rig->vm, TEST_SLOT, NPAGES, &rig->shared);
}

static void rig_free(struct rig *rig)
{
	shared_bitmap_unmap(&rig->shared);
	kvm_vm_free(rig->vm);
	close(rig->memfd);
	test_mem_unmap(&rig->mem);
	free(rig->got);
}

/* Harvests and re-arms all that the VM has; returns how many pages are found. */
static uint64_t harvest(struct rig *rig)
{
	uint64_t found;

	if (rig->nr_caps == DIRTY_BITS)
		vm_collect_dirty_bits(rig->vm, 0, EVERYTHING);
	memset(rig->got, 0, bitmap_size(NPAGES));
	found = shared_bitmap_harvest(&rig->shared, 0, NPAGES, rig->got);
	if (rig->nr_caps != DIRTY_BITS)
		vm_write_protect_all(rig->vm);
	return found;
}

static void write_logged(struct rig *rig, uint64_t value)
{
	guest_stride(rig->vcpu, GUEST_WRITE, TEST_GPA, STRIDE * PAGE_SIZE,
		     DIV_ROUND_UP(NPAGES, STRIDE), value);
}

/* Of the private slot, from @offset on; sizes are in bytes. */
static void write_private(struct rig *rig, uint64_t offset, uint64_t size,
			  uint64_t value)
{
	guest_stride(rig->vcpu, GUEST_WRITE, PRIVATE_GPA + offset, PAGE_SIZE,
		     size / PAGE_SIZE, value);
}

static void expect_private(struct rig *rig, uint64_t offset, uint64_t size,
			   uint64_t value)
{
	guest_stride(rig->vcpu, GUEST_EXPECT, PRIVATE_GPA + offset, PAGE_SIZE,
		     size / PAGE_SIZE, value);
}

/* What write_logged() has written since the last harvest, and nothing else. */
static void expect_logged(struct rig *rig, const char *when)
{
	harvest(rig);
	expect_stride(rig->got, NPAGES, 0, NPAGES, STRIDE, when);
}

static void expect_nothing(struct rig *rig, const char *when)
{
	uint64_t found = harvest(rig);

	TEST_ASSERT(!found, "%s: %lu pages are dirty for nothing", when, found);
}

/* The guest writes to both slots between two harvests, several times. */
static void check_written(int nr_caps)
{
	struct rig rig;
	uint64_t value;

	rig_create(&rig, nr_caps);
	for (value = 1; value < 5; value++) {
		write_logged(&rig, value);
		write_private(&rig, 0, PRIVATE_SIZE, value);
		expect_logged(&rig, "both written");
		expect_private(&rig, 0, PRIVATE_SIZE, value);
		expect_nothing(&rig, "private pages read");
		write_private(&rig, 0, PRIVATE_SIZE, value + 1);
		expect_nothing(&rig, "private pages written");
		expect_private(&rig, 0, PRIVATE_SIZE, value + 1);
	}
	rig_free(&rig);
}

/*
 * The first half becomes shared and then private again.  Each is memory of its
 * own: what was private is still there.
 */
static void check_converted(int nr_caps)
{
	uint64_t *hva;
	struct rig rig;

	rig_create(&rig, nr_caps);
	hva = addr_gpa2hva(rig.vm, PRIVATE_GPA);
	write_private(&rig, 0, PRIVATE_SIZE, 7);
	write_logged(&rig, 1);

	vm_mem_set_shared(rig.vm, PRIVATE_GPA, HALF);
	expect_logged(&rig, "half shared");
	write_private(&rig, 0, HALF, 8);
	expect_nothing(&rig, "shared half written");
	TEST_ASSERT(*hva == 8, "the host sees %lu instead of 8", *hva);
	expect_private(&rig, HALF, HALF, 7);

	write_logged(&rig, 2);
	vm_mem_set_private(rig.vm, PRIVATE_GPA, HALF);
	expect_logged(&rig, "private again");
	expect_private(&rig, 0, PRIVATE_SIZE, 7);
	TEST_ASSERT(*hva == 8, "the host sees %lu instead of 8", *hva);

	/* Any page may be called private.  KVM zaps it, as its contents change. */
	write_logged(&rig, 3);
	vm_mem_set_private(rig.vm, TEST_GPA, NPAGES * PAGE_SIZE);
	vm_mem_set_shared(rig.vm, TEST_GPA, NPAGES * PAGE_SIZE);
	expect_logged(&rig, "logged pages zapped");
	rig_free(&rig);
}

/* The pages go while their leaves are writable, and dirty. */
static void check_punched(int nr_caps)
{
	struct rig rig;

	rig_create(&rig, nr_caps);
	write_private(&rig, 0, PRIVATE_SIZE, 7);
	write_logged(&rig, 1);
	vm_guest_mem_punch_hole(rig.vm, PRIVATE_GPA, HALF);
	expect_logged(&rig, "hole punched");
	expect_private(&rig, 0, HALF, 0);
	expect_private(&rig, HALF, HALF, 7);
	write_private(&rig, 0, HALF, 8);
	vm_guest_mem_punch_hole(rig.vm, PRIVATE_GPA, PRIVATE_SIZE);
	expect_nothing(&rig, "all of it punched");
	expect_private(&rig, 0, PRIVATE_SIZE, 0);
	rig_free(&rig);
}

static void each_way(void (*check)(int nr_caps))
{
	pr_info("  write-protect all\n");
	check(WRITE_PROTECT);
	pr_info("  dirty bits\n");
	check(DIRTY_BITS);
}

static void test_written(void)
{
	each_way(check_written);
}

static void test_converted(void)
{
	each_way(check_converted);
}

static void test_punched(void)
{
	each_way(check_punched);
}

/* Nothing of ours makes KVM log what it has no bitmap for. */
static void test_refused(void)
{
	struct kvm_dirty_bitmap_fd desc;
	struct rig rig;

	rig_create(&rig, DIRTY_BITS);
	TEST_ERRNO(__vm_set_user_memory_region2(rig.vm, PRIVATE_SLOT + 1,
						KVM_MEM_GUEST_MEMFD | LOG,
						PRIVATE_GPA + PRIVATE_SIZE,
						PG_SIZE_2M, rig.mem.hva,
						rig.memfd, 0), EINVAL);
	TEST_ERRNO(__vm_get_dirty_bitmap_fd(rig.vm, PRIVATE_SLOT, 0, &desc),
		   ENOENT);
	rig_free(&rig);
}

static const struct named_test tests[] = {
	{ "written", test_written },
	{ "converted", test_converted },
	{ "punched", test_punched },
	{ "refused", test_refused },
};

int main(int argc, char *argv[])
{
	const char *only = named_argument(argc, argv, tests, ARRAY_SIZE(tests));

	TEST_REQUIRE(kvm_has_cap(KVM_CAP_DIRTY_BITS));
	TEST_REQUIRE(kvm_check_cap(KVM_CAP_VM_TYPES) &
		     BIT(KVM_X86_SW_PROTECTED_VM));
	run_tests(tests, ARRAY_SIZE(tests), only);
	return 0;
}

#else /* Linux before 6.8 has no private memory. */

int main(void)
{
	ksft_exit_skip("- This KVM has no private memory\n");
}

#endif
