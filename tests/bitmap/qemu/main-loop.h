/*
 * The BQL, and how to wait without it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QEMU_MAIN_LOOP_H
#define QEMU_MAIN_LOOP_H

#include "hw/core/cpu.h"

/* Defined by the test. */
void qemu_mutex_lock_iothread(void);
void qemu_mutex_unlock_iothread(void);
void qemu_cond_timedwait_iothread(QemuCond *cond, int ms);
void qemu_cond_broadcast(QemuCond *cond);
void test_usleep(gulong microseconds);

#define g_usleep test_usleep

#endif
