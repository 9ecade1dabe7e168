// SPDX-License-Identifier: GPL-2.0-only
/*
 * What dirty tracking costs, by each way that the kernel has.
 *
 * Prints lines of a name, a number and a unit.  Everything but "migrate" runs in
 * one thread, so that on a machine whose clock counts instructions the figures
 * repeat.
 */
#define _GNU_SOURCE /* for program_invocation_name */
#include <pthread.h>
#include <time.h>

#include "dirty_tracking.h"

#define MiB		(1UL << 20)
#define GiB		(1UL << 30)
#define PAGES_PER_MIB	(MiB / PAGE_SIZE)

/* What is dirty in a slot that is otherwise untouched. */
#define SPARSE_PAGES	1000UL

/* How long the harvest loop runs beside a writing vCPU. */
#define MIGRATE_NS	1000000000UL

enum method {
	WAY_GET,		/* KVM_GET_DIRTY_LOG */
	WAY_CLEAR,		/* KVM_GET_DIRTY_LOG and KVM_CLEAR_DIRTY_LOG */
	WAY_FETCH,		/* fetch only, then write-protect all */
	WAY_SHARED,		/* the mapped bitmap, then write-protect all */
	NR_WAYS
};

static const char * const way_names[] = { "get", "clear", "fetch", "shared" };

static const uint32_t new_caps[] = {
	KVM_CAP_WRITE_PROTECT_ALL_MEM,
	KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
	KVM_CAP_DIRTY_BITMAP_FD,
};

static uint64_t mebibytes = 3072;

struct bench {
	enum method way;
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;
	struct test_mem mem;
	struct shared_bitmap shared;
	unsigned long *bitmap;
	uint64_t stamp;
};

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static void report(const char *what, const char *way, uint64_t value,
		   const char *unit)
{
	printf("%s.%s %lu %s\n", what, way, value, unit);
}

static bool has_way(enum method way)
{
	return way < WAY_FETCH || kvm_has_cap(KVM_CAP_WRITE_PROTECT_ALL_MEM);
}

/* Returns false if the host has not got the memory. */
static bool bench_start(struct bench *b, enum method way,
			enum vm_mem_backing_src_type src, uint64_t gpa,
			uint64_t npages)
{
	memset(b, 0, sizeof(*b));
	b->way = way;
	b->mem.slot = TEST_SLOT;
	b->mem.gpa = gpa;
	b->mem.npages = npages;
	if (!test_mem_map(&b->mem, src))
		return false;

	b->vm = toucher_vm(new_caps, way < WAY_FETCH ? 0 : ARRAY_SIZE(new_caps),
			   1, &b->vcpu);
	if (way == WAY_CLEAR)
		vm_enable_cap(b->vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
			      KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE);
	guest_map(b->vm, gpa, npages * PAGE_SIZE);
	b->bitmap = calloc(BITS_TO_LONGS(npages), sizeof(long));
	TEST_ASSERT(b->bitmap, "no memory for a bitmap");
	/* Not to be measured: the faults on the bitmap itself. */
	memset(b->bitmap, 0xff, BITS_TO_LONGS(npages) * sizeof(long));
	memset(b->bitmap, 0, BITS_TO_LONGS(npages) * sizeof(long));
	return true;
}

static void bench_log(struct bench *b)
{
	test_mem_set(b->vm, &b->mem, KVM_MEM_LOG_DIRTY_PAGES);
	if (b->way == WAY_SHARED)
		shared_bitmap_map(b->vm, b->mem.slot, b->mem.npages, &b->shared);
}

static void bench_end(struct bench *b)
{
	if (b->way == WAY_SHARED && b->shared.bitmap)
		shared_bitmap_unmap(&b->shared);
	kvm_vm_free(b->vm);
	test_mem_unmap(&b->mem);
	free(b->bitmap);
}

static void harvest(struct bench *b)
{
	if (b->way == WAY_SHARED)
		shared_bitmap_harvest(&b->shared, 0, b->mem.npages, b->bitmap);
	else if (b->way == WAY_FETCH)
		vm_get_dirty_log_no_wp(b->vm, b->mem.slot, b->bitmap);
	else
		kvm_vm_get_dirty_log(b->vm, b->mem.slot, b->bitmap);
}

static void rearm(struct bench *b)
{
	if (b->way >= WAY_FETCH)
		vm_write_protect_all(b->vm);
	else if (b->way == WAY_CLEAR)
		kvm_vm_clear_dirty_log(b->vm, b->mem.slot, b->bitmap, 0,
				       b->mem.npages);
}

static void write_all(struct bench *b)
{
	guest_stride(b->vcpu, GUEST_WRITE, b->mem.gpa, PAGE_SIZE, b->mem.npages,
		     ++b->stamp);
}

/* Harvest and re-arm of memory that is mapped by 4 KiB pages and all dirty. */
static void figure_rearm(void)
{
	uint64_t start, spent, written, round;
	struct bench b;
	enum method way;

	for (way = 0; way < NR_WAYS; way++) {
		if (!has_way(way))
			continue;
		bench_start(&b, way, VM_MEM_SRC_ANONYMOUS, TEST_GPA,
			    mebibytes * PAGES_PER_MIB);
		bench_log(&b);
		for (round = 0; round < 3; round++) {
			start = now();
			write_all(&b);
			written = now() - start;

			start = now();
			harvest(&b);
			rearm(&b);
			spent = now() - start;
			TEST_ASSERT(count_bits(b.bitmap, b.mem.npages) ==
				    b.mem.npages, "not all is dirty");
			memset(b.bitmap, 0, b.mem.npages / 8);
		}
		report("rearm", way_names[way], spent, "ns");
		report("write-again", way_names[way], written, "ns");
		bench_end(&b);
	}
}

/* Turning on logging for a slot that is mapped by 4 KiB pages. */
static void figure_enable(void)
{
	struct bench b;
	uint64_t start;
	enum method way;

	for (way = 0; way < NR_WAYS; way++) {
		/* The others do not differ in this. */
		if ((way != WAY_GET && way != WAY_SHARED) || !has_way(way))
			continue;
		bench_start(&b, way, VM_MEM_SRC_ANONYMOUS, TEST_GPA,
			    mebibytes * PAGES_PER_MIB);
		test_mem_set(b.vm, &b.mem, 0);
		write_all(&b);
		start = now();
		test_mem_set(b.vm, &b.mem, KVM_MEM_LOG_DIRTY_PAGES);
		report("enable", way_names[way], now() - start, "ns");
		bench_end(&b);
	}
}

/* A harvest of few pages from a slot of any size. */
static void sparse(const char *name, uint64_t npages)
{
	struct bench b;
	uint64_t i, start, spent = 0;

	bench_start(&b, WAY_SHARED, VM_MEM_SRC_ANONYMOUS, TEST_GPA, npages);
	bench_log(&b);
	for (i = 0; i < 3; i++) {
		guest_stride(b.vcpu, GUEST_WRITE, TEST_GPA,
			     npages / SPARSE_PAGES * PAGE_SIZE, SPARSE_PAGES, i);
		start = now();
		harvest(&b);
		spent = now() - start;
		rearm(&b);
	}
	TEST_ASSERT(count_bits(b.bitmap, npages) == SPARSE_PAGES,
		    "%lu pages are dirty", count_bits(b.bitmap, npages));
	report("sparse", name, spent, "ns");
	bench_end(&b);
}

static void figure_sparse(void)
{
	struct kvm_vm *vm = vm_create_barebones();
	uint64_t most = (vm->max_gfn - TEST_GPA / PAGE_SIZE) & ~(PAGES_1G - 1);

	kvm_vm_free(vm);
	if (!has_way(WAY_SHARED))
		return;
	sparse("small", 4 * PAGES_1G);
	/* As much of 1 TiB as the CPU can address. */
	most = min(most, 1024 * PAGES_1G);
	report("sparse", "large-size", most / PAGES_1G, "GiB");
	sparse("large", most);
}

/* In KiB. */
static uint64_t page_table_memory(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	uint64_t value = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "SecPageTables: %lu", &value) == 1)
			break;
	if (file)
		fclose(file);
	return value;
}

enum split {
	SPLIT_NOT,
	SPLIT_AT_ONCE,
	SPLIT_IN_CHUNKS,
	NR_SPLITS
};

static const char * const split_names[] = { "fault", "once", "chunks" };

/* Returns the longest ioctl, in ns. */
static uint64_t split_in_chunks(struct bench *b)
{
	struct kvm_split_huge_pages split = {
		.gpa = b->mem.gpa,
		.size = b->mem.npages * PAGE_SIZE,
	};
	uint64_t start, longest = 0;

	while (split.size) {
		start = now();
		vm_ioctl(b->vm, KVM_SPLIT_HUGE_PAGES, &split);
		longest = max(longest, now() - start);
	}
	return longest;
}

static void first_pass(const char *name, enum vm_mem_backing_src_type src,
		       enum split split)
{
	uint64_t start, total, longest, tables;
	struct bench b;
	char what[64];

	if (!bench_start(&b, has_way(WAY_SHARED) ? WAY_SHARED : WAY_GET, src,
			 TEST_GPA, PAGES_1G)) {
		printf("# no memory for %s\n", name);
		return;
	}
	if (kvm_has_cap(KVM_CAP_EAGER_PAGE_SPLIT))
		TEST_ASSERT(!__vm_enable_cap_args(b.vm, KVM_CAP_EAGER_PAGE_SPLIT,
			0, split == SPLIT_AT_ONCE ? KVM_EAGER_PAGE_SPLIT_ON :
						    KVM_EAGER_PAGE_SPLIT_OFF,
			split == SPLIT_IN_CHUNKS ? 16 * MiB : 0),
			"the split mode was refused");
	test_mem_set(b.vm, &b.mem, 0);
	write_all(&b);

	tables = page_table_memory();
	start = now();
	bench_log(&b);
	longest = total = now() - start;
	if (split == SPLIT_IN_CHUNKS) {
		longest = max(longest, split_in_chunks(&b));
		total = now() - start;
	}
	tables = page_table_memory() - tables;

	snprintf(what, sizeof(what), "%s.%s", name, split_names[split]);
	report("log-and-split", what, total, "ns");
	report("longest-ioctl", what, longest, "ns");
	report("page-tables", what, tables, "KiB");
	start = now();
	write_all(&b);
	report("first-pass", what, now() - start, "ns");
	bench_end(&b);
}

static void figure_split(void)
{
	static const struct {
		const char *name;
		enum vm_mem_backing_src_type src;
	} sizes[] = {
		{ "4k", VM_MEM_SRC_ANONYMOUS },
		{ "2m", VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB },
		{ "1g", VM_MEM_SRC_ANONYMOUS_HUGETLB_1GB },
	};
	enum split split, last = SPLIT_NOT;
	int i;

	if (kvm_has_cap(KVM_CAP_EAGER_PAGE_SPLIT))
		last = SPLIT_IN_CHUNKS;
	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		for (split = SPLIT_NOT; split <= last; split++)
			first_pass(sizes[i].name, sizes[i].src, split);
}

/* A vCPU that writes, as long as the other thread harvests. */
static volatile bool migrate_done;
static volatile uint64_t migrate_passes;

static void *migrate_writer(void *arg)
{
	struct bench *b = arg;

	while (!migrate_done) {
		write_all(b);
		migrate_passes++;
	}
	return NULL;
}

static void figure_migrate(void)
{
	uint64_t start, begun, spent, rounds;
	struct bench b;
	pthread_t thread;
	enum method way;

	for (way = 0; way < NR_WAYS; way++) {
		if (!has_way(way))
			continue;
		bench_start(&b, way, VM_MEM_SRC_ANONYMOUS, TEST_GPA,
			    mebibytes * PAGES_PER_MIB);
		bench_log(&b);
		write_all(&b);
		migrate_done = false;
		migrate_passes = spent = rounds = 0;
		pthread_create(&thread, NULL, migrate_writer, &b);
		begun = now();
		while (now() - begun < MIGRATE_NS) {
			usleep(10000);
			start = now();
			harvest(&b);
			rearm(&b);
			spent += now() - start;
			rounds++;
		}
		begun = now() - begun;
		report("migrate-fetch", way_names[way], spent / rounds, "ns");
		report("migrate-passes", way_names[way],
		       migrate_passes * 1000000000ULL * 1000 / begun,
		       "per-1000-s");
		migrate_done = true;
		pthread_join(thread, NULL);
		bench_end(&b);
	}
}

static const struct {
	const char *name;
	void (*run)(void);
} figures[] = {
	{ "rearm", figure_rearm },
	{ "enable", figure_enable },
	{ "sparse", figure_sparse },
	{ "split", figure_split },
	{ "migrate", figure_migrate },
};

static void help(const char *name)
{
	int i;

	printf("usage: %s [-h] [-m MiB] [figure ...]\n"
	       " -m: how much memory is dirty (default 3072)\n"
	       " figures:", name);
	for (i = 0; i < ARRAY_SIZE(figures); i++)
		printf(" %s", figures[i].name);
	printf("\n");
	exit(0);
}

static bool wanted(int argc, char **argv, const char *name)
{
	int i;

	for (i = optind; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return optind == argc;
}

int main(int argc, char **argv)
{
	int opt, i;

	setbuf(stdout, NULL);
	while ((opt = getopt(argc, argv, "hm:")) != -1) {
		if (opt == 'm')
			mebibytes = strtoul(optarg, NULL, 0);
		else
			help(argv[0]);
	}

	for (i = 0; i < ARRAY_SIZE(figures); i++)
		if (wanted(argc, argv, figures[i].name))
			figures[i].run();
	return 0;
}
