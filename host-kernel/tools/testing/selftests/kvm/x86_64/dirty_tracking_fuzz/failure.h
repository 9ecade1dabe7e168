/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Failures that the kernel injects into what a thread does, if it was built
 * with fault injection (Documentation/fault-injection/fault-injection.rst).
 *
 * No signal may be delivered meanwhile: its frame, or the return from its
 * handler, could fail, and the kernel ends the process for that.  The alarm is
 * blocked therefore, but for KVM_RUN, and memory that may be missing is touched
 * between fail_pause() and fail_resume().
 */
#ifndef SELFTEST_KVM_FUZZ_FAILURE_H
#define SELFTEST_KVM_FUZZ_FAILURE_H

#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ALARM_SIGNAL	SIGUSR1

static __thread int fail_fd = -1;
static __thread uint64_t fail_n;	/* 0: nothing fails */

static inline void fail_open(void)
{
	fail_fd = open("/proc/thread-self/fail-nth", O_WRONLY | O_CLOEXEC);
}

static inline void fail_write(uint64_t n)
{
	char text[24];
	int length = snprintf(text, sizeof(text), "%lu", n);

	if (fail_fd >= 0 && pwrite(fail_fd, text, length, 0) != length)
		fail_fd = -1;
}

static inline void fail_mask_alarm(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, ALARM_SIGNAL);
	pthread_sigmask(how, &set, NULL);
}

/* The @n-th thing that can fail in what this thread does, does. */
static inline void fail_begin(uint64_t n)
{
	fail_mask_alarm(SIG_BLOCK);
	fail_n = n;
	fail_write(n);
}

static inline void fail_end(void)
{
	fail_write(0);
	fail_n = 0;
	fail_mask_alarm(SIG_UNBLOCK);
}

static inline void fail_pause(void)
{
	if (fail_n)
		fail_write(0);
}

/* Counts from 1 again. */
static inline void fail_resume(void)
{
	if (fail_n)
		fail_write(fail_n);
}

/* Lets the alarm end this vCPU's KVM_RUN even while it is blocked. */
static inline void fail_alarm_ends_run(int vcpu_fd)
{
	struct {
		struct kvm_signal_mask mask;
		uint8_t set[8];
	} none = { .mask.len = 8 };

	fail_pause();
	ioctl(vcpu_fd, KVM_SET_SIGNAL_MASK, &none);
	fail_resume();
}

#endif
