# SPDX-License-Identifier: GPL-2.0-or-later
# Sourced after common.sh: apt with a state of its own in the directory $apt, so
# that nothing of the system's changes.
# shellcheck shell=bash

# repositories CODENAME [OPTION...]: lines of URI and SUITE, where apt has the suite
# under that name.
repositories() {
    apt-get indextargets --format "\$(REPO_URI) \$($1)" "${@:2}" 'Created-By: Packages' 2>/dev/null |
        sort -u
}

# Lines of URI and SUITE: the mirrors of Debian that the machine's own apt uses, as
# apt itself reads them.  Others may have a suite of the same name.  A machine that
# has never looked at its repositories cannot tell.
mirrors() {
    repositories CODENAME 'Origin: Debian' | grep . ||
        repositories RELEASE --no-release-info
}

# source_mirrors SUITE: lines of URI and SUITE, with the updates that belong to it.
# Who mirrors one release of Debian has the others, too.
source_mirrors() {
    local from='(bookworm|trixie)' kinds='(-updates|-security)?'
    case $1 in
    *-backports) kinds='()' ;;
    esac
    mirrors | sed -n -E "s/^(.*) $from$kinds\$/\1 $1\3/p" | sort -u
}

# Makes lines of TYPE, URI and SUITE the only sources.
write_sources() {
    local type uri suite signed=''
    make_dir "$apt/lists/partial"
    make_dir "$apt/cache/archives/partial"
    [ ! -r /usr/share/keyrings/debian-archive-keyring.gpg ] ||
        signed='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] '
    while read -r type uri suite; do
        printf '%s %s%s %s main\n' "$type" "$signed" "$uri" "$suite"
    done >"$apt/sources.list"
    grep -q . "$apt/sources.list"
}

# apt_said LOG: the first error that apt has written there, or warning.
apt_said() {
    grep -m 1 '^E: ' "$1" || grep -m 1 '^W: ' "$1" || echo "see $1"
}

# Nor do the machine's own preferences among suites count for it.
private_apt() {
    apt-get -q \
        -o Dir::Etc::preferences=/dev/null \
        -o Dir::Etc::preferencesparts=/dev/null \
        -o APT::Default-Release= \
        -o Dir::Etc::sourcelist="$apt/sources.list" \
        -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$apt/lists" \
        -o Dir::Cache="$apt/cache" \
        -o APT::Sandbox::User="$(id -un)" \
        "$@"
}

# fetch_packages [--whole] SUITE DIR LOG PACKAGE...: has Debian's packages in DIR/debs,
# and all their files below DIR/root.  The newest of a suite may be in its updates;
# backports are taken only if they are asked for.  With --whole it has all that they
# depend on, too, and takes nothing to be installed already.
fetch_packages() {
    local suite dir log target=() deb
    local fetch=(download)
    if [ "$1" = --whole ]; then
        shift
        fetch=(
            -o Dir::State::status=/dev/null -o Dir::Cache::archives="$2/debs"
            -o APT::Install-Recommends=false -o Debug::NoLocking=true
            --yes --download-only install
        )
    fi
    suite=$1 dir=$2 log=$3
    shift 3
    case $suite in
    *-backports) target=(--target-release "$suite") ;;
    esac
    mkdir -p "$dir/debs/partial" "$dir/root"
    say "fetching $* of $suite"
    (private_apt -o APT::Update::Error-Mode=any update &&
        cd "$dir/debs" &&
        private_apt "${target[@]}" "${fetch[@]}" "$@") >"$log" 2>&1 ||
        die "$* of $suite cannot be fetched ($(apt_said "$log")); a mirror that can be reached has it"
    for deb in "$dir"/debs/*.deb; do
        dpkg -x "$deb" "$dir/root"
    done
}
