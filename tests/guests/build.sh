#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Usage: build.sh OUT - assembles the guest next to this script into image OUT.
set -eu

if [ $# -ne 1 ]; then
    echo "build.sh: usage: build.sh OUT" >&2
    exit 2
fi

source=$(dirname "$0")/writer.S
work=$(mktemp -d "${TMPDIR:-/tmp}/writer.XXXXXX")
trap 'rm -rf "$work"' EXIT

"${CC:-gcc}" -m32 -c -o "$work/writer.o" "$source"
"${LD:-ld}" -m elf_i386 -Ttext=0x7c00 -e _start -o "$work/writer.elf" "$work/writer.o"
"${OBJCOPY:-objcopy}" -O binary -j .text "$work/writer.elf" "$work/writer.img"
# Moved in one step, so that no one ever sees half an image.
mkdir -p "$(dirname "$1")"
cp "$work/writer.img" "$1.$$"
mv "$1.$$" "$1"
