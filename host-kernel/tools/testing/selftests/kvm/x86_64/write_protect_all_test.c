// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests of KVM_WRITE_PROTECT_ALL_MEM, KVM_WRITE_PROTECT_RANGE and
 * KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT.
 *
 * Most of it is a model: for each page of a slot it knows whether the next
 * write has to be logged, then does random things to the slot, and sees that
 * exactly those pages are reported which must be.
 */
#define _GNU_SOURCE /* for program_invocation_short_name */
#include <pthread.h>
#include <sys/wait.h>
#include <asm/kvm_para.h>

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

#define OTHER_SLOT	2
#define MAP_SIZE	(3UL << 30)

static const uint32_t both_caps[] = {
	KVM_CAP_WRITE_PROTECT_ALL_MEM,
	KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
};

static int nr_steps = 120;
static uint64_t first_seed = 1;

/* Userspace is told what the capability costs before it enables it. */
static int offered(void)
{
	bool pml = host_cpu_is_intel && get_kvm_intel_param_bool("pml");

	return 1 | (pml ? KVM_WRITE_PROTECT_DISABLES_CPU_LOG : 0);
}

static void test_opt_in(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;

	TEST_ASSERT(kvm_check_cap(KVM_CAP_WRITE_PROTECT_ALL_MEM) == offered(),
		    "KVM_CAP_WRITE_PROTECT_ALL_MEM is not %d", offered());
	TEST_ASSERT(kvm_check_cap(KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT) == 1,
		    "KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT is not 1");

	/* Nothing is there until it is enabled. */
	vm = vm_create(1);
	TEST_ASSERT(vm_check_cap(vm, KVM_CAP_WRITE_PROTECT_ALL_MEM) == offered(),
		    "KVM_CAP_WRITE_PROTECT_ALL_MEM is not %d on a VM", offered());
	TEST_ERRNO(__vm_write_protect_all(vm), ENXIO);
	TEST_ERRNO(__vm_write_protect_range(vm, 0, PAGE_SIZE, 0), ENXIO);

	TEST_ERRNO(__vm_enable_cap_args(vm, KVM_CAP_WRITE_PROTECT_ALL_MEM,
					0, 1, 0), EINVAL);
	TEST_ERRNO(__vm_enable_cap_args(vm, KVM_CAP_WRITE_PROTECT_ALL_MEM,
					0, ~0ULL, 0), EINVAL);
	TEST_ERRNO(__vm_enable_cap_args(vm, KVM_CAP_WRITE_PROTECT_ALL_MEM,
					1, 0, 0), EINVAL);
	expect_unused_args(vm, KVM_CAP_WRITE_PROTECT_ALL_MEM, 0);
	TEST_ERRNO(__vm_write_protect_all(vm), ENXIO);

	/* Without page tables, and without vCPUs. */
	vm_enable_cap(vm, KVM_CAP_WRITE_PROTECT_ALL_MEM, 0);
	vm_write_protect_all(vm);
	vm_write_protect_range(vm, 0, PAGE_SIZE);

	vcpu = vm_vcpu_add(vm, 0, guest_toucher);
	vcpu_args_set(vcpu, 1, vcpu->id);
	vm_write_protect_all(vm);
	vm_write_protect_range(vm, 0, PAGE_SIZE);
	guest_finish(vcpu);
	vm_write_protect_all(vm);
	guest_finish(vcpu);
	kvm_vm_free(vm);

	/* Too late. */
	vm = vm_create_barebones();
	vm_userspace_mem_region_add(vm, VM_MEM_SRC_ANONYMOUS, 0, 0, 1,
				    KVM_MEM_LOG_DIRTY_PAGES);
	TEST_ERRNO(__vm_enable_cap_args(vm, KVM_CAP_WRITE_PROTECT_ALL_MEM,
					0, 0, 0), EBUSY);
	kvm_vm_free(vm);

	vm = vm_create_with_one_vcpu(&vcpu, guest_toucher);
	TEST_ERRNO(__vm_enable_cap_args(vm, KVM_CAP_WRITE_PROTECT_ALL_MEM,
					0, 0, 0), EBUSY);
	TEST_ERRNO(__vm_write_protect_all(vm), ENXIO);
	TEST_ERRNO(__vm_write_protect_range(vm, 0, PAGE_SIZE, 0), ENXIO);

	/* Without the first nothing could be protected: not the other alone. */
	TEST_ERRNO(__vm_enable_cap_args(vm,
					KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
					0, 0, 0), EINVAL);
	kvm_vm_free(vm);

	/* After the first it may come at any time. */
	vm = toucher_vm(both_caps, 1, 1, &vcpu);
	TEST_ERRNO(__vm_enable_cap_args(vm,
					KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
					0, 1, 0), EINVAL);
	TEST_ERRNO(__vm_enable_cap_args(vm,
					KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
					1, 0, 0), EINVAL);
	expect_unused_args(vm, KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT, 0);
	vm_enable_cap(vm, KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT, 0);
	kvm_vm_free(vm);
}

static void allow(char value)
{
	const char *path = "/sys/module/kvm/parameters/dirty_tracking";
	int fd = open(path, O_WRONLY);

	TEST_ASSERT(fd >= 0 && write(fd, &value, 1) == 1,
		    "%s cannot be written: %s", path, strerror(errno));
	close(fd);
}

static void test_not_allowed(void)
{
	const unsigned int caps[] = {
		KVM_CAP_WRITE_PROTECT_ALL_MEM,
		KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
		KVM_CAP_DIRTY_BITMAP_FD,
		KVM_CAP_EAGER_PAGE_SPLIT,
		KVM_CAP_DIRTY_BITS,
	};
	struct kvm_vm *vm = vm_create_barebones(), *before;
	int i;

	before = vm_create_barebones();
	vm_enable_cap(before, KVM_CAP_WRITE_PROTECT_ALL_MEM, 0);
	allow('N');
	for (i = 0; i < ARRAY_SIZE(caps); i++) {
		TEST_ASSERT(!kvm_check_cap(caps[i]) && !vm_check_cap(vm, caps[i]),
			    "capability %u is reported", caps[i]);
		TEST_ERRNO(__vm_enable_cap_args(vm, caps[i], 0, 0, 0), EINVAL);
	}
	TEST_ERRNO(__vm_write_protect_all(vm), ENXIO);
	vm_write_protect_all(before);

	allow('Y');
	vm_enable_cap(vm, KVM_CAP_WRITE_PROTECT_ALL_MEM, 0);
	vm_write_protect_all(vm);
	kvm_vm_free(vm);
	kvm_vm_free(before);
}

static void test_range_arguments(void)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(both_caps, 1, 1, &vcpu);
	uint64_t max = (vm->max_gfn + 1) * PAGE_SIZE;

	TEST_ERRNO(__vm_write_protect_range(vm, 0, PAGE_SIZE, 1), EINVAL);
	TEST_ERRNO(__vm_write_protect_range(vm, 0, PAGE_SIZE, 1ULL << 63), EINVAL);
	TEST_ERRNO(__vm_write_protect_range(vm, 1, PAGE_SIZE, 0), EINVAL);
	TEST_ERRNO(__vm_write_protect_range(vm, 0, PAGE_SIZE - 1, 0), EINVAL);
	TEST_ERRNO(__vm_write_protect_range(vm, 0, 1, 0), EINVAL);
	TEST_ERRNO(__vm_write_protect_range(vm, 0, 0, 0), EINVAL);
	TEST_ERRNO(__vm_write_protect_range(vm, TEST_GPA, 0, 0), EINVAL);
	TEST_ERRNO(__vm_write_protect_range(vm, -PAGE_SIZE, 2 * PAGE_SIZE, 0),
		   EINVAL);
	TEST_ERRNO(__vm_write_protect_range(vm, 2 * PAGE_SIZE, -PAGE_SIZE, 0),
		   EINVAL);
	TEST_ERRNO(__vm_ioctl(vm, KVM_WRITE_PROTECT_RANGE,
			      (struct kvm_write_protect_range *)8), EFAULT);

	/* There need not be anything, nor could there be. */
	vm_write_protect_range(vm, 0, PAGE_SIZE);
	vm_write_protect_range(vm, TEST_GPA, PG_SIZE_1G);
	vm_write_protect_range(vm, max - PAGE_SIZE, PAGE_SIZE);
	vm_write_protect_range(vm, max, PG_SIZE_1G);
	vm_write_protect_range(vm, 0, -PAGE_SIZE);
	vm_write_protect_range(vm, 1UL << 62, 1UL << 62);
	guest_finish(vcpu);
	kvm_vm_free(vm);
}

/*
 * A signal ends a call, and nothing is lost by that.  With shadow pages there is
 * a look for one per GiB of a slot; else one per 512 GiB, so that few are seen.
 */
static void test_signal(void)
{
	const uint64_t half = 512 * PG_SIZE_1G;
	struct test_mem mems[] = {
		{ .slot = TEST_SLOT, .gpa = TEST_GPA, .npages = 8 * PAGES_1G },
		{ .slot = OTHER_SLOT, .gpa = half, .npages = PAGES_2M },
	};
	unsigned long *bitmap = bitmap_zalloc(mems[0].npages);
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(both_caps, 2, 1, &vcpu);
	uint64_t calls = 0;
	int i, round, signals = 0;

	for (i = 0; i < ARRAY_SIZE(mems); i++) {
		TEST_ASSERT(test_mem_map(&mems[i], VM_MEM_SRC_ANONYMOUS),
			    "no memory");
		test_mem_set(vm, &mems[i], KVM_MEM_LOG_DIRTY_PAGES);
		guest_map(vm, mems[i].gpa, PG_SIZE_2M);
	}
	for (round = 0; round < 20; round++) {
		for (i = 0; i < ARRAY_SIZE(mems); i++) {
			guest_write(vcpu, mems[i].gpa, round);
			vm_get_dirty_log_no_wp(vm, mems[i].slot, bitmap);
			TEST_ASSERT(test_bit(0, bitmap),
				    "round %d: slot %d was not protected",
				    round, mems[i].slot);
		}
		begin_alarms();
		calls += call_until_done(vm, KVM_WRITE_PROTECT_RANGE, 0,
					 2 * half);
		end_alarms();
		signals += nr_alarms;
	}
	pr_info("  %lu calls, %d signals\n", calls, signals);
	kvm_vm_free(vm);
	for (i = 0; i < ARRAY_SIZE(mems); i++)
		test_mem_unmap(&mems[i]);
	free(bitmap);
}

static void test_log_flag(void)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = 100,
	};
	unsigned long *bitmap = bitmap_zalloc(mem.npages);
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(both_caps, 1, 1, &vcpu);

	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
	guest_map(vm, mem.gpa, PG_SIZE_2M);

	/* As in stock until enabled: ignored, page tables and all. */
	guest_write(vcpu, mem.gpa + 7 * PAGE_SIZE, 1);
	TEST_ASSERT(!__vm_get_dirty_log(vm, mem.slot, ~0U, bitmap),
		    "padding1 was looked at though nothing is enabled");
	TEST_ASSERT(test_bit(7, bitmap), "page 7 is not dirty");
	guest_write(vcpu, mem.gpa + 7 * PAGE_SIZE, 2);
	kvm_vm_get_dirty_log(vm, mem.slot, bitmap);
	TEST_ASSERT(test_bit(7, bitmap), "page 7 was not protected");

	vm_enable_cap(vm, KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT, 0);
	guest_write(vcpu, mem.gpa + 7 * PAGE_SIZE, 3);
	TEST_ERRNO(__vm_get_dirty_log(vm, mem.slot, 2, bitmap), EINVAL);
	TEST_ERRNO(__vm_get_dirty_log(vm, mem.slot, 3, bitmap), EINVAL);
	TEST_ERRNO(__vm_get_dirty_log(vm, mem.slot, 1U << 31, bitmap), EINVAL);
	TEST_ERRNO(__vm_get_dirty_log(vm, mem.slot + 1,
				      KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
				      bitmap), ENOENT);
	/* What fails loses nothing, neither here nor half-way. */
	TEST_ERRNO(__vm_get_dirty_log(vm, mem.slot,
				      KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
				      (void *)8), EFAULT);
	vm_get_dirty_log_no_wp(vm, mem.slot, bitmap);
	TEST_ASSERT(test_bit(7, bitmap), "a harvest that failed lost a page");
	guest_write(vcpu, mem.gpa + 7 * PAGE_SIZE, 4);
	vm_get_dirty_log_no_wp(vm, mem.slot, bitmap);
	TEST_ASSERT(!test_bit(7, bitmap), "page 7 was protected");

	/* Without the flag it is what it was. */
	guest_write(vcpu, mem.gpa + 8 * PAGE_SIZE, 5);
	kvm_vm_get_dirty_log(vm, mem.slot, bitmap);
	TEST_ASSERT(test_bit(8, bitmap), "page 8 is not dirty");
	guest_write(vcpu, mem.gpa + 8 * PAGE_SIZE, 6);
	kvm_vm_get_dirty_log(vm, mem.slot, bitmap);
	TEST_ASSERT(test_bit(8, bitmap), "page 8 was not protected");

	kvm_vm_free(vm);
	test_mem_unmap(&mem);
	free(bitmap);
}

static void pre_fault(struct kvm_vcpu *vcpu, const struct test_mem *mem)
{
	TEST_ASSERT(!__vcpu_pre_fault(vcpu, mem->gpa, mem->npages * PAGE_SIZE),
		    "KVM_PRE_FAULT_MEMORY: %s", strerror(errno));
}

/*
 * Pages that are mapped in advance are not dirty, whatever they were before, and their
 * next write is logged.  One that is writable already stays so.
 */
static void test_pre_fault(void)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = 100,
	};
	unsigned long *bitmap;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	uint64_t faults;
	int round;

	if (!can_pre_fault()) {
		print_skip("no KVM_PRE_FAULT_MEMORY");
		return;
	}
	bitmap = bitmap_zalloc(mem.npages);
	vm = toucher_vm(NULL, 0, 1, &vcpu);
	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
	guest_map(vm, mem.gpa, PG_SIZE_2M);

	for (round = 0; round < 3; round++) {
		pre_fault(vcpu, &mem);
		kvm_vm_get_dirty_log(vm, mem.slot, bitmap);
		TEST_ASSERT_EQ(count_bits(bitmap, mem.npages), 0UL);
		guest_write(vcpu, mem.gpa + 7 * PAGE_SIZE, round);
		pre_fault(vcpu, &mem);
		faults = vcpu_page_faults(vcpu);
		guest_write(vcpu, mem.gpa + 7 * PAGE_SIZE, round);
		TEST_ASSERT_EQ(vcpu_page_faults(vcpu), faults);
		kvm_vm_get_dirty_log(vm, mem.slot, bitmap);
		TEST_ASSERT(test_bit(7, bitmap), "page 7 is not dirty");
		TEST_ASSERT_EQ(count_bits(bitmap, mem.npages), 1UL);
	}
	kvm_vm_free(vm);
	test_mem_unmap(&mem);
	free(bitmap);
}

#define LONG_RUN	(20 * 1000 * 1000)

struct runner {
	struct kvm_vcpu *vcpu;
	bool done;
};

static void *run_long(void *data)
{
	struct runner *runner = data;

	guest_stride(runner->vcpu, GUEST_WRITE, TEST_GPA, 0, LONG_RUN, 1);
	__atomic_store_n(&runner->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* A fetch has no CPU's log to empty, so that vCPUs go on while it fetches. */
static void test_fetch_while_running(void)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = 64,
	};
	struct runner runner = {};
	struct kvm_vm *vm = toucher_vm(both_caps, ARRAY_SIZE(both_caps), 1,
				       &runner.vcpu);
	uint64_t fetches = 0, exits;
	unsigned long bitmap;
	pthread_t thread;

	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
	guest_map(vm, mem.gpa, mem.npages * PAGE_SIZE);
	exits = vcpu_stat(runner.vcpu, "exits");
	TEST_ASSERT(!pthread_create(&thread, NULL, run_long, &runner),
		    "no thread");
	for (; !__atomic_load_n(&runner.done, __ATOMIC_ACQUIRE); fetches++)
		vm_get_dirty_log_no_wp(vm, mem.slot, &bitmap);
	pthread_join(thread, NULL);
	exits = vcpu_stat(runner.vcpu, "exits") - exits;
	TEST_ASSERT(fetches > 100, "there were only %lu fetches", fetches);
	/* Not as many as kicks make, but the host's timer interrupts. */
	TEST_ASSERT(exits < LONG_RUN / 2000, "%lu exits in %lu fetches", exits,
		    fetches);
	kvm_vm_free(vm);
	test_mem_unmap(&mem);
}

/* EFAULT in the middle of a large bitmap: the words copied come back too. */
static void test_log_fault(void)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = 2 * PAGES_1G,
	};
	const uint64_t stride = 1024 * PAGE_SIZE, count = 512;
	size_t bytes = mem.npages / 8;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(both_caps, 2, 1, &vcpu);
	unsigned long *bitmap;
	uint64_t i, n;

	bitmap = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TEST_ASSERT(bitmap != MAP_FAILED, "mmap failed");
	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
	guest_map(vm, mem.gpa, mem.npages * PAGE_SIZE);

	guest_stride(vcpu, GUEST_WRITE, mem.gpa, stride, count, 1);
	for (i = 0; i < bytes; i += bytes / 4) {
		mprotect((void *)bitmap + i, PAGE_SIZE, PROT_READ);
		TEST_ERRNO(__vm_get_dirty_log(vm, mem.slot,
				KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT, bitmap),
			   EFAULT);
		mprotect((void *)bitmap + i, PAGE_SIZE, PROT_READ | PROT_WRITE);
	}
	vm_get_dirty_log_no_wp(vm, mem.slot, bitmap);
	n = count_bits(bitmap, mem.npages);
	TEST_ASSERT(n == count, "%lu of %lu pages after EFAULT", n, count);
	for (i = 0; i < count; i++)
		TEST_ASSERT(test_bit(i * 1024, bitmap),
			    "page %lu lost by EFAULT", i * 1024);

	kvm_vm_free(vm);
	test_mem_unmap(&mem);
	munmap(bitmap, bytes);
}

/*
 * What is known of a page: the next write to it ...
 *
 * KVM may map a page writable when the guest reads it, and then logs it at
 * once, but need not, for instance if it is mapped already.
 */
enum {
	ARMED,		/* is logged */
	READ,		/* is logged, if reading has not done that already */
	OPEN,		/* is not logged */
	EITHER,
};

enum log_mode {
	LOG_PLAIN,
	LOG_MANUAL,
	LOG_MANUAL_INITIALLY_SET,
	NR_LOG_MODES,
};

static const char * const log_mode_names[] = {
	"plain", "manual", "manual, initially set",
};

#define TRAIL	16

struct model {
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpus[2];
	struct test_mem mem;
	struct test_mem other;
	enum log_mode mode;
	uint64_t huge;			/* bytes of its largest pages */
	struct shared_bitmap shared;
	bool has_shared;
	bool has_split;
	uint8_t *armed;
	unsigned long *must;
	unsigned long *may;
	unsigned long *got;
	uint64_t *value;
	uint64_t stamp;
	uint64_t seed;
	int step;
	const char *trail[TRAIL];	/* the last steps */
};

static uint64_t pick(struct model *m, uint64_t n)
{
	return random_below(&m->seed, n);
}

static bool logged(struct model *m)
{
	return m->mem.flags & KVM_MEM_LOG_DIRTY_PAGES;
}

/* Pages [first, first + n) of the slot are write-protected. */
static void model_arm(struct model *m, uint64_t first, uint64_t n, int state)
{
	uint64_t p;

	for (p = first; p < first + n; p++) {
		if (state == EITHER && m->armed[p] != OPEN)
			continue;
		m->armed[p] = state;
	}
}

/* What the slot has of [gpa, end) is. */
static void model_arm_range(struct model *m, uint64_t gpa, uint64_t end,
			    int state)
{
	uint64_t base = m->mem.gpa;
	uint64_t slot_end = base + m->mem.npages * PAGE_SIZE;
	uint64_t from = max(gpa, base);
	uint64_t to = min(end, slot_end);

	if (from < to)
		model_arm(m, (from - base) / PAGE_SIZE, (to - from) / PAGE_SIZE,
			  state);
}

static void model_fail(struct model *m, uint64_t p, const char *what)
{
	int i;

	fprintf(stderr, "the last steps were:");
	for (i = max(0, m->step - TRAIL + 1); i <= m->step; i++)
		fprintf(stderr, "%s %s", i % 4 ? "," : "\n ",
			m->trail[i % TRAIL]);
	fprintf(stderr, "\n");
	TEST_FAIL("page %lu (gpa 0x%lx) is %s in step %d", p,
		  m->mem.gpa + (p << PAGE_SHIFT), what, m->step);
}

static void model_check(struct model *m)
{
	uint64_t p;

	for (p = 0; p < m->mem.npages; p++) {
		if (test_bit(p, m->must) && !test_bit(p, m->got))
			model_fail(m, p, "lost");
		if (test_bit(p, m->got) && !test_bit(p, m->must) &&
		    !test_bit(p, m->may))
			model_fail(m, p, "dirty for nothing");
	}
}

static void model_forget(struct model *m)
{
	memset(m->must, 0, bitmap_size(m->mem.npages));
	memset(m->may, 0, bitmap_size(m->mem.npages));
}

static void model_touch(struct model *m, enum guest_op op)
{
	uint32_t list[GUEST_LIST_MAX];
	uint64_t n = 1 + pick(m, pick(m, 2) ? 8 : GUEST_LIST_MAX);
	uint64_t start = pick(m, m->mem.npages), i, p;
	bool run = pick(m, 2);

	for (i = 0; i < n; i++) {
		if (run)
			list[i] = (start + i) % m->mem.npages;
		else if (pick(m, 16) == 0)
			list[i] = pick(m, 2) ? 0 : m->mem.npages - 1;
		else
			list[i] = pick(m, m->mem.npages);
	}
	guest_list(m->vcpus[pick(m, 2)], op, m->mem.gpa, list, n, ++m->stamp);
	for (i = 0; i < n; i++) {
		p = list[i];
		if (op == GUEST_WRITE)
			m->value[p] = m->stamp;
		if (!logged(m))
			continue;
		if (op == GUEST_READ) {
			if (m->armed[p] == ARMED)
				m->armed[p] = READ;
			if (m->armed[p] != OPEN)
				set_bit(p, m->may);
			continue;
		}
		if (m->armed[p] == ARMED || m->armed[p] == READ)
			set_bit(p, m->must);
		else if (m->armed[p] == EITHER)
			set_bit(p, m->may);
		m->armed[p] = OPEN;
	}
}

/* All bits were taken; so if a read logged a page, it shows here. */
static void model_taken(struct model *m)
{
	uint64_t p;

	for (p = 0; p < m->mem.npages; p++)
		if (m->armed[p] == READ)
			m->armed[p] = test_bit(p, m->got) ? EITHER : ARMED;
	model_forget(m);
}

static void model_harvest_no_wp(struct model *m)
{
	if (m->has_shared && pick(m, 2)) {
		memset(m->got, 0, bitmap_size(m->mem.npages));
		shared_bitmap_harvest(&m->shared, 0, m->mem.npages, m->got);
	} else {
		vm_get_dirty_log_no_wp(m->vm, m->mem.slot, m->got);
	}
	model_check(m);
	model_taken(m);
}

static void model_get(struct model *m)
{
	uint64_t p;

	kvm_vm_get_dirty_log(m->vm, m->mem.slot, m->got);
	model_check(m);
	if (m->mode == LOG_PLAIN) {
		model_taken(m);
		for (p = 0; p < m->mem.npages; p++)
			if (test_bit(p, m->got))
				m->armed[p] = ARMED;
	} else {
		/* The bits are still there. */
		memcpy(m->must, m->got, bitmap_size(m->mem.npages));
		memset(m->may, 0, bitmap_size(m->mem.npages));
	}
}

static void model_clear(struct model *m)
{
	uint64_t first, n, p, lo = m->mem.npages, hi = 0;

	model_get(m);
	if (m->mode == LOG_PLAIN)
		return;
	first = pick(m, m->mem.npages) / 64 * 64;
	n = m->mem.npages - first;
	if (pick(m, 2) && n > 64)
		n = (1 + pick(m, n / 64)) * 64;
	kvm_vm_clear_dirty_log(m->vm, m->mem.slot,
			       (void *)m->got + first / 8, first, n);
	for (p = first; p < first + n; p++) {
		if (!test_bit(p, m->got))
			continue;
		m->armed[p] = ARMED;
		__clear_bit(p, m->must);
		lo = min(lo, p);
		hi = p + 1;
	}
	/* Of a huge page that was not split ahead, all other pages are, too. */
	if (m->mode == LOG_MANUAL_INITIALLY_SET && lo < hi)
		model_arm_range(m,
				align_down(m->mem.gpa + lo * PAGE_SIZE, m->huge),
				align_up(m->mem.gpa + hi * PAGE_SIZE, m->huge),
				EITHER);
}

static void model_protect_all(struct model *m)
{
	vm_write_protect_all(m->vm);
	model_arm(m, 0, m->mem.npages, ARMED);
}

static void model_protect_range(struct model *m)
{
	uint64_t base = m->mem.gpa, size = m->mem.npages * PAGE_SIZE;
	uint64_t gpa, end;

	switch (pick(m, 7)) {
	case 0:		/* the slot */
		gpa = base;
		end = base + size;
		break;
	case 1:		/* one 2 MiB */
		gpa = align_down(base + pick(m, size), PG_SIZE_2M);
		end = gpa + PG_SIZE_2M;
		break;
	case 2:		/* some 1 GiB */
		gpa = align_down(base + pick(m, size), PG_SIZE_1G);
		end = gpa + PG_SIZE_1G;
		break;
	case 3:		/* one page */
		gpa = align_down(base + pick(m, size), PAGE_SIZE);
		end = gpa + PAGE_SIZE;
		break;
	case 4:		/* what is next to the slot */
		gpa = align_up(base + size, PG_SIZE_2M);
		end = gpa + PG_SIZE_2M;
		break;
	case 5:		/* from far before to somewhere within */
		gpa = align_down(base, PG_SIZE_2M) - PG_SIZE_1G;
		end = align_down(base + pick(m, size), PAGE_SIZE) + PAGE_SIZE;
		break;
	default:	/* anything */
		gpa = align_down(base + pick(m, size), PAGE_SIZE);
		end = gpa + (1 + pick(m, m->mem.npages)) * PAGE_SIZE;
		break;
	}
	vm_write_protect_range(m->vm, gpa, end - gpa);

	model_arm_range(m, align_down(gpa, PG_SIZE_2M),
			align_up(end, PG_SIZE_2M), EITHER);
	model_arm_range(m, gpa, end, ARMED);
}

static void model_set(struct model *m, uint32_t flags)
{
	bool was = logged(m);

	if (m->has_shared && was)
		shared_bitmap_unmap(&m->shared);
	m->has_shared = false;
	test_mem_set(m->vm, &m->mem, flags);
	if (!logged(m))
		return;
	model_arm(m, 0, m->mem.npages, ARMED);
	model_forget(m);
	if (m->mode == LOG_MANUAL_INITIALLY_SET) {
		model_arm(m, 0, m->mem.npages, OPEN);
		model_arm(m, 0, m->mem.npages, EITHER);
		memset(m->must, 0xff, bitmap_size(m->mem.npages));
	}
	if (kvm_has_cap(KVM_CAP_DIRTY_BITMAP_FD)) {
		shared_bitmap_map(m->vm, m->mem.slot, m->mem.npages, &m->shared);
		m->has_shared = true;
	}
}

static void model_toggle(struct model *m)
{
	model_set(m, 0);
	if (pick(m, 2))
		model_touch(m, GUEST_WRITE);
	model_set(m, KVM_MEM_LOG_DIRTY_PAGES);
}

static void model_delete(struct model *m)
{
	test_mem_delete(m->vm, &m->mem);
	if (pick(m, 2))
		vm_write_protect_all(m->vm);
	if (m->has_shared)
		shared_bitmap_unmap(&m->shared);
	m->has_shared = false;
	m->mem.flags = 0;
	model_set(m, KVM_MEM_LOG_DIRTY_PAGES);
}

/* The bitmap of a slot moves with it. */
static void model_move(struct model *m)
{
	uint64_t was = m->mem.gpa;

	m->mem.gpa ^= pick(m, 2) ? PG_SIZE_2M * 4 : PAGE_SIZE * 8;
	vm_set_user_memory_region(m->vm, m->mem.slot, m->mem.flags, m->mem.gpa,
				  m->mem.npages * PAGE_SIZE, m->mem.hva);
	model_arm(m, 0, m->mem.npages, ARMED);
	if (pick(m, 2))
		return;
	m->mem.gpa = was;
	vm_set_user_memory_region(m->vm, m->mem.slot, m->mem.flags, m->mem.gpa,
				  m->mem.npages * PAGE_SIZE, m->mem.hva);
}

/* KVM may or may not drop all page tables when some slot goes. */
static void model_other(struct model *m)
{
	test_mem_set(m->vm, &m->other, KVM_MEM_LOG_DIRTY_PAGES);
	if (pick(m, 2))
		guest_write(m->vcpus[0], m->other.gpa, 1);
	test_mem_delete(m->vm, &m->other);
	model_arm(m, 0, m->mem.npages, EITHER);
}

static void model_split(struct model *m)
{
	struct kvm_split_huge_pages split = {
		.gpa = m->mem.gpa,
		.size = m->mem.npages * PAGE_SIZE,
	};
	int ret;

	if (!m->has_split)
		return;
	ret = __vm_split_huge_pages(m->vm, &split);
	TEST_ASSERT(!ret && !split.size, "KVM_SPLIT_HUGE_PAGES gave %d, %llu left",
		    ret, split.size);
}

static void model_read(struct model *m)
{
	model_touch(m, GUEST_READ);
}

static void model_write(struct model *m)
{
	model_touch(m, GUEST_WRITE);
}

static const struct {
	const char *name;
	void (*step)(struct model *m);
	int weight;
} steps[] = {
	{ "write", model_write, 12 },
	{ "read", model_read, 3 },
	{ "harvest without protecting", model_harvest_no_wp, 8 },
	{ "get", model_get, 2 },
	{ "get and clear", model_clear, 2 },
	{ "protect all", model_protect_all, 4 },
	{ "protect range", model_protect_range, 5 },
	{ "logging off and on", model_toggle, 1 },
	{ "delete and add", model_delete, 1 },
	{ "move", model_move, 1 },
	{ "another slot", model_other, 1 },
	{ "split", model_split, 1 },
};

static void run_model(enum vm_mem_backing_src_type src, uint64_t gpa,
		      uint64_t npages, enum log_mode mode)
{
	struct model m = {
		.mem = { .slot = TEST_SLOT, .gpa = gpa, .npages = npages },
		.other = { .slot = OTHER_SLOT, .npages = 600, },
		.mode = mode,
		.huge = get_backing_src_pagesz(src),
		.seed = first_seed * 0x9e3779b97f4a7c15ULL + mode + npages,
	};
	uint64_t hull = align_down(gpa, PG_SIZE_1G);
	int step, weight, i, total = 0;
	uint64_t p;

	pr_info("  model: %s, gpa 0x%lx, %lu pages, %s\n",
		vm_mem_backing_src_alias(src)->name, gpa, npages,
		log_mode_names[mode]);
	if (!test_mem_map(&m.mem, src)) {
		print_skip("  no such pages on this host");
		return;
	}
	m.vm = toucher_vm(both_caps, ARRAY_SIZE(both_caps), 2, m.vcpus);
	if (mode != LOG_PLAIN)
		vm_enable_cap(m.vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
			      mode == LOG_MANUAL ?
			      KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE :
			      KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE |
			      KVM_DIRTY_LOG_INITIALLY_SET);
	if (kvm_has_cap(KVM_CAP_DIRTY_BITMAP_FD))
		vm_enable_cap(m.vm, KVM_CAP_DIRTY_BITMAP_FD, 0);
	m.has_split = kvm_has_cap(KVM_CAP_EAGER_PAGE_SPLIT);
	if (m.has_split)
		vm_enable_cap(m.vm, KVM_CAP_EAGER_PAGE_SPLIT, 0);

	/* The whole GiB that the slot starts in, and two more. */
	guest_map(m.vm, hull, MAP_SIZE);
	m.other.gpa = align_up(gpa + npages * PAGE_SIZE, PG_SIZE_2M) +
		      PG_SIZE_2M * 16 + PAGE_SIZE;
	TEST_ASSERT(test_mem_map(&m.other, VM_MEM_SRC_ANONYMOUS), "no memory");

	m.armed = calloc(npages, 1);
	m.value = calloc(npages, sizeof(*m.value));
	m.must = bitmap_zalloc(npages);
	m.may = bitmap_zalloc(npages);
	m.got = bitmap_zalloc(npages);

	/* All that is written first may be mapped by huge pages. */
	model_set(&m, 0);
	guest_stride(m.vcpus[0], GUEST_WRITE, gpa, PAGE_SIZE, npages, ++m.stamp);
	for (p = 0; p < npages; p++)
		m.value[p] = m.stamp;
	model_set(&m, KVM_MEM_LOG_DIRTY_PAGES);

	for (i = 0; i < ARRAY_SIZE(steps); i++)
		total += steps[i].weight;
	for (step = 0; step < nr_steps; step++) {
		weight = pick(&m, total);
		for (i = 0; weight >= steps[i].weight; i++)
			weight -= steps[i].weight;
		m.step = step;
		m.trail[step % TRAIL] = steps[i].name;
		steps[i].step(&m);
	}
	model_harvest_no_wp(&m);
	for (p = 0; p < npages; p++)
		TEST_ASSERT(*(uint64_t *)(m.mem.hva + p * PAGE_SIZE) == m.value[p],
			    "page %lu holds %lu instead of %lu", p,
			    *(uint64_t *)(m.mem.hva + p * PAGE_SIZE), m.value[p]);

	if (m.has_shared)
		shared_bitmap_unmap(&m.shared);
	kvm_vm_free(m.vm);
	test_mem_unmap(&m.mem);
	test_mem_unmap(&m.other);
	free(m.armed);
	free(m.value);
	free(m.must);
	free(m.may);
	free(m.got);
}

static void test_model(void)
{
	static const enum vm_mem_backing_src_type srcs[] = {
		VM_MEM_SRC_ANONYMOUS,
		VM_MEM_SRC_ANONYMOUS_THP,
		VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB,
		VM_MEM_SRC_SHMEM,
	};
	static const struct {
		uint64_t gpa;
		uint64_t npages;
	} shapes[] = {
		{ TEST_GPA, 2 * PAGES_2M },
		{ TEST_GPA + 3 * PAGE_SIZE, 3 * PAGES_2M + 5 },
		{ TEST_GPA + 511 * PAGE_SIZE, 70 },
		{ TEST_GPA + PG_SIZE_1G - PG_SIZE_2M, 2 * PAGES_2M + 1 },
		{ (512UL << 30) - PAGE_SIZE * 700, 1411 },
	};
	uint64_t max_gpa;
	struct kvm_vm *vm = vm_create_barebones();
	int i, j, mode = 0;

	max_gpa = vm->max_gfn * PAGE_SIZE;
	kvm_vm_free(vm);

	for (i = 0; i < ARRAY_SIZE(srcs); i++) {
		if (srcs[i] == VM_MEM_SRC_ANONYMOUS_THP && !thp_configured())
			continue;
		for (j = 0; j < ARRAY_SIZE(shapes); j++) {
			if (shapes[j].gpa + MAP_SIZE > max_gpa)
				continue;
			run_model(srcs[i], shapes[j].gpa, shapes[j].npages,
				  mode++ % NR_LOG_MODES);
		}
	}
}

/* One page of memory, mapped by a page of 1 GiB if the host has one. */
static void test_gigantic(void)
{
	int mode;

	for (mode = 0; mode < NR_LOG_MODES; mode++)
		run_model(VM_MEM_SRC_ANONYMOUS_HUGETLB_1GB, TEST_GPA,
			  PAGES_1G, mode);
}

/* Far apart: each page below another entry of the upper tables. */
static void test_sparse(void)
{
	const uint64_t stride = PG_SIZE_2M + 3 * PAGE_SIZE, count = 1000;
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA + PAGE_SIZE,
		.npages = 2 * PAGES_1G + 77,
	};
	unsigned long *bitmap = bitmap_zalloc(mem.npages);
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(both_caps, 2, 1, &vcpu);
	uint64_t round, i, p, lo, hi, gpa;
	bool want;

	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(vm, &mem, 0);
	guest_map(vm, TEST_GPA, MAP_SIZE);
	guest_stride(vcpu, GUEST_WRITE, mem.gpa, stride, count, 1);
	test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
	guest_stride(vcpu, GUEST_WRITE, mem.gpa, stride, count, 2);
	vm_get_dirty_log_no_wp(vm, mem.slot, bitmap);

	for (round = 0; round < 6; round++) {
		lo = 0;
		hi = ~0UL;
		if (round == 1) {		/* one GiB */
			lo = TEST_GPA + PG_SIZE_1G;
			hi = lo + PG_SIZE_1G;
		} else if (round == 2) {	/* nothing */
			lo = 0;
			hi = 0;
		} else if (round == 3) {	/* odd ends, over a GiB and more */
			lo = TEST_GPA + 5 * PG_SIZE_2M;
			hi = TEST_GPA + PG_SIZE_1G + 9 * PG_SIZE_2M;
		} else if (round == 4) {	/* 2 MiB */
			lo = TEST_GPA + 100 * PG_SIZE_2M;
			hi = lo + PG_SIZE_2M;
		}
		if (hi == ~0UL)
			vm_write_protect_all(vm);
		else if (hi != lo)
			vm_write_protect_range(vm, lo, hi - lo);
		guest_stride(vcpu, GUEST_READ, mem.gpa, stride, count, 0);
		guest_stride(vcpu, GUEST_WRITE, mem.gpa, stride, count, round);
		vm_get_dirty_log_no_wp(vm, mem.slot, bitmap);
		for (i = 0; i < count; i++) {
			gpa = mem.gpa + i * stride;
			p = i * stride / PAGE_SIZE;
			want = gpa >= lo && gpa < hi;
			TEST_ASSERT(test_bit(p, bitmap) == want,
				    "round %lu: gpa 0x%lx is %s", round, gpa,
				    want ? "lost" : "dirty for nothing");
			__clear_bit(p, bitmap);
		}
		TEST_ASSERT(!count_bits(bitmap, mem.npages),
			    "round %lu: pages are dirty that nobody wrote", round);
	}
	kvm_vm_free(vm);
	test_mem_unmap(&mem);
	free(bitmap);
}

/* More write-protects than any generation in a page table entry can count. */
static void test_generations(void)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = 4 * PAGES_2M,
	};
	unsigned long *bitmap = bitmap_zalloc(mem.npages);
	struct kvm_vcpu *vcpus[2];
	struct kvm_vm *vm = toucher_vm(both_caps, 2, 2, vcpus);
	uint64_t seed = first_seed + 99, i, p;

	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
	guest_map(vm, mem.gpa, mem.npages * PAGE_SIZE);
	guest_stride(vcpus[0], GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages, 1);
	vm_get_dirty_log_no_wp(vm, mem.slot, bitmap);

	for (i = 0; i < 9000; i++) {
		if (i % 8 == 7)
			vm_write_protect_range(vm, mem.gpa, PG_SIZE_2M * 4);
		else
			vm_write_protect_all(vm);
		/* Thousands in a row, with no write in between, too. */
		if (i > 1500 && i < 6500 && i % 2500)
			continue;
		if (i % 13)
			continue;
		p = random_below(&seed, mem.npages);
		guest_write(vcpus[i & 1], mem.gpa + p * PAGE_SIZE, i);
		vm_get_dirty_log_no_wp(vm, mem.slot, bitmap);
		TEST_ASSERT(test_bit(p, bitmap),
			    "page %lu is lost after %lu write-protects", p, i);
		__clear_bit(p, bitmap);
		TEST_ASSERT(!count_bits(bitmap, mem.npages),
			    "too much is dirty after %lu write-protects", i);
	}
	kvm_vm_free(vm);
	test_mem_unmap(&mem);
	free(bitmap);
}

/* A read-only slot in the same tables must stay read-only. */
static void test_read_only_slot(void)
{
	struct test_mem rw = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = 256,
	};
	struct test_mem ro = {
		.slot = OTHER_SLOT, .gpa = TEST_GPA + 256 * PAGE_SIZE,
		.npages = 256,
	};
	unsigned long *bitmap = bitmap_zalloc(rw.npages);
	struct guest_command *c;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(both_caps, 2, 1, &vcpu);
	uint64_t round, gpa;

	TEST_ASSERT(test_mem_map(&rw, VM_MEM_SRC_ANONYMOUS), "no memory");
	TEST_ASSERT(test_mem_map(&ro, VM_MEM_SRC_ANONYMOUS), "no memory");
	memset(ro.hva, 0x5a, ro.npages * PAGE_SIZE);
	test_mem_set(vm, &rw, KVM_MEM_LOG_DIRTY_PAGES);
	guest_map(vm, TEST_GPA, PG_SIZE_2M);

	for (round = 0; round < 6; round++) {
		test_mem_set(vm, &ro, KVM_MEM_READONLY |
			     (round >= 3 ? KVM_MEM_LOG_DIRTY_PAGES : 0));
		guest_stride(vcpu, GUEST_READ, ro.gpa, PAGE_SIZE, ro.npages, 0);
		guest_stride(vcpu, GUEST_WRITE, rw.gpa, PAGE_SIZE, rw.npages, 1);
		vm_get_dirty_log_no_wp(vm, rw.slot, bitmap);
		if (round % 3 == 1)
			vm_write_protect_all(vm);
		else if (round % 3 == 2)
			vm_write_protect_range(vm, TEST_GPA, PG_SIZE_2M);
		guest_stride(vcpu, GUEST_WRITE, rw.gpa, PAGE_SIZE, rw.npages, 2);
		guest_stride(vcpu, GUEST_READ, ro.gpa, PAGE_SIZE, ro.npages, 0);

		gpa = ro.gpa + (round * 37 + 1) * PAGE_SIZE;
		c = guest_command(vcpu);
		c->op = GUEST_WRITE;
		c->gva = gpa;
		c->value = 3;
		c->listed = 0;
		c->count = 1;
		vcpu_run(vcpu);
		TEST_ASSERT(vcpu->run->exit_reason == KVM_EXIT_MMIO &&
			    vcpu->run->mmio.is_write &&
			    vcpu->run->mmio.phys_addr == gpa,
			    "round %lu: a write to a read-only slot gave %s",
			    round, exit_reason_str(vcpu->run->exit_reason));
		TEST_ASSERT(*(uint64_t *)(ro.hva + gpa - ro.gpa) ==
			    0x5a5a5a5a5a5a5a5aULL,
			    "round %lu: a read-only slot was written", round);
		guest_finish(vcpu);
		vm_get_dirty_log_no_wp(vm, rw.slot, bitmap);
		TEST_ASSERT(count_bits(bitmap, rw.npages) ==
			    (round % 3 ? rw.npages : 0),
			    "round %lu: wrong pages are dirty", round);
		test_mem_delete(vm, &ro);
	}
	kvm_vm_free(vm);
	test_mem_unmap(&rw);
	test_mem_unmap(&ro);
	free(bitmap);
}

/*
 * Pages shared with a child of fork() may not be written in place, however
 * often their page table becomes writable again.
 */
static void test_copy_on_write(void)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = PAGES_2M,
	};
	unsigned long *bitmap = bitmap_zalloc(mem.npages);
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(both_caps, 2, 1, &vcpu);
	int round, status, go[2];
	uint64_t p;
	pid_t pid;
	char c;

	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
	guest_map(vm, TEST_GPA, PG_SIZE_2M);

	for (round = 0; round < 4; round++) {
		guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages,
			     100 + round);
		TEST_ASSERT(!pipe(go), "pipe failed");
		pid = fork();
		TEST_ASSERT(pid >= 0, "fork failed");
		if (!pid) {
			close(go[1]);
			if (read(go[0], &c, 1))
				_exit(2);
			for (p = 0; p < mem.npages; p++)
				if (*(uint64_t *)(mem.hva + p * PAGE_SIZE) !=
				    100 + round)
					_exit(1);
			_exit(0);
		}
		close(go[0]);

		/* Half of it is mapped read-only now. */
		guest_stride(vcpu, GUEST_READ, mem.gpa, PAGE_SIZE, 256, 0);
		vm_get_dirty_log_no_wp(vm, mem.slot, bitmap);
		if (round & 1)
			vm_write_protect_range(vm, mem.gpa, PG_SIZE_2M);
		else
			vm_write_protect_all(vm);
		guest_stride(vcpu, GUEST_READ, mem.gpa, PAGE_SIZE, 128, 0);
		guest_write(vcpu, mem.gpa + 300 * PAGE_SIZE, 1);
		if (round & 2)
			vm_write_protect_all(vm);
		guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages,
			     200 + round);
		vm_get_dirty_log_no_wp(vm, mem.slot, bitmap);
		TEST_ASSERT(count_bits(bitmap, mem.npages) == mem.npages,
			    "round %d: a page is lost", round);

		close(go[1]);
		TEST_ASSERT(waitpid(pid, &status, 0) == pid && !status,
			    "round %d: the child's copy changed", round);
		for (p = 0; p < mem.npages; p++)
			TEST_ASSERT(*(uint64_t *)(mem.hva + p * PAGE_SIZE) ==
				    200 + round,
				    "round %d: page %lu is old", round, p);
	}
	kvm_vm_free(vm);
	test_mem_unmap(&mem);
	free(bitmap);
}

/* Takes all entries; returns how many, and sets the pages in the bitmap. */
static uint32_t ring_collect(struct kvm_vcpu *vcpu, unsigned long *bitmap,
			     uint64_t npages)
{
	struct kvm_dirty_gfn *ring = vcpu_map_dirty_ring(vcpu), *gfn;
	uint32_t n = 0;

	for (;; n++, vcpu->fetch_index++) {
		gfn = &ring[vcpu->fetch_index % vcpu->dirty_gfns_count];
		if (!(__atomic_load_n(&gfn->flags, __ATOMIC_ACQUIRE) &
		      KVM_DIRTY_GFN_F_DIRTY))
			return n;
		TEST_ASSERT(gfn->slot == TEST_SLOT && gfn->offset < npages,
			    "ring entry for slot %u, page %llu", gfn->slot,
			    gfn->offset);
		set_bit(gfn->offset, bitmap);
		__atomic_store_n(&gfn->flags, KVM_DIRTY_GFN_F_RESET,
				 __ATOMIC_RELEASE);
	}
}

static void ring_expect(struct kvm_vcpu *vcpu, const struct test_mem *mem,
			unsigned long *bitmap, uint64_t from, uint64_t to,
			const char *what)
{
	uint64_t p;
	uint32_t n;

	memset(bitmap, 0, bitmap_size(mem->npages));
	n = ring_collect(vcpu, bitmap, mem->npages);
	TEST_ASSERT(n == to - from, "%s: %u entries instead of %lu", what, n,
		    to - from);
	for (p = from; p < to; p++)
		TEST_ASSERT(test_bit(p, bitmap), "%s: page %lu is lost", what, p);
}

static void test_ring(enum vm_mem_backing_src_type src, bool reset)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = 2 * PAGES_2M,
	};
	unsigned long *bitmap = bitmap_zalloc(mem.npages);
	struct kvm_dirty_log log = { .slot = TEST_SLOT };
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	int round;

	pr_info("  ring: %s, %s\n", vm_mem_backing_src_alias(src)->name,
		reset ? "reset" : "not reset");
	if (!test_mem_map(&mem, src)) {
		print_skip("  no such pages on this host");
		return;
	}
	vm = __vm_create(VM_SHAPE_DEFAULT, 1, 0);
	vm_enable_dirty_ring(vm, 65536 * sizeof(struct kvm_dirty_gfn));
	vm_enable_cap(vm, KVM_CAP_WRITE_PROTECT_ALL_MEM, 0);
	vcpu = vm_vcpu_add(vm, 0, guest_toucher);
	vcpu_args_set(vcpu, 1, 0);
	guest_map(vm, mem.gpa, mem.npages * PAGE_SIZE);

	test_mem_set(vm, &mem, 0);
	guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages, 1);
	ring_expect(vcpu, &mem, bitmap, 0, 0, "without logging");

	for (round = 0; round < 4; round++) {
		test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
		log.dirty_bitmap = bitmap;
		TEST_ERRNO(__vm_ioctl(vm, KVM_GET_DIRTY_LOG, &log), ENXIO);
		guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages, 2);
		ring_expect(vcpu, &mem, bitmap, 0, mem.npages, "log enabled");
		guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages, 3);
		ring_expect(vcpu, &mem, bitmap, 0, 0, "not protected");
		vm_write_protect_all(vm);
		guest_stride(vcpu, GUEST_READ, mem.gpa, PAGE_SIZE, mem.npages, 4);
		ring_expect(vcpu, &mem, bitmap, 0, 0, "read");
		guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages, 4);
		ring_expect(vcpu, &mem, bitmap, 0, mem.npages, "all protected");
		vm_write_protect_range(vm, mem.gpa + PG_SIZE_2M, PG_SIZE_2M);
		guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages, 5);
		ring_expect(vcpu, &mem, bitmap, PAGES_2M, mem.npages,
			    "range protected");
		if (reset) {
			TEST_ASSERT(kvm_vm_reset_dirty_ring(vm) ==
				    2 * mem.npages + PAGES_2M,
				    "the reset took another count");
			guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE,
				     mem.npages, 6);
			ring_expect(vcpu, &mem, bitmap, 0, mem.npages, "reset");
			TEST_ASSERT(kvm_vm_reset_dirty_ring(vm) == mem.npages,
				    "the second reset took another count");
		}
		vm_write_protect_all(vm);
		test_mem_set(vm, &mem, 0);
		guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages, 7);
		ring_expect(vcpu, &mem, bitmap, 0, 0, "log disabled");
	}
	kvm_vm_free(vm);
	test_mem_unmap(&mem);
	free(bitmap);
}

static void test_rings(void)
{
	if (!kvm_has_cap(KVM_CAP_DIRTY_LOG_RING)) {
		print_skip("no dirty rings");
		return;
	}
	test_ring(VM_MEM_SRC_ANONYMOUS, false);
	test_ring(VM_MEM_SRC_ANONYMOUS, true);
	test_ring(VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB, true);
	if (thp_configured())
		test_ring(VM_MEM_SRC_ANONYMOUS_THP, true);
}

/* With room for PAGES_2M entries beside what KVM keeps in reserve for PML. */
#define RING_ENTRIES	2048
#define FLOOD_PASSES	200000

/* A VM with such a ring and a vCPU, whose memory is logged; MEM says where. */
static struct kvm_vm *ring_vm(struct test_mem *mem, struct kvm_vcpu **vcpu)
{
	struct kvm_vm *vm;

	TEST_ASSERT(test_mem_map(mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	vm = __vm_create(VM_SHAPE_DEFAULT, 1, 0);
	vm_enable_dirty_ring(vm, RING_ENTRIES * sizeof(struct kvm_dirty_gfn));
	*vcpu = vm_vcpu_add(vm, 0, guest_toucher);
	vcpu_args_set(*vcpu, 1, 0);
	guest_map(vm, mem->gpa, mem->npages * PAGE_SIZE);
	test_mem_set(vm, mem, KVM_MEM_LOG_DIRTY_PAGES);
	return vm;
}

struct flood {
	struct kvm_dirty_gfn *ring;
	bool stop, over;
};

/* Not for ever: a KVM that follows it is to be seen, and not to hang. */
static void *flood_ring(void *data)
{
	struct flood *flood = data;
	int pass, i;

	for (pass = 0; pass < FLOOD_PASSES; pass++) {
		for (i = 0; i < RING_ENTRIES; i++)
			__atomic_store_n(&flood->ring[i].flags,
					 KVM_DIRTY_GFN_F_RESET, __ATOMIC_RELEASE);
		if (__atomic_load_n(&flood->stop, __ATOMIC_RELAXED))
			return NULL;
	}
	__atomic_store_n(&flood->over, true, __ATOMIC_RELAXED);
	return NULL;
}

/* One reset, which may take some of the entries that were pushed, and no others. */
static void reset_pushed(struct kvm_vm *vm, uint64_t *pushed)
{
	uint64_t count = kvm_vm_reset_dirty_ring(vm);

	TEST_ASSERT(count <= *pushed,
		    "one reset took %lu entries, where %lu were pushed", count,
		    *pushed);
	*pushed -= count;
}

/*
 * A thread that goes on to say that all entries are harvested keeps KVM neither in a
 * reset nor from the next push: with a ring that KVM takes for full no vCPU runs.
 */
static void test_ring_flood(void)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = PAGES_2M,
	};
	uint64_t pushed = 0;
	struct flood flood = {};
	struct kvm_vcpu *vcpu;
	pthread_t thread;
	struct kvm_vm *vm;
	int i;

	if (!kvm_has_cap(KVM_CAP_DIRTY_LOG_RING)) {
		print_skip("no dirty rings");
		return;
	}
	vm = ring_vm(&mem, &vcpu);
	flood.ring = vcpu_map_dirty_ring(vcpu);
	TEST_ASSERT(!pthread_create(&thread, NULL, flood_ring, &flood),
		    "no thread");
	while (!__atomic_load_n(&flood.ring[0].flags, __ATOMIC_ACQUIRE))
		sched_yield();
	for (i = 0; i < 100; i++)
		reset_pushed(vm, &pushed);
	for (i = 0; i < 2 * RING_ENTRIES / PAGES_2M + 1; i++) {
		guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages,
			     i + 1);
		for (pushed = mem.npages; pushed;) {
			reset_pushed(vm, &pushed);
			TEST_ASSERT(!__atomic_load_n(&flood.over, __ATOMIC_RELAXED),
				    "%lu entries were not reset", pushed);
		}
	}
	__atomic_store_n(&flood.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	kvm_vm_free(vm);
	test_mem_unmap(&mem);
}

#define FULL_LAPS	64

/*
 * A vCPU's ioctls fill its ring, and go on.  The host has to survive that, and each
 * reset then ends, though a thread goes on to say that all entries are harvested.
 */
static void test_ring_full(void)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = PAGES_2M,
	};
	struct {
		struct kvm_msrs header;
		struct kvm_msr_entry entries[255];
	} msrs = { .header.nmsrs = 255 };
	struct flood flood = {};
	struct kvm_vcpu *vcpu;
	pthread_t thread;
	struct kvm_vm *vm;
	int i, count, pushed = 0;

	if (!kvm_has_cap(KVM_CAP_DIRTY_LOG_RING)) {
		print_skip("no dirty rings");
		return;
	}
	for (i = 0; i < 255; i++) {
		msrs.entries[i].index = MSR_KVM_WALL_CLOCK_NEW;
		msrs.entries[i].data = mem.gpa;
	}
	vm = ring_vm(&mem, &vcpu);
	for (; pushed <= FULL_LAPS * RING_ENTRIES; pushed += 3 * 255)
		TEST_ASSERT_EQ(__vcpu_ioctl(vcpu, KVM_SET_MSRS, &msrs.header), 255);
	flood.ring = vcpu_map_dirty_ring(vcpu);
	TEST_ASSERT(!pthread_create(&thread, NULL, flood_ring, &flood),
		    "no thread");
	while (__atomic_load_n(&flood.ring[0].flags, __ATOMIC_ACQUIRE) !=
	       KVM_DIRTY_GFN_F_RESET)
		sched_yield();
	while (pushed > 0 && !__atomic_load_n(&flood.over, __ATOMIC_RELAXED)) {
		count = kvm_vm_reset_dirty_ring(vm);
		TEST_ASSERT(count <= RING_ENTRIES,
			    "one reset took %d entries of a ring of %d", count,
			    RING_ENTRIES);
		pushed -= count;
	}
	__atomic_store_n(&flood.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	kvm_vm_free(vm);
	test_mem_unmap(&mem);
}

/*
 * A CPU may have more bits of guest-physical addresses than the page tables have
 * levels for.  An access there is emulated, whether a slot has the page or not: in
 * a VM that enables nothing, too.
 */
#define BEYOND_GPA	((1UL << 48) + (1UL << 40))

static void never_ends(int sig)
{
	TEST_FAIL("KVM tries what it cannot map again and again");
}

static void access_nothing(struct kvm_vcpu *vcpu)
{
	enum guest_op op;
	struct guest_command *c;

	for (op = GUEST_READ; op <= GUEST_WRITE; op++) {
		c = guest_command(vcpu);
		c->op = op;
		c->gva = TEST_GPA;
		c->listed = 0;
		c->count = 1;
		alarm(20);
		vcpu_run(vcpu);
		alarm(0);
		TEST_ASSERT(vcpu->run->exit_reason == KVM_EXIT_MMIO &&
			    vcpu->run->mmio.is_write == (op == GUEST_WRITE) &&
			    vcpu->run->mmio.phys_addr == BEYOND_GPA,
			    "a %s of nothing gave %s",
			    op == GUEST_WRITE ? "write" : "read",
			    exit_reason_str(vcpu->run->exit_reason));
		guest_finish(vcpu);
	}
}

static void access_slot(struct kvm_vcpu *vcpu)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = BEYOND_GPA, .npages = 1,
	};
	unsigned long bitmap;
	enum guest_op op;

	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(vcpu->vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
	alarm(20);
	TEST_ASSERT(!can_pre_fault() ||
		    (__vcpu_pre_fault(vcpu, mem.gpa, PAGE_SIZE) &&
		     errno == ENOENT), "the page was mapped");
	kvm_vm_get_dirty_log(vcpu->vm, mem.slot, &bitmap);
	for (op = GUEST_READ; op <= GUEST_WRITE; op++) {
		guest_stride(vcpu, op, TEST_GPA, 0, 1, 77);
		kvm_vm_get_dirty_log(vcpu->vm, mem.slot, &bitmap);
		TEST_ASSERT(bitmap == (op == GUEST_WRITE),
			    "after a %s the log is %#lx",
			    op == GUEST_WRITE ? "write" : "read", bitmap);
	}
	alarm(0);
	TEST_ASSERT(*(uint64_t *)mem.hva == 77, "the write was lost");
	test_mem_delete(vcpu->vm, &mem);
	test_mem_unmap(&mem);
}

static void test_beyond_caps(const uint32_t *caps, int nr_caps)
{
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(caps, nr_caps, 1, &vcpu);

	if (vm->pa_bits <= 48) {
		print_skip("  no such addresses");
		kvm_vm_free(vm);
		return;
	}
	/* The library takes more off for an old AMD CPU. */
	vm->max_gfn = (1UL << (vm->pa_bits - PAGE_SHIFT)) - 1;
	virt_pg_map(vm, TEST_GPA, BEYOND_GPA);
	access_nothing(vcpu);
	access_slot(vcpu);
	access_nothing(vcpu);
	kvm_vm_free(vm);
}

static void test_beyond(void)
{
	signal(SIGALRM, never_ends);
	test_beyond_caps(NULL, 0);
	if (kvm_has_cap(KVM_CAP_DIRTY_BITS))
		test_beyond_caps(dirty_bits_caps, NR_DIRTY_BITS_CAPS);
	signal(SIGALRM, SIG_DFL);
}

/*
 * Two address spaces: one vCPU never leaves system management mode, where it
 * writes to the page it is told to; the other never enters it.
 */
#define SMRAM_GPA	0x1000000UL
#define SMRAM_SIZE	65536UL
#define SMM_DATA_GPA	0x20000000UL
#define SMM_PORT	0xe

static void smm_write(struct kvm_vcpu *vcpu, uint8_t *handler, uint32_t gpa,
		      uint32_t value)
{
	const uint8_t code[] = {
		/* movl $value, gpa */
		0x66, 0x67, 0xc7, 0x05,
		gpa, gpa >> 8, gpa >> 16, gpa >> 24,
		value, value >> 8, value >> 16, value >> 24,
		0xe4, SMM_PORT,		/* in $SMM_PORT, %al */
		0xeb, 0xf0,		/* jmp to the start */
	};

	memcpy(handler, code, sizeof(code));
	vcpu_run(vcpu);
	TEST_ASSERT(vcpu->run->exit_reason == KVM_EXIT_IO &&
		    vcpu->run->io.port == SMM_PORT,
		    "unexpected exit in SMM: %s",
		    exit_reason_str(vcpu->run->exit_reason));
}

static void expect_page(struct kvm_vm *vm, uint32_t slot, int page,
			uint64_t npages, const char *what)
{
	unsigned long bitmap[4] = { 0 };

	TEST_ASSERT(npages <= 256, "too many pages");
	vm_get_dirty_log_no_wp(vm, slot, bitmap);
	if (page >= 0) {
		TEST_ASSERT(test_bit(page, bitmap),
			    "%s: page %d of slot 0x%x is lost", what, page, slot);
		__clear_bit(page, bitmap);
	}
	TEST_ASSERT(!count_bits(bitmap, npages),
		    "%s: slot 0x%x has pages that are dirty for nothing", what,
		    slot);
}

/*
 * A second write shows without a re-arm only if dirty bits tell, or if KVM makes
 * it in the guest's stead: without unrestricted guests, as all guests are on AMD,
 * it emulates system management mode.  The log has every write of KVM's own.
 */
static void smm_with(const uint32_t *caps, int nr_caps, bool bits)
{
	struct test_mem smram = {
		.slot = (1 << 16) | 3, .gpa = SMRAM_GPA,
		.npages = SMRAM_SIZE / PAGE_SIZE,
	};
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = SMM_DATA_GPA + PAGE_SIZE,
		.npages = 250,
	};
	struct test_mem smm = mem;
	struct kvm_vcpu_events events;
	struct kvm_vcpu *vcpus[2];
	struct kvm_vm *vm;
	uint8_t *handler;
	int round, a = 100, b = 200;
	bool emulates;

	vm = toucher_vm(caps, nr_caps, 2, vcpus);
	emulates = host_cpu_is_intel && !vm_is_unrestricted_guest(vm);
	TEST_ASSERT(test_mem_map(&smram, VM_MEM_SRC_ANONYMOUS), "no memory");
	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	smm.slot |= 1 << 16;
	smm.hva = mem.hva;
	guest_map(vm, SMM_DATA_GPA, PG_SIZE_2M);
	test_mem_set(vm, &smram, 0);
	test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
	test_mem_set(vm, &smm, KVM_MEM_LOG_DIRTY_PAGES);
	handler = smram.hva + 0x8000;

	vcpu_set_msr(vcpus[1], MSR_IA32_SMBASE, SMRAM_GPA);
	vcpu_events_get(vcpus[1], &events);
	events.smi.pending = 1;
	events.flags |= KVM_VCPUEVENT_VALID_SMM;
	vcpu_events_set(vcpus[1], &events);

	for (round = 0; round < 4; round++) {
		guest_write(vcpus[0], mem.gpa + a * PAGE_SIZE, round);
		expect_page(vm, smm.slot, -1, smm.npages, "write outside");
		expect_page(vm, mem.slot, a, mem.npages, "write outside");
		smm_write(vcpus[1], handler, mem.gpa + b * PAGE_SIZE, round);
		expect_page(vm, mem.slot, -1, mem.npages, "write in SMM");
		expect_page(vm, smm.slot, b, smm.npages, "write in SMM");

		guest_write(vcpus[0], mem.gpa + a * PAGE_SIZE, round);
		smm_write(vcpus[1], handler, mem.gpa + b * PAGE_SIZE, round);
		expect_page(vm, mem.slot, bits ? a : -1, mem.npages,
			    "second write");
		expect_page(vm, smm.slot, bits || emulates ? b : -1, smm.npages,
			    "second write");

		/* The same page, in both. */
		guest_write(vcpus[0], mem.gpa + 17 * PAGE_SIZE, round);
		expect_page(vm, mem.slot, 17, mem.npages, "shared page");
		smm_write(vcpus[1], handler, mem.gpa + 17 * PAGE_SIZE, round);
		expect_page(vm, smm.slot, 17, smm.npages, "shared page");

		if (round & 1)
			vm_write_protect_range(vm, mem.gpa, PAGE_SIZE * 250);
		else
			vm_write_protect_all(vm);
	}
	TEST_ASSERT(*(uint32_t *)(mem.hva + b * PAGE_SIZE) == 3 &&
		    *(uint32_t *)(mem.hva + a * PAGE_SIZE) == 3,
		    "the pages hold something else");
	kvm_vm_free(vm);
	test_mem_unmap(&smram);
	test_mem_unmap(&mem);
}

static void test_smm(void)
{
	static const uint32_t bits_caps[] = {
		KVM_CAP_WRITE_PROTECT_ALL_MEM,
		KVM_CAP_DIRTY_BITMAP_FD,
		KVM_CAP_DIRTY_BITS,
		KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
	};

	if (!kvm_has_cap(KVM_CAP_X86_SMM)) {
		print_skip("no SMM");
		return;
	}
	smm_with(both_caps, ARRAY_SIZE(both_caps), false);
	if (kvm_has_cap(KVM_CAP_DIRTY_BITS))
		smm_with(bits_caps, ARRAY_SIZE(bits_caps), true);
}

static void test_stats(void)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = PAGES_2M,
	};
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(both_caps, 2, 1, &vcpu);
	uint64_t all, range, opened;

	if (!vm_has_stat(vm, "write_protect_all")) {
		print_skip("no statistics");
		kvm_vm_free(vm);
		return;
	}
	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
	guest_map(vm, mem.gpa, PG_SIZE_2M);
	guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages, 1);

	all = vm_get_stat(vm, "write_protect_all");
	range = vm_get_stat(vm, "write_protect_range");
	vm_write_protect_all(vm);
	vm_write_protect_all(vm);
	vm_write_protect_range(vm, mem.gpa, PG_SIZE_2M);
	TEST_ASSERT_EQ(vm_get_stat(vm, "write_protect_all"), all + 2);
	TEST_ASSERT_EQ(vm_get_stat(vm, "write_protect_range"), range + 1);

	/* A read makes nothing writable, a write one path, and only once. */
	opened = vm_get_stat(vm, "write_protect_opened");
	guest_stride(vcpu, GUEST_READ, mem.gpa, PAGE_SIZE, mem.npages, 0);
	guest_write(vcpu, mem.gpa, 2);
	TEST_ASSERT(vm_get_stat(vm, "write_protect_opened") > opened,
		    "a write made nothing writable");
	guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages, 2);
	opened = vm_get_stat(vm, "write_protect_opened");
	guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages, 2);
	TEST_ASSERT_EQ(vm_get_stat(vm, "write_protect_opened"), opened);

	kvm_vm_free(vm);
	test_mem_unmap(&mem);
}

/*
 * One fault in 64 stands for all: so many writes to pages that are armed are
 * counted, as far as that allows, and neither those to new pages nor those to
 * pages that are writable.
 */
static void write_faults_with(const uint32_t *caps, int nr_caps, bool counted)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = TEST_GPA, .npages = PAGES_2M,
	};
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = toucher_vm(caps, nr_caps, 1, &vcpu);
	uint64_t faults, ns, want = counted ? mem.npages : 0;

	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
	guest_map(vm, mem.gpa, PG_SIZE_2M);
	faults = vm_get_stat(vm, "write_faults");
	guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages, 1);
	guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages, 2);
	TEST_ASSERT_EQ(vm_get_stat(vm, "write_faults"), faults);

	ns = vm_get_stat(vm, "write_fault_ns");
	test_mem_set(vm, &mem, 0);
	test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
	guest_stride(vcpu, GUEST_WRITE, mem.gpa, PAGE_SIZE, mem.npages, 3);
	faults = vm_get_stat(vm, "write_faults") - faults;
	TEST_ASSERT(faults >= want - want / 8 && faults <= want + want / 8,
		    "%lu faults were counted, not about %lu", faults, want);
	TEST_ASSERT_EQ(vm_get_stat(vm, "write_fault_ns") > ns, counted);

	kvm_vm_free(vm);
	test_mem_unmap(&mem);
}

static void test_write_faults(void)
{
	struct kvm_vm *vm = vm_create_barebones();
	bool known = vm_has_stat(vm, "write_faults");

	kvm_vm_free(vm);
	if (!known) {
		print_skip("no statistics");
		return;
	}
	write_faults_with(both_caps, ARRAY_SIZE(both_caps), true);
	write_faults_with(NULL, 0, false);
}

static const struct named_test tests[] = {
	{ "opt-in", test_opt_in },
	{ "not-allowed", test_not_allowed },
	{ "range-arguments", test_range_arguments },
	{ "signal", test_signal },
	{ "log-flag", test_log_flag },
	{ "log-fault", test_log_fault },
	{ "pre-fault", test_pre_fault },
	{ "fetch-while-running", test_fetch_while_running },
	{ "model", test_model },
	{ "gigantic", test_gigantic },
	{ "sparse", test_sparse },
	{ "generations", test_generations },
	{ "read-only", test_read_only_slot },
	{ "copy-on-write", test_copy_on_write },
	{ "ring", test_rings },
	{ "ring-flood", test_ring_flood },
	{ "ring-full", test_ring_full },
	{ "beyond", test_beyond },
	{ "smm", test_smm },
	{ "stats", test_stats },
	{ "write-faults", test_write_faults },
};

static void help(const char *name)
{
	printf("usage: %s [-h] [-n steps] [-r seed] [-t test]\n"
	       " -n: steps of each model (default %d)\n"
	       " -r: seed of the random numbers (default %lu)\n"
	       " -t: only this test, which is one of:", name, nr_steps,
	       first_seed);
	print_test_names(tests, ARRAY_SIZE(tests));
	exit(0);
}

int main(int argc, char *argv[])
{
	const char *only = NULL;
	int opt;

	setbuf(stdout, NULL);
	while ((opt = getopt(argc, argv, "hn:r:t:")) != -1) {
		switch (opt) {
		case 'n':
			nr_steps = atoi(optarg);
			break;
		case 'r':
			first_seed = strtoull(optarg, NULL, 0);
			break;
		case 't':
			only = optarg;
			break;
		default:
			help(argv[0]);
		}
	}
	if (optind < argc)
		help(argv[0]);
	TEST_REQUIRE(kvm_has_cap(KVM_CAP_WRITE_PROTECT_ALL_MEM));
	TEST_REQUIRE(kvm_has_cap(KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT));

	run_tests(tests, ARRAY_SIZE(tests), only);
	return 0;
}
