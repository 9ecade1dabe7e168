/*
 * The reaper's clock, and how it sleeps, as a test wants them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The compiler gets this with -include when the engine is built for
 * test_reaper.c, which has the functions.  So the effects of a fill rate are
 * known to the microsecond, however busy the machine is.
 */

#ifndef CLOCK_HOOK_H
#define CLOCK_HOOK_H

#include <glib.h>

gint64 clock_now(void);
gboolean clock_wait_until(GCond *cond, GMutex *mutex, gint64 until);
void clock_wait(GCond *cond, GMutex *mutex);
void clock_signal(GCond *cond);

#define g_get_monotonic_time clock_now
#define g_cond_wait_until clock_wait_until
#define g_cond_wait clock_wait
#define g_cond_signal clock_signal

#endif
