# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains that AppArmor confines, as it does on Debian; in the lab."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.migration.guest import BUILD

from .domain import OURS, Config, Domain
from .guide import APPARMOR, LOCAL, sections
from .host import Host, HostError, share_own, two_hosts
from .migrate import leave_confined, migrate_identical, p2p

Hosts = tuple[Host, Host]
FILES = BUILD / "apparmor"  # by scripts/get-packages


@pytest.fixture(name="confined")
def fixture_confined(apparmor: None) -> Iterator[Hosts]:
    """Two hosts with our QEMU below /usr/local; the first has AppArmor.

    Both have one kernel: on another machine its profiles would be replaced.
    """
    with two_hosts(FILES / "usr", FILES / "etc/apparmor.d") as hosts:
        own = share_own(hosts, "/usr/local")
        (own / "bin").mkdir()
        shutil.copy(OURS, own / "bin")
        yield hosts


def test_confined(confined: Hosts) -> None:
    """It starts, and goes and comes, once the profiles allow our QEMU."""
    one, other = confined
    config = Config(emulator=LOCAL)
    with pytest.raises(HostError, match="Permission denied"):
        Domain(config, *confined).__enter__()
    for command in sections()[APPARMOR]:
        one.run("bash", "-c", command)
    with Domain(config, *confined) as domain:
        domain.wait_writing(one)
        assert domain.mechanism(one) == "dirty-bits"
        leave_confined(domain, one, other)
        migrate_identical(domain, other, one, way=p2p)
        assert "enforce" in domain.label(one)
