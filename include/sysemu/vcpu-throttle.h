/*
 * vCPUs that run part of the time, each as much as it is told.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * QEMU's cpu-throttle.h has one percentage for all vCPUs, and stops them for up
 * to a second at a time.
 */

#ifndef SYSEMU_VCPU_THROTTLE_H
#define SYSEMU_VCPU_THROTTLE_H

#include "hw/core/cpu.h"

/* A vCPU runs and sleeps once in such a time, if the host lets it. */
#define VCPU_THROTTLE_PERIOD_NS (25 * SCALE_MS)
/* No vCPU sleeps longer than that without a pause. */
#define VCPU_THROTTLE_NAP_MAX_NS (1000 * SCALE_MS)

/*
 * vcpu_throttle_set:
 * @share: the part of the time that @cpu may run, more than 0; 1 means that it
 *         is not slowed down
 *
 * Called with the BQL held.  A vCPU that is asked to stop does so at once.
 */
void vcpu_throttle_set(CPUState *cpu, double share);

/* vcpu_throttle_stop: No vCPU is slowed down; called with the BQL held. */
void vcpu_throttle_stop(void);

/*
 * vcpu_throttle_most:
 * Returns: by how many percent the vCPU that is slowed down most is slowed
 * down; 0 if none is.  Called with the BQL held.
 */
int vcpu_throttle_most(void);

#endif
