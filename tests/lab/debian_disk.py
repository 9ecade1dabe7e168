# SPDX-License-Identifier: GPL-2.0-or-later
"""A disk with Debian on it: its own kernel, our package of one, and our selftests.

The kernels have a configuration of Debian's, their modules and an initramfs of
their own, as on a host.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.image.server import Server
from tests.libvirt.test_package import newest

from .lab import BUILD_LIMIT, ROOT, must, selftests
from .test_libvirt import SCRIPTS
from .test_package import debian_suite

sys.path.append(str(ROOT / "lab"))

from complaints import first_report  # noqa: E402

SECONDS = 600.0

# The configuration with the fewest modules, unless another is asked for.
FLAVOUR = os.environ.get("KERNEL_FLAVOUR", "cloud-amd64")
OURS = "-fdt" if FLAVOUR == "amd64" else f"-fdt-{FLAVOUR}"
PROGRAMS = (
    "dirty_bitmap_fd_test",
    "x86_64/dirty_bits_test",
    "x86_64/eager_page_split_test",
    "x86_64/write_protect_all_test",
    "x86_64/write_protect_race_test -m bits -t 10",
    "x86_64/write_protect_race_test -m shared -t 10",
)
# Where they are on the disk, what runs them, and the package that was installed.
PLACE = "/srv"
RUN = f"{PLACE}/run.sh"
PACKAGE = f"{PLACE}/kernel.deb"
RUN_TEXT = """\
modprobe kvm_amd
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
echo 64 >/proc/sys/vm/nr_hugepages
echo 1 >/proc/sys/vm/overcommit_memory
"""
# GRUB's own place for BIOS, the partition for UEFI, and Debian.
TABLE = """\
label: gpt
start=1MiB, size=1MiB, type=21686148-6449-6E6F-744E-656564454649
start=2MiB, size=62MiB, type=uefi
start=64MiB, size=4096MiB, type=linux
"""
ROOT_MIB, ROOT_SIZE_MIB = 64, 4096
DISK_SIZE = (ROOT_MIB + ROOT_SIZE_MIB + 1) << 20
INIT = f"{PLACE}/init"
WORDS = ("rw console=ttyS0 panic=-1 tsc=reliable no_timer_check mitigations=off "
         f"init={INIT}")
ENDED = "ended with status "
# What starts in place of init.  Its last command is no program, which could not
# be read from a disk that is off.
INIT_TEXT = f"""\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin
uname -r
{{script}}
echo "{ENDED}$?"
sync
echo o >/proc/sysrq-trigger
while :; do :; done
"""


@dataclass(frozen=True)
class Disk:
    """A disk, and the files that it was made of."""

    image: Path
    files: Path

    def kernel(self, ours: bool) -> str:
        """The version of ours, or of Debian's."""
        names = [path.name for path in (self.files / "boot").glob("vmlinuz-*")]
        (name,) = (name for name in names if name.endswith(OURS) is ours)
        return name.removeprefix("vmlinuz-")

    def direct(self, version: str) -> list[str]:
        """QEMU's options: start a kernel without a boot loader."""
        boot = self.files / "boot"
        return ["-kernel", str(boot / f"vmlinuz-{version}"),
                "-initrd", str(boot / f"initrd.img-{version}"),
                "-append", f"root=/dev/vda3 {WORDS}"]

    def server(self, where: Path, options: Sequence[str], cpus: int = 1) -> Server:
        """The machine with this disk; what it says is kept in WHERE."""
        drive = ["-drive", f"file={self.image},format=raw,if=virtio"]
        return Server(where, [*drive, *options], memory="3G", cpus=cpus)


def find_package(kind: str = "image") -> Path:
    """Return our newest package of the kernel, or of its headers."""
    return newest(f"linux-{kind}-*{OURS}")


def build_package() -> None:
    """Make our packages of the kernel, which can take hours."""
    must([SCRIPTS / "deps", "--deb"])
    must([SCRIPTS / "get-root"])
    must([SCRIPTS / "build-deb-kernel"], 8 * BUILD_LIMIT, KERNEL_FLAVOUR=FLAVOUR)


def make_debian(files: Path, *hooks: str, packages: Sequence[str] = ()) -> None:
    """Make Debian with its own kernel, below FILES; then HOOKS are done to it."""
    suite, sources = debian_suite()
    wanted = [f"linux-image-{FLAVOUR}", "initramfs-tools", "kmod", *packages]
    subprocess.run(
        ["unshare", "--mount", "mmdebstrap", "--mode=root"]
        + ["--variant=minbase", f"--include={','.join(wanted)}"]
        + [f"--customize-hook={hook}" for hook in hooks]
        + [suite, files, sources],
        check=True,
    )


def make_files(files: Path, script: str, packages: Sequence[str]) -> None:
    """Make what is on a disk; SCRIPT is run when it starts."""
    build_package()
    make_debian(files, f"upload {find_package()} {PACKAGE}",
                f'chroot "$1" dpkg -i {PACKAGE}', packages=packages)
    place = files / PLACE[1:]
    (place / "x86_64").mkdir()
    for program in {line.split()[0] for line in PROGRAMS}:
        shutil.copy(selftests("patched") / program, place / program)
    commands = "".join(f"{PLACE}/{line}\n" for line in PROGRAMS)
    (files / RUN[1:]).write_text(RUN_TEXT + commands)
    init = files / INIT[1:]
    init.write_text(INIT_TEXT.format(script=script))
    init.chmod(0o755)


def make_image(image: Path, files: Path) -> None:
    """Make a disk with FILES on its last partition."""
    with image.open("wb") as file:
        file.truncate(DISK_SIZE)
    subprocess.run(["sfdisk", "-q", image], input=TABLE, text=True, check=True)
    subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-d", files]
        + ["-E", f"offset={ROOT_MIB << 20}", image, f"{ROOT_SIZE_MIB}M"],
        check=True,
    )


@contextlib.contextmanager
def made_disk(
    where: Path, script: str, packages: Sequence[str] = ()
) -> Iterator[Disk]:
    """Debian with its own kernel, our package and PACKAGES; all in WHERE.

    SCRIPT is run when it starts, and then it switches itself off.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can make other machines")
    disk = Disk(where / "image", where / "files")
    make_files(disk.files, script, packages)
    make_image(disk.image, disk.files)
    yield disk
    shutil.rmtree(where)


def run(machine: Server, version: str) -> str:
    """Wait until the machine has ended its script by itself, with that kernel.

    Returns what it said.
    """
    with machine:
        said = machine.wait_off(SECONDS)
    assert re.search(rf"^{re.escape(version)}$", said, re.M), said
    assert ENDED in said, said
    assert not first_report(said)
    return said
