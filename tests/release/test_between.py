# SPDX-License-Identifier: GPL-2.0-or-later
"""Migrations between our QEMU of one release and that of another."""

from __future__ import annotations

import pytest

from tests.migration.cases import HELD, migrate_identical
from tests.migration.guest import BUILD
from tests.migration.test_stock_peer import MACHINES, guest
from tests.migration.vm import LOG, OURS, Mechanism, kvm_usable, pair, qemu

# The machine's own release, and the others.
BUILDS = (BUILD, *sorted(BUILD.glob("debian-*")))
RING = Mechanism(4096)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("back", (False, True), ids=("there", "back"))
def test_between(back: bool, machine: str) -> None:
    """Each takes over a guest of the other, with another mechanism."""
    if not kvm_usable():
        pytest.skip("/dev/kvm cannot be used on this host")
    binaries = [qemu(str(path / "qemu" / OURS.name)) for path in BUILDS]
    assert len(binaries) > 1 and all(each.patched for each in binaries)
    one, other = reversed(binaries) if back else binaries
    with pair(guest(one, RING, machine), guest(other, LOG, machine)
              ) as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst, HELD)
