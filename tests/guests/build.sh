#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Usage: build.sh OUT - builds the guest that OUT is called after, whose source is
# next to this script, into image OUT: writer.img of writer.S.
set -eu

if [ $# -ne 1 ]; then
    echo "build.sh: usage: build.sh OUT" >&2
    exit 2
fi

name=$(basename "$1" .img)
source=$(dirname "$0")/$name.S
[ -e "$source" ] || source=$(dirname "$0")/$name.c
work=$(mktemp -d "${TMPDIR:-/tmp}/$name.XXXXXX")
trap 'rm -rf "$work"' EXIT

# All of a guest is one piece, in its order, of what any i386 can do.
"${CC:-gcc}" -m32 -march=i386 -mgeneral-regs-only -O1 -Wall -Wextra -Werror \
    -ffreestanding -fno-pic -fno-stack-protector -fno-toplevel-reorder \
    -fno-zero-initialized-in-bss -fno-asynchronous-unwind-tables -fcf-protection=none \
    -c -o "$work/$name.o" "$source"
"${LD:-ld}" -m elf_i386 -N --no-warn-rwx-segments -Ttext=0x7c00 -e _start -o "$work/$name.elf" "$work/$name.o"
"${OBJCOPY:-objcopy}" -O binary -j .text -j .rodata -j .data "$work/$name.elf" "$work/$name.img"
# Moved in one step, so that no one ever sees half an image.
mkdir -p "$(dirname "$1")"
cp "$work/$name.img" "$1.$$"
mv "$1.$$" "$1"
