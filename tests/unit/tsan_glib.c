/*
 * GLib's locks, as ThreadSanitizer has to see them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A GMutex is a futex inside a library that is not instrumented, so
 * ThreadSanitizer would report a race on all data that it guards.  The linker
 * (--wrap) sends the calls through here.  A GCond needs nothing: its mutex
 * guards its condition.
 */

#include <glib.h>
#include <sanitizer/tsan_interface.h>

void __real_g_mutex_lock(GMutex *mutex);
void __real_g_mutex_unlock(GMutex *mutex);
void __real_g_mutex_clear(GMutex *mutex);
void __real_g_cond_wait(GCond *cond, GMutex *mutex);
gboolean __real_g_cond_wait_until(GCond *cond, GMutex *mutex, gint64 until);

void __wrap_g_mutex_lock(GMutex *mutex);
void __wrap_g_mutex_unlock(GMutex *mutex);
void __wrap_g_mutex_clear(GMutex *mutex);
void __wrap_g_cond_wait(GCond *cond, GMutex *mutex);
gboolean __wrap_g_cond_wait_until(GCond *cond, GMutex *mutex, gint64 until);

static void unlocks(GMutex *mutex)
{
    __tsan_mutex_pre_unlock(mutex, 0);
    __tsan_mutex_post_unlock(mutex, 0);
}

static void locked(GMutex *mutex)
{
    __tsan_mutex_pre_lock(mutex, 0);
    __tsan_mutex_post_lock(mutex, 0, 0);
}

void __wrap_g_mutex_lock(GMutex *mutex)
{
    __tsan_mutex_pre_lock(mutex, 0);
    __real_g_mutex_lock(mutex);
    __tsan_mutex_post_lock(mutex, 0, 0);
}

void __wrap_g_mutex_unlock(GMutex *mutex)
{
    unlocks(mutex);
    __real_g_mutex_unlock(mutex);
}

void __wrap_g_mutex_clear(GMutex *mutex)
{
    __tsan_mutex_destroy(mutex, 0);
    __real_g_mutex_clear(mutex);
}

void __wrap_g_cond_wait(GCond *cond, GMutex *mutex)
{
    unlocks(mutex);
    __real_g_cond_wait(cond, mutex);
    locked(mutex);
}

gboolean __wrap_g_cond_wait_until(GCond *cond, GMutex *mutex, gint64 until)
{
    gboolean signalled;

    unlocks(mutex);
    signalled = __real_g_cond_wait_until(cond, mutex, until);
    locked(mutex);
    return signalled;
}
