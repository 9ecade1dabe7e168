// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE /* for mremap */
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/kvm_dirty_tracking.h>

#include "test_util.h"
#include "ops_host.h"
#include "witness.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT	21
#endif

void op_advise(struct op_call *call)
{
	static const int advices[] = {
		MADV_DONTNEED, MADV_DONTNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE,
		MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_FREE, MADV_COLLAPSE,
		MADV_REMOVE, MADV_PAGEOUT,
	};
	int advice = rng_pick(&call->rng, advices);
	uint64_t hva = any_hva(&call->rng);
	uint64_t size = any_npages(&call->rng) % BACKING_PAGES * PAGE;

	say(call, "advise %d on 0x%lx + 0x%lx", advice, hva, size);
	madvise((void *)hva, size, advice);
}

void op_mprotect(struct op_call *call)
{
	static const int prots[] = {
		PROT_READ, PROT_NONE, PROT_READ | PROT_WRITE,
		PROT_READ | PROT_WRITE,
	};
	int prot = rng_pick(&call->rng, prots);
	uint64_t hva = any_hva(&call->rng);
	uint64_t size = any_npages(&call->rng) % BACKING_PAGES * PAGE;

	say(call, "mprotect %d on 0x%lx + 0x%lx", prot, hva, size);
	mprotect((void *)hva, size, prot);
}

/* Away and back, or away for good and something else in its place. */
void op_remap(struct op_call *call)
{
	uint64_t hva = any_hva(&call->rng) & ~(2 * MIB - 1);
	uint64_t moved = hva - MEMORY_BASE + MOVED_BASE;

	if (hva < MEMORY_BASE || hva + 2 * MIB > MEMORY_BASE + MEMORY_SIZE)
		return;
	say(call, "move 0x%lx away", hva);
	mremap((void *)hva, 2 * MIB, 2 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED,
	       (void *)moved);
	if (rng_once_in(&call->rng, 2))
		mremap((void *)moved, 2 * MIB, 2 * MIB,
		       MREMAP_MAYMOVE | MREMAP_FIXED, (void *)hva);
	else
		map_memory(hva, 2 * MIB, PROT_READ | PROT_WRITE);
}

void op_write_memory(struct op_call *call)
{
	uint64_t hva = any_hva(&call->rng);
	int fill = rng_below(&call->rng, 2);

	say(call, "write %d to 0x%lx", fill, hva);
	/* The same in many pages, so that they can be merged. */
	touch(memset((void *)hva, fill, 2 * MIB));
}

/* Contents stay, and so must the copy be right. */
void op_disturb_witness(struct op_call *call)
{
	void *hva = (void *)WITNESS_HVA;

	say(call, "disturb the witness");
	switch (rng_below(&call->rng, 3)) {
	case 0:
		madvise(hva, WITNESS_END, MADV_DONTNEED);
		break;
	case 1:
		mprotect(hva, WITNESS_END, PROT_READ);
		mprotect(hva, WITNESS_END, PROT_READ | PROT_WRITE);
		break;
	default:
		madvise(hva, WITNESS_END, MADV_PAGEOUT);
		break;
	}
}

/* A child has the files, but no other memory's VM will do anything for it. */
void op_fork(struct op_call *call)
{
	int status;
	pid_t pid;

	say(call, "fork");
	pid = fork();
	if (!pid) {
		ioctl(vm_fd(call), KVM_WRITE_PROTECT_ALL_MEM, NULL);
		touch(*(uint64_t *)any_hva(&call->rng) = 1);
		touch(*(uint64_t *)bitmap_base(0) = ~0ULL);
		_exit(0);
	}
	if (pid > 0)
		waitpid(pid, &status, 0);
}

static void write_file(const char *name, const char *text)
{
	int fd = open(name, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0 && verbose)
		printf("%s refuses %s\n", name, text);
	close(fd);
}

void set_up_host(void)
{
	write_file("/sys/kernel/mm/ksm/run", "1");
	write_file("/sys/kernel/mm/ksm/sleep_millisecs", "5");
	write_file("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs",
		   "5");
	write_file("/proc/sys/vm/nr_hugepages", "16");
	write_file("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	write_file("/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "N");
	write_file("/sys/kernel/debug/fail_page_alloc/min-order", "0");
}

void op_set_parameter(struct op_call *call)
{
	static const struct {
		const char *file;
		const char *value;
	} settings[] = {
		{ "/sys/module/kvm/parameters/eager_page_split", "N" },
		{ "/sys/module/kvm/parameters/eager_page_split", "Y" },
		{ "/sys/module/kvm/parameters/dirty_tracking", "N" },
		{ "/sys/module/kvm/parameters/dirty_tracking", "Y" },
		{ "/sys/module/kvm/parameters/dirty_tracking", "Y" },
		{ "/sys/module/kvm/parameters/nx_huge_pages", "force" },
		{ "/sys/module/kvm/parameters/nx_huge_pages", "off" },
		{ "/sys/kernel/debug/tracing/events/kvm_dirty/enable", "1" },
		{ "/sys/kernel/debug/tracing/events/kvm_dirty/enable", "0" },
		{ "/sys/kernel/debug/tracing/events/kvm_dirty_tracking/enable",
		  "1" },
		{ "/proc/sys/vm/compact_memory", "1" },
		{ "/proc/sys/vm/drop_caches", "2" },
	};
	int which = rng_below(&call->rng, ARRAY_SIZE(settings));

	say(call, "write %s to %s", settings[which].value, settings[which].file);
	write_file(settings[which].file, settings[which].value);
}

void op_check_extension(struct op_call *call)
{
	uint32_t cap = KVM_CAP_WRITE_PROTECT_ALL_MEM + rng_below(&call->rng, 7);

	say(call, "check extension 0x%x", cap);
	ioctl(kvm_fd, KVM_CHECK_EXTENSION, cap);
	ioctl(vm_fd(call), KVM_CHECK_EXTENSION, cap);
}
