/*
 * LD_PRELOAD: a host whose KVM lacks the capabilities that HIDE_CAPS lists.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/kvm.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

static bool hidden(unsigned long cap)
{
    const char *list = getenv("HIDE_CAPS");

    while (list && *list) {
        char *end;

        if (strtoul(list, &end, 10) == cap) {
            return true;
        }
        list = *end ? end + 1 : end;
    }
    return false;
}

int ioctl(int fd, unsigned long request, ...)
{
    static int (*next)(int, unsigned long, ...);
    va_list ap;
    void *arg;

    va_start(ap, request);
    arg = va_arg(ap, void *);
    va_end(ap);
    if (!next) {
        next = dlsym(RTLD_NEXT, "ioctl");
    }
    if (request == KVM_CHECK_EXTENSION && hidden((unsigned long)arg)) {
        return 0;
    }
    return next(fd, request, arg);
}
