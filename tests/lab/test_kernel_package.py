# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's packages of the host kernel, on machines that start from a disk.

KERNEL_FLAVOUR=NAME names the flavour of Debian's whose configuration they have.
"""

from __future__ import annotations

import lzma
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image import bochs
from tests.image.server import FILES, build_image
from tests.libvirt.next_version import next_version

from .debian_disk import (
    ENDED,
    OURS,
    PACKAGE,
    RUN,
    Disk,
    find_package,
    made_disk,
    make_debian,
    run,
)
from .lab import ROOT
from .test_package import assert_lintian_passes

sys.path.append(str(ROOT / "lab"))

import initramfs  # noqa: E402
import intel  # noqa: E402
from complaints import first_report  # noqa: E402

# For Intel's CPU, in order; the image asks the CPU by the first.
MODULES = ("cpuid", "irqbypass", "kvm", "kvm-intel")

pytestmark = pytest.mark.soak


@pytest.fixture(name="disk", scope="module")
def fixture_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    with made_disk(tmp_path_factory.mktemp("disk"), f"sh -ex {RUN}") as disk:
        yield disk


@pytest.mark.parametrize("kind", ["image", "headers"])
def test_debian_finds_no_errors(disk: Disk, kind: str) -> None:
    assert_lintian_passes(find_package(kind))


def start(disk: Disk, version: str, where: Path) -> str:
    """Start a kernel from the disk, which stays as it is; returns what it said."""
    options = [*disk.direct(version), "-snapshot"]
    return run(disk.server(where, options, cpus=2), version)


def test_amd(disk: Disk, tmp_path: Path) -> None:
    """Our selftests pass on an AMD CPU, with kvm_amd as a module."""
    said = start(disk, disk.kernel(ours=True), tmp_path)
    assert f"{ENDED}0\n" in said, said


def read_module(modules: Path, name: str) -> bytes:
    """A kernel's module, which Debian 13's configuration compresses."""
    (path,) = modules.rglob(f"{name}.ko*")
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content


def insert_modules(disk: Disk, version: str, where: Path) -> Path:
    """An initramfs that comes after the image's, and starts before it."""
    root = where / "root"
    (root / "modules").mkdir(parents=True)
    names = []
    for name in MODULES:
        names.append(f"/modules/{name}.ko")
        modules = disk.files / "lib/modules" / version
        (root / names[-1][1:]).write_bytes(read_module(modules, name))
    start = root / "start"
    # insmod does not look at the kernel's command line, as built-in code does.
    names[-1] += f" {intel.INTERRUPTS.partition('.')[2]}"
    inserts = "".join(f"/usr/sbin/insmod {name}\n" for name in names)
    start.write_text(f"#!/bin/bash\n{inserts}exec /init\n")
    start.chmod(0o755)
    archive = where / "modules.cpio"
    initramfs.make_initramfs(
        archive, root, initramfs.wanted("insmod", []), Path("/modules")
    )
    return archive


def test_intel(disk: Disk, tmp_path: Path) -> None:
    """What the image of `make image` checks passes, with kvm_intel as a module."""
    build_image()
    version = disk.kernel(ours=True)
    content = tmp_path / "cd"
    content.mkdir()
    shutil.copy(disk.files / "boot" / f"vmlinuz-{version}", content / "kernel")
    files = FILES.read_bytes()
    # Linux looks for the next archive at a multiple of four.
    files += bytes(-len(files) % 4)
    modules = insert_modules(disk, version, tmp_path)
    (content / "files").write_bytes(files + modules.read_bytes())
    cd = tmp_path / "cd.iso"
    intel.make_cd(cd, content, "console=ttyS0,115200 console=tty0 rdinit=/start "
                  f"{bochs.WORDS} "
                  "qualify.mode=check qualify.then=off qualify.stick=0")
    said = bochs.run(tmp_path, cd, cpus=2)
    assert f"Linux version {version}" in said
    outcomes = re.findall(r"^qualify: (.+): (pass|skip|fail)$", said, re.M)
    print("\n".join(map(" ".join, outcomes)))
    assert "\nPASS: " in said, said
    assert not first_report(said)


def test_upgrade_and_removal(disk: Disk, tmp_path: Path) -> None:
    """The newer one takes the older one's place; a purge leaves nothing."""
    name = f"linux-image-{disk.kernel(ours=True)}"
    package = find_package()
    look = ('(ls "$1/boot" "$1/lib/modules"; chroot "$1" dpkg-query -W '
            f"-f '${{Status}} ${{Version}}' {name} || true) >{tmp_path}/")
    install = f'chroot "$1" dpkg -i {PACKAGE}'
    files = tmp_path / "files"
    make_debian(
        files, f"{look}before", f"upload {package} {PACKAGE}", install,
        f"{look}older", f"upload {next_version(package, tmp_path)} {PACKAGE}",
        install, f"{look}newer", f'chroot "$1" dpkg --purge {name}',
        f"{look}purged", f'find "$1" -xdev -name "*{OURS}*" >{tmp_path}/left',
    )
    before, older, newer, purged = (
        (tmp_path / name).read_text()
        for name in ("before", "older", "newer", "purged")
    )
    assert OURS not in before and f"initrd.img-{disk.kernel(ours=True)}" in older
    assert newer == f"{older}.1"
    assert purged == before
    assert (tmp_path / "left").read_text() == ""
    shutil.rmtree(files)


def test_stock_kernel_still_starts(disk: Disk, tmp_path: Path) -> None:
    said = start(disk, disk.kernel(ours=False), tmp_path)
    assert f"{ENDED}0\n" not in said, said
