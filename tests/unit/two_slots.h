/*
 * A patched KVM with a slot in each of two address spaces, and a vCPU.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef TWO_SLOTS_H
#define TWO_SLOTS_H

#include "rig.h"

#define OTHER (1 << 16 | 3)     /* a slot of another address space */
#define OTHER_PAGES 77

static RigVcpu *the_vcpu;

/* Slot 0 has @pages pages; both are logged.  Each page published was logged. */
static Rig *two_slots_new(KvmDirtyMechanism mechanism, uint64_t pages)
{
    Rig *r = rig_new_patched(mechanism);

    r->exact = true;
    the_vcpu = rig_vcpu(r, 0);
    rig_add(r, 0, pages, true);
    rig_add(r, OTHER, OTHER_PAGES, true);
    return r;
}

static void two_slots_free(Rig *r)
{
    rig_vcpu_free(the_vcpu);
    rig_free(r);
}

static RigBlock *block(Rig *r, uint32_t slot_id)
{
    return r->at[slot_id >> 16][slot_id & 0xffff];
}

#endif
