/*
 * The engine's ordering.h with a hook before every access to a ring.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Given to the compiler with -include, it lets a test have a vCPU fill
 * entries between any two looks of the engine at a ring.  The accesses
 * themselves remain those of ordering.h.
 */

#ifndef ORDERING_HOOK_H
#define ORDERING_HOOK_H

#define gfn_flags ordering_flags
#define gfn_give_back ordering_give_back
#define gfn_slot ordering_slot
#define gfn_offset ordering_offset
#include "ordering.h"
#undef gfn_flags
#undef gfn_give_back
#undef gfn_slot
#undef gfn_offset

/* Called, if set, before the engine looks at or gives back an entry. */
extern void (*ordering_hook)(void);

static inline void ordering_before(void)
{
    if (ordering_hook) {
        ordering_hook();
    }
}

static inline uint32_t gfn_flags(const struct kvm_dirty_gfn *gfn)
{
    ordering_before();
    return ordering_flags(gfn);
}

static inline void gfn_give_back(struct kvm_dirty_gfn *gfn)
{
    ordering_before();
    ordering_give_back(gfn);
}

static inline uint32_t gfn_slot(const struct kvm_dirty_gfn *gfn)
{
    ordering_before();
    return ordering_slot(gfn);
}

static inline uint64_t gfn_offset(const struct kvm_dirty_gfn *gfn)
{
    ordering_before();
    return ordering_offset(gfn);
}

#endif
