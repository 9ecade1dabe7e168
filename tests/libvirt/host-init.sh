#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The first process of a host, in new mount, UTS, IPC, PID and network
# namespaces: gives it what a machine has of its own, and runs libvirtd.
#
# usage: host-init.sh NAME DIR [USR]
#   DIR has etc/, the host's files in /etc, and run/, its /run/libvirt; it gets
#   a file pid.  If it has apparmor.d/, these profiles are the host's, and
#   enforced.  What is in USR is in the host's /usr.

set -euo pipefail
shopt -s nullglob

name=$1 dir=$2 usr=${3-}

# A directory of the host's own that has all the machine's, so that what is
# replaced in it need not exist there, and nothing is written there.
own() {
    local real=/run/machine$1 entry links=() others=()
    mkdir -p "$real"
    mount --rbind "$1" "$real"
    mount -t tmpfs -o mode=755 tmpfs "$1"
    # Seen from $real a relative link, as os-release, would lead elsewhere.
    for entry in "$real"/*; do
        if [ -L "$entry" ]; then links+=("$entry"); else others+=("$entry"); fi
    done
    [ ${#links[@]} -eq 0 ] || cp -P "${links[@]}" "$1/"
    [ ${#others[@]} -eq 0 ] || ln -s "${others[@]}" "$1/"
}

# /proc is still the machine's, and tells by which id it knows this process.
read -r pid _ </proc/self/stat
mount -t proc proc /proc
mount -t sysfs sysfs /sys
hostname "$name"
ip link set lo up

mount -t tmpfs -o mode=755 tmpfs /run
for directory in /etc /var/lib /var/cache /var/log; do
    own "$directory"
    rm -f "$directory/libvirt"
done
cp -rsf "$dir/etc/." /etc/
mkdir /run/libvirt
mount --bind "$dir/run" /run/libvirt

# The user that Debian's libvirt gives to QEMU must be known, used or not.
for file in passwd group; do
    { cat "/run/machine/etc/$file" && echo "libvirt-qemu:x:0:0::/:"; } >"/run/$file"
    ln -sf "/run/$file" /etc/
done
if [ -n "$usr" ]; then
    mount -t overlay -o "lowerdir=$usr:/usr" overlay /usr
    # Modules fit only the build they belong to.
    for modules in "$usr"/lib/*/libvirt "$usr"/lib/*/qemu; do
        mount --bind "$modules" "/usr${modules#"$usr"}"
    done
fi
if [ -d "$dir/apparmor.d" ]; then
    # AppArmor goes by where a file really is: no links.
    rm -f /etc/apparmor.d
    mkdir /etc/apparmor.d
    mount --bind "$dir/apparmor.d" /etc/apparmor.d
    mount -t securityfs securityfs /sys/kernel/security
    apparmor_parser --replace --skip-cache \
        /etc/apparmor.d/usr.sbin.libvirtd /etc/apparmor.d/usr.lib.libvirt.virt-aa-helper
fi
echo "$pid" >"$dir/pid"

# A machine that has profiles for libvirt would confine this one, too.
run_libvirtd() {
    if [ ! -d "$dir/apparmor.d" ] && grep -qs Y /sys/module/apparmor/parameters/enabled; then
        echo -n 'exec unconfined' >/proc/self/attr/apparmor/exec
    fi
    exec libvirtd --listen
}

# In the background, as bash then also waits for QEMUs, which libvirtd leaves to
# process 1.
run_libvirtd &
wait $!
