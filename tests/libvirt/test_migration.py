# SPDX-License-Identifier: GPL-2.0-or-later
"""Live migration in each way that virsh has, and memory compared after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.migration.guest import Writer
from tests.migration.vm import STOCK

from .domain import OURS, Config, Domain
from .host import Host
from .migrate import (
    Way,
    assert_only_at,
    direct,
    ended,
    migrate_identical,
    migrating,
    p2p,
    release,
    tunnelled,
    unix,
    wait,
)

Hosts = tuple[Host, Host]
WAYS = (direct, p2p, tunnelled, unix)
PARALLEL = ("--parallel", "--parallel-connections", "2")
COMPRESSED = ("--compressed", "--comp-methods", "xbzrle")
AUTO, RING = 0, 4096
TWO_CPUS = Writer(cpus=2)

# The first pass goes so slowly that the guest writes a fifth of its pages in it,
# and what is left after it keeps postcopy going for seconds, for virsh to see.
SLOWLY = ("--bandwidth", "2", "--postcopy-bandwidth", "1")
POSTCOPY = ("--postcopy", "--postcopy-after-precopy")
# Ours may be of a later release than the host's.
BOTH_HAVE = "pc-i440fx-7.2"
PASS_SECONDS = 20.0

soak = pytest.mark.soak
NAMES = {AUTO: "auto", RING: "ring"}
each_mechanism = pytest.mark.parametrize("ring", NAMES, ids=NAMES.get)


@pytest.mark.parametrize("way", WAYS)
def test_ways(hosts: Hosts, way: Way) -> None:
    """It does not matter who leads, nor what the pages go through.

    A way may be slow, and what tracks the pages need not slow the guest down.
    """
    with Domain(Config(writer=Writer(mib=8)), *hosts) as domain:
        domain.wait_writing(hosts[0])
        migrate_identical(domain, *hosts, way=way)


@pytest.mark.parametrize(
    "ring,options",
    [
        (AUTO, ("--auto-converge",)),
        (AUTO, ("--bandwidth", "1000")),
        (RING, PARALLEL),
        (RING, COMPRESSED),
        pytest.param(RING, ("--auto-converge",), marks=soak),
        pytest.param(RING, ("--bandwidth", "1000"), marks=soak),
        pytest.param(AUTO, PARALLEL, marks=soak),
        pytest.param(AUTO, COMPRESSED, marks=soak),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else NAMES[value],
)
def test_options(hosts: Hosts, ring: int, options: tuple[str, ...]) -> None:
    """What an operator asks for, with each mechanism."""
    with Domain(Config(ring=ring, writer=TWO_CPUS), *hosts) as domain:
        domain.wait_writing(hosts[0])
        migrate_identical(domain, *hosts, *options, way=p2p)


@each_mechanism
def test_postcopy(hosts: Hosts, ring: int) -> None:
    """Not one page is old, although the guest went on before it had all.

    libvirt does not let postcopy end paused; so the guest gets slow enough
    that its stamps tell, when it is paused after that, of each page whether
    it is as old as it may be.
    """
    source, target = hosts
    writer = Writer(cpus=2, mib=8)
    with Domain(Config(ring=ring, writer=writer), *hosts) as domain:
        domain.wait_writing(source)
        domain.slow_down(source, PASS_SECONDS)
        with migrating(
            domain, *hosts, *POSTCOPY, hold=SLOWLY, least=1
        ) as process:
            wait(
                "postcopy",
                lambda: source.virsh("domstate", domain.name, "--reason")
                == "paused (post-copy)",
            )
            assert ended(process)[0] == 0
        target.virsh("suspend", domain.name)
        assert_only_at(domain, target, source, "paused")
        assert domain.stale_pages(target) == []


@each_mechanism
def test_to_stock(hosts: Hosts, ring: int) -> None:
    """Debian's QEMU takes over a domain of ours."""
    config = Config(ring=ring, machine=BOTH_HAVE, writer=TWO_CPUS)
    with Domain(config, *hosts) as domain:
        domain.wait_writing(hosts[0])
        migrate_identical(domain, *hosts, emulator=STOCK)


@pytest.mark.parametrize("machine", ("pc", pytest.param("q35", marks=soak)))
def test_from_stock(hosts: Hosts, machine: str) -> None:
    """Ours takes over a domain of Debian's QEMU, as in a roll-out."""
    config = Config(emulator=STOCK, machine=machine, seabios=True)
    with Domain(config, *hosts) as domain:
        domain.wait_writing(hosts[0])
        migrate_identical(domain, *hosts, emulator=OURS)
        assert domain.emulator(hosts[1]) == OURS


@pytest.mark.parametrize(
    "ring,others",
    [(RING, (OURS, OURS)), (AUTO, (STOCK, OURS))],
    ids=("ours", "stock"),
)
def test_ping_pong(hosts: Hosts, ring: int, others: tuple[Path, Path]) -> None:
    """To and fro ten times, each time in another way."""
    config = Config(ring=ring, machine=BOTH_HAVE, writer=TWO_CPUS)
    with Domain(config, *hosts) as domain:
        domain.wait_writing(hosts[0])
        for leg in range(10):
            source, target = hosts if leg % 2 == 0 else hosts[::-1]
            migrate_identical(
                domain,
                source,
                target,
                way=WAYS[leg % len(WAYS)],
                emulator=others[leg % 2],
            )


def test_rounds(hosts: Hosts) -> None:
    """A migration that has gone on for several rounds arrives in the end."""
    source, target = hosts
    with Domain(Config(), *hosts) as domain:
        domain.wait_writing(source)
        left = domain.memory(source)
        with migrating(domain, *hosts, "--suspend") as process:
            release(domain, source)
            assert ended(process)[0] == 0
        assert left.differing_pages(domain.memory(target)) == []


def test_comparison(hosts: Hosts) -> None:
    """A single page that differs is found."""
    with Domain(Config(), *hosts) as domain:
        hosts[0].virsh("suspend", domain.name)
        memory = domain.memory(hosts[0])
        copy = hosts[0].dir / "copy"
        data = bytearray(memory[:])
        data[77 << 12] ^= 1
        copy.write_bytes(data)
        assert memory.differing_pages(type(memory)(copy)) == [77]
