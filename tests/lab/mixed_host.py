# SPDX-License-Identifier: GPL-2.0-or-later
"""One of two hosts between which a guest moves: what runs in the lab.

usage: python -m tests.lab.mixed_host first|second DIR QEMU ACCEL

The guest starts on the first host, moves to the second, and comes back.  Each
host runs it by QEMU, ours or stock, prints which mechanism it has, and leaves
the guest's memory in DIR.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.migration.cases import HELD
from tests.migration.compare import ram_ranges
from tests.migration.guest import RANDOM, Writer
from tests.migration.migrate import (arrive, configure, finish, release,
                                     wait_rounds)
from tests.migration.vm import VM, Config, qemu

PORTS = Path("/sys/class/virtio-ports")
WIRE = "lab.wire"
URI = f"fd:{WIRE}"
ROUNDS = 4

GUEST_MIB = 64
MACHINE = "pc-i440fx-7.2"  # ours may be of a later release than Debian's
LEGS = ("there", "back")
NO_MECHANISM = "none of ours"  # in a QEMU that is not ours


def guest(name: str, accel: str) -> Config:
    """The guest as this host runs it."""
    return Config(qemu(name), accel, MACHINE, mib=GUEST_MIB,
                  writer=Writer(mib=16, cpus=2, pattern=RANDOM))


def memory(directory: Path, leg: str, side: str) -> list[Path]:
    """The files with the memory of one side, one for each range."""
    return [directory / f"{leg}-{side}-{address:x}"
            for address, _ in ram_ranges(GUEST_MIB)]


def open_wire() -> int:
    """Open the port that leads to the other host."""
    ports = [path.parent.name for path in PORTS.glob("*/name")
             if path.read_text().strip() == WIRE]
    return os.open(f"/dev/{ports[0]}", os.O_RDWR)


def keep(vm: VM, directory: Path, leg: str) -> None:
    """Print the mechanism, and save what the other side has to have, too."""
    print(vm.qmp("query-dirty-tracking")["mechanism"]
          if vm.config.qemu.patched else NO_MECHANISM, flush=True)
    for (address, size), path in zip(ram_ranges(GUEST_MIB),
                                     memory(directory, leg, vm.name)):
        vm.save_memory(address, size, path)


def send(vm: VM, wire: int, directory: Path, leg: str) -> None:
    """Migrate a guest that writes to the other host."""
    vm.wait(lambda: all(vm.rates(1.0)), 30, "the guest does not write")
    configure(vm, HELD)
    vm.monitor.send_fd(WIRE, wire)
    vm.qmp("migrate", uri=URI)
    wait_rounds(vm, None, ROUNDS, HELD)
    release(vm, HELD)
    result = finish(vm, None, HELD)
    assert result.rounds >= ROUNDS, result
    print(leg, result, file=sys.stderr)
    # A machine that is switched off would take along what is on its way.
    os.set_blocking(wire, True)
    assert os.read(wire, 1), "the other host has left"
    keep(vm, directory, leg)


def receive(vm: VM, wire: int, directory: Path, leg: str) -> None:
    """Take over the guest, which stays paused."""
    configure(vm, HELD)
    vm.monitor.send_fd(WIRE, wire)
    vm.qmp("migrate-incoming", uri=URI)
    arrive(vm, HELD)
    os.set_blocking(wire, True)
    os.write(wire, b"\n")
    keep(vm, directory, leg)


def first(wire: int, directory: Path, config: Config) -> None:
    """Start the guest, send it, and get it back."""
    with VM("src", config) as vm:
        vm.wait_writing()
        send(vm, wire, directory, "there")
    with VM("dst", config, incoming=True) as vm:
        receive(vm, wire, directory, "back")


def second(wire: int, directory: Path, config: Config) -> None:
    """Get the guest, let it run, and send it back."""
    with VM("dst", config, incoming=True) as vm:
        receive(vm, wire, directory, "there")
        vm.qmp("cont")
        vm.name = "src"
        send(vm, wire, directory, "back")


if __name__ == "__main__":
    {"first": first, "second": second}[sys.argv[1]](
        open_wire(), Path(sys.argv[2]), guest(*sys.argv[3:]))
