/*
 * Addresses of guest memory as QEMU counts them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef EXEC_CPU_COMMON_H
#define EXEC_CPU_COMMON_H

typedef uintptr_t ram_addr_t;

#endif
