/*
 * The virtual machine, by way of what the VMM lends.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "ground.h"

#include <errno.h>
#include <stdarg.h>
#include <time.h>

GQuark kvmd_error_quark(void)
{
    return g_quark_from_static_string("kvmd-error-quark");
}

int64_t kvmd_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/*
 * A signal is delivered before the next try, which so does not meet it again:
 * only a KVM that is broken has that reason so often.  No ioctl that the
 * engine calls has a reason for EAGAIN (Linux 6.1).  To ask for ever would
 * hide either, with the lock held.
 */
#define INTERRUPTIONS_MAX 10000

int kvmd_vm_ioctl(KvmDirty *kvmd, unsigned long request, void *arg)
{
    int ret, tries = 0;

    do {
        ret = kvmd->vmm.vm_ioctl(kvmd->opaque, request, arg);
    } while (ret == -EINTR && tries++ < INTERRUPTIONS_MAX);
    return ret;
}

void kvmd_warn(KvmDirty *kvmd, const char *format, ...)
{
    g_autofree char *message = NULL;
    va_list ap;

    va_start(ap, format);
    message = g_strdup_vprintf(format, ap);
    va_end(ap);
    kvmd->vmm.warn(kvmd->opaque, message);
}
