# SPDX-License-Identifier: GPL-2.0-or-later
"""Migrations between QEMUs of two releases, or of ours and Debian's."""

from __future__ import annotations

import dataclasses
import functools
import re
import subprocess

import pytest

from tests.lab.lab import ROOT, must
from tests.migration.cases import HELD, migrate_identical
from tests.migration.migrate import Options
from tests.migration.test_stock_peer import guest
from tests.migration.vm import (LOG, STOCKS, Mechanism, Qemu, kvm_usable,
                                pair, qemu)
from tests.releases import OWN

# The machine's own release, and the others.
OURS = ("ours-" + OWN, *(f"ours-{each}" for each in STOCKS if each != OWN))
RING = Mechanism(4096)
PEERS = STOCKS[OWN]

# Each way has a machine of its own, and one of them multifd's channels.
each_way = pytest.mark.parametrize(
    "back,machine,options",
    [(False, "pc-i440fx", dataclasses.replace(HELD, multifd=2)),
     (True, "pc-q35", HELD)],
    ids=("there", "back"))


def ours(name: str) -> Qemu:
    """Our QEMU of a release."""
    if not kvm_usable():
        pytest.skip("/dev/kvm cannot be used on this host")
    built = qemu(name)
    assert built.patched
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


def take_over(one: Qemu, other: Qemu, machine: str, options: Options) -> None:
    """A guest moves, to another mechanism."""
    mechanisms = (RING, LOG) if one.patched else (LOG, RING)
    machine = newest(one, other, machine)
    with pair(*(guest(binary, mechanism, machine) for binary, mechanism
                in zip((one, other), mechanisms))) as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst, options)


@each_way
@pytest.mark.parametrize("other", OURS[1:])
def test_between(other: str, back: bool, machine: str, options: Options
                 ) -> None:
    """Each of ours takes over a guest of the other."""
    both = ours(OURS[0]), ours(other)
    take_over(*(reversed(both) if back else both), machine, options)


@each_way
@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("name", OURS)
def test_peer(name: str, peer: str, back: bool, machine: str,
              options: Options) -> None:
    """So do ours of each release and Debian's QEMU of any."""
    mine = ours(name)
    if peer != "stock":
        must([ROOT / "scripts/get-packages", peer])
    one, other = (qemu(peer), mine) if back else (mine, qemu(peer))
    take_over(one, other, machine, options)
