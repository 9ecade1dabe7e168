// SPDX-License-Identifier: GPL-2.0-only
/*
 * What dirty tracking costs, by each way that the kernel has.
 *
 * Prints lines of a name, a number and a unit.  Everything but "migrate", and
 * "split" with more than one vCPU, runs in one thread, so that on a machine whose
 * clock counts instructions the figures repeat.
 */
#define _GNU_SOURCE /* for program_invocation_name */
#include <pthread.h>
#include <time.h>

#include "kvm_util.h"
#include "test_util.h"
#include "processor.h"
#include "dirty_bitmap.h"
#include "dirty_tracking.h"
#include "mmu_stats.h"
#include "selftest_release.h"
#include "test_mem.h"
#include "touching_guest.h"

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
	WAY_BITS,		/* collect dirty bits, then the mapped bitmap */
	WAY_RING,		/* the vCPU's dirty ring */
	NR_WAYS
};

static const char * const way_names[] = {
	"get", "clear", "fetch", "shared", "bits", "ring",
};

/* As many as KVM allows. */
#define RING_ENTRIES	65536UL

static const uint32_t new_caps[] = {
	KVM_CAP_WRITE_PROTECT_ALL_MEM,
	KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
	KVM_CAP_DIRTY_BITMAP_FD,
	KVM_CAP_DIRTY_BITS,	/* the last way only */
};

static uint64_t mebibytes = 3072;

/* Of "split": how many vCPUs, in turn, and what each of them writes. */
static int vcpu_counts[GUEST_MAX_VCPUS] = { 1 };
static uint64_t share_mebibytes = 1024;

struct bench {
	enum method way;
	struct kvm_vm *vm;
	struct kvm_vcpu *vcpu;		/* the first of them */
	struct kvm_vcpu *vcpus[GUEST_MAX_VCPUS];
	int nr_vcpus;
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

/*
 * A ring that gets full would end the vCPU's run: it has room for all pages, and
 * for those that are written again before KVM has reset the first entry of each.
 */
static bool has_way(enum method way)
{
	switch (way) {
	case WAY_GET:
	case WAY_CLEAR:
		return true;
	case WAY_BITS:
		return kvm_has_cap(KVM_CAP_DIRTY_BITS);
	case WAY_RING:
		return kvm_has_cap(KVM_CAP_DIRTY_LOG_RING) &&
		       2 * mebibytes * PAGES_PER_MIB <= RING_ENTRIES;
	default:
		return kvm_has_cap(KVM_CAP_WRITE_PROTECT_ALL_MEM);
	}
}

static bool has_shared_bitmap(const struct bench *b)
{
	return b->way == WAY_SHARED || b->way == WAY_BITS;
}

static int nr_caps(enum method way)
{
	if (way == WAY_GET || way == WAY_CLEAR)
		return 0;
	return ARRAY_SIZE(new_caps) - (way != WAY_BITS);
}

static void create_vm(struct bench *b)
{
	struct kvm_dirty_gfn *ring;
	uint64_t i;

	if (b->way != WAY_RING) {
		b->vm = toucher_vm(new_caps, nr_caps(b->way), b->nr_vcpus,
				   b->vcpus);
		return;
	}
	b->vm = __vm_create(VM_SHAPE_DEFAULT, b->nr_vcpus, 0);
	vm_enable_dirty_ring(b->vm, RING_ENTRIES * sizeof(*ring));
	add_touchers(b->vm, b->nr_vcpus, b->vcpus);
	/* Not to be measured: the faults on the ring itself. */
	ring = vcpu_map_dirty_ring(b->vcpus[0]);
	for (i = 0; i < RING_ENTRIES; i++)
		READ_ONCE(ring[i].flags);
}

/* Returns false if the host has not got the memory. */
static bool bench_start_vcpus(struct bench *b, enum method way,
			      enum vm_mem_backing_src_type src, uint64_t gpa,
			      uint64_t npages, int nr_vcpus)
{
	memset(b, 0, sizeof(*b));
	b->way = way;
	b->nr_vcpus = nr_vcpus;
	b->mem.slot = TEST_SLOT;
	b->mem.gpa = gpa;
	b->mem.npages = npages;
	if (!test_mem_map(&b->mem, src))
		return false;

	create_vm(b);
	b->vcpu = b->vcpus[0];
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

static bool bench_start(struct bench *b, enum method way,
			enum vm_mem_backing_src_type src, uint64_t gpa,
			uint64_t npages)
{
	return bench_start_vcpus(b, way, src, gpa, npages, 1);
}

static void bench_log(struct bench *b)
{
	test_mem_set(b->vm, &b->mem, KVM_MEM_LOG_DIRTY_PAGES);
	if (has_shared_bitmap(b))
		shared_bitmap_map(b->vm, b->mem.slot, b->mem.npages, &b->shared);
}

static void bench_end(struct bench *b)
{
	if (b->shared.bitmap)
		shared_bitmap_unmap(&b->shared);
	kvm_vm_free(b->vm);
	test_mem_unmap(&b->mem);
	free(b->bitmap);
}

static void collect_ring(struct bench *b)
{
	struct kvm_vcpu *vcpu = b->vcpu;
	struct kvm_dirty_gfn *gfn;

	for (;; vcpu->fetch_index++) {
		gfn = &vcpu->dirty_gfns[vcpu->fetch_index % RING_ENTRIES];
		/* KVM sets the flag after the offset, and frees it when it resets. */
		if (!(__atomic_load_n(&gfn->flags, __ATOMIC_ACQUIRE) &
		      KVM_DIRTY_GFN_F_DIRTY))
			break;
		set_bit(gfn->offset, b->bitmap);
		__atomic_store_n(&gfn->flags, KVM_DIRTY_GFN_F_RESET,
				 __ATOMIC_RELEASE);
	}
}

static void harvest(struct bench *b)
{
	if (b->way == WAY_BITS)
		vm_collect_dirty_bits(b->vm, b->mem.gpa,
				      b->mem.npages * PAGE_SIZE);
	if (has_shared_bitmap(b))
		shared_bitmap_harvest(&b->shared, 0, b->mem.npages, b->bitmap);
	else if (b->way == WAY_RING)
		collect_ring(b);
	else if (b->way == WAY_FETCH)
		vm_get_dirty_log_no_wp(b->vm, b->mem.slot, b->bitmap);
	else
		kvm_vm_get_dirty_log(b->vm, b->mem.slot, b->bitmap);
}

static void rearm(struct bench *b)
{
	if (b->way == WAY_FETCH || b->way == WAY_SHARED)
		vm_write_protect_all(b->vm);
	else if (b->way == WAY_CLEAR)
		kvm_vm_clear_dirty_log(b->vm, b->mem.slot, b->bitmap, 0,
				       b->mem.npages);
	else if (b->way == WAY_RING)
		kvm_vm_reset_dirty_ring(b->vm);
}

static void write_all(struct bench *b)
{
	guest_stride(b->vcpu, GUEST_WRITE, b->mem.gpa, PAGE_SIZE, b->mem.npages,
		     ++b->stamp);
}

/* Without anything to be logged, and after all of it was quiet for a while. */
static void write_again(struct bench *b)
{
	uint64_t start = now();

	write_all(b);
	report("write-again-free", way_names[b->way], now() - start, "ns");

	if (b->way != WAY_BITS)
		return;
	harvest(b);
	harvest(b);
	start = now();
	write_all(b);
	report("write-again-woken", way_names[b->way], now() - start, "ns");
}

/* Harvest and re-arm of memory that is mapped by 4 KiB pages and all dirty. */
static void figure_rearm(void)
{
	uint64_t start, spent, written, round, exits;
	struct bench b;
	enum method way;

	for (way = 0; way < NR_WAYS; way++) {
		if (!has_way(way))
			continue;
		bench_start(&b, way, VM_MEM_SRC_ANONYMOUS, TEST_GPA,
			    mebibytes * PAGES_PER_MIB);
		bench_log(&b);
		for (round = 0; round < 3; round++) {
			exits = vcpu_stat(b.vcpu, "exits");
			start = now();
			write_all(&b);
			written = now() - start;
			exits = vcpu_stat(b.vcpu, "exits") - exits;

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
		report("write-again-exits", way_names[way], exits, "exits");
		write_all(&b);
		write_again(&b);
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

/* What a vCPU spends on its writes, and how often it leaves the guest. */
struct written {
	uint64_t ns;
	uint64_t exits;
};

/*
 * What is spent on so many pages that are dirty, evenly spread: by who harvests
 * them, and by the vCPU that writes to them.
 */
static uint64_t harvest_spread(struct bench *b, uint64_t count,
			       struct written *written)
{
	uint64_t exits = vcpu_stat(b->vcpu, "exits"), start = now(), spent;

	guest_stride(b->vcpu, GUEST_WRITE, b->mem.gpa,
		     b->mem.npages / count * PAGE_SIZE, count, ++b->stamp);
	written->ns = now() - start;
	written->exits = vcpu_stat(b->vcpu, "exits") - exits;
	start = now();
	harvest(b);
	rearm(b);
	spent = now() - start;
	TEST_ASSERT(count_bits(b->bitmap, b->mem.npages) == count,
		    "%lu pages are dirty instead of %lu",
		    count_bits(b->bitmap, b->mem.npages), count);
	memset(b->bitmap, 0, BITS_TO_LONGS(b->mem.npages) * sizeof(long));
	return spent;
}

/*
 * The first time brings the code in, and for the first two, dirty bits are looked
 * for wherever there were any before.
 */
static void report_spread(struct bench *b, uint64_t count)
{
	struct written written;
	char what[64];

	harvest_spread(b, count, &written);
	harvest_spread(b, count, &written);
	snprintf(what, sizeof(what), "%s.%lu", way_names[b->way], count);
	report("dirty", what, harvest_spread(b, count, &written), "ns");
	report("dirty-write", what, written.ns, "ns");
	report("dirty-exits", what, written.exits, "exits");
}

/* Memory that is copied once, as it has to be to be sent.  Takes no KVM. */
static void figure_copy(void)
{
	const size_t size = 64 * MiB;
	uint64_t start, spent = 0;
	char *from, *to;
	int i;

	from = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	TEST_ASSERT(from != MAP_FAILED, "no memory to copy");
	to = from + size;
	for (i = 0; i < 3; i++) {
		start = now();
		memcpy(to, from, size);
		spent = now() - start;
		/* Or the compiler may leave out a copy that nobody reads. */
		asm volatile("" : : "r" (to) : "memory");
	}
	report("copy", "page", spent / (size / PAGE_SIZE), "ns");
	munmap(from, 2 * size);
}

static void figure_dirty(void)
{
	uint64_t count, npages = mebibytes * PAGES_PER_MIB;
	struct written written;
	struct bench b;
	enum method way;

	for (way = 0; way < NR_WAYS; way++) {
		if (!has_way(way))
			continue;
		bench_start(&b, way, VM_MEM_SRC_ANONYMOUS, TEST_GPA, npages);
		bench_log(&b);
		/* All is mapped before anything is measured. */
		harvest_spread(&b, npages, &written);
		/* One in each 2 MiB, and others. */
		report_spread(&b, npages / PAGES_2M);
		for (count = 100; count < npages; count *= 10)
			report_spread(&b, count);
		report_spread(&b, npages);
		bench_end(&b);
	}
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

/* More than it takes until collects look at nothing. */
#define MOST_AHEAD	4

/*
 * The last harvest of memory in which a page of each 2 MiB was written, after
 * some that userspace has made ahead of it, while the guest was running.
 */
static void figure_ahead(void)
{
	const uint64_t n = mebibytes * MiB / PG_SIZE_2M;
	uint64_t start, spent, tables;
	struct bench b;
	char what[16];
	int ahead, i;

	if (!has_way(WAY_BITS))
		return;
	bench_start(&b, WAY_BITS, VM_MEM_SRC_ANONYMOUS, TEST_GPA,
		    mebibytes * PAGES_PER_MIB);
	bench_log(&b);
	write_all(&b);
	for (ahead = 0; ahead <= MOST_AHEAD; ahead++) {
		for (i = 0; i < MOST_AHEAD; i++)
			harvest(&b);
		guest_stride(b.vcpu, GUEST_WRITE, b.mem.gpa, PG_SIZE_2M, n,
			     ++b.stamp);
		for (i = 0; i < ahead; i++)
			harvest(&b);
		tables = vm_get_stat(b.vm, "dirty_bits_tables");
		start = now();
		harvest(&b);
		spent = now() - start;
		snprintf(what, sizeof(what), "%d", ahead);
		report("ahead", what, spent, "ns");
		report("ahead-tables", what,
		       vm_get_stat(b.vm, "dirty_bits_tables") - tables, "tables");
	}
	bench_end(&b);
}

enum split {
	SPLIT_NOT,
	SPLIT_AT_ONCE,
	SPLIT_IN_CHUNKS,
	NR_SPLITS
};

static const char * const split_names[] = { "fault", "once", "chunks" };

static const struct backing {
	const char *name;
	enum vm_mem_backing_src_type src;
} backings[] = {
	{ "4k", VM_MEM_SRC_ANONYMOUS },
	{ "2m", VM_MEM_SRC_ANONYMOUS_HUGETLB_2MB },
	{ "1g", VM_MEM_SRC_ANONYMOUS_HUGETLB_1GB },
};

/*
 * How Linux is told without KVM_CAP_EAGER_PAGE_SPLIT, for all VMs alike.
 * Returns what it was, Y or N; 0 if it cannot be set.
 */
static char set_split_parameter(char value)
{
	const char *path = "/sys/module/kvm/parameters/eager_page_split";
	int fd = open(path, O_RDWR);
	char old = 0;

	if (fd < 0)
		return 0;
	if (pread(fd, &old, 1, 0) != 1 || pwrite(fd, &value, 1, 0) != 1)
		old = 0;
	close(fd);
	return old;
}

static void set_split(struct bench *b, enum split split)
{
	uint64_t mode = split == SPLIT_AT_ONCE ? KVM_EAGER_PAGE_SPLIT_ON :
						 KVM_EAGER_PAGE_SPLIT_OFF;
	uint64_t chunk = split == SPLIT_IN_CHUNKS ? 16 * MiB : 0;

	if (kvm_has_cap(KVM_CAP_EAGER_PAGE_SPLIT))
		TEST_ASSERT(!__vm_enable_cap_args(b->vm, KVM_CAP_EAGER_PAGE_SPLIT,
						  0, mode, chunk),
			    "the split mode was refused");
	else
		set_split_parameter(split == SPLIT_AT_ONCE ? 'Y' : 'N');
}

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

/* Each vCPU has its own part of the memory, and its thread. */
struct share_writer {
	struct bench *b;
	int vcpu;
	pthread_t thread;
	pthread_barrier_t *ready;
	uint64_t begun;
	uint64_t ended;
};

static void write_share(struct bench *b, int vcpu)
{
	uint64_t npages = share_mebibytes * PAGES_PER_MIB;

	guest_stride(b->vcpus[vcpu], GUEST_WRITE,
		     b->mem.gpa + vcpu * npages * PAGE_SIZE, PAGE_SIZE, npages,
		     b->stamp);
}

static void *share_thread(void *arg)
{
	struct share_writer *w = arg;

	pthread_barrier_wait(w->ready);
	w->begun = now();
	write_share(w->b, w->vcpu);
	w->ended = now();
	return NULL;
}

/* Returns ns from the first write of any to the last. */
static uint64_t write_shares(struct bench *b)
{
	struct share_writer writers[GUEST_MAX_VCPUS], *w;
	uint64_t begun = ~0ULL, ended = 0, start = now();
	pthread_barrier_t ready;

	b->stamp++;
	if (b->nr_vcpus == 1) {
		write_share(b, 0);
		return now() - start;
	}

	pthread_barrier_init(&ready, NULL, b->nr_vcpus);
	for (w = writers; w != writers + b->nr_vcpus; w++) {
		*w = (struct share_writer) {
			.b = b, .vcpu = w - writers, .ready = &ready,
		};
		pthread_create(&w->thread, NULL, share_thread, w);
	}
	for (w = writers; w != writers + b->nr_vcpus; w++) {
		pthread_join(w->thread, NULL);
		begun = min(begun, w->begun);
		ended = max(ended, w->ended);
	}
	pthread_barrier_destroy(&ready);
	return ended - begun;
}

static uint64_t split_npages(const struct backing *backing, int nr_vcpus)
{
	uint64_t npages = nr_vcpus * share_mebibytes * PAGES_PER_MIB;

	/* KVM maps by a page of 1 GiB only what the slot has all of. */
	if (backing->src == VM_MEM_SRC_ANONYMOUS_HUGETLB_1GB)
		npages = align_up(npages, PAGES_1G);
	return npages;
}

/* A pass that is not logged would be a fast one. */
static void check_logged(struct bench *b, uint64_t npages)
{
	uint64_t i, found = 0;

	harvest(b);
	for (i = 0; i < npages; i++)
		found += test_bit(i, b->bitmap);
	TEST_ASSERT(found == npages, "%lu of %lu pages were logged", found,
		    npages);
}

static void first_pass(const struct backing *backing, enum split split,
		       int nr_vcpus)
{
	enum method way = has_way(WAY_SHARED) ? WAY_SHARED : WAY_GET;
	uint64_t start, total, longest, tables;
	struct bench b;
	char what[64];

	if (!bench_start_vcpus(&b, way, backing->src, TEST_GPA,
			       split_npages(backing, nr_vcpus), nr_vcpus)) {
		printf("# no memory for %s\n", backing->name);
		return;
	}
	set_split(&b, split);
	test_mem_set(b.vm, &b.mem, 0);
	write_shares(&b);

	tables = page_table_memory();
	start = now();
	bench_log(&b);
	longest = total = now() - start;
	if (split == SPLIT_IN_CHUNKS) {
		longest = max(longest, split_in_chunks(&b));
		total = now() - start;
	}
	tables = page_table_memory() - tables;

	snprintf(what, sizeof(what), nr_vcpus == 1 ? "%s.%s" : "%s.%s.%d",
		 backing->name, split_names[split], nr_vcpus);
	report("log-and-split", what, total, "ns");
	report("longest-ioctl", what, longest, "ns");
	report("page-tables", what, tables, "KiB");
	report("first-pass", what, write_shares(&b), "ns");
	check_logged(&b, nr_vcpus * share_mebibytes * PAGES_PER_MIB);
	bench_end(&b);
}

static void first_passes(enum split last, int nr_vcpus)
{
	enum split split;
	int i;

	for (i = 0; i < ARRAY_SIZE(backings); i++)
		for (split = SPLIT_NOT; split <= last; split++)
			first_pass(&backings[i], split, nr_vcpus);
}

static void figure_split(void)
{
	enum split last = SPLIT_IN_CHUNKS;
	char parameter = 0;
	int i;

	if (!kvm_has_cap(KVM_CAP_EAGER_PAGE_SPLIT)) {
		parameter = set_split_parameter('N');
		last = SPLIT_AT_ONCE;
		if (!parameter) {
			printf("# kvm.eager_page_split cannot be set\n");
			return;
		}
	}
	for (i = 0; i < ARRAY_SIZE(vcpu_counts) && vcpu_counts[i]; i++)
		first_passes(last, vcpu_counts[i]);
	if (parameter)
		set_split_parameter(parameter);
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
	{ "dirty", figure_dirty },
	{ "copy", figure_copy },
	{ "ahead", figure_ahead },
	{ "split", figure_split },
	{ "migrate", figure_migrate },
};

static void help(const char *name)
{
	int i;

	printf("usage: %s [-h] [-m MiB] [-v vCPUs[,...]] [-s MiB] [figure ...]\n"
	       " -m: how much memory is dirty (default 3072)\n"
	       " -v: how many vCPUs write for split, up to %d (default 1)\n"
	       " -s: how much each of them writes (default 1024)\n"
	       " figures:", name, GUEST_MAX_VCPUS);
	for (i = 0; i < ARRAY_SIZE(figures); i++)
		printf(" %s", figures[i].name);
	printf("\n");
	exit(0);
}

/* "1,2,4": one after the other. */
static void parse_vcpu_counts(char *list)
{
	char *item;
	int i = 0;

	memset(vcpu_counts, 0, sizeof(vcpu_counts));
	for (item = strtok(list, ","); item; item = strtok(NULL, ",")) {
		TEST_ASSERT(i < ARRAY_SIZE(vcpu_counts) && atoi(item) > 0 &&
			    atoi(item) <= GUEST_MAX_VCPUS,
			    "-v takes up to %d numbers from 1 to %d",
			    GUEST_MAX_VCPUS, GUEST_MAX_VCPUS);
		vcpu_counts[i++] = atoi(item);
	}
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
	while ((opt = getopt(argc, argv, "hm:s:v:")) != -1) {
		if (opt == 'm')
			mebibytes = strtoul(optarg, NULL, 0);
		else if (opt == 's')
			share_mebibytes = strtoul(optarg, NULL, 0);
		else if (opt == 'v')
			parse_vcpu_counts(optarg);
		else
			help(argv[0]);
	}

	TEST_ASSERT(mebibytes > 1 && share_mebibytes, "there is no memory to write");
	for (i = 0; i < ARRAY_SIZE(figures); i++)
		if (wanted(argc, argv, figures[i].name))
			figures[i].run();
	return 0;
}
