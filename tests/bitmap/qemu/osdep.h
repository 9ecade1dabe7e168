/*
 * What the tested files need of QEMU, so that they can be tested without.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QEMU_OSDEP_H
#define QEMU_OSDEP_H

#include <glib.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BITS_PER_LONG (sizeof(unsigned long) * CHAR_BIT)
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))
#define QEMU_ALIGN_DOWN(n, m) ((n) / (m) * (m))
#define ctzl __builtin_ctzl
#define ctpopl __builtin_popcountl
#define ctz32 __builtin_ctz

#endif
