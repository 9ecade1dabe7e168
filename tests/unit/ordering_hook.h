/*
 * The engine's ordering.h with a hook before every access to a ring or bitmap.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Given to the compiler with -include, it lets a test have a vCPU write
 * between any two looks of the engine at what KVM logs.  The accesses
 * themselves remain those of ordering.h.
 */

#ifndef ORDERING_HOOK_H
#define ORDERING_HOOK_H

#define gfn_flags ordering_flags
#define gfn_give_back ordering_give_back
#define gfn_slot ordering_slot
#define gfn_offset ordering_offset
#define bitmap_take ordering_bitmap_take
#include "ordering.h"
#undef gfn_flags
#undef gfn_give_back
#undef gfn_slot
#undef gfn_offset
#undef bitmap_take

/*
 * Called, if set, before the engine looks at or gives back an entry, or takes
 * a word of a bitmap or of a summary.
 */
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

static inline uint64_t bitmap_take(uint64_t *word)
{
    ordering_before();
    return ordering_bitmap_take(word);
}

#endif
