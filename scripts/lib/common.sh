# SPDX-License-Identifier: GPL-2.0-or-later
# Sourced by the other scripts: which release is built, where things are, and how
# to fail.
# RELEASE=N takes QEMU and Linux of Debian N; the machine's own is the default.
# shellcheck shell=bash

set -euo pipefail

me=${0##*/}
unset CDPATH # with it, cd would print where it went
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
shared=$(realpath -m "${FDT_BUILD:-$root/build}") # by all releases
cache=${FDT_CACHE:-${XDG_CACHE_HOME:-${HOME:-$shared}/.cache}/fast-dirty-tracking}
python=/usr/bin/python3

# The releases of Debian, each with the versions of QEMU and Linux that the hooks
# fit, the suite that has its package linux-source where that is not installed, and
# the suites that have QEMU's source: the first that can be fetched serves, but on
# that Debian itself only the first one: a later one's is older.
releases=(
    [12]='7.2 6.1 bookworm bookworm'
    [13]='10.0 6.12 trixie trixie bookworm-backports'
)

die() {
    printf '%s: %s\n' "$me" "$*" >&2
    exit 1
}

say() {
    printf '%s: %s\n' "$me" "$*"
}

# QEMU's configure and Linux's Makefile would refuse it, after all else was built.
case $root$shared in
*[[:space:]:]*) die "$root: QEMU and Linux cannot be built below a path with spaces or colons; move the project, and name no such FDT_BUILD" ;;
esac

is_release() {
    [[ $1 =~ ^[1-9][0-9]*$ && -n ${releases[$1]-} ]]
}

# Sets own, the machine's release, and what the wanted one decides.  What is built
# for another one than the machine's own goes into a directory of its own.  On a
# machine whose version is none of the releases, own is 12; scripts/deps refuses it.
choose_release() {
    local names
    # shellcheck source=/dev/null
    debian_version=$(. /etc/os-release 2>/dev/null && printf '%s' "${VERSION_ID-}" || true)
    own=12
    ! is_release "$debian_version" || own=$debian_version
    export RELEASE=${RELEASE:-$own}
    # Who is not told of another one need not find out where that is.
    [ "$RELEASE" != "$own" ] || export -n RELEASE
    printf -v names '%s, ' "${!releases[@]}"
    is_release "$RELEASE" || die "there is nothing for RELEASE=$RELEASE; allowed are ${names%, }"
    read -r qemu_hooks_fit linux_hooks_fit linux_suite qemu_suites <<<"${releases[$RELEASE]}"
    build=$shared
    if [ "$RELEASE" = "$own" ]; then
        qemu_suites=${qemu_suites%% *}
    else
        build=$shared/debian-$RELEASE
    fi
}

choose_release

# git for this checkout, be it somebody else's.
git_here() {
    git --no-optional-locks -c safe.directory="$(realpath "$root")" -C "$root" "$@"
}

# The names of those that were not chosen, in one line.
other_releases() {
    local each others=()
    for each in "${!releases[@]}"; do
        [ "$each" = "$RELEASE" ] || others+=("$each")
    done
    printf '%s\n' "${others[*]}"
}

# For the scripts that are started next.  What the user's variables name is for the
# release that was chosen.
take_release() {
    export RELEASE=$1
    unset QEMU_SRC LINUX_SRC FDT_SERIES FDT_LINUX_SERIES
}

qemu_stock=$build/src/qemu-stock
qemu_assembled=$build/src/qemu
qemu_build=$build/qemu
qemu_deb_build=$build/qemu-deb

lab_cpu_assembled=$build/src/qemu-lab
lab_cpu_build=$shared/lab-cpu

linux_stock=$build/src/linux-stock
linux_assembled=$build/src/linux
linux_build=$build/linux

deps=scripts/deps # and its options, for what a script needs
need() {
    local command
    for command; do
        [ -n "$(type -P "$command")" ] ||
            die "the command $command is missing; $deps installs it"
    done
}

check_prefix() {
    case ${PREFIX:=/usr/local} in
    /*) ;;
    *) die "PREFIX=$PREFIX is not an absolute path; it must begin with /" ;;
    esac
}

make_dir() {
    mkdir -p "$1" 2>/dev/null ||
        die "cannot create the directory $1; its parent must be a directory that you can write"
}

# A lock for the rest of the script, so that two builds of one checkout queue.
lock() {
    local file=$build/lock/$1 owner
    make_dir "$build/lock"
    if ! { : >>"$file"; } 2>/dev/null; then
        owner=$(stat -c %U "$file" 2>/dev/null || stat -c %U "$build/lock")
        die "$file cannot be written; it belongs to $owner: run this as $owner, or remove $build"
    fi
    exec {lock_fd}>"$file"
    if ! flock -n "$lock_fd"; then
        say "waiting for another build of this checkout to finish with $1"
        flock "$lock_fd"
    fi
}

# The cache only saves time, so one that cannot be written is done without.
use_cache() {
    if mkdir -p "$cache/$1" 2>/dev/null && [ -w "$cache/$1" ]; then
        printf '%s\n' "$cache/$1"
    else
        make_dir "$build/cache/$1"
        printf '%s\n' "$build/cache/$1"
    fi
}

# Otherwise ccache runs the preprocessor before each compiler, to know what it looks
# for: a quarter of a build that finds nothing, as on a new machine.  The compiler
# must name all headers (-MD), or those of the system must not matter.
use_ccache() {
    CCACHE_DIR=$(use_cache ccache)
    export CCACHE_DIR CCACHE_DEPEND=1
}

check_jobs() {
    [[ ${JOBS:-1} =~ ^[1-9][0-9]*$ ]] || die "JOBS=$JOBS is not a number of jobs; it must be 1 or more"
}

# The version of the Linux tree in $1, as in 6.1.192; nothing if it is none.
linux_version() {
    { sed -n -E 's/^(VERSION|PATCHLEVEL|SUBLEVEL) = ([0-9]+)$/\2/p' "$1/Makefile" 2>/dev/null || true; } |
        head -n 3 | paste -s -d .
}

# update_tree [--link] BASE OVERLAY TREE: see update_tree.py.
update_tree() {
    local said
    said=$("$python" "$root/scripts/lib/update_tree.py" "$@") ||
        die "${*: -1} could not be updated; the previous tree is still there"
    [ -z "$said" ] || say "$said"
}

# How far a build is: ninja's latest "[n/m]", or what kbuild has made so far.
ninja_step() {
    tail -c 4096 "$1" | grep -ao '^\[[0-9]*/[0-9]*\]' | tail -n 1
}

kbuild_step() {
    printf '[%d objects]' "$(grep -ac '^  \(CC\|AS\) ' "$1")"
}

# end_group PID: returns when no process of the group runs.  A signal only begins a
# process's end: who is told, and does not end within 5 s, is killed.
end_group() {
    local signal
    for signal in TERM KILL; do
        kill -s "$signal" -- "-$1" 2>/dev/null || return 0
        for _ in {1..50}; do
            kill -0 -- "-$1" 2>/dev/null || return 0
            sleep 0.1
        done
    done
}

# run_logged TITLE LOG COMMAND...: the command's output goes to LOG; what is
# shown is $step_of LOG, often on a terminal and seldom elsewhere.  The command and
# all that it starts are a process group: none of it goes on without the lock.
step_of=ninja_step
run_logged() {
    local title=$1 log=$2 pid status=0 step tick=30 start=$SECONDS shown=$SECONDS
    shift 2
    make_dir "$(dirname "$log")"
    [ -t 1 ] && tick=1
    trap 'end_group "$!"; exit 130' INT TERM HUP # "$pid" would be set too late
    set -m
    "$@" >"$log" 2>&1 </dev/null {lock_fd}>&- &
    set +m
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        [ $((SECONDS - shown)) -ge "$tick" ] || continue
        shown=$SECONDS
        step=$("$step_of" "$log" || true)
        if [ -t 1 ]; then
            printf '\r%s: %s %s %ds ' "$me" "$title" "$step" $((SECONDS - start))
        else
            say "$title $step after $((SECONDS - start)) s"
        fi
    done
    wait "$pid" || status=$?
    trap - INT TERM HUP
    [ ! -t 1 ] || printf '\r\033[K'
    if [ "$status" -ne 0 ]; then
        tail -n 30 "$log" >&2
        die "$title failed; the whole log is $log"
    fi
}
lock_fd=9
