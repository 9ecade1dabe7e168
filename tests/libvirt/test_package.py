# SPDX-License-Identifier: GPL-2.0-or-later
"""Packages of our QEMU, from their installation on; in the lab."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.migration.guest import BUILT
from tests.migration.vm import STOCK
from tests.releases import CHOSEN

from .domain import Config, Domain
from .host import HostError
from .machine import Machine, two_machines
from .migrate import leave_confined, migrate_identical, p2p
from .next_version import next_version

Machines = tuple[Machine, Machine]
PACKAGE = "qemu-system-x86-fdt"
PROGRAM = Path("/usr/bin/qemu-system-x86_64-fdt")
# Of Debian's own packages with our patches, those that the machines have.
IN_PLACE = ("qemu-system-x86", "qemu-system-common")
LOCAL = "/etc/apparmor.d/local/abstractions/libvirt-qemu"

# The libvirts of each release: its own, and that of its backports, but for
# trixie's, which changes every few weeks.  Only the oldest reads no directory
# of rules.
OLD = "9.0"
LIBVIRTS = {"12": (OLD, "11.3"), "13": ("11.3",)}
# Each with the Debian that has it, by scripts/get-root.
ROOTS = (BUILT / "root", BUILT / "root-backports")
DEBIANS = dict(zip(LIBVIRTS[CHOSEN], ROOTS))


@pytest.fixture(name="libvirt", params=DEBIANS)
def fixture_libvirt(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(name="machines")
def fixture_machines(apparmor: None, libvirt: str) -> Iterator[Machines]:
    """Two machines with Debian's packages only; the first has AppArmor."""
    with two_machines(DEBIANS[libvirt]) as machines:
        for machine in machines:
            assert f"libvirt {libvirt}." in machine.virsh("version")
        yield machines


def newest(name: str) -> Path:
    """A package of ours, as scripts/build-deb-qemu and build-deb-kernel make."""
    found = (BUILT / "deb").glob(f"{name}_*.deb")
    return max(found, key=lambda path: path.stat().st_mtime)


def change_program(files: Path) -> None:
    """Have the package bring another program."""
    with (files / f".{PROGRAM}").open("ab") as file:
        file.write(b"next")


def install(machines: Machines, *packages: Path) -> None:
    """As an operator does, but that nothing can be fetched."""
    top = machines[0].dir.parent
    own = [top / package.name for package in packages]
    for package, copy in zip(packages, own):
        if copy != package:
            copy.write_bytes(package.read_bytes())
    for machine in machines:
        machine.run("apt-get", "install", "--yes", *own)


def has_own_line(machine: Machine) -> bool:
    """Whether the file of rules that is the administrator's has one of ours."""
    local = machine.root / LOCAL[1:]
    return local.exists() and PACKAGE in local.read_text()


def size(domain: Domain, machine: Machine) -> int:
    """Of the program that runs, replaced or not."""
    return (machine.root / f"proc/{domain.pid(machine)}/exe").stat().st_size


def test_life(machines: Machines, libvirt: str) -> None:
    """Installed, used, upgraded below a domain that runs, and purged."""
    one, other = machines
    before = one.files()
    config = Config(emulator=PROGRAM)
    with pytest.raises(HostError, match=f"{PROGRAM.name}"):
        Domain(config, *machines).__enter__()

    package = newest(PACKAGE)
    install(machines, package)
    assert has_own_line(one) == (libvirt == OLD)
    with Domain(config, *machines) as domain:
        domain.wait_writing(one)
        assert domain.mechanism(one) == "dirty-bits"
        leave_confined(domain, one, other)
        migrate_identical(domain, other, one, way=p2p)

        old = size(domain, one)
        newer = next_version(package, one.dir.parent, change_program)
        install(machines, newer)
        assert size(domain, one) == old
        domain.wait_writing(one)
        leave_confined(domain, one, other)
        assert size(domain, other) == old + len("next")
        migrate_identical(domain, other, one, way=p2p)
        assert "enforce" in domain.label(one)
        assert size(domain, one) == old + len("next")

    one.run("apt-get", "purge", "--yes", PACKAGE)
    assert one.files() == before


def test_in_place_of_debians(machines: Machines) -> None:
    """Debian's own packages with our patches, below a domain that runs."""
    packages = [newest(name) for name in IN_PLACE]
    one, other = machines
    config = Config(emulator=STOCK)
    with Domain(config, *machines) as domain:
        domain.wait_writing(one)
        stock = size(domain, one)
        install(machines, *packages)
        assert size(domain, one) == stock
        leave_confined(domain, one, other)
        assert size(domain, other) != stock
        assert domain.mechanism(other) == "dirty-bits"
        migrate_identical(domain, other, one, way=p2p)
        assert "enforce" in domain.label(one)
        leave_confined(domain, one, other)
