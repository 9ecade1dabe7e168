# SPDX-License-Identifier: GPL-2.0-or-later
# Sourced after lib.sh: our own files and the patch series, apart from QEMU.
# FDT_SERIES=DIR takes the series from DIR.
# shellcheck shell=bash

series_dir=${FDT_SERIES:-$root/patches/qemu-7.2}
own_dirs=(accel include migration softmmu qapi)
marker=KVM_DIRTY_REPLACES
tmp=
overlay=

own_files() {
    local dir
    cd "$root"
    for dir in "${own_dirs[@]}"; do
        [ ! -d "$dir" ] || find "$dir" -type f ! -name '*~' ! -name '.*' ! -name '*.orig' ! -name '*.rej'
    done
}

copy_own_files() {
    local file
    while read -r file; do
        [ ! -e "$stock/$file" ] ||
            die "$file is one of QEMU's own files; change it with a patch in $series_dir"
        mkdir -p "$overlay/$(dirname "$file")"
        cp -p "$root/$file" "$overlay/$file"
    done < <(own_files)
}

patches() {
    [ -f "$series_dir/series" ] || return 0
    sed -e 's/[[:space:]]*#.*//' -e 's/[[:space:]].*//' -e '/^$/d' "$series_dir/series"
}

touched_by() {
    sed -n -E 's,^(---|\+\+\+) [ab]/([^[:space:]]+).*,\2,p' "$1" | sort -u
}

# Only the files a patch names are brought in: the rest of QEMU is not at risk.
apply_patch() {
    local patch=$1 file
    [ -f "$series_dir/$patch" ] ||
        die "$series_dir/series names $patch, which is not there; every line must name a file beside it"
    while read -r file; do
        if [ ! -e "$overlay/$file" ] && [ -e "$stock/$file" ]; then
            mkdir -p "$overlay/$(dirname "$file")"
            cp -p "$stock/$file" "$overlay/$file"
        fi
        printf '%s\n' "$file" >>"$tmp/touched"
    done < <(touched_by "$series_dir/$patch")
    patch -d "$overlay" -p1 -F0 -f -s --no-backup-if-mismatch -r - \
        <"$series_dir/$patch" >"$tmp/err" 2>&1 ||
        die "the patch $patch does not fit QEMU $(head -n 1 "$stock/VERSION") ($(grep -m 1 -E 'FAILED|malformed|find file' "$tmp/err" || head -n 1 "$tmp/err")); it must apply without fuzz"
}

# -t because not all of the files are C.  unifdef's exit status is 1 for
# "changed" and 2 for trouble.
strip_replaced() {
    local file status
    while read -r file; do
        [ -f "$overlay/$file" ] && grep -q "$marker" "$overlay/$file" || continue
        status=0
        unifdef -t -U"$marker" -m "$overlay/$file" 2>"$tmp/err" || status=$?
        [ "$status" -lt 2 ] ||
            die "unifdef cannot strip $file ($(head -n 1 "$tmp/err")); every #ifdef $marker needs its #endif"
        ! grep -q "$marker" "$overlay/$file" ||
            die "$marker is left in $file; it may only be used as '#ifdef $marker' ... '#endif'"
    done < <(sort -u "$tmp/touched")
}

# make_overlay DIR [COUNT]: DIR gets our own files and those of QEMU's that the
# series changes, as they are after its first COUNT patches (all of them).
make_overlay() {
    local patch left=${2-1000000}
    overlay=$1
    mkdir "$overlay"
    : >"$tmp/touched"
    copy_own_files
    while read -r patch; do
        [ "$left" -gt 0 ] || break
        left=$((left - 1))
        apply_patch "$patch"
    done < <(patches)
    strip_replaced
}

# Takes the lock, checks what is needed and makes $tmp.
begin_overlay() {
    need patch unifdef
    lock source
    [ -f "$stock/VERSION" ] || die "there is no QEMU source in $stock; scripts/get-qemu puts it there"
    [ -z "${FDT_SERIES-}" ] || [ -d "$FDT_SERIES" ] ||
        die "FDT_SERIES=$FDT_SERIES is not a directory; it must hold a quilt series"
    tmp=$(mktemp -d "$build/src/.assemble.XXXXXX")
    trap 'rm -rf "$tmp"' EXIT
}
