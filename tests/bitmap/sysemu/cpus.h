/*
 * What else a vCPU is asked to do.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSEMU_CPUS_H
#define SYSEMU_CPUS_H

#include "hw/core/cpu.h"

/* Defined by the test. */
bool cpu_work_list_empty(CPUState *cpu);

#endif
