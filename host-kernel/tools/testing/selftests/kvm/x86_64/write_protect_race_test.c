// SPDX-License-Identifier: GPL-2.0-only
/*
 * Does dirty tracking lose a page when everything happens at once?
 *
 * vCPUs write without end: each page has a word for each vCPU, and what a vCPU
 * writes only ever grows.  The host harvests, re-arms, and then copies what it
 * harvested, as live migration does.  Before each harvest it notes what it
 * sees in memory.  A page that is newer than the copy has to be in the harvest,
 * but for one case: KVM makes it writable first and logs it then, and another
 * vCPU may write to it in between.  So with such a suspect, and before anything
 * is re-armed that could heal it, all vCPUs stop at the end of their current
 * write.  What they were about to log is logged by then; what a second harvest
 * does not have either is lost.
 */
#define _GNU_SOURCE /* for program_invocation_short_name */
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>

#include <asm/barrier.h>

#include "kvm_util.h"
#include "test_util.h"
#include "processor.h"
#include "dirty_bitmap.h"
#include "dirty_tracking.h"
#include "nested_guest.h"
#include "selftest_release.h"
#include "test_mem.h"
#include "test_random.h"
#include "touching_guest.h"

#define OTHER_SLOT		2
#define EDGE_SLOT		3
#define EDGE_PAGES		8UL
#define OTHER_PAGES		600UL
#define RING_ENTRIES		16384
#define STUCK_SECONDS		20
#define KSM_RUN			"/sys/kernel/mm/ksm/run"
#define IDLE_BITMAP		"/sys/kernel/mm/page_idle/bitmap"
#define SPLIT_THP		"/sys/kernel/debug/split_huge_pages"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE		25
#endif

enum pattern {
	PATTERN_RANDOM,		/* any page */
	PATTERN_DENSE,		/* one page after the other */
	PATTERN_HOT,		/* very few pages, of different tables */
	PATTERN_STRIDE,		/* every 67th page */
	NR_PATTERNS,
	PATTERN_MIX = NR_PATTERNS,
};

static const char * const patterns[] = {
	"random", "dense", "hot", "stride", "mix",
};

enum harvest {
	HARVEST_GET,		/* KVM_GET_DIRTY_LOG, which re-arms as well */
	HARVEST_NO_WP,
	HARVEST_SHARED,
	NR_HARVESTS,
	HARVEST_MANUAL = NR_HARVESTS,	/* KVM_CLEAR_DIRTY_LOG re-arms */
	HARVEST_RING,
	HARVEST_MIX,		/* of the first three */
	HARVEST_BITS,		/* KVM_COLLECT_DIRTY_BITS, then as shared */
};

static const char * const harvests[] = {
	"get", "nowp", "shared", "manual", "ring", "mix", "bits",
};

enum rearm {
	REARM_NONE,		/* but what the harvest does */
	REARM_ALL,
	REARM_RANGE,
	REARM_MIX,
};

static const char * const rearms[] = { "none", "all", "range", "mix" };

/* An order that loses pages, to see that the test notices. */
enum broken {
	BROKEN_NOT,
	BROKEN_REARM_FIRST,
	BROKEN_COPY_FIRST,
};

static const char * const brokens[] = { "not", "rearm-first", "copy-first" };

struct guest_counter {
	uint64_t value;
	uint64_t pad[7];
};

/* Shared with the guest. */
struct control {
	uint64_t gpa;
	uint64_t npages;
	uint64_t other_gpa;
	uint64_t pattern;
	uint64_t stop;
	uint64_t pause;		/* counts; even: go on */
	struct guest_counter written[GUEST_MAX_VCPUS];
	struct guest_counter paused[GUEST_MAX_VCPUS];
};

static struct control control;
static struct nested_vcpu nested_vcpus[GUEST_MAX_VCPUS];

struct run {
	/* What was asked for. */
	enum vm_mem_backing_src_type src;
	enum pattern pattern;
	enum harvest harvest;
	enum rearm rearm;
	enum broken broken;
	bool brake;
	bool zap_slot;
	int nr_vcpus;
	int seconds;
	bool nested;
	bool nested_paging;
	uint64_t seed;
	uint64_t npages;
	const char *aggressors;

	struct kvm_vm *vm;
	struct kvm_vcpu *vcpus[GUEST_MAX_VCPUS];
	struct kvm_vcpu *idle_vcpu;	/* for KVM_PRE_FAULT_MEMORY, if wanted */
	int stats[GUEST_MAX_VCPUS];	/* no new ones while a vCPU runs */
	struct test_mem mem;
	struct test_mem other;
	struct test_mem edge;	/* idle, in the same 2 MiB as the start of mem */
	struct shared_bitmap shared;
	struct control *control;
	unsigned long *bitmap;
	uint64_t (*shadow)[GUEST_MAX_VCPUS];
	uint64_t (*seen)[GUEST_MAX_VCPUS];
	bool done;
	bool parked[GUEST_MAX_VCPUS];	/* vCPUs that have left the guest */
	uint64_t ring_collected;	/* since the last of: */
	uint64_t ring_resets;
	uint64_t round;
	uint64_t harvested;
	uint64_t suspects;
};

static struct run run = {
	.src = VM_MEM_SRC_ANONYMOUS,
	.pattern = PATTERN_MIX,
	.harvest = HARVEST_MIX,
	.rearm = REARM_MIX,
	.nr_vcpus = 4,
	.seconds = 5,
	.seed = 1,
	.npages = 3 * PAGES_2M + 37,
	.aggressors = "",
};

/* The guest. */
static void guest_writer(uint64_t id)
{
	struct control *c = &control;
	uint64_t seed = 0x9e3779b97f4a7c15ULL * (id + 1);
	uint64_t gpa = c->gpa, npages = c->npages;
	uint64_t page = id * npages / GUEST_MAX_VCPUS;
	uint64_t count = 0, pause, i;

	while (!READ_ONCE(c->stop)) {
		pause = READ_ONCE(c->pause);
		WRITE_ONCE(c->paused[id].value, pause);
		if (pause % 2) {
			cpu_relax();
			continue;
		}
		switch (READ_ONCE(c->pattern)) {
		case PATTERN_DENSE:
			page = (page + 1) % npages;
			break;
		case PATTERN_HOT:
			page = random_below(&seed, 12) * 257 % npages;
			break;
		case PATTERN_STRIDE:
			page = (page + 67) % npages;
			break;
		default:
			page = random_below(&seed, npages);
			break;
		}
		count++;
		/* So that a CPU keeps of other ways what is there to read. */
		if (random_below(&seed, 2))
			READ_ONCE(*(uint64_t *)(gpa + PAGE_SIZE *
						random_below(&seed, npages)));
		WRITE_ONCE(*(uint64_t *)(gpa + page * PAGE_SIZE + id * 8), count);
		WRITE_ONCE(c->written[id].value, count);
		if (c->other_gpa && count % 64 == 0)
			WRITE_ONCE(*(uint64_t *)(c->other_gpa + PAGE_SIZE *
				   random_below(&seed, OTHER_PAGES)), count);
		for (i = random_below(&seed, 64); i; i--)
			cpu_relax();
	}
}

static void guest_code(uint64_t id)
{
	guest_writer(id);
	GUEST_DONE();
}

static void l2_code(uint64_t id)
{
	guest_writer(id);
	nested_leave(&nested_vcpus[id]);
}

static void l1_code(uint64_t id)
{
	nested_start(&nested_vcpus[id], l2_code, id);
	nested_run(&nested_vcpus[id]);
	GUEST_DONE();
}

/* The threads of the vCPUs. */
static void *vcpu_thread(void *arg)
{
	struct kvm_vcpu *vcpu = arg;
	struct ucall uc;
	uint64_t resets;

	for (;;) {
		resets = __atomic_load_n(&run.ring_resets, __ATOMIC_ACQUIRE);
		vcpu_run(vcpu);
		switch (vcpu->run->exit_reason) {
		case KVM_EXIT_DIRTY_RING_FULL:
			WRITE_ONCE(run.parked[vcpu->id], true);
			while (__atomic_load_n(&run.ring_resets,
					       __ATOMIC_ACQUIRE) == resets)
				usleep(100);
			WRITE_ONCE(run.parked[vcpu->id], false);
			break;
		case KVM_EXIT_MMIO:	/* a slot is away */
			break;
		default:
			switch (get_ucall(vcpu, &uc)) {
			case UCALL_DONE:
				WRITE_ONCE(run.parked[vcpu->id], true);
				return NULL;
			case UCALL_ABORT:
				REPORT_GUEST_ASSERT_VALUES(uc);
			default:
				vcpu_dump(stderr, vcpu, 2);
				TEST_FAIL("vCPU %u: unexpected exit: %s",
					  vcpu->id, exit_reason_str(
					  vcpu->run->exit_reason));
			}
		}
	}
}

/* The aggressors: each is a thread that gets in the way of all others. */
static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return timespec_to_ns(ts);
}

static bool done(void)
{
	return READ_ONCE(run.done);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	TEST_ASSERT(fd >= 0, "%s: %s", path, strerror(errno));
	if (write(fd, text, strlen(text)) < 0)
		pr_debug("%s: %s\n", path, strerror(errno));
	close(fd);
}

static void rearm_range(uint64_t *seed)
{
	uint64_t size = run.mem.npages * PAGE_SIZE;
	uint64_t gpa = run.mem.gpa + align_down(random_below(seed, size), PAGE_SIZE);
	uint64_t end = gpa + (1 + random_below(seed, run.mem.npages)) * PAGE_SIZE;

	vm_write_protect_range(run.vm, gpa, end - gpa);
}

/* Write-protects that come while a fault undoes another. */
static void aggressor_rearm(uint64_t *seed)
{
	if (random_below(seed, 2))
		vm_write_protect_all(run.vm);
	else
		rearm_range(seed);
	if (!random_below(seed, 4))
		usleep(random_below(seed, 300));
}

static void aggressor_slot(uint64_t *seed)
{
	test_mem_delete(run.vm, &run.other);
	usleep(random_below(seed, 2000));
	test_mem_set(run.vm, &run.other,
		     random_below(seed, 2) ? KVM_MEM_LOG_DIRTY_PAGES : 0);
	usleep(random_below(seed, 20000));
}

static void aggressor_log(uint64_t *seed)
{
	test_mem_set(run.vm, &run.other, run.other.flags ^ KVM_MEM_LOG_DIRTY_PAGES);
	usleep(random_below(seed, 2000));
}

static void aggressor_get(uint64_t *seed)
{
	unsigned long bitmap[BITS_TO_LONGS(OTHER_PAGES)];

	__vm_get_dirty_log(run.vm, run.other.slot, 0, bitmap);
	usleep(random_below(seed, 500));
}

static void aggressor_split(uint64_t *seed)
{
	struct kvm_split_huge_pages split = {
		.gpa = run.mem.gpa, .size = run.mem.npages * PAGE_SIZE,
	};
	int ret = __vm_split_huge_pages(run.vm, &split);

	TEST_ASSERT(!ret || errno == EINTR, KVM_IOCTL_ERROR(SPLIT, ret));
	usleep(random_below(seed, 1000));
}

/* The pages go out of the page tables, not out of memory. */
static void aggressor_zap(uint64_t *seed)
{
	uint64_t page = random_below(seed, run.mem.npages);
	uint64_t n = min(1 + random_below(seed, 64), run.mem.npages - page);
	pid_t pid;

	if (backing_src_is_shared(run.src)) {
		madvise((void *)align_down((uintptr_t)run.mem.hva +
					   page * PAGE_SIZE, PAGE_SIZE),
			n * PAGE_SIZE, MADV_DONTNEED);
	} else {
		/* Copy-on-write of all. */
		pid = fork();
		TEST_ASSERT(pid >= 0, "fork failed");
		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
	}
	usleep(1000 + random_below(seed, 20000));
}

static void aggressor_thp(uint64_t *seed)
{
	uint64_t page = random_below(seed, run.mem.npages);
	uintptr_t at = (uintptr_t)run.mem.hva + page * PAGE_SIZE;
	char text[80];

	at = align_down(at, PG_SIZE_2M);
	snprintf(text, sizeof(text), "%d,0x%lx,0x%lx", getpid(), at,
		 at + (1UL << 21));
	madvise((void *)at, PG_SIZE_2M, MADV_COLLAPSE);
	usleep(random_below(seed, 5000));
	write_file(SPLIT_THP, text);
	usleep(random_below(seed, 5000));
}

static void aggressor_ksm(uint64_t *seed)
{
	madvise(run.mem.hva, run.mem.npages * PAGE_SIZE, MADV_MERGEABLE);
	write_file("/sys/kernel/mm/ksm/sleep_millisecs", "5");
	write_file("/sys/kernel/mm/ksm/pages_to_scan", "500");
	write_file(KSM_RUN, "1");
	usleep(10000);
}

/* All pages of the host are idle. */
static void aggressor_age(uint64_t *seed)
{
	static const uint64_t ones[512] = { [0 ... 511] = ~0ULL };
	int fd = open(IDLE_BITMAP, O_WRONLY);

	TEST_ASSERT(fd >= 0, "%s: %s", IDLE_BITMAP, strerror(errno));
	while (!done() && write(fd, ones, sizeof(ones)) > 0)
		;
	close(fd);
	usleep(random_below(seed, 5000));
}

/*
 * Pages are mapped that may be mapped already, and by nobody who can be stopped.
 * Linux 6.12 does not notice in the ioctl that a slot was deleted, which makes
 * all roots obsolete, and tries forever: so together with "slot" only if a slot
 * takes its own pages along.
 */
static void aggressor_map(uint64_t *seed)
{
	uint64_t page = random_below(seed, run.mem.npages);
	uint64_t n = min(1 + random_below(seed, 64), run.mem.npages - page);

	if (!run.idle_vcpu) {
		usleep(100000);
		return;
	}
	TEST_ASSERT(!__vcpu_pre_fault(run.idle_vcpu,
				      run.mem.gpa + page * PAGE_SIZE,
				      n * PAGE_SIZE),
		    "KVM_PRE_FAULT_MEMORY: %s", strerror(errno));
}

static const struct aggressor {
	const char *name;
	void (*act)(uint64_t *seed);
	const char *needs;	/* a file that not every kernel has */
} aggressors[] = {
	{ "rearm", aggressor_rearm },
	{ "slot", aggressor_slot },
	{ "log", aggressor_log },
	{ "get", aggressor_get },
	{ "split", aggressor_split },
	{ "zap", aggressor_zap },
	{ "thp", aggressor_thp, SPLIT_THP },
	{ "ksm", aggressor_ksm, KSM_RUN },
	{ "age", aggressor_age, IDLE_BITMAP },
	{ "map", aggressor_map },
};

static void *aggressor_thread(void *arg)
{
	const struct aggressor *a = arg;
	uint64_t seed = run.seed + (a - aggressors) * 977 + 5;

	while (!done())
		a->act(&seed);
	return NULL;
}

static bool wanted(const char *name)
{
	const char *p = strstr(run.aggressors, name);
	size_t n = strlen(name);

	return p && (p == run.aggressors || p[-1] == ',') &&
	       (p[n] == '\0' || p[n] == ',');
}

/* The host: harvest, re-arm, copy. */
static uint64_t *words(uint64_t page)
{
	return (uint64_t *)(run.mem.hva + page * PAGE_SIZE);
}

static void look(uint64_t first, uint64_t end)
{
	uint64_t p;
	int v;

	for (p = first; p < end; p++)
		for (v = 0; v < run.nr_vcpus; v++)
			run.seen[p][v] = READ_ONCE(words(p)[v]);
	/* All of that comes before the harvest ... */
	smp_mb();
}

static void copy(uint64_t first, uint64_t end)
{
	uint64_t p;
	int v;

	/* ... and what is copied, after the re-arm. */
	smp_mb();
	for (p = first; p < end; p++) {
		if (!test_bit(p, run.bitmap))
			continue;
		for (v = 0; v < run.nr_vcpus; v++)
			run.shadow[p][v] = READ_ONCE(words(p)[v]);
		run.harvested++;
	}
}

/* The first page that is newer than the copy, and not in the harvest. */
static bool find_suspect(uint64_t first, uint64_t end, uint64_t *page)
{
	uint64_t p;
	int v;

	for (p = first; p < end; p++) {
		if (test_bit(p, run.bitmap))
			continue;
		for (v = 0; v < run.nr_vcpus; v++)
			if (run.shadow[p][v] < run.seen[p][v]) {
				*page = p;
				return true;
			}
	}
	return false;
}

static void check_progress(void);

static void pause_vcpus(void)
{
	uint64_t pause = run.control->pause + 1;
	int v;

	WRITE_ONCE(run.control->pause, pause);
	for (v = 0; v < run.nr_vcpus; v++)
		while (READ_ONCE(run.control->paused[v].value) != pause &&
		       !READ_ONCE(run.parked[v])) {
			check_progress();
			sched_yield();
		}
}

static void resume_vcpus(void)
{
	WRITE_ONCE(run.control->pause, run.control->pause + 1);
}

static void collect_rings(void)
{
	struct kvm_dirty_gfn *ring, *gfn;
	struct kvm_vcpu *vcpu;
	int v;

	for (v = 0; v < run.nr_vcpus; v++) {
		vcpu = run.vcpus[v];
		ring = vcpu_map_dirty_ring(vcpu);
		for (;; vcpu->fetch_index++) {
			gfn = &ring[vcpu->fetch_index % vcpu->dirty_gfns_count];
			if (!(__atomic_load_n(&gfn->flags, __ATOMIC_ACQUIRE) &
			      KVM_DIRTY_GFN_F_DIRTY))
				break;
			if (gfn->slot == run.mem.slot) {
				TEST_ASSERT(gfn->offset < run.mem.npages,
					    "ring entry for page %llu",
					    gfn->offset);
				set_bit(gfn->offset, run.bitmap);
			}
			__atomic_store_n(&gfn->flags, KVM_DIRTY_GFN_F_RESET,
					 __ATOMIC_RELEASE);
			run.ring_collected++;
		}
	}
}

/* A reset takes all that was collected; stock QEMU asserts that it does. */
static void reset_rings(void)
{
	uint32_t count = kvm_vm_reset_dirty_ring(run.vm);

	TEST_ASSERT(count == run.ring_collected,
		    "the reset took %u of %lu entries", count,
		    run.ring_collected);
	run.ring_collected = 0;
	__atomic_fetch_add(&run.ring_resets, 1, __ATOMIC_RELEASE);
}

/* With -W, every other collect write-protects what it finds. */
static void collect_bits(uint64_t first, uint64_t end)
{
	uint64_t flags = run.brake && random_below(&run.seed, 2) ?
			 KVM_COLLECT_DIRTY_BITS_WRPROT : 0;

	vm_collect_dirty_bits_flags(run.vm, run.mem.gpa + first * PAGE_SIZE,
				    (end - first) * PAGE_SIZE, flags);
}

static void harvest(enum harvest how, uint64_t first, uint64_t end)
{
	switch (how) {
	case HARVEST_GET:
	case HARVEST_MANUAL:
		kvm_vm_get_dirty_log(run.vm, run.mem.slot, run.bitmap);
		break;
	case HARVEST_NO_WP:
		vm_get_dirty_log_no_wp(run.vm, run.mem.slot, run.bitmap);
		break;
	case HARVEST_RING:
		memset(run.bitmap, 0, bitmap_size(run.mem.npages));
		collect_rings();
		break;
	default:
		if (how == HARVEST_BITS)
			collect_bits(first, end);
		memset(run.bitmap, 0, bitmap_size(run.mem.npages));
		shared_bitmap_harvest(&run.shared, first, end - first,
				      run.bitmap);
		break;
	}
}

static void rearm(enum harvest how, enum rearm by, uint64_t first, uint64_t end)
{
	uint64_t gpa = run.mem.gpa + first * PAGE_SIZE;
	uint64_t size = (end - first) * PAGE_SIZE, part;

	/* This also ends the harvest: what is set again until then is lost. */
	if (how == HARVEST_MANUAL)
		kvm_vm_clear_dirty_log(run.vm, run.mem.slot, run.bitmap, 0,
				       run.mem.npages);
	if (how == HARVEST_RING && by == REARM_NONE) {
		reset_rings();
		return;
	}
	if (by == REARM_ALL) {
		vm_write_protect_all(run.vm);
	} else if (by == REARM_RANGE && random_below(&run.seed, 2)) {
		vm_write_protect_range(run.vm, gpa, size);
	} else if (by == REARM_RANGE) {
		/* The parts may overlap, but leave no gap. */
		while (size) {
			part = (1 + random_below(&run.seed, 700)) * PAGE_SIZE;
			part = min(part, size);
			vm_write_protect_range(run.vm, gpa, part);
			gpa += part;
			size -= part;
		}
	}
}

/* One harvest, re-arm and copy of some of the slot's pages. */
static void part_round(enum harvest how, enum rearm by, uint64_t first,
		       uint64_t end)
{
	bool suspect;
	uint64_t p;

	if (run.broken == BROKEN_REARM_FIRST)
		rearm(how, by, first, end);
	look(first, end);
	harvest(how, first, end);
	suspect = find_suspect(first, end, &p);
	if (suspect) {
		pause_vcpus();
		run.suspects++;
	}
	if (run.broken == BROKEN_COPY_FIRST)
		copy(first, end);
	if (run.broken != BROKEN_REARM_FIRST)
		rearm(how, by, first, end);
	if (run.broken != BROKEN_COPY_FIRST)
		copy(first, end);
	if (suspect) {
		harvest(how, first, end);
		rearm(how, by, first, end);
		copy(first, end);
		look(first, end);
		TEST_ASSERT(!find_suspect(first, end, &p),
			    "page %lu is lost in round %lu (%s, %s, pages %lu to %lu)",
			    p, run.round, harvests[how], rearms[by], first, end);
		resume_vcpus();
	}
	if (how == HARVEST_RING && by != REARM_NONE)
		reset_rings();
}

static void one_round(void)
{
	enum harvest how = run.harvest;
	enum rearm by = run.rearm;
	uint64_t first, end;

	run.round++;
	if (how == HARVEST_MIX)
		how = random_below(&run.seed,
				   run.shared.bitmap ? NR_HARVESTS : HARVEST_SHARED);
	if (by == REARM_MIX)
		by = random_below(&run.seed, 2) ? REARM_RANGE : REARM_ALL;
	/*
	 * A harvest of the whole slot must re-arm all of it, with one ioctl or
	 * several; one of the shared bitmap may go region by region.
	 */
	if ((how == HARVEST_SHARED && by == REARM_RANGE) ||
	    (how == HARVEST_BITS && random_below(&run.seed, 2))) {
		for (first = 0; first < run.mem.npages; first = end) {
			end = min(first + PAGES_2M, run.mem.npages);
			part_round(how, by, first, end);
		}
	} else {
		part_round(how, by, 0, run.mem.npages);
	}
}

/* What the exits of a vCPU that gets nowhere are. */
static void print_exits(struct kvm_vcpu *vcpu)
{
	static const char * const names[] = {
		"exits", "pf_taken", "pf_fixed", "pf_spurious", "pf_fast",
		"irq_exits", "tlb_flush", "guest_mode",
	};
	struct kvm_stats_header header;
	struct kvm_stats_desc *descs, *desc;
	int fd = run.stats[vcpu->id], i, j;
	uint64_t value;

	/* read_stats_header() reads on from wherever the last reader was. */
	TEST_ASSERT(pread(fd, &header, sizeof(header), 0) == sizeof(header),
		    "no statistics of vCPU %u", vcpu->id);
	descs = read_stats_descriptors(fd, &header);
	fprintf(stderr, "vCPU %u:", vcpu->id);
	for (i = 0; i < header.num_desc; i++) {
		desc = get_stats_descriptor(descs, i, &header);
		for (j = 0; j < ARRAY_SIZE(names); j++) {
			if (strcmp(names[j], desc->name))
				continue;
			read_stat_data(fd, &header, desc, &value, 1);
			fprintf(stderr, " %s %lu", desc->name, value);
		}
	}
	fprintf(stderr, "\n");
	free(descs);
}

static void check_progress(void)
{
	static uint64_t last[GUEST_MAX_VCPUS], since[GUEST_MAX_VCPUS];
	uint64_t value, now = now_ns();
	int v;

	for (v = 0; v < run.nr_vcpus; v++) {
		value = READ_ONCE(run.control->written[v].value);
		if (value != last[v] || !since[v]) {
			last[v] = value;
			since[v] = now;
		}
		if (now - since[v] < STUCK_SECONDS * NSEC_PER_SEC)
			continue;
		print_exits(run.vcpus[v]);
		sleep(1);
		print_exits(run.vcpus[v]);
		TEST_FAIL("vCPU %d is stuck after %lu writes, in round %lu",
			  v, value, run.round);
	}
}

static bool harvest_is_mapped(void)
{
	return run.harvest == HARVEST_SHARED || run.harvest == HARVEST_BITS ||
	       (run.harvest == HARVEST_MIX &&
		kvm_has_cap(KVM_CAP_DIRTY_BITMAP_FD));
}

static void create_vm(void)
{
	uint64_t base = TEST_GPA, hull;
	vm_paddr_t root = 0;
	void *code;
	int v;

	run.mem.slot = TEST_SLOT;
	/* Not aligned, unless what backs it makes that pointless. */
	run.mem.gpa = base + 11 * PAGE_SIZE;
	run.mem.npages = run.npages;
	__TEST_REQUIRE(test_mem_map(&run.mem, run.src), "no such pages");
	run.edge.slot = EDGE_SLOT;
	run.edge.gpa = base;
	run.edge.npages = EDGE_PAGES;
	TEST_ASSERT(test_mem_map(&run.edge, VM_MEM_SRC_ANONYMOUS), "no memory");
	run.other.slot = OTHER_SLOT;
	run.other.gpa = align_up(run.mem.gpa + run.npages * PAGE_SIZE, PG_SIZE_2M) +
			PG_SIZE_2M / 2;
	run.other.npages = OTHER_PAGES;
	TEST_ASSERT(test_mem_map(&run.other, VM_MEM_SRC_ANONYMOUS), "no memory");

	run.vm = __vm_create(VM_SHAPE_DEFAULT, run.nr_vcpus, PAGES_2M * 8);
	if (run.harvest == HARVEST_RING)
		vm_enable_dirty_ring(run.vm, RING_ENTRIES *
				     sizeof(struct kvm_dirty_gfn));
	if (run.rearm != REARM_NONE || run.harvest == HARVEST_BITS)
		vm_enable_cap(run.vm, KVM_CAP_WRITE_PROTECT_ALL_MEM, 0);
	if (run.harvest == HARVEST_NO_WP || run.harvest == HARVEST_MIX)
		vm_enable_cap(run.vm, KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT, 0);
	if (harvest_is_mapped())
		vm_enable_cap(run.vm, KVM_CAP_DIRTY_BITMAP_FD, 0);
	if (run.harvest == HARVEST_BITS)
		vm_enable_cap(run.vm, KVM_CAP_DIRTY_BITS, 0);
	if (wanted("split"))
		vm_enable_cap(run.vm, KVM_CAP_EAGER_PAGE_SPLIT, 0);
	if (run.zap_slot)
		vm_enable_cap(run.vm, KVM_CAP_DISABLE_QUIRKS2,
			      KVM_X86_QUIRK_SLOT_ZAP_ALL);
	if (run.harvest == HARVEST_MANUAL)
		vm_enable_cap(run.vm, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2,
			      KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE);

	hull = align_up(run.other.gpa + OTHER_PAGES * PAGE_SIZE, PG_SIZE_2M) - base;
	guest_map(run.vm, base, hull);
	if (run.nested_paging) {
		root = nested_root_alloc(run.vm);
		nested_map_range(run.vm, root, base, base, hull, PG_LEVEL_2M);
	}
	for (v = 0; v < run.nr_vcpus; v++) {
		/* L1 and L2 write to the same memory. */
		code = run.nested && v % 2 == 0 ? l1_code : guest_code;
		run.vcpus[v] = vm_vcpu_add(run.vm, v, code);
		vcpu_args_set(run.vcpus[v], 1, v);
		run.stats[v] = vcpu_get_stats_fd(run.vcpus[v]);
		if (code == l1_code)
			nested_vcpu_alloc(run.vm, root, &nested_vcpus[v]);
		if (run.harvest == HARVEST_RING)
			vcpu_map_dirty_ring(run.vcpus[v]);
	}
	if (wanted("map")) {
		if (can_pre_fault())
			run.idle_vcpu = vm_vcpu_add(run.vm, v, guest_code);
		else
			print_skip("no KVM_PRE_FAULT_MEMORY");
	}
	sync_global_to_guest(run.vm, nested_vcpus);
	run.control = addr_gva2hva(run.vm, (vm_vaddr_t)&control);
	run.control->gpa = run.mem.gpa;
	run.control->npages = run.npages;
	run.control->other_gpa = run.other.gpa;
	run.control->pattern = run.pattern % NR_PATTERNS;

	memset(run.mem.hva, 0, run.npages * PAGE_SIZE);
	test_mem_set(run.vm, &run.mem, 0);
	test_mem_set(run.vm, &run.other, KVM_MEM_LOG_DIRTY_PAGES);
	test_mem_set(run.vm, &run.edge, KVM_MEM_LOG_DIRTY_PAGES);
	run.bitmap = bitmap_zalloc(run.npages);
	run.shadow = calloc(run.npages, sizeof(*run.shadow));
	run.seen = calloc(run.npages, sizeof(*run.seen));
	TEST_ASSERT(run.bitmap && run.shadow && run.seen, "no memory");
}

/* Logging starts while the vCPUs write: what is there by then is copied. */
static void start_log(void)
{
	test_mem_set(run.vm, &run.mem, KVM_MEM_LOG_DIRTY_PAGES);
	if (harvest_is_mapped())
		shared_bitmap_map(run.vm, run.mem.slot, run.npages, &run.shared);
	memset(run.bitmap, 0xff, bitmap_size(run.npages));
	copy(0, run.npages);
	run.harvested -= run.npages;
}

/* Back and forth, to race with starts, too. */
static void restart_log(void)
{
	if (run.shared.bitmap)
		shared_bitmap_unmap(&run.shared);
	run.shared.bitmap = NULL;
	test_mem_set(run.vm, &run.mem, 0);
	usleep(random_below(&run.seed, 3000));
	/* Entries from before would be taken for the new ones, harmlessly. */
	start_log();
}

static void run_test(void)
{
	pthread_t vcpus[GUEST_MAX_VCPUS], threads[ARRAY_SIZE(aggressors)];
	uint64_t start, end, turn, writes = 0, p, i;
	bool started[ARRAY_SIZE(aggressors)] = { false };
	int v;

	create_vm();
	for (v = 0; v < run.nr_vcpus; v++)
		pthread_create(&vcpus[v], NULL, vcpu_thread, run.vcpus[v]);
	for (v = 0; v < run.nr_vcpus; v++)
		while (!READ_ONCE(run.control->written[v].value)) {
			check_progress();
			usleep(1000);
		}
	start_log();

	for (i = 0; i < ARRAY_SIZE(aggressors); i++) {
		started[i] = wanted(aggressors[i].name);
		if (started[i] && aggressors[i].needs &&
		    access(aggressors[i].needs, W_OK)) {
			print_skip("no %s", aggressors[i].needs);
			started[i] = false;
		}
		if (started[i])
			pthread_create(&threads[i], NULL, aggressor_thread,
				       (void *)&aggressors[i]);
	}

	start = now_ns();
	end = start + run.seconds * NSEC_PER_SEC;
	for (turn = 0; now_ns() < end; turn++) {
		/* Some rounds right after one another, or with a pause. */
		for (i = random_below(&run.seed, 60); i && now_ns() < end; i--) {
			one_round();
			if (!random_below(&run.seed, 4))
				usleep(random_below(&run.seed, 2000));
		}
		if (run.pattern == PATTERN_MIX)
			WRITE_ONCE(run.control->pattern,
				   random_below(&run.seed, NR_PATTERNS));
		if (turn % 8 == 7)
			restart_log();
		check_progress();
	}

	WRITE_ONCE(run.control->stop, 1);
	for (v = 0; v < run.nr_vcpus; v++) {
		/* With a ring that is full it needs us for that. */
		while (pthread_tryjoin_np(vcpus[v], NULL)) {
			one_round();
			check_progress();
		}
		writes += run.control->written[v].value;
	}
	WRITE_ONCE(run.done, true);
	for (i = 0; i < ARRAY_SIZE(aggressors); i++)
		if (started[i])
			pthread_join(threads[i], NULL);
	if (wanted("ksm"))
		write_file(KSM_RUN, "2");

	/* What the vCPUs left behind, and then nothing may differ at all. */
	one_round();
	for (p = 0; p < run.npages; p++)
		TEST_ASSERT(!memcmp(words(p), run.shadow[p],
				    run.nr_vcpus * sizeof(uint64_t)),
			    "page %lu is lost at the end", p);
	pr_info("%lu rounds, %lu writes, %lu pages harvested, %lu looked at twice, none lost\n",
		run.round, writes, run.harvested, run.suspects);
	for (v = 0; v < run.nr_vcpus; v++)
		close(run.stats[v]);
	kvm_vm_free(run.vm);
}

static int choose(const char *text, const char * const *names, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (!strcmp(text, names[i]))
			return i;
	TEST_FAIL("'%s' is none of the choices; -h lists them", text);
}

static void list(const char *what, const char * const *names, int n)
{
	printf(" %s:", what);
	while (n--)
		printf(" %s", *names++);
	printf("\n");
}

static void help(const char *name)
{
	int i;

	printf("usage: %s [-h] [-n | -N] [-v vcpus] [-t seconds] [-p pages] [-r seed]\n"
	       "       [-m harvest] [-w re-arm] [-P pattern] [-s type] [-x aggressors]\n"
	       "       [-b order] [-W] [-z]\n"
	       " -n: every other vCPU runs a nested guest\n"
	       " -N: the same, without nested paging\n"
	       " -b: break the order on purpose; the test should notice\n"
	       " -W: with -m bits, every other collect write-protects what it finds\n"
	       " -z: a slot that goes takes only its own pages along (since Linux 6.12)\n"
	       " -x: threads that get in the way, separated by commas\n", name);
	list("-m", harvests, ARRAY_SIZE(harvests));
	list("-w", rearms, ARRAY_SIZE(rearms));
	list("-P", patterns, ARRAY_SIZE(patterns));
	list("-b", brokens, ARRAY_SIZE(brokens));
	printf(" -x:");
	for (i = 0; i < ARRAY_SIZE(aggressors); i++)
		printf(" %s", aggressors[i].name);
	printf("\n");
	backing_src_help("-s");
	exit(0);
}

int main(int argc, char *argv[])
{
	int opt;

	setbuf(stdout, NULL);
	while ((opt = getopt(argc, argv, "hnNWzb:m:p:P:r:s:t:v:w:x:")) != -1) {
		switch (opt) {
		case 'b':
			run.broken = choose(optarg, brokens, ARRAY_SIZE(brokens));
			break;
		case 'm':
			run.harvest = choose(optarg, harvests,
					     ARRAY_SIZE(harvests));
			break;
		case 'n':
		case 'N':
			run.nested = true;
			run.nested_paging = opt == 'n';
			break;
		case 'p':
			run.npages = strtoul(optarg, NULL, 0);
			break;
		case 'P':
			run.pattern = choose(optarg, patterns,
					     ARRAY_SIZE(patterns));
			break;
		case 'r':
			run.seed = strtoull(optarg, NULL, 0);
			break;
		case 's':
			run.src = parse_backing_src_type(optarg);
			break;
		case 't':
			run.seconds = atoi(optarg);
			break;
		case 'v':
			run.nr_vcpus = atoi(optarg);
			break;
		case 'W':
			run.brake = true;
			break;
		case 'w':
			run.rearm = choose(optarg, rearms, ARRAY_SIZE(rearms));
			break;
		case 'x':
			run.aggressors = optarg;
			break;
		case 'z':
			run.zap_slot = true;
			break;
		default:
			help(argv[0]);
		}
	}
	if (optind < argc)
		help(argv[0]);
	/* To collect is to re-arm. */
	if (run.harvest == HARVEST_BITS)
		run.rearm = REARM_NONE;
	TEST_ASSERT(run.nr_vcpus > 0 && run.nr_vcpus <= GUEST_MAX_VCPUS,
		    "the number of vCPUs must be from 1 to %d", GUEST_MAX_VCPUS);
	TEST_ASSERT(run.npages > 1 && run.seed, "no pages, or no seed");
	/* Harvests that do not re-arm, without another way to do it. */
	TEST_ASSERT(run.rearm != REARM_NONE || run.harvest == HARVEST_GET ||
		    run.harvest == HARVEST_MANUAL ||
		    run.harvest == HARVEST_RING || run.harvest == HARVEST_BITS,
		    "-w none goes with -m get, manual, ring or bits only");

	if (run.rearm != REARM_NONE)
		TEST_REQUIRE(kvm_has_cap(KVM_CAP_WRITE_PROTECT_ALL_MEM));
	if (run.harvest == HARVEST_NO_WP || run.harvest == HARVEST_MIX)
		TEST_REQUIRE(kvm_has_cap(KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT));
	if (run.harvest == HARVEST_SHARED)
		TEST_REQUIRE(kvm_has_cap(KVM_CAP_DIRTY_BITMAP_FD));
	if (run.harvest == HARVEST_RING)
		TEST_REQUIRE(kvm_has_cap(KVM_CAP_DIRTY_LOG_RING));
	if (run.harvest == HARVEST_BITS)
		TEST_REQUIRE(kvm_has_cap(KVM_CAP_DIRTY_BITS));
	TEST_ASSERT(!run.brake || run.harvest == HARVEST_BITS,
		    "-W goes with -m bits only");
	if (wanted("split"))
		TEST_REQUIRE(kvm_has_cap(KVM_CAP_EAGER_PAGE_SPLIT));
	if (wanted("rearm"))
		TEST_ASSERT(run.rearm != REARM_NONE || run.harvest == HARVEST_BITS,
			    "-x rearm with -w none");
	TEST_ASSERT(!wanted("map") || run.zap_slot || !wanted("slot"),
		    "-x map with -x slot only if -z");
	if (run.zap_slot)
		TEST_REQUIRE(kvm_check_cap(KVM_CAP_DISABLE_QUIRKS2) &
			     KVM_X86_QUIRK_SLOT_ZAP_ALL);
	if (run.nested)
		TEST_REQUIRE(nested_guests_supported());
	/*
	 * A harvest without an ioctl does not make CPUs empty their buffers of
	 * PML, which a VM that can re-arm all its memory does without.
	 */
	if (run.harvest == HARVEST_RING && run.rearm == REARM_NONE)
		TEST_REQUIRE(!host_cpu_is_intel || !get_kvm_intel_param_bool("pml"));

	run_test();
	return 0;
}
