/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the tests of fast dirty tracking share: wrappers of its ioctls, memory
 * slots of any shape, and a guest that touches the pages it is told to.
 */
#ifndef SELFTEST_KVM_DIRTY_TRACKING_H
#define SELFTEST_KVM_DIRTY_TRACKING_H

#include <signal.h>
#include <sys/time.h>
#include <time.h>

#include <linux/bitmap.h>
#include <linux/bitops.h>
#include <asm/barrier.h>
#include <linux/kvm_dirty_tracking.h>

#include "kvm_util.h"
#include "test_util.h"
#include "processor.h"

/* Test memory is identity mapped, above all that the library maps. */
#define TEST_GPA		(4UL << 30)
#define TEST_SLOT		1

#define PAGES_2M		512UL
#define PAGES_1G		(512UL * 512)

/* What a test program consists of; it may run one of them only. */
struct named_test {
	const char *name;
	void (*run)(void);
};

static inline void print_test_names(const struct named_test *tests, int n)
{
	int i;

	for (i = 0; i < n; i++)
		printf(" %s", tests[i].name);
	printf("\n");
}

static inline void run_tests(const struct named_test *tests, int n,
			     const char *only)
{
	int i, ran = 0;

	for (i = 0; i < n; i++) {
		if (only && strcmp(only, tests[i].name))
			continue;
		pr_info("%s\n", tests[i].name);
		tests[i].run();
		ran++;
	}
	TEST_ASSERT(ran, "there is no test %s", only);
}

/*
 * Which test the command line asks for, NULL for all.  With an option, says
 * which there are, and ends the program.
 */
static inline const char *named_argument(int argc, char *argv[],
					 const struct named_test *tests, int n)
{
	const char *only = argc > 1 ? argv[1] : NULL;

	setbuf(stdout, NULL);
	if (only && only[0] == '-') {
		printf("usage: %s [test], one of:", argv[0]);
		print_test_names(tests, n);
		exit(0);
	}
	return only;
}

#define TEST_ERRNO(call, err)						\
do {									\
	int __ret = (call);						\
									\
	TEST_ASSERT(__ret == -1 && errno == (err),			\
		    "%s gave %d, errno %d (%s), instead of errno %d (%s)", \
		    #call, __ret, errno, strerror(errno),		\
		    (err), strerror(err));				\
} while (0)

/* A copy of what an ioctl takes, to where it cannot write its answer. */
static inline void *read_only_copy(const void *data, size_t size)
{
	void *page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	TEST_ASSERT(page != MAP_FAILED, "mmap failed: %s", strerror(errno));
	memcpy(page, data, size);
	TEST_ASSERT(!mprotect(page, PAGE_SIZE, PROT_READ), "mprotect failed: %s",
		    strerror(errno));
	return page;
}

static inline int __vm_enable_cap_args(struct kvm_vm *vm, uint32_t cap,
				       uint32_t flags, uint64_t arg0,
				       uint64_t arg1)
{
	struct kvm_enable_cap enable = {
		.cap = cap,
		.flags = flags,
		.args = { arg0, arg1 },
	};

	return __vm_ioctl(vm, KVM_ENABLE_CAP, &enable);
}

static inline int __vm_write_protect_all(struct kvm_vm *vm)
{
	return __vm_ioctl(vm, KVM_WRITE_PROTECT_ALL_MEM, NULL);
}

static inline void vm_write_protect_all(struct kvm_vm *vm)
{
	vm_ioctl(vm, KVM_WRITE_PROTECT_ALL_MEM, NULL);
}

static inline int __vm_write_protect_range(struct kvm_vm *vm, uint64_t gpa,
					   uint64_t size, uint64_t flags)
{
	struct kvm_write_protect_range range = {
		.gpa = gpa,
		.size = size,
		.flags = flags,
	};

	return __vm_ioctl(vm, KVM_WRITE_PROTECT_RANGE, &range);
}

static inline void vm_write_protect_range(struct kvm_vm *vm, uint64_t gpa,
					  uint64_t size)
{
	int ret = __vm_write_protect_range(vm, gpa, size, 0);

	TEST_ASSERT(!ret, KVM_IOCTL_ERROR(KVM_WRITE_PROTECT_RANGE, ret));
}

static inline int __vm_get_dirty_log(struct kvm_vm *vm, uint32_t slot,
				     uint32_t flags, void *bitmap)
{
	struct kvm_dirty_log log = {
		.slot = slot,
		.padding1 = flags,
		.dirty_bitmap = bitmap,
	};

	return __vm_ioctl(vm, KVM_GET_DIRTY_LOG, &log);
}

/* Copies and clears the bitmap, and leaves the page tables alone. */
static inline void vm_get_dirty_log_no_wp(struct kvm_vm *vm, uint32_t slot,
					  void *bitmap)
{
	int ret = __vm_get_dirty_log(vm, slot,
				     KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
				     bitmap);

	TEST_ASSERT(!ret, KVM_IOCTL_ERROR(KVM_GET_DIRTY_LOG, ret));
}

static inline int __vm_split_huge_pages(struct kvm_vm *vm,
					struct kvm_split_huge_pages *split)
{
	return __vm_ioctl(vm, KVM_SPLIT_HUGE_PAGES, split);
}

/*
 * Signals at short intervals, for as long as a test wants them.  They end an
 * ioctl that looks for them.
 */
static int nr_alarms;

static inline void on_alarm(int signo)
{
	nr_alarms++;
}

/* In microseconds, what the kernel takes to deliver a signal here. */
static inline uint64_t signal_cost(void)
{
	const int times = 8;
	struct timespec start, took;
	int i;

	clock_gettime(CLOCK_MONOTONIC, &start);
	for (i = 0; i < times; i++)
		raise(SIGALRM);
	took = timespec_elapsed(start);
	return (took.tv_sec * 1000000 + took.tv_nsec / 1000) / times;
}

/*
 * A kernel with KASAN on a slow CPU takes longer for a signal than others for an
 * ioctl.  The interval leaves it time to go on with the test.
 */
static inline void begin_alarms(void)
{
	struct itimerval often = { };
	struct sigaction action = { .sa_handler = on_alarm };

	sigaction(SIGALRM, &action, NULL);
	often.it_value.tv_usec = max(300UL, 20 * signal_cost());
	often.it_interval = often.it_value;
	nr_alarms = 0;
	setitimer(ITIMER_REAL, &often, NULL);
}

static inline void end_alarms(void)
{
	struct itimerval never = { };

	setitimer(ITIMER_REAL, &never, NULL);
}

/*
 * Calls again until nothing of the range is left, as signals may stop a call.
 * Returns how many calls that took.
 */
static inline uint64_t call_until_done(struct kvm_vm *vm, unsigned long cmd,
				       uint64_t gpa, uint64_t size)
{
	struct kvm_write_protect_range range = { .gpa = gpa, .size = size };
	uint64_t calls = 0, left = size;

	for (; range.size; calls++) {
		if (!ioctl(vm->fd, cmd, &range))
			TEST_ASSERT(!range.size, "it succeeds, and 0x%llx are left",
				    range.size);
		else
			TEST_ASSERT(errno == EINTR && range.size &&
				    range.size < left, "errno %d, 0x%llx of 0x%lx left",
				    errno, range.size, left);
		TEST_ASSERT(range.gpa + range.size == gpa + size,
			    "the range ends at 0x%llx", range.gpa + range.size);
		left = range.size;
	}
	return calls;
}

/* What it takes, in this order, before the first vCPU. */
static const uint32_t dirty_bits_caps[] = {
	KVM_CAP_WRITE_PROTECT_ALL_MEM,
	KVM_CAP_DIRTY_BITMAP_FD,
	KVM_CAP_DIRTY_BITS,
};

static inline int __vm_collect_dirty_bits(struct kvm_vm *vm, uint64_t gpa,
					  uint64_t size, uint64_t flags)
{
	struct kvm_collect_dirty_bits range = {
		.gpa = gpa,
		.size = size,
		.flags = flags,
	};

	return __vm_ioctl(vm, KVM_COLLECT_DIRTY_BITS, &range);
}

static inline void vm_collect_dirty_bits(struct kvm_vm *vm, uint64_t gpa,
					 uint64_t size)
{
	int ret = __vm_collect_dirty_bits(vm, gpa, size, 0);

	TEST_ASSERT(!ret, KVM_IOCTL_ERROR(KVM_COLLECT_DIRTY_BITS, ret));
}

static inline bool vm_has_stat(struct kvm_vm *vm, const char *name)
{
	uint64_t data = ~0ULL;

	__vm_get_stat(vm, name, &data, 1);
	return data != ~0ULL;
}

/* How many faults of the vCPU KVM has handled, spurious ones and all. */
static inline uint64_t vcpu_page_faults(struct kvm_vcpu *vcpu)
{
	struct kvm_stats_desc *descs, *desc;
	int fd = vcpu_get_stats_fd(vcpu), i;
	struct kvm_stats_header header;
	uint64_t value = ~0ULL;

	read_stats_header(fd, &header);
	descs = read_stats_descriptors(fd, &header);
	for (i = 0; i < header.num_desc; i++) {
		desc = get_stats_descriptor(descs, i, &header);
		if (!strcmp(desc->name, "pf_taken"))
			read_stat_data(fd, &header, desc, &value, 1);
	}
	free(descs);
	close(fd);
	TEST_ASSERT(value != ~0ULL, "page faults are not counted");
	return value;
}

/* What KVM has allocated for page tables, of all VMs; ~0 if the host hides it. */
static inline uint64_t page_table_kib(void)
{
	FILE *f = fopen("/proc/meminfo", "r");
	unsigned long kib = ~0UL;
	char line[128];

	TEST_ASSERT(f, "no /proc/meminfo");
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "SecPageTables: %lu", &kib) == 1)
			break;
	fclose(f);
	return kib;
}

/* Those of the last word that are no pages count as well. */
static inline uint64_t count_bits(const unsigned long *bitmap, uint64_t npages)
{
	uint64_t i, n = 0;

	for (i = 0; i < BITS_TO_LONGS(npages); i++)
		n += __builtin_popcountl(bitmap[i]);
	return n;
}

/* The dirty bitmap of a slot, mapped. */
struct shared_bitmap {
	int fd;
	uint64_t npages;
	struct kvm_dirty_bitmap_fd desc;
	unsigned long *bitmap;
	unsigned long *summary;
};

static inline int __vm_get_dirty_bitmap_fd(struct kvm_vm *vm, uint32_t slot,
					   uint32_t flags,
					   struct kvm_dirty_bitmap_fd *desc)
{
	memset(desc, 0xff, sizeof(*desc));
	desc->slot = slot;
	desc->flags = flags;
	return __vm_ioctl(vm, KVM_GET_DIRTY_BITMAP_FD, desc);
}

static inline void shared_bitmap_map(struct kvm_vm *vm, uint32_t slot,
				     uint64_t npages, struct shared_bitmap *s)
{
	s->npages = npages;
	s->fd = __vm_get_dirty_bitmap_fd(vm, slot, 0, &s->desc);
	TEST_ASSERT(s->fd >= 0, KVM_IOCTL_ERROR(KVM_GET_DIRTY_BITMAP_FD, s->fd));

	s->bitmap = mmap(NULL, s->desc.bitmap_size, PROT_READ | PROT_WRITE,
			 MAP_SHARED, s->fd, s->desc.bitmap_offset);
	TEST_ASSERT(s->bitmap != MAP_FAILED, "mmap of the bitmap failed: %s",
		    strerror(errno));
	s->summary = mmap(NULL, s->desc.summary_size, PROT_READ | PROT_WRITE,
			  MAP_SHARED, s->fd, s->desc.summary_offset);
	TEST_ASSERT(s->summary != MAP_FAILED, "mmap of the summary failed: %s",
		    strerror(errno));
}

static inline void shared_bitmap_unmap(struct shared_bitmap *s)
{
	TEST_ASSERT(!munmap(s->bitmap, s->desc.bitmap_size), "munmap failed");
	TEST_ASSERT(!munmap(s->summary, s->desc.summary_size), "munmap failed");
	TEST_ASSERT(!close(s->fd), "close failed");
}

/* Takes the dirty pages of one summary bit into bitmap. */
static inline uint64_t shared_bitmap_harvest_group(struct shared_bitmap *s,
						   uint64_t group,
						   unsigned long *bitmap)
{
	const uint64_t words = KVM_DIRTY_SUMMARY_PAGES / BITS_PER_LONG;
	uint64_t i = group * words, count = 0;
	uint64_t end = min(i + words, BITS_TO_LONGS(s->npages));
	unsigned long got;

	for (; i < end; i++) {
		if (!READ_ONCE(s->bitmap[i]))
			continue;
		got = __atomic_exchange_n(&s->bitmap[i], 0, __ATOMIC_SEQ_CST);
		bitmap[i] |= got;
		count += __builtin_popcountl(got);
	}
	return count;
}

/* Takes the dirty pages of the bits of one word of the summary into bitmap. */
static inline uint64_t shared_bitmap_harvest_bits(struct shared_bitmap *s,
						  uint64_t word,
						  unsigned long bits,
						  unsigned long *bitmap)
{
	uint64_t count = 0;

	for (; bits; bits &= bits - 1)
		count += shared_bitmap_harvest_group(s,
			word * BITS_PER_LONG + __builtin_ctzl(bits), bitmap);
	return count;
}

static inline uint64_t shared_bitmap_harvest_some(struct shared_bitmap *s,
						  uint64_t word,
						  unsigned long mask,
						  unsigned long *bitmap)
{
	unsigned long bits = __atomic_fetch_and(&s->summary[word], ~mask,
						__ATOMIC_SEQ_CST) & mask;

	return shared_bitmap_harvest_bits(s, word, bits, bitmap);
}

/* All of a word of the summary, which sum points to. */
static inline uint64_t shared_bitmap_harvest_word(struct shared_bitmap *s,
						  unsigned long *sum,
						  unsigned long *bitmap)
{
	return shared_bitmap_harvest_bits(s, sum - s->summary,
		__atomic_exchange_n(sum, 0, __ATOMIC_SEQ_CST), bitmap);
}

/* Whole words of the summary.  In a large slot most of them are 0. */
static inline uint64_t shared_bitmap_harvest_words(struct shared_bitmap *s,
						   unsigned long *sum,
						   unsigned long *end,
						   unsigned long *bitmap)
{
	unsigned long *fours = sum + (end - sum) / 4 * 4;
	unsigned long a, b, c, d;
	uint64_t count = 0;

	for (; sum != fours; sum += 4) {
		a = READ_ONCE(sum[0]);
		b = READ_ONCE(sum[1]);
		c = READ_ONCE(sum[2]);
		d = READ_ONCE(sum[3]);
		if (!(a | b | c | d))
			continue;
		if (a)
			count += shared_bitmap_harvest_word(s, sum, bitmap);
		if (b)
			count += shared_bitmap_harvest_word(s, sum + 1, bitmap);
		if (c)
			count += shared_bitmap_harvest_word(s, sum + 2, bitmap);
		if (d)
			count += shared_bitmap_harvest_word(s, sum + 3, bitmap);
	}
	for (; sum != end; sum++)
		if (READ_ONCE(*sum))
			count += shared_bitmap_harvest_word(s, sum, bitmap);
	return count;
}

/*
 * Takes the dirty pages of [first, first + n) into bitmap, which is not
 * cleared before.  The range is in pages and covers whole summary bits.
 * A summary bit is cleared before the words under it are read: KVM sets them
 * in the other order.
 */
static inline uint64_t shared_bitmap_harvest(struct shared_bitmap *s,
					     uint64_t first, uint64_t n,
					     unsigned long *bitmap)
{
	uint64_t from = first / KVM_DIRTY_SUMMARY_PAGES;
	uint64_t to = DIV_ROUND_UP(min(first + n, s->npages),
				   KVM_DIRTY_SUMMARY_PAGES);
	uint64_t word = from / BITS_PER_LONG, end = to / BITS_PER_LONG;
	unsigned long head = ~0UL << (from % BITS_PER_LONG);
	unsigned long tail = ~(~0UL << (to % BITS_PER_LONG));
	uint64_t count = 0;

	if (word == end)
		return shared_bitmap_harvest_some(s, word, head & tail, bitmap);

	count += shared_bitmap_harvest_some(s, word++, head, bitmap);
	count += shared_bitmap_harvest_words(s, &s->summary[word],
					     &s->summary[end], bitmap);
	if (tail)
		count += shared_bitmap_harvest_some(s, end, tail, bitmap);
	return count;
}

/* A memory slot that need not be aligned to what backs it. */
struct test_mem {
	uint32_t slot;
	uint32_t flags;
	uint64_t gpa;
	uint64_t npages;
	uint8_t *hva;
	void *map;
	size_t map_size;
	int fd;
};

/* Returns false if the host has not got the (huge) pages. */
static inline bool test_mem_map(struct test_mem *mem,
				enum vm_mem_backing_src_type src)
{
	size_t page = get_backing_src_pagesz(src);
	size_t offset = mem->gpa % page;
	int flags = vm_mem_backing_src_alias(src)->flag;

	mem->map_size = align_up(offset + mem->npages * PAGE_SIZE, page);
	if (src == VM_MEM_SRC_ANONYMOUS_THP)
		mem->map_size += page;
	mem->fd = -1;
	if (backing_src_is_shared(src))
		mem->fd = kvm_memfd_alloc(mem->map_size,
					  src == VM_MEM_SRC_SHARED_HUGETLB);
	mem->map = mmap(NULL, mem->map_size, PROT_READ | PROT_WRITE,
			flags | MAP_NORESERVE, mem->fd, 0);
	if (mem->map == MAP_FAILED && errno == ENOMEM)
		return false;
	TEST_ASSERT(mem->map != MAP_FAILED, "mmap failed: %s", strerror(errno));
	if (is_backing_src_hugetlb(src)) {
		/* MAP_NORESERVE would end in SIGBUS. */
		munmap(mem->map, mem->map_size);
		mem->map = mmap(NULL, mem->map_size, PROT_READ | PROT_WRITE,
				flags, mem->fd, 0);
		if (mem->map == MAP_FAILED)
			return false;
	}
	mem->hva = align_ptr_up(mem->map, page) + offset;
	if ((src == VM_MEM_SRC_ANONYMOUS || src == VM_MEM_SRC_ANONYMOUS_THP) &&
	    thp_configured())
		TEST_ASSERT(!madvise(mem->map, mem->map_size,
				     src == VM_MEM_SRC_ANONYMOUS ?
				     MADV_NOHUGEPAGE : MADV_HUGEPAGE),
			    "madvise failed: %s", strerror(errno));
	return true;
}

static inline void test_mem_unmap(struct test_mem *mem)
{
	TEST_ASSERT(!munmap(mem->map, mem->map_size), "munmap failed");
	if (mem->fd >= 0)
		close(mem->fd);
}

static inline void test_mem_set(struct kvm_vm *vm, struct test_mem *mem,
				uint32_t flags)
{
	mem->flags = flags;
	vm_set_user_memory_region(vm, mem->slot, flags, mem->gpa,
				  mem->npages * PAGE_SIZE, mem->hva);
}

static inline void test_mem_delete(struct kvm_vm *vm, struct test_mem *mem)
{
	vm_set_user_memory_region(vm, mem->slot, 0, mem->gpa, 0, mem->hva);
}

/* Identity maps [gpa, gpa + size) for the guest, by pages as large as fit. */
static inline void guest_map(struct kvm_vm *vm, uint64_t gpa, uint64_t size)
{
	uint64_t page = PG_SIZE_2M;
	int level = PG_LEVEL_2M;

	if (size >= PG_SIZE_1G && kvm_cpu_has(X86_FEATURE_GBPAGES)) {
		page = PG_SIZE_1G;
		level = PG_LEVEL_1G;
	}
	size = align_up(gpa + size, page) - align_down(gpa, page);
	gpa = align_down(gpa, page);
	virt_map_level(vm, gpa, gpa, size, level);
}

/* The guest: does what its vCPU's command says, tells the host, and again. */
#define GUEST_MAX_VCPUS		8
#define GUEST_LIST_MAX		512

enum guest_op {
	GUEST_READ,
	GUEST_WRITE,
};

struct guest_command {
	enum guest_op op;
	uint64_t gva;
	uint64_t value;		/* what is written to the start of a page */
	uint64_t stride;	/* in bytes, if the list is empty */
	uint64_t count;
	uint32_t listed;
	uint32_t list[GUEST_LIST_MAX];	/* in pages from gva */
};

static struct guest_command guest_commands[GUEST_MAX_VCPUS];

static inline void guest_touch(enum guest_op op, uint64_t gva, uint64_t value)
{
	if (op == GUEST_WRITE)
		WRITE_ONCE(*(uint64_t *)gva, value);
	else
		READ_ONCE(*(uint64_t *)gva);
}

static inline void guest_toucher(uint64_t id)
{
	struct guest_command *c = &guest_commands[id];
	uint64_t i;

	for (;;) {
		for (i = 0; i < READ_ONCE(c->listed); i++)
			guest_touch(c->op, c->gva + c->list[i] * PAGE_SIZE,
				    c->value);
		for (i = 0; i < READ_ONCE(c->count); i++)
			guest_touch(c->op, c->gva + i * c->stride, c->value);
		GUEST_SYNC(0);
	}
}

/* After vcpu_args_set(vcpu, 1, vcpu->id), at the latest. */
static inline struct guest_command *guest_command(struct kvm_vcpu *vcpu)
{
	TEST_ASSERT(vcpu->id < GUEST_MAX_VCPUS, "too many vCPUs");
	return addr_gva2hva(vcpu->vm, (vm_vaddr_t)&guest_commands[vcpu->id]);
}

static inline void guest_finish(struct kvm_vcpu *vcpu)
{
	struct ucall uc;

	vcpu_run(vcpu);
	switch (get_ucall(vcpu, &uc)) {
	case UCALL_SYNC:
		break;
	case UCALL_ABORT:
		REPORT_GUEST_ASSERT_2(uc, "values: %#lx, %#lx");
	default:
		TEST_FAIL("unexpected exit: %s",
			  exit_reason_str(vcpu->run->exit_reason));
	}
}

static inline void guest_stride(struct kvm_vcpu *vcpu, enum guest_op op,
				uint64_t gva, uint64_t stride, uint64_t count,
				uint64_t value)
{
	struct guest_command *c = guest_command(vcpu);

	c->op = op;
	c->gva = gva;
	c->stride = stride;
	c->count = count;
	c->value = value;
	c->listed = 0;
	guest_finish(vcpu);
}

static inline void guest_list(struct kvm_vcpu *vcpu, enum guest_op op,
			      uint64_t gva, const uint32_t *pages,
			      uint32_t count, uint64_t value)
{
	struct guest_command *c = guest_command(vcpu);

	TEST_ASSERT(count <= GUEST_LIST_MAX, "too many pages");
	c->op = op;
	c->gva = gva;
	c->value = value;
	c->count = 0;
	c->listed = count;
	memcpy(c->list, pages, count * sizeof(*pages));
	guest_finish(vcpu);
}

static inline void guest_write(struct kvm_vcpu *vcpu, uint64_t gva,
			       uint64_t value)
{
	guest_stride(vcpu, GUEST_WRITE, gva, 0, 1, value);
}

static inline void guest_read(struct kvm_vcpu *vcpu, uint64_t gva)
{
	guest_stride(vcpu, GUEST_READ, gva, 0, 1, 0);
}

/* vCPUs that run guest_toucher(). */
static inline void add_touchers(struct kvm_vm *vm, int nr_vcpus,
				struct kvm_vcpu **vcpus)
{
	int i;

	for (i = 0; i < nr_vcpus; i++) {
		vcpus[i] = vm_vcpu_add(vm, i, guest_toucher);
		vcpu_args_set(vcpus[i], 1, i);
	}
}

/* A VM with these, and the capabilities of caps enabled before they exist. */
static inline struct kvm_vm *toucher_vm(const uint32_t *caps, int nr_caps,
					int nr_vcpus, struct kvm_vcpu **vcpus)
{
	struct kvm_vm *vm = __vm_create(VM_MODE_DEFAULT, nr_vcpus, 0);
	int i;

	for (i = 0; i < nr_caps; i++)
		vm_enable_cap(vm, caps[i], 0);
	add_touchers(vm, nr_vcpus, vcpus);
	return vm;
}

/* A small generator, the same in host and guest, for runs that repeat. */
static inline uint64_t next_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*state = x;
	return x * 0x2545f4914f6cdd1dULL;
}

static inline uint64_t random_below(uint64_t *state, uint64_t n)
{
	return (next_random(state) >> 16) % n;
}

#endif /* SELFTEST_KVM_DIRTY_TRACKING_H */
