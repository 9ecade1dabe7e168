/*
 * What softmmu/vcpu-throttle.c asks about migrations.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_THREADS_H
#define MIGRATION_THREADS_H

bool migration_may_slow_vcpus(void);

#endif
