# SPDX-License-Identifier: GPL-2.0-or-later
"""Migrations that fail: the domain goes on at the source, and only there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from .domain import Config, Domain
from .host import Host, HostError, join
from .migrate import (
    Way,
    assert_only_at,
    direct,
    ended,
    migrate,
    migrate_identical,
    migrating,
    p2p,
    tunnelled,
    wait,
)

Hosts = tuple[Host, Host]
AUTO, RING = 0, 4096
soak = pytest.mark.soak


@contextlib.contextmanager
def little_memory(host: Host) -> Iterator[None]:
    """Less than a domain needs, where libvirt keeps that of a shared one."""
    resize = ["mount", "-o", "remount,size={}", "/var/lib"]
    host.run(*(word.format("64M") for word in resize))
    try:
        yield
    finally:
        host.run(*(word.format("50%") for word in resize))


def fails(
    domain: Domain, hosts: Hosts, accident: Callable[[], object], way: Way = p2p
) -> str:
    """Have an accident in the middle of a migration; returns virsh's words."""
    with migrating(domain, *hosts, way=way) as process:
        accident()
        status, said = ended(process)
    assert status != 0, said
    return said


def goes_on(domain: Domain, hosts: Hosts) -> None:
    """Fail unless the domain runs at the source only, and can migrate."""
    source, target = hosts
    wait("target rid of it", lambda: domain.state(target) == "absent")
    assert_only_at(domain, source, target)
    domain.wait_writing(source)
    migrate_identical(domain, *hosts, way=p2p)


@pytest.mark.parametrize(
    "way,ring",
    [
        (direct, AUTO),
        (p2p, RING),
        (tunnelled, AUTO),
        pytest.param(direct, RING, marks=soak),
        pytest.param(p2p, AUTO, marks=soak),
        pytest.param(tunnelled, RING, marks=soak),
    ],
    ids=lambda value: {AUTO: "auto", RING: "ring"}.get(value),
)
def test_abort(hosts: Hosts, way: Way, ring: int) -> None:
    """domjobabort ends a migration, whoever leads it.

    QEMU 7.2 shuts the return path, which has the same socket, before it notes
    that it cancels: what is written in between fails the migration first.
    """
    source = hosts[0]
    with Domain(Config(ring=ring), *hosts) as domain:
        domain.wait_writing(source)
        said = fails(
            domain,
            hosts,
            lambda: source.virsh("domjobabort", domain.name),
            way=way,
        )
        assert "cancel" in said or "Unable to write to socket" in said
        goes_on(domain, hosts)


@pytest.mark.parametrize(
    "ring", (pytest.param(AUTO, marks=soak), RING), ids=("auto", "ring")
)
def test_qemu_killed(hosts: Hosts, ring: int) -> None:
    """The target's QEMU ends."""
    with Domain(Config(ring=ring), *hosts) as domain:
        domain.wait_writing(hosts[0])
        fails(domain, hosts, lambda: domain.kill(hosts[1]))
        goes_on(domain, hosts)


def test_host_killed(own_hosts: Hosts) -> None:
    """The whole target loses its power, and comes back."""
    target = own_hosts[1]
    with Domain(Config(), *own_hosts) as domain:
        domain.wait_writing(own_hosts[0])
        fails(domain, own_hosts, target.stop)
        target.start()
        join(*own_hosts)
        goes_on(domain, own_hosts)


def test_cut(hosts: Hosts) -> None:
    """The connection is cut, and nobody says so to either side."""
    with Domain(Config(), *hosts) as domain:
        domain.wait_writing(hosts[0])
        try:
            fails(domain, hosts, lambda: hosts[0].link("down"))
        finally:
            hosts[0].link("up")
        goes_on(domain, hosts)


def test_no_memory(hosts: Hosts) -> None:
    """The target finds that it has too little memory before anything moves."""
    with Domain(Config(reserved=True), *hosts) as domain:
        domain.wait_writing(hosts[0])
        with little_memory(hosts[1]):
            with pytest.raises(HostError, match="memory"):
                migrate(domain, *hosts)
        goes_on(domain, hosts)


def test_memory_runs_out(hosts: Hosts) -> None:
    """The target's memory is full when half the domain has arrived."""
    with Domain(Config(), *hosts) as domain:
        domain.wait_writing(hosts[0])
        with little_memory(hosts[1]):
            # Which of them depends on who notices first.
            with pytest.raises(
                HostError, match="'migration out'|closed the monitor"
            ):
                migrate(domain, *hosts, way=p2p)
        goes_on(domain, hosts)
