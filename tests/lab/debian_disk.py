# SPDX-License-Identifier: GPL-2.0-or-later
"""A disk with Debian on it: its own kernel, our package of one, and our selftests.

The kernels have a configuration of Debian's, their modules and an initramfs of
their own, as on a host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.libvirt.test_package import newest

from .lab import BUILD_LIMIT, must, selftests
from .test_libvirt import SCRIPTS
from .test_package import debian_suite

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
# The last that init does; a program could not be read from a disk that is off.
POWER_OFF = """\
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

    def start_options(self, version: str, words: str) -> list[str]:
        """QEMU's options: start a kernel without a boot loader."""
        boot = self.files / "boot"
        return ["-kernel", str(boot / f"vmlinuz-{version}"),
                "-initrd", str(boot / f"initrd.img-{version}"), "-append", words]


def find_package(kind: str = "image") -> Path:
    """Return our newest package of the kernel, or of its headers."""
    return newest(f"linux-{kind}-*{OURS}")


def build_package() -> None:
    """Make our packages of the kernel, which can take hours."""
    must([SCRIPTS / "deps", "--deb"])
    must([SCRIPTS / "get-root"])
    must([SCRIPTS / "build-deb-kernel"], 8 * BUILD_LIMIT, KERNEL_FLAVOUR=FLAVOUR)


def make_debian(files: Path, *hooks: str, packages: Sequence[str] = ()) -> None:
    """Make Debian with its own kernel, below FILES; HOOKS are what is done to it then."""
    suite, sources = debian_suite()
    wanted = [f"linux-image-{FLAVOUR}", "initramfs-tools", "kmod", *packages]
    subprocess.run(
        ["unshare", "--mount", "mmdebstrap", "--mode=root"]
        + ["--variant=minbase", f"--include={','.join(wanted)}"]
        + [f"--customize-hook={hook}" for hook in hooks]
        + [suite, files, sources],
        check=True,
    )


def make_files(files: Path, script: str, packages: Sequence[str] = ()) -> None:
    """Make what is on a disk; SCRIPT is what starts in place of init."""
    build_package()
    make_debian(files, f"upload {find_package()} {PACKAGE}",
                f'chroot "$1" dpkg -i {PACKAGE}', packages=packages)
    place = files / PLACE[1:]
    (place / "x86_64").mkdir()
    for program in {line.split()[0] for line in PROGRAMS}:
        shutil.copy(selftests("patched") / program, place / program)
    commands = "".join(f"{PLACE}/{line}\n" for line in PROGRAMS)
    (files / RUN[1:]).write_text(RUN_TEXT + commands)
    init = place / "init"
    init.write_text(script)
    init.chmod(0o755)


def make_file_system(image: Path, files: Path, size: str, offset: int = 0) -> None:
    """Make an ext4 of that SIZE from OFFSET bytes on, with FILES in it."""
    subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-d", files, "-E", f"offset={offset}"]
        + [image, size],
        check=True,
    )
