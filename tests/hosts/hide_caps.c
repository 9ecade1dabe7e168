/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * LD_PRELOAD: a host whose KVM lacks the capabilities that HIDE_CAPS lists,
 * whose KVM_GET_DIRTY_LOG fails while the file that FAIL_HARVEST names is there,
 * and which ends SHORT_RESETS resets of dirty rings before it has counted all.
 * With SPOIL_FREED what was freed is not used again, nor readable.
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

/* What a reset leaves, the next one has; the caller resets one at a time. */
static int reset_counted(int ret)
{
    static int resets = -1, left;
    const char *limit = getenv("SHORT_RESETS");

    if (resets < 0) {
        resets = limit ? atoi(limit) : 0;
    }
    if (ret > 0 && !left && resets > 0) {
        resets--;
        left = 1;
        return ret - 1;
    }
    if (ret >= 0) {
        ret += left;
        left = 0;
    }
    return ret;
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
    if (request == KVM_RESET_DIRTY_RINGS) {
        return reset_counted(next(fd, request, arg));
    }
    return next(fd, request, arg);
}
