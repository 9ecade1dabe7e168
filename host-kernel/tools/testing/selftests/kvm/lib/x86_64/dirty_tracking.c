// SPDX-License-Identifier: GPL-2.0-only
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

#include "processor.h"
#include "dirty_tracking.h"

const uint32_t dirty_bits_caps[NR_DIRTY_BITS_CAPS] = {
	KVM_CAP_WRITE_PROTECT_ALL_MEM,
	KVM_CAP_DIRTY_BITMAP_FD,
	KVM_CAP_DIRTY_BITS,
};

int nr_alarms;

void *read_only_copy(const void *data, size_t size)
{
	void *page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	TEST_ASSERT(page != MAP_FAILED, "mmap failed: %s", strerror(errno));
	memcpy(page, data, size);
	TEST_ASSERT(!mprotect(page, PAGE_SIZE, PROT_READ), "mprotect failed: %s",
		    strerror(errno));
	return page;
}

void expect_unused_args(struct kvm_vm *vm, uint32_t cap, int used)
{
	struct kvm_enable_cap enable;
	int i;

	for (i = used; i < ARRAY_SIZE(enable.args); i++) {
		memset(&enable, 0, sizeof(enable));
		enable.cap = cap;
		enable.args[i] = 1ULL << (i * 21);
		TEST_ERRNO(__vm_ioctl(vm, KVM_ENABLE_CAP, &enable), EINVAL);
	}
}

static void on_alarm(int signo)
{
	nr_alarms++;
}

/*
 * Returns the microseconds that the kernel takes to deliver a signal here, once
 * all that this needs is cached.
 */
static uint64_t signal_cost(void)
{
	uint64_t us, least = UINT64_MAX;
	struct timespec start, took;
	int i;

	for (i = 0; i < 8; i++) {
		clock_gettime(CLOCK_MONOTONIC, &start);
		raise(SIGALRM);
		took = timespec_elapsed(start);
		us = took.tv_sec * 1000000 + took.tv_nsec / 1000;
		least = us < least ? us : least;
	}
	return least;
}

/*
 * A kernel with KASAN on a slow CPU takes longer for a signal than others for an
 * ioctl.  The interval leaves it time to go on with the test.
 */
void begin_alarms(void)
{
	struct itimerval often = { };
	struct sigaction action = { .sa_handler = on_alarm };

	sigaction(SIGALRM, &action, NULL);
	often.it_value.tv_usec = max(300UL, 3 * signal_cost());
	often.it_interval = often.it_value;
	nr_alarms = 0;
	setitimer(ITIMER_REAL, &often, NULL);
}

void end_alarms(void)
{
	struct itimerval never = { };

	setitimer(ITIMER_REAL, &never, NULL);
}

uint64_t call_until_done(struct kvm_vm *vm, unsigned long cmd, uint64_t gpa,
			 uint64_t size)
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
