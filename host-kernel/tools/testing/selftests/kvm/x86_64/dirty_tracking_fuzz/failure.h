/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Failures that the kernel injects into the calls of a thread, if it was built
 * with fault injection (Documentation/fault-injection/fault-injection.rst).
 *
 * No signal may be delivered meanwhile: its frame, or the return from its
 * handler, could fail, and the kernel ends the process for that.  The alarm is
 * blocked therefore, but for KVM_RUN, and memory that may be missing is touched
 * between fail_pause() and fail_resume().
 */
#ifndef SELFTEST_KVM_FUZZ_FAILURE_H
#define SELFTEST_KVM_FUZZ_FAILURE_H

#include <signal.h>
#include <stdint.h>

#define ALARM_SIGNAL	SIGUSR1

/*
 * Prepares the calling thread.  Where the kernel was built without fault
 * injection, nothing fails ever.
 */
void fail_open(void);

/* The @n-th thing that can fail in what this thread does, does. */
void fail_begin(uint64_t n);

/* Ends what fail_begin() began. */
void fail_end(void);

/* Nothing fails in this thread until fail_resume(), which counts from 1 again. */
void fail_pause(void);
void fail_resume(void);

/* Lets the alarm end this vCPU's KVM_RUN even while it is blocked. */
void fail_alarm_ends_run(int vcpu_fd);

#endif /* SELFTEST_KVM_FUZZ_FAILURE_H */
