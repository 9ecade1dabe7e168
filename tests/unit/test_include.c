/*
 * Who links with the engine does not have its headers on the include path.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * In QEMU that would be all files of the target: "engine.h" and "ordering.h"
 * are no names to take from them.
 */

#if __has_include("engine.h") || __has_include("kvmdirty.h")
#error "the engine's directory is on the include path"
#endif

#include <stdio.h>

int main(void)
{
    puts("1..1\nok 1 - include");
    return 0;
}
