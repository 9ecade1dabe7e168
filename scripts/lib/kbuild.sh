# SPDX-License-Identifier: GPL-2.0-or-later
# Sourced after common.sh by what builds something out of Linux's source: where
# that is, how kbuild is called, and whether there is anything to do.
# shellcheck shell=bash

# kbuild does not ask for the headers of the system when it compiles programs for
# the host, so that ccache has to look for itself.
compilers=("CC=$root/scripts/lib/ccache-gcc" 'HOSTCC=env -u CCACHE_DEPEND ccache gcc')
kbuild_options=(
    "${compilers[@]}"
    KBUILD_BUILD_TIMESTAMP=@1700000000 KBUILD_BUILD_VERSION=1
    KBUILD_BUILD_USER=fdt KBUILD_BUILD_HOST=lab
)
quiet=no
step_of=kbuild_step

kernel_kinds() {
    sed '/^#/d; s/ .*//' "$root/lab/kernels"
}

# fragments_of KIND: the files of its configuration, that of the release last.
fragments_of() {
    local release=$root/lab/configs/linux-$linux_hooks_fit.config
    sed -n "s/^$1 //p" "$root/lab/kernels" | tr ' ' '\n' | sed "s,.*,$root/lab/configs/&.config,"
    [ ! -e "$release" ] || printf '%s\n' "$release"
}

# The sources that our code is in, relative to KVM's Makefile: our own, and Linux's
# that have headers of ours.
sources_of_ours() {
    cd "$root/host-kernel/arch/x86/kvm"
    find . -name '*.c' -printf '%P\n'
    find ../../../virt/kvm -name '*.c'
    printf '%s\n' mmu/mmu.c mmu/tdp_mmu.c
}

# line_options KIND: has kbuild note the lines of these, in vmlinux only:
# tests/lab/reached.py looks for them.
line_options() {
    is_stock "$1" || sources_of_ours | sed 's/\(.*\)\.c$/CFLAGS_\1.o=-g1/'
}

is_stock() {
    [[ $1 = stock* ]]
}

# fingerprint KIND [DIR...]: all that decides what comes out, but for what is
# below host-kernel/DIR.  A look at a few dozen files tells that there is
# nothing to do.
fingerprint() {
    local kind=$1 paths=("$root/host-kernel") but=() dir fragments
    local series=${FDT_LINUX_SERIES:-$root/host-kernel/patches/linux-$linux_hooks_fit}
    {
        cat "$build/src/linux-stock.stamp" "$0" "${BASH_SOURCE[0]}" "$root/scripts/lib/ccache-gcc"
        readlink -f "$linux_stock"
        stat -c %Y "$linux_stock"
        gcc --version | head -n 1
        mapfile -t fragments < <(fragments_of "$kind")
        cat "${fragments[@]}"
        if ! is_stock "$kind"; then
            [ ! -d "$series" ] || paths+=("$series")
            for dir in "${@:2}"; do
                but+=(! -path "$root/host-kernel/$dir/*")
            done
            find "${paths[@]}" -type f ! -name '*~' ! -name '.*' "${but[@]}" -print0 |
                sort -zu | xargs -0 sha256sum
        fi
    } | sha256sum | cut -d' ' -f1
}

# assemble_source KIND: sees to the source of that kernel, and sets source.
assemble_source() {
    source=$linux_stock
    if ! is_stock "$1"; then
        "$root/scripts/assemble-linux"
        source=$linux_assembled
    fi
}

kbuild() {
    local tree=$1
    shift
    make -C "$tree" O=obj ${JOBS:+-j "$JOBS"} "${kbuild_options[@]}" "$@"
}

# is_built DIR FILE WANTED: whether DIR/FILE was made from what there is now.
is_built() {
    [ -e "$1/$2" ] && [ "$(cat "$1/.made-from" 2>/dev/null)" = "$3" ] || return 1
    [ "$quiet" = yes ] || say "$1/$2 is up to date"
}

finished() {
    printf '%s\n' "$3" >"$1/.made-from"
    [ "$quiet" = yes ] || say "built $1/$2"
}

# Checks what is needed, and sees to Linux as it comes.
begin_linux() {
    check_jobs
    : "${JOBS:=$(nproc)}"
    PATH=/usr/bin:/bin:/usr/sbin:/sbin
    need ccache gcc make flex bison bc lz4
    use_ccache
    "$root/scripts/get-linux"
}

# build_if_needed TEST BUILD [ARG]: one at a time builds something out of
# Linux, and what is up to date need not wait for it.
build_if_needed() {
    ! "$1" "${@:3}" || return 0
    lock linux
    ! "$1" "${@:3}" || return 0
    "$2" "${@:3}"
}
