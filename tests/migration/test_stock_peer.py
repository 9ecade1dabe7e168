# SPDX-License-Identifier: GPL-2.0-or-later
"""Migration to and from the distribution's QEMU."""

from __future__ import annotations

import pytest

from .cases import HELD, PATCHED, migrate_identical
from .guest import Writer
from .vm import LOG, Config, Mechanism, Qemu, pair

WRITER = Writer(cpus=2)

# Each QEMU since 7.2 has these, whatever its newest are.
MACHINES = {"pc": "pc-i440fx-7.2", "q35": "pc-q35-7.2"}

each_case = pytest.mark.parametrize("mechanism,machine", [
    (LOG, "pc"), (LOG, "q35"), (Mechanism(4096), "pc"),
    *((mechanism, "pc") for mechanism in PATCHED)], ids=str)


def guest(qemu: Qemu, mechanism: Mechanism, machine: str) -> Config:
    """A guest as QEMU starts it, with the firmware that comes with it."""
    return Config(qemu, qemu.accel(mechanism), machine,
                  writer=WRITER, seabios=True)


@each_case
def test_to_stock(ours: Qemu, stock: Qemu, mechanism: Mechanism,
                  machine: str) -> None:
    """The distribution's QEMU takes over a guest of ours."""
    with pair(guest(ours, mechanism, MACHINES[machine]),
              guest(stock, LOG, MACHINES[machine])) as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst, HELD)


@each_case
def test_from_stock(ours: Qemu, stock: Qemu, mechanism: Mechanism,
                    machine: str) -> None:
    """Ours takes over a guest of the distribution's QEMU."""
    with pair(guest(stock, LOG, MACHINES[machine]),
              guest(ours, mechanism, MACHINES[machine])) as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst, HELD)
