# SPDX-License-Identifier: GPL-2.0-or-later
"""Migrations between our QEMU of one release and that of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.lab import ROOT, must
from tests.migration.cases import HELD, migrate_identical
from tests.migration.guest import BUILD
from tests.migration.test_stock_peer import MACHINES, guest
from tests.migration.vm import (LOG, OURS, Mechanism, Qemu, kvm_usable, pair,
                                qemu)

# The machine's own release, and the others.
BUILDS = (BUILD, *sorted(BUILD.glob("debian-*")))
RING = Mechanism(4096)


def binaries() -> list[Qemu]:
    """Our QEMU of each release."""
    if not kvm_usable():
        pytest.skip("/dev/kvm cannot be used on this host")
    built = [qemu(str(path / "qemu" / OURS.name)) for path in BUILDS]
    assert len(built) > 1 and all(each.patched for each in built)
    return built


def take_over(one: Qemu, other: Qemu, machine: str) -> None:
    """A guest moves, to another mechanism if the other QEMU has one."""
    with pair(guest(one, RING if one.patched else LOG, machine),
              guest(other, LOG, machine)) as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst, HELD)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("back", (False, True), ids=("there", "back"))
def test_between(back: bool, machine: str) -> None:
    """Each takes over a guest of the other."""
    one, other = reversed(binaries()) if back else binaries()
    take_over(one, other, machine)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("back", (False, True), ids=("there", "back"))
@pytest.mark.parametrize("build", BUILDS, ids=lambda path: path.name)
def test_next(build: Path, back: bool, machine: str) -> None:
    """So do ours and Debian's QEMU of the next release."""
    ours = binaries()[BUILDS.index(build)]
    must([ROOT / "scripts/get-packages", "next"])
    newest = qemu("next")
    one, other = (newest, ours) if back else (ours, newest)
    take_over(one, other, machine)
