/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where things are in the fuzzer's own memory.  Each kind has a place of its
 * own, so that what one thread maps, moves or unmaps there while another uses it
 * never is the fuzzer's code, stack or heap.
 */
#ifndef SELFTEST_KVM_FUZZ_ARENA_H
#define SELFTEST_KVM_FUZZ_ARENA_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "failure.h"

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

/* Maps @size bytes at @where in place of what is there, as mmap() does. */
void *map_at(uint64_t where, size_t size, int prot, int flags, int fd,
	     off_t offset);

/*
 * Maps private memory of zeroes, with no word if this fails, as it may in an
 * operation.  Whatever touches the memory uses touch().
 */
void map_memory(uint64_t where, size_t size, int prot);

/* What was there is gone, and what touches it gets a SIGSEGV. */
void unmap_at(uint64_t where, size_t size);

/* Maps the buffer of a thread. */
void map_buffer(int thread);

/* Maps what slots are made of. */
void map_backings(void);

static inline uint64_t buffer_of(int thread)
{
	return BUFFERS_BASE + thread * BUFFER_ROOM;
}

static inline uint64_t backing_base(enum backing backing)
{
	return MEMORY_BASE + backing * BACKING_SIZE;
}

/* Where touch() goes on if memory is not there, and whether it is active. */
extern __thread sigjmp_buf not_there;
extern __thread volatile bool touching;

/* Handles SIGSEGV and SIGBUS.  Outside of touch() these end the process. */
void on_not_there(int signo);

/*
 * Does @statement, which touches memory that another thread may unmap, or that
 * may be beyond a file's end.  Its value is false if not all of it was there.
 */
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

#endif /* SELFTEST_KVM_FUZZ_ARENA_H */
