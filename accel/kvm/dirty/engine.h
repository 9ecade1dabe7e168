/*
 * The top layer of libkvmdirty: the choice of the mechanism in use, and the
 * public functions of kvmdirty.h, which call it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef KVMDIRTY_ENGINE_H
#define KVMDIRTY_ENGINE_H

#include "mechanism.h"

/* choice.c: the choice of a mechanism, and its reasons. */

/* The operations of @mechanism; NULL for KVMD_AUTO. */
const KvmDirtyOps *kvmd_mechanism_ops(KvmDirtyMechanism mechanism);

/*
 * kvmd_choose:
 * @config: the mechanism that the user asks for
 * @option: the option with which the user asks, as quoted in the reason
 * @by_name: the value of kvmd_choice() if @config names a mechanism
 *
 * Enable a mechanism, and record the choice and its reason.  The mechanism is
 * not in use yet.
 * Returns: the mechanism, or KVMD_AUTO with @error set and the old reasons
 * kept.
 */
KvmDirtyMechanism kvmd_choose(KvmDirty *kvmd, const KvmDirtyConfig *config,
                              const char *option, KvmDirtyChoice by_name,
                              GError **error);
void kvmd_choice_forget(KvmDirty *kvmd);

/*
 * reaper.c: to be called when logging has begun, and when a ring has filled
 * before the reaper reaped it.
 */
void kvmd_reaper_kick(KvmDirty *kvmd);
void kvmd_reaper_hurry(KvmDirty *kvmd);

/*
 * slot-set.c: harvest and publish all slots, and re-arm every page that is
 * un-armed then.
 * Returns: 0 or -errno.
 */
int kvmd_slots_rearm(KvmDirty *kvmd);

/*
 * slot-set.c: pause ends the logging of all slots, resume begins it again and
 * publishes every page, and stop ends it for good.  No page may be un-armed
 * when pause is called: if KVM refuses to drop the log flag, the pages stay
 * write-protected or writable as they are.
 */
void kvmd_slots_pause(KvmDirty *kvmd);
void kvmd_slots_resume(KvmDirty *kvmd);
void kvmd_slots_stop(KvmDirty *kvmd);

#endif
