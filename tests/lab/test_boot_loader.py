# SPDX-License-Identifier: GPL-2.0-or-later
"""GRUB starts the packaged host kernel: by BIOS, and by UEFI with Secure Boot.

KERNEL_FLAVOUR=NAME as for test_kernel_package.py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.server import OVMF, Server

from .debian_disk import (
    PLACE,
    POWER_OFF,
    RUN,
    Disk,
    make_file_system,
    make_files,
)
from .lab import ROOT

sys.path.append(str(ROOT / "lab"))

from complaints import first_report  # noqa: E402

PACKAGES = (
    "grub2-common", "grub-pc-bin", "grub-efi-amd64-signed", "shim-signed",
    "dosfstools", "mokutil", "openssl", "sbsigntool",
)
# GRUB's own place for BIOS, and the partition for UEFI; Debian has the rest.
TABLE = """\
label: gpt
start=1MiB, size=1MiB, type=21686148-6449-6E6F-744E-656564454649
start=2MiB, size=62MiB, type=uefi
start=64MiB, size=4096MiB, type=linux
"""
ROOT_AT = 64 << 20
DISK_SIZE = (64 + 4096 + 1) << 20
WORDS = ("rw console=ttyS0 panic=-1 tsc=reliable no_timer_check mitigations=off "
         f"init={PLACE}/init")
PASSWORD = "fdt"
SECONDS = 900.0
ENDED = "ended with status "

# What the machine does depends on what started it: without a boot loader it
# installs GRUB, which is to start Debian's kernel next.
INIT_TEXT = f"""\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin
vars=/sys/firmware/efi/efivars
key=/root/key

install() {{
    mkfs.vfat /dev/vda2
    mkdir -p /boot/efi
    mount /dev/vda2 /boot/efi
    cp /usr/share/grub/default/grub /etc/default/
    cat >>/etc/default/grub <<END
GRUB_TIMEOUT=1
GRUB_TERMINAL=console
GRUB_CMDLINE_LINUX="{WORDS}"
END
    grub-install --target=i386-pc /dev/vda
    grub-install --target=x86_64-efi --no-nvram --uefi-secure-boot \\
        --force-extra-removable
    update-grub
    debian=$(ls /boot/vmlinuz-* | grep -v -e -fdt)
    title='Debian GNU/Linux, with Linux'
    grub-reboot "Advanced options for Debian GNU/Linux>$title ${{debian#*-}}"
}}

import() {{
    openssl req -new -x509 -newkey rsa:2048 -nodes -subj /CN=fdt/ -days 365 \\
        -keyout $key.pem -out $key.crt
    openssl x509 -in $key.crt -outform DER -out $key.der
    mokutil --generate-hash={PASSWORD} >$key.hash
    mokutil --import $key.der --hash-file $key.hash
}}

sign() {{
    sbsign --key $key.pem --cert $key.crt --output "$1" "$1"
}}

step() {{
    uname -r
    case $(uname -r)/$(cat /proc/cmdline) in
    */*BOOT_IMAGE=*) ;;
    *) install; return ;;
    esac
    if [ -d $vars ]; then
        mount -t efivarfs efivarfs $vars
        mokutil --sb-state
        mount -t securityfs securityfs /sys/kernel/security
        cat /sys/kernel/security/lockdown
    fi
    case $(uname -r) in
    *-fdt*) . {RUN}; [ -d $vars ] || sign "/boot/vmlinuz-$(uname -r)" ;;
    *) import ;;
    esac
}}

(set -ex; step)
echo "{ENDED}$?"
{POWER_OFF}"""

pytestmark = pytest.mark.soak


@pytest.fixture(name="disk", scope="module")
def fixture_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    """Debian with its own kernel and ours, and no boot loader yet."""
    if os.geteuid() != 0:
        pytest.skip("only root can make other machines")
    top = tmp_path_factory.mktemp("disk")
    files, image = top / "files", top / "image"
    make_files(files, INIT_TEXT, PACKAGES)
    with image.open("wb") as file:
        file.truncate(DISK_SIZE)
    subprocess.run(["sfdisk", "-q", image], input=TABLE, text=True, check=True)
    make_file_system(image, files, "4096M", ROOT_AT)
    yield Disk(image, files)
    shutil.rmtree(top)


def secure(where: Path) -> list[str]:
    """Options: firmware that starts what Microsoft signed; settings in WHERE."""
    settings = where / "settings.fd"
    if not settings.exists():
        shutil.copy(OVMF / "OVMF_VARS_4M.ms.fd", settings)
    drive = "if=pflash,format=raw,file="
    return ["-machine", "q35,smm=on",
            "-global", "driver=cfi.pflash01,property=secure,value=on",
            "-drive", f"{drive}{OVMF}/OVMF_CODE_4M.secboot.fd,readonly=on",
            "-drive", f"{drive}{settings}"]


def server(where: Path, name: str, disk: Disk, options: list[str]) -> Server:
    """The machine with that disk; what it says is kept by NAME."""
    (where / name).mkdir()
    drive = ["-drive", f"file={disk.image},format=raw,if=virtio"]
    return Server(where / name, drive + options, memory="3G")


def press(machine: Server, *keys: str) -> None:
    """Press keys, one after the other."""
    for key in keys:
        machine.monitor.execute("send-key", keys=[{"type": "qcode", "data": key}])
        time.sleep(1)


def enrol(machine: Server) -> None:
    """Have the firmware's menu take the key that mokutil left for it."""
    machine.wait("Press any key to perform MOK management", SECONDS)
    press(machine, "ret")
    machine.wait("Enroll key from disk", SECONDS)
    press(machine, "down", "ret")
    machine.wait("View key 0", SECONDS)
    press(machine, "down", "ret")
    machine.wait("Enroll the key(s)?", SECONDS)
    press(machine, "down", "ret")
    machine.wait("Password", SECONDS)
    press(machine, *PASSWORD, "ret")
    machine.wait("Reboot", SECONDS)
    press(machine, "ret")
    machine.wait_off(SECONDS)


def ended(machine: Server, version: str) -> str:
    """Wait until that kernel has done its step; returns what it said."""
    with machine:
        said = machine.wait_off(SECONDS)
    assert re.search(rf"^{re.escape(version)}$", said, re.M), said
    assert f"{ENDED}0\n" in said, said
    assert not first_report(said)
    return said


def test_grub(disk: Disk, tmp_path: Path) -> None:
    """It starts ours by itself; Secure Boot refuses it until it is signed."""
    ours, debian = disk.kernel(ours=True), disk.kernel(ours=False)
    firmware = secure(tmp_path)
    direct = disk.start_options(debian, f"{WORDS} root=/dev/vda3")
    ended(server(tmp_path, "install", disk, direct), debian)
    said = ended(server(tmp_path, "import", disk, firmware), debian)
    assert "SecureBoot enabled" in said
    with server(tmp_path, "enrol", disk, firmware) as machine:
        enrol(machine)
    with server(tmp_path, "refused", disk, firmware) as machine:
        machine.wait("bad shim signature", SECONDS)
    ended(server(tmp_path, "sign", disk, []), ours)
    said = ended(server(tmp_path, "signed", disk, firmware), ours)
    assert "SecureBoot enabled" in said and "[integrity]" in said
