/*
 * How much of the time each vCPU may run, so that together they write no faster
 * than they should.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * A vCPU that writes less than others is slowed down last, and one that does
 * not write is not slowed down at all: there is one limit for the pages that a
 * vCPU may write, and it holds for those that would exceed it.  The limit is
 * the one at which what all of them write is what it should be (max-min
 * fairness).
 *
 * This file knows nothing of QEMU.
 */

#ifndef MIGRATION_VCPU_SHARES_H
#define MIGRATION_VCPU_SHARES_H

#include <stddef.h>

typedef struct VcpuShare {
    double run;                 /* the share of the time that it may run */
    double writes;              /* known to be its, lately; in any unit */
    double ran;                 /* the same time, multiplied by its shares */
} VcpuShare;

/* Bounds of a change. */
typedef struct VcpuShareBounds {
    double known;               /* part of what was written; see below */
    double least;               /* no vCPU may run less than this; > 0 */
    double step;                /* no share becomes smaller by more than this */
    double growth;              /* nor larger by more than this factor */
} VcpuShareBounds;

/*
 * vcpu_shares_age: @elapsed (in any unit) has gone by since the last call, or
 * since all members but @run were 0.  Of what was before, all members but @run
 * keep only the part @kept.
 */
void vcpu_shares_age(VcpuShare *vcpus, size_t n, double elapsed, double kept);

/*
 * vcpu_shares_steer:
 * @vcpus: the @n vCPUs, whose shares are set
 * @elapsed: the time in which they wrote that much; aged as they were
 * @written: what was found written in that time, in the unit of their writes
 * @allowed: what should have been
 *
 * If no vCPU is known to have written, or they are known for less than the
 * least part in @bounds, all are treated alike.
 */
void vcpu_shares_steer(VcpuShare *vcpus, size_t n, double elapsed,
                       double written, double allowed,
                       const VcpuShareBounds *bounds);

#endif
