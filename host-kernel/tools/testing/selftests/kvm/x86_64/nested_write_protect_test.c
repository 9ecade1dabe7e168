// SPDX-License-Identifier: GPL-2.0-only
/*
 * Write-protect and dirty logging with nested guests: KVM shadows the nested
 * page tables that an L1 builds, and an L2 writes through them to memory whose
 * dirty log is that of L1.
 */
#define _GNU_SOURCE /* for program_invocation_short_name */
#include "kvm_util.h"
#include "test_util.h"
#include "processor.h"
#include "dirty_bitmap.h"
#include "dirty_tracking.h"
#include "mmu_stats.h"
#include "named_tests.h"
#include "nested_guest.h"
#include "selftest_release.h"
#include "test_mem.h"
#include "test_random.h"
#include "touching_guest.h"

#define NPAGES		(4 * PAGES_2M + 5)
#define MEM_GPA		(TEST_GPA + 3 * PAGE_SIZE)
#define HULL		(6 * PG_SIZE_2M)
#define SHIFT_PAGES	PAGES_2M	/* between an L2 address and L1's */

/* Who writes.  The last three have nested page tables of their own. */
enum world {
	L1,
	L2_HUGE,	/* mapped by 2 MiB */
	L2_SMALL,	/* mapped by 4 KiB */
	L2_SHIFTED,	/* at other addresses */
	NR_WORLDS,
};

static const char * const worlds[] = { "L1", "huge", "small", "shifted" };

/* What L1 is to do, beside guest_commands[0]; shared with the guest. */
struct control {
	uint64_t world;
	uint64_t root[NR_WORLDS];
	uint64_t page;		/* the bits of an entry for a page */
	/* The pages that tables are made of, for L1 to build some itself. */
	uint64_t pool;
	uint64_t pool_pages;
	uint64_t builds;
};

static struct control control;
static struct nested_vcpu nested;
static uint64_t nr_steps = 400, first_seed = 1;

static void do_command(void)
{
	struct guest_command *c = &guest_commands[0];
	uint64_t i;

	for (i = 0; i < READ_ONCE(c->listed); i++)
		guest_touch(c->op, c->gva + c->list[i] * PAGE_SIZE, c->value);
	for (i = 0; i < READ_ONCE(c->count); i++)
		guest_touch(c->op, c->gva + i * c->stride, c->value);
}

/* Goes straight to the host with each command; to L1 for another world. */
static void l2_code(uint64_t arg)
{
	uint64_t world;

	for (;;) {
		world = READ_ONCE(control.world);
		while (READ_ONCE(control.world) == world) {
			do_command();
			GUEST_SYNC(0);
		}
		nested_leave(&nested);
	}
}

static void l1_code(void)
{
	bool started = false;
	uint64_t world;

	for (;;) {
		while (READ_ONCE(control.world) == L1) {
			do_command();
			GUEST_SYNC(0);
		}
		world = READ_ONCE(control.world);
		if (!started) {
			nested.root = control.root[world];
			nested_start(&nested, l2_code, 0);
			started = true;
		}
		nested_use_root(&nested, control.root[world]);
		nested_run(&nested);
	}
}

static const uint32_t write_protect_caps[] = {
	KVM_CAP_WRITE_PROTECT_ALL_MEM,
	KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
};

static struct kvm_vm *create_vm_with(const uint32_t *caps, int nr_caps,
				     struct kvm_vcpu **vcpu, void *code,
				     uint64_t extra_pages)
{
	/* Page tables for what L2 sees by 4 KiB, and some. */
	struct kvm_vm *vm = __vm_create(VM_SHAPE_DEFAULT, 1,
					extra_pages * PAGES_2M / 2);
	int i;

	for (i = 0; i < nr_caps; i++)
		vm_enable_cap(vm, caps[i], 0);
	*vcpu = vm_vcpu_add(vm, 0, code);
	guest_map(vm, TEST_GPA, HULL);
	nested_vcpu_alloc(vm, 0, &nested);
	sync_global_to_guest(vm, nested);
	return vm;
}

static struct kvm_vm *create_vm(struct kvm_vcpu **vcpu, void *code,
				uint64_t extra_pages)
{
	return create_vm_with(write_protect_caps, ARRAY_SIZE(write_protect_caps),
			      vcpu, code, extra_pages);
}

/* What the L2 of a world sees of the memory. */
static void map_world(struct kvm_vm *vm, vm_paddr_t root, enum world world)
{
	nested_map_range(vm, root, TEST_GPA,
			 TEST_GPA + (world == L2_SHIFTED ? PG_SIZE_2M : 0),
			 HULL - PG_SIZE_2M,
			 world == L2_SMALL ? PG_LEVEL_4K : PG_LEVEL_2M);
}

static struct control *control_of(struct kvm_vm *vm)
{
	return addr_gva2hva(vm, (vm_vaddr_t)&control);
}

/* What is known of the next write of a world to a page; see the other test. */
enum {
	ARMED,
	READ,
	OPEN,
	EITHER,
};

static struct {
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	struct test_mem mem;
	struct control *control;
	uint8_t armed[NR_WORLDS][NPAGES];
	uint64_t value[NPAGES];
	unsigned long must[BITS_TO_LONGS(NPAGES)];
	unsigned long may[BITS_TO_LONGS(NPAGES)];
	unsigned long got[BITS_TO_LONGS(NPAGES)];
	uint64_t stamp;
	uint64_t seed;
	uint64_t step;
} m;

static void arm(uint64_t from, uint64_t to, int state)
{
	uint64_t p;
	int w;

	for (w = 0; w < NR_WORLDS; w++)
		for (p = from; p < to; p++)
			if (state == ARMED || m.armed[w][p] == OPEN)
				m.armed[w][p] = state;
}

static void check(const char *what)
{
	uint64_t p;

	for (p = 0; p < NPAGES; p++) {
		TEST_ASSERT(test_bit(p, m.got) || !test_bit(p, m.must),
			    "step %lu: page %lu is lost (%s)", m.step, p, what);
		TEST_ASSERT(!test_bit(p, m.got) || test_bit(p, m.must) ||
			    test_bit(p, m.may),
			    "step %lu: page %lu is dirty for nothing (%s)",
			    m.step, p, what);
	}
}

static void taken(void)
{
	uint64_t p;
	int w;

	for (w = 0; w < NR_WORLDS; w++)
		for (p = 0; p < NPAGES; p++)
			if (m.armed[w][p] == READ)
				m.armed[w][p] = test_bit(p, m.got) ?
						EITHER : ARMED;
	memset(m.must, 0, sizeof(m.must));
	memset(m.may, 0, sizeof(m.may));
}

static void harvest(void)
{
	vm_get_dirty_log_no_wp(m.vm, TEST_SLOT, m.got);
	check("harvest");
	taken();
}

static void get(void)
{
	uint64_t p;

	kvm_vm_get_dirty_log(m.vm, TEST_SLOT, m.got);
	check("get");
	taken();
	for (p = 0; p < NPAGES; p++)
		if (test_bit(p, m.got))
			arm(p, p + 1, ARMED);
}

static void touch(enum world world, enum guest_op op)
{
	uint32_t list[GUEST_LIST_MAX];
	uint64_t n, first = 0, start, i, p;
	bool dense = random_below(&m.seed, 2);
	int w;

	/* The shifted world does not see the start of the memory. */
	if (world == L2_SHIFTED)
		first = SHIFT_PAGES;
	start = random_below(&m.seed, NPAGES - first);
	n = 1 + random_below(&m.seed, random_below(&m.seed, 2) ? 6 : 300);
	for (i = 0; i < n; i++)
		list[i] = first + (dense ? (start + i) % (NPAGES - first) :
				   random_below(&m.seed, NPAGES - first));

	m.control->world = world;
	m.stamp++;
	guest_list(m.vcpu, op, MEM_GPA - first * PAGE_SIZE, list, n, m.stamp);
	for (i = 0; i < n; i++) {
		p = list[i];
		if (op == GUEST_READ) {
			if (m.armed[world][p] == ARMED)
				m.armed[world][p] = READ;
			if (m.armed[world][p] != OPEN)
				set_bit(p, m.may);
			continue;
		}
		m.value[p] = m.stamp;
		if (m.armed[world][p] == ARMED || m.armed[world][p] == READ)
			set_bit(p, m.must);
		else if (m.armed[world][p] == EITHER)
			set_bit(p, m.may);
		m.armed[world][p] = OPEN;
	}
	/* The worlds of L2 may share what is below a huge page of theirs. */
	for (w = L2_HUGE; world != L1 && w < NR_WORLDS; w++)
		for (i = 0; w != world && i < n; i++)
			m.armed[w][list[i]] = EITHER;
}

static void protect_range(void)
{
	uint64_t from = random_below(&m.seed, NPAGES);
	uint64_t to = from + 1 + random_below(&m.seed, NPAGES - from);
	uint64_t base = (MEM_GPA - TEST_GPA) / PAGE_SIZE;
	uint64_t low, high;

	vm_write_protect_range(m.vm, MEM_GPA + from * PAGE_SIZE,
			       (to - from) * PAGE_SIZE);
	/* Up to whole 2 MiB. */
	low = (from + base) / PAGES_2M * PAGES_2M;
	high = DIV_ROUND_UP(to + base, PAGES_2M) * PAGES_2M;
	arm(low > base ? low - base : 0, min(high - base, NPAGES), EITHER);
	arm(from, to, ARMED);
}

static void test_model(enum vm_mem_backing_src_type src)
{
	vm_paddr_t root;
	uint64_t p;
	int w;

	pr_info("  model: %s\n", vm_mem_backing_src_alias(src)->name);
	memset(&m, 0, sizeof(m));
	m.seed = first_seed * 0x9e3779b97f4a7c15ULL;
	m.mem.slot = TEST_SLOT;
	m.mem.gpa = MEM_GPA;
	m.mem.npages = NPAGES;
	if (!test_mem_map(&m.mem, src)) {
		print_skip("  no such pages on this host");
		return;
	}
	m.vm = create_vm(&m.vcpu, l1_code, 60);
	m.control = control_of(m.vm);
	test_mem_set(m.vm, &m.mem, 0);
	for (w = L2_HUGE; w < NR_WORLDS; w++) {
		root = nested_root_alloc(m.vm);
		map_world(m.vm, root, w);
		m.control->root[w] = root;
	}

	/* Mapped in every world, by huge pages if they can be. */
	for (w = 0; w < NR_WORLDS; w++) {
		m.control->world = w;
		guest_stride(m.vcpu, GUEST_WRITE, MEM_GPA, PAGE_SIZE,
			     NPAGES - (w == L2_SHIFTED ? SHIFT_PAGES : 0), ++m.stamp);
		for (p = w == L2_SHIFTED ? SHIFT_PAGES : 0; p < NPAGES; p++)
			m.value[p] = m.stamp;
	}
	test_mem_set(m.vm, &m.mem, KVM_MEM_LOG_DIRTY_PAGES);

	for (m.step = 0; m.step < nr_steps; m.step++) {
		switch (random_below(&m.seed, 16)) {
		case 0:
			vm_write_protect_all(m.vm);
			arm(0, NPAGES, ARMED);
			break;
		case 1:
			protect_range();
			break;
		case 2:
			get();
			break;
		case 3:
			/* Logging starts again. */
			test_mem_set(m.vm, &m.mem, 0);
			test_mem_set(m.vm, &m.mem, KVM_MEM_LOG_DIRTY_PAGES);
			memset(m.must, 0, sizeof(m.must));
			memset(m.may, 0, sizeof(m.may));
			arm(0, NPAGES, ARMED);
			break;
		case 4:
		case 5:
			touch(random_below(&m.seed, NR_WORLDS), GUEST_READ);
			break;
		case 6 ... 10:
			harvest();
			break;
		default:
			touch(random_below(&m.seed, NR_WORLDS), GUEST_WRITE);
			break;
		}
	}
	harvest();
	for (p = 0; p < NPAGES; p++)
		TEST_ASSERT(*(uint64_t *)(m.mem.hva + p * PAGE_SIZE) == m.value[p],
			    "page %lu holds something else", p);
	kvm_vm_free(m.vm);
	test_mem_unmap(&m.mem);
}

static void test_models(void)
{
	test_model(VM_MEM_SRC_ANONYMOUS);
	test_model(VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB);
	if (thp_configured())
		test_model(VM_MEM_SRC_ANONYMOUS_THP);
}

/* A write-protect is for all: each writer, alone after it, is logged. */
static void test_each(void)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = MEM_GPA, .npages = NPAGES,
	};
	unsigned long *got = bitmap_zalloc(NPAGES);
	const uint64_t page = SHIFT_PAGES + 77;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = create_vm(&vcpu, l1_code, 60);
	struct control *c = control_of(vm);
	uint64_t gva;
	int w, other, way;

	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
	for (w = L2_HUGE; w < NR_WORLDS; w++) {
		c->root[w] = nested_root_alloc(vm);
		map_world(vm, c->root[w], w);
	}
	for (way = 0; way < 3; way++) {
		for (w = 0; w < NR_WORLDS; w++) {
			/* All of them can write to it ... */
			for (other = 0; other < NR_WORLDS; other++) {
				c->world = other;
				gva = MEM_GPA + page * PAGE_SIZE;
				if (other == L2_SHIFTED)
					gva -= PG_SIZE_2M;
				guest_write(vcpu, gva, other);
			}
			if (way == 0)
				vm_write_protect_all(vm);
			else if (way == 1)
				vm_write_protect_range(vm, MEM_GPA +
						page * PAGE_SIZE, PAGE_SIZE);
			/* ... and none of them any more. */
			if (way == 2)
				kvm_vm_get_dirty_log(vm, TEST_SLOT, got);
			else
				vm_get_dirty_log_no_wp(vm, TEST_SLOT, got);
			c->world = w;
			gva = MEM_GPA + page * PAGE_SIZE;
			if (w == L2_SHIFTED)
				gva -= PG_SIZE_2M;
			guest_write(vcpu, gva, 100 + w);
			vm_get_dirty_log_no_wp(vm, TEST_SLOT, got);
			TEST_ASSERT(test_bit(page, got),
				    "a write of %s is lost, way %d", worlds[w], way);
			TEST_ASSERT(count_bits(got, NPAGES) == 1,
				    "%s dirtied more than it wrote", worlds[w]);
			TEST_ASSERT(*(uint64_t *)(mem.hva + page * PAGE_SIZE) ==
				    100 + w, "%s wrote elsewhere", worlds[w]);
			/* Not before the harvest, which proves it for one. */
			guest_write(vcpu, gva, 100 + w);
			vm_get_dirty_log_no_wp(vm, TEST_SLOT, got);
			TEST_ASSERT(!count_bits(got, NPAGES),
				    "%s: a harvest protected", worlds[w]);
		}
	}
	kvm_vm_free(vm);
	test_mem_unmap(&mem);
	free(got);
}

/* A world writes to a page of the memory. */
static void write_page(struct kvm_vcpu *vcpu, struct control *c, int w,
		       uint64_t page)
{
	uint64_t gva = MEM_GPA + page * PAGE_SIZE;

	c->world = w;
	guest_write(vcpu, w == L2_SHIFTED ? gva - PG_SIZE_2M : gva, w);
}

/*
 * A collect of other memory, which L2 has not written to, leaves @page as it is:
 * L2 can go on to write to it, and a collect of all memory reports that.
 */
static void collect_elsewhere(struct kvm_vcpu *vcpu, struct control *c,
			      enum world w, uint64_t page,
			      struct shared_bitmap *shared, unsigned long *got)
{
	write_page(vcpu, c, w, page);
	shared_bitmap_harvest(shared, 0, NPAGES, got);
	vm_collect_dirty_bits(vcpu->vm, MEM_GPA, PG_SIZE_2M / 2);
	write_page(vcpu, c, w, page);
	memset(got, 0, bitmap_size(NPAGES));
	shared_bitmap_harvest(shared, 0, NPAGES, got);
	TEST_ASSERT(!count_bits(got, NPAGES),
		    "%s: a collect elsewhere protected", worlds[w]);
	vm_collect_dirty_bits(vcpu->vm, MEM_GPA, NPAGES * PAGE_SIZE);
	shared_bitmap_harvest(shared, 0, NPAGES, got);
	TEST_ASSERT(test_bit(page, got), "%s: page %lu is lost", worlds[w], page);
}

/*
 * With dirty bits, and a bitmap that is all ones when logging is turned on: what
 * an L2 could write to before is found by the first collect after that.  L1 never
 * writes, as its dirty bit would be found in any case.
 */
static void test_initially_set(void)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = MEM_GPA, .npages = NPAGES,
	};
	unsigned long *got = bitmap_zalloc(NPAGES);
	const uint64_t page = SHIFT_PAGES + 77;
	struct shared_bitmap shared;
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm;
	struct control *c;
	int w, other, round;

	if (!kvm_has_cap(KVM_CAP_DIRTY_BITS)) {
		print_skip("  no dirty bits on this host");
		return;
	}
	vm = create_vm_with(dirty_bits_caps, ARRAY_SIZE(dirty_bits_caps), &vcpu,
			    l1_code, 60);
	vm_enable_cap(vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
		      KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE |
		      KVM_DIRTY_LOG_INITIALLY_SET);
	c = control_of(vm);
	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	for (w = L2_HUGE; w < NR_WORLDS; w++) {
		c->root[w] = nested_root_alloc(vm);
		map_world(vm, c->root[w], w);
	}

	for (w = L2_HUGE; w < NR_WORLDS; w++) {
		test_mem_set(vm, &mem, 0);
		for (other = L2_HUGE; other < NR_WORLDS; other++)
			write_page(vcpu, c, other, page);
		test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
		shared_bitmap_map(vm, TEST_SLOT, NPAGES, &shared);
		TEST_ASSERT_EQ(shared_bitmap_harvest(&shared, 0, NPAGES, got), NPAGES);

		for (round = 0; round < 2; round++) {
			write_page(vcpu, c, w, page);
			vm_collect_dirty_bits(vm, MEM_GPA, NPAGES * PAGE_SIZE);
			memset(got, 0, bitmap_size(NPAGES));
			shared_bitmap_harvest(&shared, 0, NPAGES, got);
			TEST_ASSERT(test_bit(page, got),
				    "%s: page %lu is lost, round %d", worlds[w],
				    page, round);
			TEST_ASSERT(count_bits(got, NPAGES) == 1,
				    "%s dirtied more than it wrote", worlds[w]);
		}
		collect_elsewhere(vcpu, c, w, page, &shared, got);
		shared_bitmap_unmap(&shared);
	}
	kvm_vm_free(vm);
	test_mem_unmap(&mem);
	free(got);
}

/*
 * L1 builds nested page tables, runs an L2 on them, and takes them away by
 * clearing the one entry that leads to them; again and again, with other pages
 * each time.
 */
#define BUILD_PAGES	3	/* a page directory, two page tables */
#define BUILDS		150UL
#define BUILD_TOUCHES	8

static void build_l2(uint64_t count)
{
	uint64_t i;

	for (;;) {
		for (i = 0; i < BUILD_TOUCHES; i++)
			guest_touch(GUEST_WRITE, TEST_GPA + PG_SIZE_2M +
				    (i * 131 % (2 * PAGES_2M)) * PAGE_SIZE,
				    READ_ONCE(control.builds));
		nested_leave(&nested);
	}
}

static void build_l1(void)
{
	uint64_t *pdpt = (uint64_t *)control.pool, *tables, gpa, entry, i;

	nested.root = control.root[L2_SMALL];
	nested_start(&nested, build_l2, 0);
	for (;;) {
		/*
		 * What the L2's own code needs is in the first entry of the
		 * PDPT.  The pool is identity mapped.
		 */
		i = READ_ONCE(control.builds) % (control.pool_pages / BUILD_PAGES);
		gpa = control.pool + PAGE_SIZE + i * BUILD_PAGES * PAGE_SIZE;
		tables = (uint64_t *)gpa;
		tables[1] = (gpa + PAGE_SIZE) | NESTED_TABLE;
		tables[2] = (gpa + 2 * PAGE_SIZE) | NESTED_TABLE;
		for (i = 0; i < 2 * PAGES_2M; i++) {
			entry = TEST_GPA + PG_SIZE_2M + i * PAGE_SIZE;
			tables[512 + i] = entry | control.page;
		}
		WRITE_ONCE(pdpt[TEST_GPA >> 30], gpa | NESTED_TABLE);
		nested_use_root(&nested, control.root[L2_SMALL]);
		nested_run(&nested);
		WRITE_ONCE(pdpt[TEST_GPA >> 30], 0);
		GUEST_SYNC(0);
	}
}

#define POOL_GPA	(TEST_GPA - PG_SIZE_1G)
#define POOL_SLOT	2

static void test_builds(void)
{
	struct test_mem mem = {
		.slot = TEST_SLOT, .gpa = MEM_GPA, .npages = NPAGES,
	};
	struct test_mem pool = {
		.slot = POOL_SLOT, .gpa = POOL_GPA,
		.npages = 1 + BUILDS * BUILD_PAGES,
	};
	unsigned long *got = bitmap_zalloc(NPAGES);
	struct kvm_vcpu *vcpu;
	struct kvm_vm *vm = create_vm(&vcpu, build_l1, 30);
	struct control *c = control_of(vm);
	vm_paddr_t root, pdpt;
	uint64_t i, j, p, before = 0, after, zapped = 0, first = 10;

	TEST_ASSERT(test_mem_map(&mem, VM_MEM_SRC_ANONYMOUS), "no memory");
	TEST_ASSERT(test_mem_map(&pool, VM_MEM_SRC_ANONYMOUS), "no memory");
	test_mem_set(vm, &mem, KVM_MEM_LOG_DIRTY_PAGES);
	test_mem_set(vm, &pool, 0);
	guest_map(vm, POOL_GPA, pool.npages * PAGE_SIZE);

	/* A PDPT that L1 can write to, in place of that of the usual root. */
	root = nested_root_alloc(vm);
	pdpt = *(uint64_t *)addr_gpa2hva(vm, root) & PHYSICAL_PAGE_MASK;
	memcpy(pool.hva, addr_gpa2hva(vm, pdpt), PAGE_SIZE);
	*(uint64_t *)addr_gpa2hva(vm, root) = POOL_GPA | NESTED_TABLE;
	c->root[L2_SMALL] = root;
	c->page = nested_page();
	c->pool = POOL_GPA;
	c->pool_pages = BUILDS * BUILD_PAGES;

	for (i = 0; i < 2 * BUILDS; i++) {
		if (i == first) {
			before = page_table_kib();
			zapped = vm_get_stat(vm, "mmu_shadow_zapped");
		}
		c->builds = i;
		guest_finish(vcpu);
		vm_get_dirty_log_no_wp(vm, TEST_SLOT, got);
		for (j = 0; j < BUILD_TOUCHES; j++) {
			p = (TEST_GPA + PG_SIZE_2M - MEM_GPA) / PAGE_SIZE +
			    j * 131 % (2 * PAGES_2M);
			TEST_ASSERT(test_bit(p, got),
				    "build %lu: page %lu is lost", i, p);
			TEST_ASSERT(*(uint64_t *)(mem.hva + p * PAGE_SIZE) == i,
				    "build %lu: page %lu is not written", i, p);
		}
		TEST_ASSERT(count_bits(got, NPAGES) == BUILD_TOUCHES,
			    "build %lu: %lu pages are dirty", i,
			    count_bits(got, NPAGES));
		if (i % 3 == 0)
			vm_write_protect_all(vm);
		else if (i % 3 == 1)
			vm_write_protect_range(vm, MEM_GPA, HULL);
	}
	after = page_table_kib();
	zapped = vm_get_stat(vm, "mmu_shadow_zapped") - zapped;
	pr_info("  %lu builds: %lu KiB of tables became %lu, %lu pages zapped\n",
		2 * BUILDS - first, before, after, zapped);
	/* At least the page directory and two page tables, each time. */
	TEST_ASSERT(zapped >= 3 * (2 * BUILDS - first),
		    "only %lu shadow pages were zapped", zapped);
	/* The counter of the kernel lags behind by up to some pages per CPU. */
	if (before != ~0UL)
		TEST_ASSERT(after < before + 4 * BUILDS,
			    "%lu KiB of shadow pages became %lu", before, after);
	kvm_vm_free(vm);
	test_mem_unmap(&mem);
	test_mem_unmap(&pool);
	free(got);
}

static const struct named_test tests[] = {
	{ "each", test_each },
	{ "model", test_models },
	{ "builds", test_builds },
	{ "initially-set", test_initially_set },
};

int main(int argc, char *argv[])
{
	const char *only = NULL;
	int opt;

	setbuf(stdout, NULL);
	while ((opt = getopt(argc, argv, "hn:r:t:")) != -1) {
		switch (opt) {
		case 'n':
			nr_steps = strtoul(optarg, NULL, 0);
			break;
		case 'r':
			first_seed = strtoull(optarg, NULL, 0);
			break;
		case 't':
			only = optarg;
			break;
		default:
			printf("usage: %s [-h] [-n steps] [-r seed] [-t test]\n"
			       " -t: only this test, which is one of:", argv[0]);
			print_test_names(tests, ARRAY_SIZE(tests));
			return 0;
		}
	}
	TEST_REQUIRE(kvm_has_cap(KVM_CAP_WRITE_PROTECT_ALL_MEM));
	TEST_REQUIRE(kvm_has_cap(KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT));
	TEST_REQUIRE(nested_guests_supported());
	run_tests(tests, ARRAY_SIZE(tests), only);
	return 0;
}
