/*
 * The target's pages.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef CPU_H
#define CPU_H

#define TARGET_PAGE_BITS 12

#endif
