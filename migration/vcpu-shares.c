/*
 * How much of the time each vCPU may run.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <math.h>

#include "vcpu-shares.h"

void vcpu_shares_age(VcpuShare *vcpus, size_t n, double elapsed, double kept)
{
    for (size_t i = 0; i < n; i++) {
        vcpus[i].writes *= kept;
        vcpus[i].ran = vcpus[i].ran * kept + elapsed * vcpus[i].run;
    }
}

/* What a vCPU writes in a unit of time while it runs. */
static double vcpu_share_demand(const VcpuShare *vcpu, bool known)
{
    return known ? vcpu->writes / vcpu->ran : 1;
}

static int compare_demands(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/*
 * Returns: the limit at which the @n ascending @demands, cut off there, sum up
 * to @supply; INFINITY if @supply is enough for all of them.
 */
static double vcpu_shares_limit(const double *demands, size_t n, double supply)
{
    for (size_t i = 0; i < n; i++) {
        double even = supply / (n - i);

        if (demands[i] > even) {
            return even;
        }
        supply -= demands[i];
    }
    return INFINITY;
}

/* Returns: the share of a vCPU that should have @target. */
static double vcpu_share_change(double run, double target,
                                const VcpuShareBounds *bounds)
{
    target = MIN(target, run * bounds->growth);
    target = MAX(target, run - bounds->step);
    return MIN(MAX(target, bounds->least), 1);
}

static bool vcpu_shares_known(const VcpuShare *vcpus, size_t n, double least)
{
    double known = 0;

    for (size_t i = 0; i < n; i++) {
        known += vcpus[i].writes;
    }
    return known > 0 && known >= least;
}

void vcpu_shares_steer(VcpuShare *vcpus, size_t n, double elapsed,
                       double written, double allowed,
                       const VcpuShareBounds *bounds)
{
    g_autofree double *demands = g_new(double, n);
    g_autofree double *sorted = g_new(double, n);
    bool known = vcpu_shares_known(vcpus, n, written * bounds->known);
    double all = 0, limit;

    for (size_t i = 0; i < n; i++) {
        demands[i] = vcpu_share_demand(&vcpus[i], known);
        sorted[i] = demands[i];
        all += demands[i] * vcpus[i].ran / elapsed;
    }
    qsort(sorted, n, sizeof(*sorted), compare_demands);
    limit = written > 0 ?
        vcpu_shares_limit(sorted, n, all * allowed / written) : INFINITY;
    for (size_t i = 0; i < n; i++) {
        vcpus[i].run = vcpu_share_change(
            vcpus[i].run, demands[i] > limit ? limit / demands[i] : 1, bounds);
    }
}
