# SPDX-License-Identifier: GPL-2.0-or-later
"""GRUB starts the packaged host kernel: by BIOS, and by UEFI with Secure Boot.

KERNEL_FLAVOUR=NAME as for test_kernel_package.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.server import Server, uefi

from .debian_disk import ENDED, RUN, SECONDS, WORDS, Disk, made_disk, run

PACKAGES = (
    "grub2-common", "grub-pc-bin", "grub-efi-amd64-signed", "shim-signed",
    "dosfstools", "mokutil", "openssl", "sbsigntool",
)
PASSWORD = "fdt"
# The firmware's menu: what it says, and the keys that it waits for then.
MENU = (
    ("Press any key to perform MOK management", ["ret"]),
    ("Enroll key from disk", ["down", "ret"]),
    ("View key 0", ["down", "ret"]),
    ("Enroll the key(s)?", ["down", "ret"]),
    ("Password", [*PASSWORD, "ret"]),
    ("Reboot", ["ret"]),
)

# What the machine does depends on what started it: without a boot loader it
# installs GRUB, which is to start Debian's kernel next.
SCRIPT = f"""\
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
    if ! grep -q BOOT_IMAGE= /proc/cmdline; then
        install
        return
    fi
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

(set -ex; step)"""

pytestmark = pytest.mark.soak


@pytest.fixture(name="disk", scope="module")
def fixture_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    """It has no boot loader yet."""
    where = tmp_path_factory.mktemp("disk")
    with made_disk(where, SCRIPT, PACKAGES) as disk:
        yield disk


def secure(where: Path) -> list[str]:
    """Options: firmware that starts what Microsoft signed; settings in WHERE."""
    return ["-machine", "q35,smm=on",
            "-global", "driver=cfi.pflash01,property=secure,value=on",
            *uefi(where, "OVMF_CODE_4M.secboot.fd", "OVMF_VARS_4M.ms.fd")]


def enrol(machine: Server) -> None:
    """Have the firmware's menu take the key that mokutil left for it."""
    for text, keys in MENU:
        machine.wait(text, SECONDS)
        for key in keys:
            machine.monitor.execute(
                "send-key", keys=[{"type": "qcode", "data": key}]
            )
            time.sleep(1)
    machine.wait_off(SECONDS)


def test_grub(disk: Disk, tmp_path: Path) -> None:
    """It starts ours by itself; Secure Boot refuses it until it is signed."""
    ours, debian = disk.kernel(ours=True), disk.kernel(ours=False)
    firmware = secure(tmp_path)

    def server(name: str, options: list[str]) -> Server:
        (tmp_path / name).mkdir()
        return disk.server(tmp_path / name, options)

    def passed(name: str, options: list[str], version: str) -> str:
        said = run(server(name, options), version)
        assert f"{ENDED}0\n" in said, said
        return said

    passed("install", disk.direct(debian), debian)
    assert "SecureBoot enabled" in passed("import", firmware, debian)
    with server("enrol", firmware) as machine:
        enrol(machine)
    with server("refused", firmware) as machine:
        machine.wait("bad shim signature", SECONDS)
    passed("sign", [], ours)
    said = passed("signed", firmware, ours)
    assert "SecureBoot enabled" in said and "[integrity]" in said
