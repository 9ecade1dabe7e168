# SPDX-License-Identifier: GPL-2.0-or-later
"""Migrations between QEMUs of two releases, or of ours and Debian's."""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import pytest

from tests.lab.lab import ROOT, must
from tests.migration.cases import HELD, migrate_identical
from tests.migration.guest import BUILD
from tests.migration.test_stock_peer import guest
from tests.migration.vm import (DEBIANS, LOG, OURS, Mechanism, Qemu,
                                kvm_usable, pair, qemu)
from tests.releases import OWN

# The machine's own release, and the others.
BUILDS = (BUILD, *sorted(BUILD.glob("debian-*")))
RING = Mechanism(4096)
PEERS = DEBIANS[OWN]

# Each way has a machine of its own.
each_way = pytest.mark.parametrize(
    "back,machine", [(False, "pc-i440fx"), (True, "pc-q35")],
    ids=("there", "back"))


def ours(build: Path) -> Qemu:
    """Our QEMU of a release."""
    if not kvm_usable():
        pytest.skip("/dev/kvm cannot be used on this host")
    built = qemu(str(build / "qemu" / OURS.name))
    assert built.patched and len(BUILDS) > 1
    return built


@functools.lru_cache(maxsize=None)
def versions(binary: Qemu, machine: str) -> set[tuple[int, int]]:
    """The versions that BINARY has of MACHINE."""
    known = subprocess.run([binary.path, "-machine", "help"], check=True,
                           capture_output=True, text=True).stdout
    return {(int(major), int(minor)) for major, minor in
            re.findall(rf"^{machine}-(\d+)\.(\d+) ", known, re.M)}


def newest(one: Qemu, other: Qemu, machine: str) -> str:
    """The newest type of MACHINE that both have."""
    major, minor = max(versions(one, machine) & versions(other, machine))
    return f"{machine}-{major}.{minor}"


def take_over(one: Qemu, other: Qemu, machine: str) -> None:
    """A guest moves, and to another mechanism if both QEMUs are ours."""
    mechanisms = (RING, LOG) if one.patched else (LOG, RING)
    machine = newest(one, other, machine)
    with pair(*(guest(binary, mechanism, machine) for binary, mechanism
                in zip((one, other), mechanisms))) as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst, HELD)


@each_way
@pytest.mark.parametrize("build", BUILDS[1:], ids=lambda path: path.name)
def test_between(build: Path, back: bool, machine: str) -> None:
    """Each of ours takes over a guest of the other."""
    pair_of_ours = ours(BUILD), ours(build)
    take_over(*(reversed(pair_of_ours) if back else pair_of_ours), machine)


@each_way
@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("build", BUILDS, ids=lambda path: path.name)
def test_peer(build: Path, peer: str, back: bool, machine: str) -> None:
    """So do ours of each release and Debian's QEMU of any."""
    mine = ours(build)
    if peer != "stock":
        must([ROOT / "scripts/get-packages", peer])
    one, other = (qemu(peer), mine) if back else (mine, qemu(peer))
    take_over(one, other, machine)
