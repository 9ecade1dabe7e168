/*
 * vCPUs that only have what can slow them down.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef HW_CORE_CPU_H
#define HW_CORE_CPU_H

typedef struct QemuCond QemuCond;

typedef struct CPUState {
    QemuCond *halt_cond;
    bool created;
    bool stop;
    bool stopped;
    struct CPUState *next;
} CPUState;

typedef union run_on_cpu_data {
    int host_int;
} run_on_cpu_data;

#define RUN_ON_CPU_HOST_INT(i) ((run_on_cpu_data) { .host_int = (i) })

typedef void (*run_on_cpu_func)(CPUState *cpu, run_on_cpu_data data);

/* Defined by the test. */
extern CPUState *cpus;
void async_run_on_cpu(CPUState *cpu, run_on_cpu_func func,
                      run_on_cpu_data data);
void process_queued_cpu_work(CPUState *cpu);

#define CPU_FOREACH(cpu) for (cpu = cpus; cpu; cpu = cpu->next)

#endif
