/*
 * RCU where nothing is ever replaced.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QEMU_RCU_H
#define QEMU_RCU_H

#define RCU_READ_LOCK_GUARD()
#define qatomic_rcu_read(p) (*(p))

#endif
