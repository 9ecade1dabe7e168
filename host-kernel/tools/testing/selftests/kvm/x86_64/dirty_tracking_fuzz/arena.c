// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE /* for memfd_create */
#include <signal.h>
#include <unistd.h>

#include "test_util.h"
#include "arena.h"

__thread sigjmp_buf not_there;
__thread volatile bool touching;

void *map_at(uint64_t where, size_t size, int prot, int flags, int fd,
	     off_t offset)
{
	return mmap((void *)where, size, prot, flags | MAP_FIXED, fd, offset);
}

void map_memory(uint64_t where, size_t size, int prot)
{
	map_at(where, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
	       -1, 0);
}

void unmap_at(uint64_t where, size_t size)
{
	map_memory(where, size, PROT_NONE);
}

void map_buffer(int thread)
{
	map_memory(buffer_of(thread), BUFFER_SIZE, PROT_READ | PROT_WRITE);
	map_memory(buffer_of(thread) + BUFFER_SIZE, PAGE, PROT_READ);
}

/*
 * Ordinary pages where the host has no huge ones left.  Each huge page has a
 * mapping of its own, so that no operation splits one: Linux 6.1.192 takes
 * i_mmap_rwsem only after hugetlb_split() has asserted that it is held.
 */
static void map_huge_pages(void)
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

void map_backings(void)
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

void on_not_there(int signo)
{
	if (!touching) {
		signal(signo, SIG_DFL);
		return;
	}
	siglongjmp(not_there, 1);
}
