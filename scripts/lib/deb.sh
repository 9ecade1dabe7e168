# SPDX-License-Identifier: GPL-2.0-or-later
# Sourced after common.sh by what makes Debian packages: what they take, and which
# version they have.
# shellcheck shell=bash

deps='scripts/deps --deb'

# time_of_ours OPTION...: the time of the newest commit, or of a file that one of the
# options names, if that is newer; the present, if these do not have all that decides
# what is built.
time_of_ours() {
    local changes option files=()
    changes=$(git_here status --porcelain 2>/dev/null) || changes=unknown
    for option in "$@"; do
        if [ -f "${!option-}" ]; then
            files+=("${!option}")
        else
            changes+=${!option-}
        fi
    done
    if [ -n "$changes" ]; then
        date +%s
    else
        {
            git_here log -1 --format=%ct
            [ "${#files[@]}" -eq 0 ] || stat -L -c %Y "${files[@]}"
        } | sort -n | tail -n 1
    fi
}

# debians_own OPTION: refuses a source of which nobody knows Debian's version.
debians_own() {
    [ -z "${!1-}" ] ||
        die "$1=${!1} has no version of Debian's; unset $1 to make a package"
}

# deb_version STAMP TIME: Debian's version with our time behind it.  It is newer than
# Debian's own, and older than Debian's next one.
deb_version() {
    printf '%s+fdt%s\n' "${1#Debian }" "$(date --utc --date="@$2" +%Y%m%d%H%M)"
}

# Who builds a package stands for it: as for kbuild's packages.
maintainer() {
    local name=${DEBFULLNAME-} email=${DEBEMAIL-}
    [ -n "$name" ] || name=$(git_here config user.name) || name=$(id -un)
    [ -n "$email" ] || email=$(git_here config user.email) || email=$(id -un)@$(hostname -f)
    printf '%s <%s>\n' "$name" "$email"
}
