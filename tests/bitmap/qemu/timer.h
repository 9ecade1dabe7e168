/*
 * Clocks and a timer, which the test sets and runs.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QEMU_TIMER_H
#define QEMU_TIMER_H

#define SCALE_MS 1000000
#define SCALE_US 1000

typedef enum QEMUClockType {
    QEMU_CLOCK_REALTIME,
    QEMU_CLOCK_VIRTUAL_RT,
} QEMUClockType;

typedef void QEMUTimerCB(void *opaque);
typedef struct QEMUTimer QEMUTimer;

/* Defined by the test. */
int64_t qemu_clock_get_ns(QEMUClockType type);
QEMUTimer *timer_new_ns(QEMUClockType type, QEMUTimerCB *cb, void *opaque);
void timer_mod(QEMUTimer *timer, int64_t expires);
void timer_del(QEMUTimer *timer);
bool timer_pending(QEMUTimer *timer);

#endif
