// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE /* for memfd_create and rwlocks that are fair */
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test_util.h"
#include "dirty_bitmap.h"
#include "witness.h"

/* The witness once more, as the copy is made and compared. */
#define WITNESS_VIEW	0x151000000000UL
#define WITNESS_COPY	0x152000000000UL

#define WITNESS_SLOT	10
#define STILL_SLOT	11

struct witness witness;
unsigned long *witness_changes;

void count_witness_changes(void)
{
	witness_changes = mmap(NULL, sizeof(*witness_changes),
			       PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	TEST_ASSERT(witness_changes != MAP_FAILED, "no memory: %s",
		    strerror(errno));
}

void make_witness(void)
{
	pthread_rwlockattr_t fair;
	int fd = memfd_create("witness", 0);

	pthread_rwlockattr_init(&fair);
	pthread_rwlockattr_setkind_np(&fair,
				      PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&witness.running, &fair);
	pthread_mutex_init(&witness.lock, NULL);
	witness.on = false;
	TEST_ASSERT(fd >= 0 && !ftruncate(fd, WITNESS_END), "no memfd: %s",
		    strerror(errno));
	map_at(WITNESS_HVA, WITNESS_END, PROT_READ | PROT_WRITE, MAP_SHARED,
	       fd, 0);
	map_at(WITNESS_VIEW, WITNESS_END, PROT_READ, MAP_SHARED, fd, 0);
	map_memory(WITNESS_COPY, WITNESS_END, PROT_READ | PROT_WRITE);
	close(fd);
}

/* Calls again what a signal has stopped. */
static int witness_ioctl(unsigned long cmd, void *arg)
{
	int ret;

	do {
		ret = ioctl(vms[0].fd, cmd, arg);
	} while (ret < 0 && errno == EINTR);
	return ret;
}

static int witness_range(unsigned long cmd, uint64_t flags)
{
	struct kvm_write_protect_range range = {
		.gpa = WITNESS_GPA, .size = WITNESS_PAGES * PAGE, .flags = flags,
	};

	return witness_ioctl(cmd, &range);
}

static int witness_get(uint32_t slot, uint32_t flags, void *bitmap)
{
	struct kvm_dirty_log log = {
		.slot = slot, .padding1 = flags, .dirty_bitmap = bitmap,
	};

	return witness_ioctl(KVM_GET_DIRTY_LOG, &log);
}

static int witness_clear(uint32_t slot, uint64_t npages, void *bitmap)
{
	struct kvm_clear_dirty_log log = {
		.slot = slot, .num_pages = npages, .dirty_bitmap = bitmap,
	};

	return witness_ioctl(KVM_CLEAR_DIRTY_LOG, &log);
}

/* Only GET and CLEAR, as on any host; both with and without manual protect. */
static void take_and_clear(void)
{
	if (!witness_get(WITNESS_SLOT, 0, witness.found))
		witness_clear(WITNESS_SLOT, WITNESS_PAGES, witness.found);
}

static void protect(struct rng *rng)
{
	if (rng_once_in(rng, 2) || witness_range(KVM_WRITE_PROTECT_RANGE, 0))
		witness_ioctl(KVM_WRITE_PROTECT_ALL_MEM, NULL);
}

static void fetch_and_protect(struct rng *rng)
{
	if (!witness_get(WITNESS_SLOT, KVM_DIRTY_LOG_WITHOUT_WRITE_PROTECT,
			 witness.found))
		protect(rng);
}

/* By the mapping, whatever of it there is for this moment. */
static void take_mapped(struct rng *rng)
{
	uint64_t flags = rng_once_in(rng, 2) ? KVM_COLLECT_DIRTY_BITS_WRPROT : 0;
	bool collected = !witness_range(KVM_COLLECT_DIRTY_BITS, flags);
	struct kvm_dirty_bitmap_fd desc = { .slot = WITNESS_SLOT };
	struct shared_bitmap shared = { .npages = WITNESS_PAGES };
	void *map;
	int fd;

	fd = ioctl(vms[0].fd, KVM_GET_DIRTY_BITMAP_FD, &desc);
	map = fd < 0 ? MAP_FAILED :
	      mmap(NULL, desc.bitmap_size + desc.summary_size,
		   PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		take_and_clear();
	} else {
		shared.bitmap = map + desc.bitmap_offset;
		shared.summary = map + desc.summary_offset;
		shared_bitmap_harvest(&shared, 0, WITNESS_PAGES, witness.found);
		munmap(map, desc.bitmap_size + desc.summary_size);
		if (!collected || rng_once_in(rng, 2))
			protect(rng);
	}
	if (fd >= 0)
		close(fd);
}

static void copy_found(void)
{
	uint64_t page;

	for (page = 0; page < WITNESS_PAGES; page++) {
		void *copy = (void *)WITNESS_COPY + page * PAGE;
		void *view = (void *)WITNESS_VIEW + page * PAGE;

		if (test_bit(page, witness.found) && memcmp(copy, view, PAGE)) {
			memcpy(copy, view, PAGE);
			__sync_fetch_and_add(witness_changes, 1);
		}
	}
}

void take_and_copy(struct rng *rng)
{
	int way = witness.can_protect ? rng_below(rng, 3) : 0;

	memset(witness.found, 0, sizeof(witness.found));
	if (way == 0)
		take_and_clear();
	else if (way == 1)
		fetch_and_protect(rng);
	else
		take_mapped(rng);
	copy_found();
}

/* What is dirty in a slot that nobody writes to; all of it is clean then. */
static unsigned long still_word(void)
{
	unsigned long bitmap[BITS_TO_LONGS(STILL_PAGES)] = { }, any = 0;
	int i;

	if (witness_get(STILL_SLOT, 0, bitmap))
		return 0;
	for (i = 0; i < ARRAY_SIZE(bitmap); i++)
		any |= bitmap[i];
	witness_clear(STILL_SLOT, STILL_PAGES, bitmap);
	return any;
}

void witness_start(void)
{
	const struct slot slot = {
		.flags = KVM_MEM_LOG_DIRTY_PAGES, .gpa = WITNESS_GPA,
		.npages = WITNESS_PAGES, .hva = WITNESS_HVA,
	};
	const struct slot still = {
		.flags = KVM_MEM_LOG_DIRTY_PAGES,
		.gpa = STILL_GPA, .npages = STILL_PAGES,
		.hva = WITNESS_HVA + WITNESS_PAGES * PAGE,
	};
	unsigned long bitmap[BITS_TO_LONGS(WITNESS_PAGES)];

	if (set_region(vms[0].fd, STILL_SLOT, &still) ||
	    set_region(vms[0].fd, WITNESS_SLOT, &slot))
		return;
	/* A VM with dirty rings has no bitmaps. */
	if (witness_get(WITNESS_SLOT, 0, bitmap))
		return;
	witness_clear(WITNESS_SLOT, WITNESS_PAGES, bitmap);
	still_word();
	witness.can_protect = !witness_ioctl(KVM_WRITE_PROTECT_ALL_MEM, NULL);
	memcpy((void *)WITNESS_COPY, (void *)WITNESS_VIEW, WITNESS_END);
	witness.on = true;
}

void witness_check(struct rng *rng)
{
	unsigned long any;
	uint64_t page;

	take_and_copy(rng);
	for (page = 0; page < WITNESS_PAGES; page++)
		TEST_ASSERT(!memcmp((void *)WITNESS_COPY + page * PAGE,
				    (void *)WITNESS_VIEW + page * PAGE, PAGE),
			    "page %lu of the witness is lost", page);
	any = still_word();
	TEST_ASSERT(!any, "pages that nobody wrote to are dirty: 0x%lx", any);
}
