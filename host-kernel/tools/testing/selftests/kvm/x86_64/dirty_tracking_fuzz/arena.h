/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where things are in the fuzzer's own memory.  Each kind has a place of its
 * own, so that what one thread maps, moves or unmaps there while another uses it
 * never is the fuzzer's code, stack or heap.
 */
#ifndef SELFTEST_KVM_FUZZ_ARENA_H
#define SELFTEST_KVM_FUZZ_ARENA_H

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "test_util.h"
#include "failure.h"
#include "rng.h"

#define PAGE		4096UL
#define MIB		(1UL << 20)
#define GIB		(1UL << 30)

/* What slots are made of. */
enum backing {
	BACKING_SMALL,
	BACKING_THP,
	BACKING_SHMEM,
	BACKING_HUGETLB,
	NR_BACKINGS,
};

#define MEMORY_BASE	0x100000000000UL
#define BACKING_SIZE	(8 * MIB)
#define BACKING_PAGES	(BACKING_SIZE / PAGE)
#define MEMORY_SIZE	(NR_BACKINGS * BACKING_SIZE)

/* Where parts of it are moved to and back. */
#define MOVED_BASE	0x101000000000UL

/* Dirty bitmaps, in any state. */
#define BITMAPS_BASE	0x110000000000UL
#define BITMAP_ROOM	(4 * MIB)
#define NR_BITMAPS	3

/* struct kvm_run, and the dirty ring, of each vCPU. */
#define RUNS_BASE	0x120000000000UL
#define RUN_ROOM	MIB
#define RING_OFFSET	(RUN_ROOM / 2)

/* What the guest runs. */
#define CODE_BASE	0x130000000000UL
#define CODE_SIZE	(8 * PAGE)

/* For what ioctls copy: most of it can be written, a page be read only. */
#define BUFFERS_BASE	0x140000000000UL
#define BUFFER_ROOM	(4 * MIB)
#define BUFFER_SIZE	(2 * MIB)

static inline void *map_at(uint64_t where, size_t size, int prot, int flags,
			   int fd, off_t offset)
{
	return mmap((void *)where, size, prot, flags | MAP_FIXED, fd, offset);
}

/* May fail in an operation: whoever touches it is prepared for that. */
static inline void map_memory(uint64_t where, size_t size, int prot)
{
	map_at(where, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
	       -1, 0);
}

/* What was there is gone, and what touches it gets a SIGSEGV. */
static inline void unmap_at(uint64_t where, size_t size)
{
	map_memory(where, size, PROT_NONE);
}

static inline uint64_t buffer_of(int thread)
{
	return BUFFERS_BASE + thread * BUFFER_ROOM;
}

static inline void map_buffer(int thread)
{
	map_memory(buffer_of(thread), BUFFER_SIZE, PROT_READ | PROT_WRITE);
	map_memory(buffer_of(thread) + BUFFER_SIZE, PAGE, PROT_READ);
}

static inline uint64_t backing_base(enum backing backing)
{
	return MEMORY_BASE + backing * BACKING_SIZE;
}

/*
 * Ordinary pages where the host has no huge ones left.  Each huge page has a
 * mapping of its own, so that no operation splits one: Linux 6.1.192 takes
 * i_mmap_rwsem only after hugetlb_split() has asserted that it is held.
 */
static inline void map_huge_pages(void)
{
	uint64_t where = backing_base(BACKING_HUGETLB);
	int fd = memfd_create("huge", MFD_HUGETLB);
	off_t offset;

	for (offset = 0; offset < BACKING_SIZE; offset += 2 * MIB)
		if (fd < 0 ||
		    map_at(where + offset, 2 * MIB, PROT_READ | PROT_WRITE,
			   MAP_SHARED, fd, offset) == MAP_FAILED)
			map_memory(where + offset, 2 * MIB,
				   PROT_READ | PROT_WRITE);
	if (fd >= 0)
		close(fd);
}

static inline void map_backings(void)
{
	int fd = memfd_create("fuzz", 0);

	map_memory(MEMORY_BASE, MEMORY_SIZE, PROT_READ | PROT_WRITE);
	madvise((void *)backing_base(BACKING_SMALL), BACKING_SIZE,
		MADV_NOHUGEPAGE);
	madvise((void *)backing_base(BACKING_THP), BACKING_SIZE, MADV_HUGEPAGE);
	TEST_ASSERT(fd >= 0 && !ftruncate(fd, BACKING_SIZE), "no memfd: %s",
		    strerror(errno));
	map_at(backing_base(BACKING_SHMEM), BACKING_SIZE,
	       PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	map_huge_pages();
}

/*
 * What is touched may be unmapped by another thread, or be beyond a file's end.
 * Who touches such memory does so in here, and is told if it was not all.
 */
static __thread sigjmp_buf not_there;
static __thread volatile bool touching;

static inline void on_not_there(int signo)
{
	if (!touching) {
		signal(signo, SIG_DFL);
		return;
	}
	siglongjmp(not_there, 1);
}

#define touch(statement)				\
({							\
	bool __done;					\
							\
	fail_pause();					\
	__done = !sigsetjmp(not_there, 1);		\
	if (__done) {					\
		touching = true;			\
		statement;				\
	}						\
	touching = false;				\
	fail_resume();					\
	__done;						\
})

#endif
