/*
 * The top of libkvmdirty: which mechanism is in use, and what the public
 * functions of kvmdirty.h do with it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef KVMDIRTY_ENGINE_H
#define KVMDIRTY_ENGINE_H

#include "mechanism.h"

/* choice.c: which mechanism, and why. */

/* The operations of @mechanism; NULL for KVMD_AUTO. */
const KvmDirtyOps *kvmd_mechanism_ops(KvmDirtyMechanism mechanism);

/*
 * kvmd_choose:
 * @config: asks for a mechanism, which is enabled
 * @option: where it was asked for, as the reason has it
 * @by_name: what kvmd_choice() is if @config asks by name
 *
 * The choice and its reason are noted; the mechanism is not in use yet.
 * Returns: the mechanism, or KVMD_AUTO with @error set and the old reasons
 * kept.
 */
KvmDirtyMechanism kvmd_choose(KvmDirty *kvmd, const KvmDirtyConfig *config,
                              const char *option, KvmDirtyChoice by_name,
                              GError **error);
void kvmd_choice_forget(KvmDirty *kvmd);

/* reaper.c: logging has begun; a ring filled before the reaper came. */
void kvmd_reaper_kick(KvmDirty *kvmd);
void kvmd_reaper_hurry(KvmDirty *kvmd);

/*
 * slot-set.c: publish what is found in all slots, and leave nothing un-armed.
 * Returns: 0 or -errno.
 */
int kvmd_slots_rearm(KvmDirty *kvmd);

/*
 * slot-set.c: end the logging of all slots, of which nothing is un-armed: KVM
 * may refuse to drop the log flag, and its protection then stays as it is.
 * Begin it again; then everything is published.  Or end it for good.
 */
void kvmd_slots_pause(KvmDirty *kvmd);
void kvmd_slots_resume(KvmDirty *kvmd);
void kvmd_slots_stop(KvmDirty *kvmd);

#endif
