// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who has the CPU log writes (PML), and what is in the bitmap then: a VM that
 * enables nothing of ours takes no fault for a write that is logged, and one that
 * waits for faults, to re-arm all its memory at once, has PML off.
 */
#define _GNU_SOURCE /* for program_invocation_short_name */
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

/* More than the CPU's buffer has room for, 512 entries. */
#define NPAGES		1300UL
#define STRIDE		3UL
#define NWRITTEN	DIV_ROUND_UP(NPAGES, STRIDE)

static const uint32_t write_protect_caps[] = {
	KVM_CAP_WRITE_PROTECT_ALL_MEM,
};

/* A VM with a slot that is logged, and all of which was just harvested. */
struct rig {
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	struct test_mem mem;
	unsigned long *got;
};

static void rig_create(struct rig *rig, const uint32_t *caps, int nr_caps)
{
	memset(rig, 0, sizeof(*rig));
	rig->mem.slot = TEST_SLOT;
	rig->mem.gpa = TEST_GPA;
	rig->mem.npages = NPAGES;
	TEST_ASSERT(test_mem_map(&rig->mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	rig->vm = toucher_vm(caps, nr_caps, 1, &rig->vcpu);
	rig->got = bitmap_zalloc(NPAGES);
	guest_map(rig->vm, TEST_GPA, NPAGES * PAGE_SIZE);
	test_mem_set(rig->vm, &rig->mem, KVM_MEM_LOG_DIRTY_PAGES);
	guest_stride(rig->vcpu, GUEST_WRITE, TEST_GPA, PAGE_SIZE, NPAGES, 1);
	kvm_vm_get_dirty_log(rig->vm, TEST_SLOT, rig->got);
	TEST_ASSERT(count_bits(rig->got, NPAGES) == NPAGES,
		    "%lu pages of %lu are dirty", count_bits(rig->got, NPAGES),
		    NPAGES);
}

static void rig_free(struct rig *rig)
{
	kvm_vm_free(rig->vm);
	test_mem_unmap(&rig->mem);
	free(rig->got);
}

/* Each STRIDEth page is written, and those are dirty; returns the faults. */
static uint64_t write_some(struct rig *rig)
{
	uint64_t faults = vcpu_page_faults(rig->vcpu);

	guest_stride(rig->vcpu, GUEST_WRITE, TEST_GPA, STRIDE * PAGE_SIZE,
		     NWRITTEN, 2);
	faults = vcpu_page_faults(rig->vcpu) - faults;
	kvm_vm_get_dirty_log(rig->vm, TEST_SLOT, rig->got);
	expect_stride(rig->got, NPAGES, 0, NPAGES, STRIDE, "some written");
	return faults;
}

static void test_log(void)
{
	uint64_t faults;
	struct rig rig;

	rig_create(&rig, NULL, 0);
	faults = write_some(&rig);
	TEST_ASSERT(faults < NWRITTEN / 8, "%lu faults for %lu pages", faults,
		    NWRITTEN);
	/* All of them, so that the buffer is full twice. */
	faults = vcpu_page_faults(rig.vcpu);
	guest_stride(rig.vcpu, GUEST_WRITE, TEST_GPA, PAGE_SIZE, NPAGES, 3);
	faults = vcpu_page_faults(rig.vcpu) - faults;
	TEST_ASSERT(faults < NPAGES / 8, "%lu faults for %lu pages", faults,
		    NPAGES);
	kvm_vm_get_dirty_log(rig.vm, TEST_SLOT, rig.got);
	TEST_ASSERT(count_bits(rig.got, NPAGES) == NPAGES, "%lu pages of %lu",
		    count_bits(rig.got, NPAGES), NPAGES);
	rig_free(&rig);
}

static void test_write_protect(void)
{
	uint64_t faults;
	struct rig rig;

	rig_create(&rig, write_protect_caps, ARRAY_SIZE(write_protect_caps));
	faults = write_some(&rig);
	TEST_ASSERT(faults >= NWRITTEN, "%lu faults for %lu pages", faults,
		    NWRITTEN);
	rig_free(&rig);
}

/* All pages are written, and no more are logged than a collect finds. */
static void expect_collected_only(struct rig *rig, struct shared_bitmap *shared)
{
	memset(rig->got, 0, bitmap_size(NPAGES));
	TEST_ASSERT(!shared_bitmap_harvest(shared, 0, NPAGES, rig->got),
		    "what nobody collected is logged");
	vm_collect_dirty_bits(rig->vm, TEST_GPA, NPAGES * PAGE_SIZE);
	TEST_ASSERT(shared_bitmap_harvest(shared, 0, NPAGES, rig->got) == NPAGES,
		    "%lu pages of %lu", count_bits(rig->got, NPAGES), NPAGES);
}

static void test_dirty_bits(void)
{
	struct shared_bitmap shared;
	struct rig rig;

	TEST_REQUIRE(kvm_has_cap(KVM_CAP_DIRTY_BITS));
	rig_create(&rig, dirty_bits_caps, ARRAY_SIZE(dirty_bits_caps));
	shared_bitmap_map(rig.vm, TEST_SLOT, NPAGES, &shared);
	/* The collect leaves tables writable: the next writes take no fault. */
	guest_stride(rig.vcpu, GUEST_WRITE, TEST_GPA, PAGE_SIZE, NPAGES, 2);
	vm_collect_dirty_bits(rig.vm, TEST_GPA, NPAGES * PAGE_SIZE);
	shared_bitmap_harvest(&shared, 0, NPAGES, rig.got);
	guest_stride(rig.vcpu, GUEST_WRITE, TEST_GPA, PAGE_SIZE, NPAGES, 3);
	expect_collected_only(&rig, &shared);
	shared_bitmap_unmap(&shared);
	rig_free(&rig);
}

/*
 * A vCPU that is created while a slot is logged.  PML would log at the exit what
 * nobody has collected.
 */
static void test_late_vcpu(void)
{
	struct shared_bitmap shared;
	struct kvm_vcpu *late;
	struct rig rig;

	TEST_REQUIRE(kvm_has_cap(KVM_CAP_DIRTY_BITS));
	rig_create(&rig, dirty_bits_caps, ARRAY_SIZE(dirty_bits_caps));
	shared_bitmap_map(rig.vm, TEST_SLOT, NPAGES, &shared);
	late = vm_vcpu_add(rig.vm, 1, guest_toucher);
	vcpu_args_set(late, 1, 1);
	guest_stride(late, GUEST_WRITE, TEST_GPA, PAGE_SIZE, NPAGES, 2);
	expect_collected_only(&rig, &shared);
	shared_bitmap_unmap(&shared);
	rig_free(&rig);
}

static const struct named_test tests[] = {
	{ "log", test_log },
	{ "write-protect", test_write_protect },
	{ "dirty-bits", test_dirty_bits },
	{ "late-vcpu", test_late_vcpu },
};

int main(int argc, char *argv[])
{
	const char *only = named_argument(argc, argv, tests, ARRAY_SIZE(tests));

	TEST_REQUIRE(kvm_has_cap(KVM_CAP_WRITE_PROTECT_ALL_MEM));
	TEST_REQUIRE(host_cpu_is_intel && get_kvm_intel_param_bool("pml"));
	run_tests(tests, ARRAY_SIZE(tests), only);
	return 0;
}
