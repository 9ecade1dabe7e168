/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A CPU that keeps whatever its manual lets it keep: -cpu hostile
 *
 * QEMU's AMD forgets every nested translation at each VMRUN and #VMEXIT, and
 * walks from the root each time.  No processor has to.  This one holds on to
 * what it has read until a flush is asked for, and takes what it holds instead
 * of what is in memory, most of the time and at random.  A hypervisor that
 * passes on it does not depend on the kindness of a CPU.
 *
 * The caches are their CPU's own, and only its thread touches them.
 */

#ifndef TARGET_I386_HOSTILE_H
#define TARGET_I386_HOSTILE_H

#include "cpu.h"

/* What is asked for. */
typedef struct HostileAccess {
    uint64_t addr;
    uint64_t cr3;
    int pg_mode;
    int mmu_idx;
    int ptw_idx; /* by which the tables' own addresses are translated */
    MMUAccessType access;
} HostileAccess;

/* What a walk comes to; prot has PAGE_WRITE only if the page is dirty. */
typedef struct HostileTranslation {
    hwaddr paddr;
    int prot;
    int page_size;
} HostileTranslation;

/*
 * Translates an address to a physical one with what the CPU has cached, or from
 * memory if that does not do.
 *
 * Returns: false if that is not the CPU's business, or if a walk from memory
 * ends in a fault; the caller walks then as any CPU does.
 */
bool hostile_translate(CPUX86State *env, const HostileAccess *to,
                       HostileTranslation *out);

/*
 * What VMRUN does about translations.  @tlb_control is the VMCB's, and @asid
 * the one that the guest's translations are tagged with from now on.
 */
void hostile_vmrun(CPUX86State *env, uint32_t asid, uint8_t tlb_control);

/* The guest that runs has used INVLPG, or written to a control register. */
void hostile_invlpg(CPUX86State *env, uint64_t addr);
void hostile_write_cr(CPUX86State *env, int reg);

/*
 * Whether @interrupt, which the CPU could take now, comes a little later: the
 * guest runs on, and this is asked again.
 */
bool hostile_is_late(CPUX86State *env, int interrupt);

#endif
