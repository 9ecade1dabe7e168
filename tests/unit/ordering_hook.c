/*
 * The hook that ordering_hook.h calls.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "ordering_hook.h"

void (*ordering_hook)(void);
