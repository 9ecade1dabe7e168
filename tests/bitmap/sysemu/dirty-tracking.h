/*
 * Whether clears find pages; the test says so.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSEMU_DIRTY_TRACKING_H
#define SYSEMU_DIRTY_TRACKING_H

bool dirty_tracking_clear_publishes(void);

#endif
