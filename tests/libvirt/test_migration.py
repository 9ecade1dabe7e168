# SPDX-License-Identifier: GPL-2.0-or-later
"""Live migration in each way that virsh has."""

from __future__ import annotations

from .domain import Config, Domain
from .host import Host
from .migrate import migrate_identical


def test_direct(hosts: tuple[Host, Host]) -> None:
    """virsh itself moves the domain from one host to the other."""
    with Domain(Config(), *hosts) as domain:
        domain.wait_writing(hosts[0])
        migrate_identical(domain, *hosts)
