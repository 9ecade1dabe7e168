/*
 * A virtual machine on the real /dev/kvm, as small as the engine allows.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Its guest has no operating system: each vCPU stamps one page after the
 * other, from the first to the last and again, with the number of the pass.
 * Where there is no memory it stamps into the void (KVM_EXIT_MMIO).
 *
 * The oracle is a migration, as in tests/unit/rig.h: a page is copied to the
 * slot's shadow at the earliest moment the engine allows.
 */

#ifndef VMM_H
#define VMM_H

#include "kvmdirty.h"

#include <pthread.h>
#include <time.h>

#define VMM_SLOTS 3
/* Each has a place of its own in the last 256 bytes of a page. */
#define VMM_VCPUS 32
/* What the program in 64-bit mode can write to. */
#define VMM_USER_GIB 4

typedef struct Vmm Vmm;

typedef struct VmmSlot {
    uint64_t gpa;
    uint64_t pages;
    uint8_t *memory;            /* of a memfd */
    uint8_t *shadow;            /* NULL: there is no oracle */
    bool *pending;              /* published, and perhaps not re-armed */
    bool present;
    bool logged;
} VmmSlot;

typedef struct VmmVcpu {
    Vmm *vmm;
    int id;
    int fd;
    struct kvm_run *run;
    KvmDirtyVcpu *kvmd;
    GThread *thread;
    pthread_t pthread;
    bool stopped;               /* wanted: under vmm->lock, as are these */
    bool quit;
    bool in_kvm;
    uint64_t leaves;            /* how often it has left KVM_RUN */
    unsigned storm;             /* microseconds between signals; 0: none */
    timer_t timer;
} VmmVcpu;

struct Vmm {
    int kvm, vm;
    KvmDirty *kvmd;
    uint8_t *code;
    VmmSlot slots[VMM_SLOTS];
    VmmVcpu vcpus[VMM_VCPUS];
    int n_vcpus;
    bool user;
    GMutex lock;
    GCond changed;
    GMutex copy_lock;
    uint64_t copied;            /* pages, under copy_lock */
    GThread *reaper;
    unsigned storm;             /* for the threads that start */
};

/* False if there is no /dev/kvm to be used. */
bool vmm_possible(void);

/* Why the engine cannot be had with @config: g_free() it; or NULL. */
char *vmm_refusal(const KvmDirtyConfig *config);

/*
 * vCPUs that stand still, and no slot but that of the code.  They run in
 * 32-bit protected mode or, if @user, as an unprivileged program in 64-bit
 * mode, which even a KVM that emulates the rest lets the CPU run: there a
 * store is logged only if its page was re-armed.
 */
Vmm *vmm_new(const KvmDirtyConfig *config, int vcpus, bool user);
void vmm_free(Vmm *m);

/* Slot @n, of @pages at @gpa: set it up once, then have it come and go. */
void vmm_slot_init(Vmm *m, int n, uint64_t gpa, uint64_t pages);
void vmm_slot_set(Vmm *m, int n, bool present, bool logged);
/* One without an oracle, for large memory: what is published is forgotten. */
void vmm_slot_init_bare(Vmm *m, int n, uint64_t gpa, uint64_t pages);
/* Pages of it whose shadow is not what the memory is. */
uint64_t vmm_slot_lost(const VmmSlot *s);

/* A vCPU runs from now on over @pages at @gpa, and stops between two stamps. */
void vmm_vcpu_program(VmmVcpu *v, uint64_t gpa, uint64_t pages);
/* The same, but the first pass begins with page @first. */
void vmm_vcpu_program_from(VmmVcpu *v, uint64_t gpa, uint64_t pages,
                           uint64_t first);
void vmm_vcpu_start(VmmVcpu *v);
void vmm_vcpu_stop(VmmVcpu *v);
void vmm_start(Vmm *m);
void vmm_stop(Vmm *m);
/* Its stamp in a page: the pass in which it was there last. */
uint32_t vmm_vcpu_stamp(const VmmVcpu *v, int slot, uint64_t page);

void vmm_reaper_start(Vmm *m);
void vmm_reaper_stop(Vmm *m);

/* kvmd_sync() or kvmd_slot_sync(), re-arm and copy. */
void vmm_sync(Vmm *m);
void vmm_slot_sync(Vmm *m, int n);
/* kvmd_sync() alone: what is still to be re-armed stays pending. */
void vmm_harvest(Vmm *m);
/* kvmd_switch(), which must succeed. */
void vmm_switch(Vmm *m, KvmDirtyMechanism mechanism);

/* Signals for the calling thread, every @microseconds. */
timer_t vmm_storm(unsigned microseconds);

#endif
