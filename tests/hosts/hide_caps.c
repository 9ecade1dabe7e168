/*
 * LD_PRELOAD: a host whose KVM lacks the capabilities that HIDE_CAPS lists,
 * and whose KVM_GET_DIRTY_LOG fails while the file that FAIL_HARVEST names is
 * there.  With SPOIL_FREED what was freed is not used again, nor readable.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/kvm.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static bool harvest_fails(void)
{
    const char *path = getenv("FAIL_HARVEST");

    return path && access(path, F_OK) == 0;
}

void free(void *pointer)
{
    extern void __libc_free(void *);

    if (!getenv("SPOIL_FREED")) {
        __libc_free(pointer);
    } else if (pointer) {
        memset(pointer, 0x5a, malloc_usable_size(pointer));
    }
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
    if (request == KVM_GET_DIRTY_LOG && harvest_fails()) {
        errno = EIO;
        return -1;
    }
    return next(fd, request, arg);
}
