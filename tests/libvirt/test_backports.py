# SPDX-License-Identifier: GPL-2.0-or-later
"""A newer peer: libvirt and QEMU of bookworm-backports."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.migration.guest import ROOT, Writer
from tests.migration.vm import BACKPORTS, STOCK
from tests.releases import CHOSEN

from .domain import OURS, Config, Domain
from .host import Host, two_hosts
from .migrate import ended, migrate_identical, migrating, p2p, release
from .test_domain import LACKING, lacking

Hosts = tuple[Host, Host]

# libvirt takes the two together since 9.4.
PARALLEL_ZSTD = (
    *("--parallel", "--parallel-connections", "2"),
    *("--compressed", "--comp-methods", "zstd", "--comp-zstd-level", "3"),
)

OVERLAY = "mount -t overlay -o lowerdir={usr}:/usr overlay /usr"

NEWER = (11, 3)  # bookworm-backports' libvirt
# How apt says that nobody answers.  Whatever else goes wrong is a fault.
UNREACHABLE = re.compile(
    r"\(E: Failed to fetch \S+ +(Could not (connect|resolve)|"
    r"Temporary failure resolving|Something wicked happened resolving|"
    r"Cannot initiate the connection|Connection (failed|timed out)|"
    r"Unable to connect)"
)


def own_libvirt() -> tuple[int, ...]:
    """The first two numbers of the version of this machine's."""
    said = subprocess.check_output(["libvirtd", "--version"], text=True)
    numbers = re.search(r" (\d+)\.(\d+)\.", said)
    assert numbers, said
    return tuple(map(int, numbers.groups()))


def get_backports() -> None:
    """Fetch its files once, or skip the test if no mirror can be reached."""
    done = subprocess.run(
        [ROOT / "scripts/get-packages", "backports"], capture_output=True,
        text=True, check=False, env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    if UNREACHABLE.search(done.stderr):
        pytest.skip(f"no mirror can be reached: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(name="usr", scope="module")
def fixture_usr(possible: None) -> Path | None:
    """Its files, or nothing if this machine's own libvirt is as new.

    So it is on Debian 13, whose libraries backports for Debian 12 cannot use.
    """
    if own_libvirt() >= NEWER:
        return None
    get_backports()
    subprocess.run(
        ["unshare", "--mount", *OVERLAY.format(usr=BACKPORTS).split()],
        check=True,
    )
    return BACKPORTS


@pytest.fixture(name="newer", scope="module")
def fixture_newer(usr: Path | None) -> Iterator[Hosts]:
    """Two hosts, of which the second one is newer."""
    if usr is None:
        pytest.skip("this machine's libvirt is as new as bookworm-backports'")
    with two_hosts(other_usr=usr) as hosts:
        old, new = (host.virsh("version", "--daemon") for host in hosts)
        version = " {}.{}.".format(*NEWER)
        assert version in new and version not in old
        yield hosts


def test_newer_capabilities(newer: Hosts) -> None:
    """The newer libvirt finds all in ours that it finds in Debian's 10.0."""
    if CHOSEN == "12":
        pytest.skip("Debian's QEMU of that host is of another release")
    assert lacking(newer[1]) <= LACKING


def test_newer_libvirt(newer: Hosts) -> None:
    """Our QEMU goes to a newer libvirt, and comes back."""
    with Domain(Config(), *newer) as domain:
        domain.wait_writing(newer[0])
        migrate_identical(domain, *newer, way=p2p)
        migrate_identical(domain, *newer[::-1], way=p2p)


@pytest.mark.parametrize(
    "machine", ("pc", pytest.param("q35", marks=pytest.mark.soak))
)
def test_newer_qemu(newer: Hosts, machine: str) -> None:
    """A newer QEMU takes over a domain of ours, and ours takes it back."""
    with Domain(Config(machine=machine), *newer) as domain:
        domain.wait_writing(newer[0])
        migrate_identical(domain, *newer, way=p2p, emulator=STOCK)
        migrate_identical(domain, *newer[::-1], way=p2p, emulator=OURS)


def test_ring_to_newer_qemu(newer: Hosts) -> None:
    """With rings, it does; back, it would lose pages as any but ours does."""
    with Domain(Config(ring=4096), *newer) as domain:
        domain.wait_writing(newer[0])
        migrate_identical(domain, *newer, way=p2p, emulator=STOCK)


@pytest.mark.parametrize("ring", (0, 4096), ids=("auto", "ring"))
def test_parallel_zstd(usr: Path | None, ring: int) -> None:
    """Between two newer libvirts, pages are compressed on each connection.

    They are next to nothing then, so it is looked at in the first round.
    """
    config = Config(ring=ring, writer=Writer(mib=96))
    options = (*PARALLEL_ZSTD, "--suspend")
    slowly = ("--bandwidth", "1")
    with (
        two_hosts(usr, other_usr=usr) as hosts,
        Domain(config, *hosts) as domain,
    ):
        domain.wait_writing(hosts[0])
        left = domain.memory(hosts[0])
        with migrating(
            domain, *hosts, *options, hold=slowly, least=1
        ) as process:
            asked = domain.qmp(hosts[0], "query-migrate-parameters")
            assert asked["multifd-compression"] == "zstd"
            assert asked["multifd-channels"] == 2
            release(domain, hosts[0])
            assert ended(process)[0] == 0
        assert left.differing_pages(domain.memory(hosts[1])) == []
