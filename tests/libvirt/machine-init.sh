#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# The first process of a machine, in new mount, UTS, IPC, PID and network
# namespaces: a Debian of its own, in whose files it runs libvirtd.
#
# usage: machine-init.sh NAME DIR ROOT CONFINED
#   ROOT has the files, and stays as it is.  DIR has etc/, what the machine has of
#   its own in /etc, and run/, its /run/libvirt; it gets a file pid.  If CONFINED is
#   yes, AppArmor confines the machine's domains.

set -euo pipefail

name=$1 dir=$2 debian=$3 confined=$4
top=$(dirname "$dir")

# /proc is still that of others, and tells by which id it knows this process.
read -r pid _ </proc/self/stat

mkdir "$dir/files"
mount -t tmpfs -o mode=755 tmpfs "$dir/files"
mkdir "$dir/files/"{new,work,root}
cd "$dir/files/root"
mount -t overlay overlay . \
    -o "lowerdir=$debian,upperdir=$dir/files/new,workdir=$dir/files/work"
cd "$dir/files/root"
mount --rbind /dev dev
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p run/libvirt ".$top"
mount --bind "$dir/run" run/libvirt
mount --bind "$top" ".$top"
cp -r "$dir/etc/." etc/
[ "$confined" = no ] || mount -t securityfs securityfs sys/kernel/security

pivot_root . .
umount -l /
cd /
hostname "$name"
ip link set lo up
# As udev has it.
chgrp kvm /dev/kvm
chmod 660 /dev/kvm
if [ "$confined" = yes ]; then
    apparmor_parser --replace --skip-cache \
        /etc/apparmor.d/usr.sbin.libvirtd /etc/apparmor.d/usr.lib.libvirt.virt-aa-helper
fi
echo "$pid" >"$dir/pid"

# In the background, as bash then also waits for QEMUs, which libvirtd leaves to
# process 1.
libvirtd --listen &
wait $!
