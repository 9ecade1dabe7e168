# SPDX-License-Identifier: GPL-2.0-or-later
"""Which mechanism a domain gets, and how it gets another one."""

from __future__ import annotations

import pytest

from tests.migration.guest import Writer
from tests.migration.vm import best

from .domain import Config, Domain
from .host import Host, HostError
from .migrate import migrate, migrate_identical

Hosts = tuple[Host, Host]
BEST = best()


@pytest.mark.parametrize("size", (1024, 4096, 65536))
def test_ring(hosts: Hosts, size: int) -> None:
    """<dirty-ring> gives rings of its size."""
    with Domain(Config(ring=size), hosts[0]) as domain:
        answer = domain.qmp(hosts[0], "query-dirty-tracking")
        assert (answer["mechanism"], answer["ring-size"]) == ("ring", size)


@pytest.mark.parametrize("best", (BEST.name,))
def test_plain(hosts: Hosts, best: str) -> None:
    """A domain whose XML says nothing has the best of each host it is on."""
    source, target = hosts
    with Domain(Config(shared=False, writer=Writer(mib=8)), *hosts) as domain:
        assert domain.mechanism(source) == best
        assert domain.printed(source, 1)
        migrate(domain, *hosts)
        assert domain.mechanism(target) == best
        assert domain.printed(target, 1)


def test_switch(hosts: Hosts) -> None:
    """The mechanism is switched while the domain runs, and it migrates."""
    source, target = hosts
    with Domain(Config(), *hosts) as domain:
        domain.wait_writing(source)
        domain.qmp(source, "set-dirty-tracking", mechanism="log")
        assert domain.mechanism(source) == "log"
        migrate_identical(domain, *hosts)
        assert domain.mechanism(target) == BEST.name
        domain.qmp(target, "set-dirty-tracking", mechanism="log")
        domain.qmp(target, "set-dirty-tracking", mechanism="auto")
        assert domain.mechanism(target) == BEST.name


def test_no_ring(hosts: Hosts) -> None:
    """A domain without rings cannot get them, and is told so."""
    with Domain(Config(), hosts[0]) as domain:
        with pytest.raises(HostError, match="ring"):
            domain.qmp(hosts[0], "set-dirty-tracking", mechanism="ring")
        assert domain.mechanism(hosts[0]) == BEST.name
