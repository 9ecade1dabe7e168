/*
 * The threads of a migration, which are there for longer than its state says.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "migration/misc.h"
#include "sysemu/dirty-tracking-release.h"
#include "migration.h"
#include "threads.h"

bool migration_goes_on(void)
{
    return !migration_is_idle() ||
           migrate_get_current()->migration_thread_running;
}
