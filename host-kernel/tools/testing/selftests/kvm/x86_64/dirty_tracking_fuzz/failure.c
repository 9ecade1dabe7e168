// SPDX-License-Identifier: GPL-2.0-only
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "failure.h"

static __thread int fail_fd = -1;
static __thread uint64_t fail_n;	/* 0: nothing fails */

void fail_open(void)
{
	fail_fd = open("/proc/thread-self/fail-nth", O_WRONLY | O_CLOEXEC);
}

static void fail_write(uint64_t n)
{
	char text[24];
	int length = snprintf(text, sizeof(text), "%lu", n);

	if (fail_fd >= 0 && pwrite(fail_fd, text, length, 0) != length)
		fail_fd = -1;
}

static void fail_mask_alarm(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, ALARM_SIGNAL);
	pthread_sigmask(how, &set, NULL);
}

void fail_begin(uint64_t n)
{
	fail_mask_alarm(SIG_BLOCK);
	fail_n = n;
	fail_write(n);
}

void fail_end(void)
{
	fail_write(0);
	fail_n = 0;
	fail_mask_alarm(SIG_UNBLOCK);
}

void fail_pause(void)
{
	if (fail_n)
		fail_write(0);
}

void fail_resume(void)
{
	if (fail_n)
		fail_write(fail_n);
}

void fail_alarm_ends_run(int vcpu_fd)
{
	struct {
		struct kvm_signal_mask mask;
		uint8_t set[8];
	} none = { .mask.len = 8 };

	fail_pause();
	ioctl(vcpu_fd, KVM_SET_SIGNAL_MASK, &none);
	fail_resume();
}
