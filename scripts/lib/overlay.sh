# SPDX-License-Identifier: GPL-2.0-or-later
# Sourced after common.sh: our own files and the patch series, apart from the tree
# they are for, which is QEMU's or Linux's.
# FDT_SERIES=DIR, FDT_LAB_CPU_SERIES=DIR and FDT_LINUX_SERIES=DIR take the series
# from DIR.
# shellcheck shell=bash

marker=KVM_DIRTY_REPLACES
tmp=
overlay=

# choose_tree qemu | lab-cpu | linux: what the functions below are about, of which
# others use $stock and $assembled.
choose_tree() {
    case $1 in
    qemu)
        tree_name=QEMU
        tree_lock=source
        tree_mark=VERSION
        stock=$qemu_stock
        assembled=$qemu_assembled
        series_option=FDT_SERIES
        series_dir=${FDT_SERIES:-$root/patches/qemu-$qemu_hooks_fit}
        own_root=$root
        own_dirs=(accel include migration softmmu qapi)
        ;;
    lab-cpu)
        tree_name=QEMU
        tree_lock=lab-cpu
        tree_mark=VERSION
        stock=$qemu_stock
        assembled=$lab_cpu_assembled
        series_option=FDT_LAB_CPU_SERIES
        series_dir=${FDT_LAB_CPU_SERIES:-$root/lab-cpu/patches/qemu-$qemu_hooks_fit}
        own_root=$root/lab-cpu
        own_dirs=(configs target)
        ;;
    linux)
        tree_name=Linux
        tree_lock=linux-source
        tree_mark=Makefile
        stock=$linux_stock
        assembled=$linux_assembled
        series_option=FDT_LINUX_SERIES
        series_dir=${FDT_LINUX_SERIES:-$root/host-kernel/patches/linux-$linux_hooks_fit}
        own_root=$root/host-kernel
        mapfile -t own_dirs < <(
            find "$own_root" -mindepth 1 -maxdepth 1 -type d \
                ! -name patches -printf '%f\n' | sort
        )
        ;;
    esac
}

tree_version() {
    case $tree_name in
    QEMU) head -n 1 "$stock/VERSION" ;;
    Linux) linux_version "$stock" ;;
    esac
}

own_files() {
    local dir
    cd "$own_root"
    for dir in "${own_dirs[@]}"; do
        [ ! -d "$dir" ] || find "$dir" -type f ! -name '*~' ! -name '.*' ! -name '*.orig' ! -name '*.rej'
    done
}

# choose_moves: sets moves, sed's commands for paths that QEMU has moved since 7.2:
# softmmu/ in 8.2 and include/sysemu/ in 10.0.
choose_moves() {
    moves=(-e '')
    if [ -d "$stock/system" ]; then
        moves+=(-e 's,^softmmu/,system/,')
    fi
    if [ -d "$stock/include/system" ]; then
        moves+=(-e 's,^\(include/\|#include "\)sysemu/,\1system/,')
    fi
}

copy_own_file() {
    local place
    place=$(sed "${moves[@]}" <<<"$1")
    [ ! -e "$stock/$place" ] ||
        die "$place is one of $tree_name's own files; change it with a patch in $series_dir"
    mkdir -p "$overlay/$(dirname "$place")"
    cp -p "$own_root/$1" "$overlay/$place"
    [ "${#moves[@]}" -eq 2 ] || sed -i "${moves[@]}" "$overlay/$place"
}

copy_own_files() {
    local file moves
    choose_moves
    while read -r file; do
        copy_own_file "$file"
    done < <(own_files)
    copy_linux_headers
}

# What host kernel and QEMU agree on comes to QEMU as its other Linux headers.
copy_linux_headers() {
    local uapi=$own_root/host-kernel/include/uapi
    if [ "$tree_name" = QEMU ] && [ -d "$uapi" ]; then
        mkdir -p "$overlay/linux-headers"
        cp -rp "$uapi/." "$overlay/linux-headers/"
    fi
}

patches() {
    [ -f "$series_dir/series" ] || return 0
    sed -e 's/[[:space:]]*#.*//' -e 's/[[:space:]].*//' -e '/^$/d' "$series_dir/series"
}

touched_by() {
    sed -n -E 's,^(---|\+\+\+) [ab]/([^[:space:]]+).*,\2,p' "$1" | sort -u
}

# apply_patch FILE BASE: only the files a patch names are brought in from BASE:
# the rest of the tree is not at risk.
apply_patch() {
    local patch=$1 base=$2 file
    while read -r file; do
        if [ ! -e "$overlay/$file" ] && [ -e "$base/$file" ]; then
            mkdir -p "$overlay/$(dirname "$file")"
            cp -p "$base/$file" "$overlay/$file"
        fi
        printf '%s\n' "$file" >>"$tmp/touched"
    done < <(touched_by "$patch")
    patch -d "$overlay" -p1 -F0 -f -s --no-backup-if-mismatch -r - \
        <"$patch" >"$tmp/err" 2>&1 ||
        die "the patch ${patch##*/} does not fit $tree_name $(tree_version) ($(grep -m 1 -E 'FAILED|malformed|find file' "$tmp/err" || head -n 1 "$tmp/err")); it must apply without fuzz"
}

# -t because not all of the files are C.  unifdef's exit status is 1 for
# "changed" and 2 for trouble.
strip_replaced() {
    local file status
    while read -r file; do
        [ -f "$overlay/$file" ] && grep -q "$marker" "$overlay/$file" || continue
        status=0
        # unifdef takes "# if" in a comment of QAPI's for a directive.
        [[ $file != *.json ]] || sed -i "/^#ifdef $marker\$/,/^#endif\$/d" "$overlay/$file"
        [[ $file = *.json ]] || unifdef -t -U"$marker" -m "$overlay/$file" 2>"$tmp/err" || status=$?
        [ "$status" -lt 2 ] ||
            die "unifdef cannot strip $file ($(head -n 1 "$tmp/err")); every #ifdef $marker needs its #endif"
        ! grep -q "$marker" "$overlay/$file" ||
            die "$marker is left in $file; it may only be used as '#ifdef $marker' ... '#endif'"
    done < <(sort -u "$tmp/touched")
}

# start_overlay DIR: DIR gets our own files.
start_overlay() {
    overlay=$1
    mkdir "$overlay"
    : >"$tmp/touched"
    copy_own_files
}

# apply_hook NAME: the overlay gets the files that the series' next patch changes.
apply_hook() {
    [ -f "$series_dir/$1" ] ||
        die "$series_dir/series names $1, which is not there; every line must name a file beside it"
    apply_patch "$series_dir/$1" "$stock"
}

# make_overlay DIR: DIR gets our own files and those of the tree's that the series
# changes, as they are after all of it.
make_overlay() {
    local patch
    start_overlay "$1"
    while read -r patch; do
        apply_hook "$patch"
    done < <(patches)
    strip_replaced
}

# begin_overlay qemu | lab-cpu | linux: takes the lock, checks what is needed and makes
# $tmp.
begin_overlay() {
    choose_tree "$1"
    need patch unifdef
    lock "$tree_lock"
    [ -f "$stock/$tree_mark" ] ||
        die "there is no $tree_name source in $stock; scripts/get-${tree_name,,} puts it there"
    [ -z "${!series_option-}" ] || [ -d "${!series_option}" ] ||
        die "$series_option=${!series_option} is not a directory; it must hold a quilt series"
    tmp=$(mktemp -d "$build/src/.assemble.XXXXXX")
    trap 'rm -rf "$tmp"' EXIT
}
