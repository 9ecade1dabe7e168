# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/libvirt.md: all its commands, in their order, and what comes of them."""

from __future__ import annotations

import re

import pytest

from tests.migration.guest import ROOT
from tests.migration.vm import STOCK

from .domain import Config, Domain
from .guide import APPARMOR, LOCAL, sections
from .host import Host, share_own
from .migrate import migrating, wait

Hosts = tuple[Host, Host]


class Operator:
    """Who follows the guide, on the host where the domain is."""

    def __init__(self, domain: Domain, hosts: Hosts) -> None:
        self.domain = domain
        self.hosts = hosts
        self.commands = sections()

    @property
    def here(self) -> Host:
        """The host that has the domain."""
        (host,) = (
            host for host in self.hosts
            if self.domain.state(host) == "running"
        )
        return host

    @property
    def there(self) -> Host:
        """The other one."""
        (host,) = (host for host in self.hosts if host is not self.here)
        return host

    def do(self, title: str) -> str:
        """Run what a section says; returns what the last command printed."""
        said = ""
        for command in self.commands.pop(title):
            command = command.replace("qemu+ssh://beta/system", self.there.tcp)
            script = f"cd {self.hosts[0].dir.parent} && {command}"
            if command.startswith("make "):
                script = f"cd {ROOT} && {command}"
            said = self.here.run("bash", "-c", script).stdout
            # virsh succeeds whatever the monitor answers.
            if "qemu-monitor-command" in command:
                refused = re.search(r'"error":|^Error: |unknown command', said,
                                    re.MULTILINE)
                assert not refused, said
        return said


@pytest.fixture(name="fresh_prefix")
def fixture_fresh_prefix(own_hosts: Hosts) -> Hosts:
    """Hosts with an empty /usr/local of their own, which they share."""
    share_own(own_hosts, "/usr/local")
    return own_hosts


def test_guide(fresh_prefix: Hosts) -> None:
    """From Debian's QEMU to ours and back, as the guide has it."""
    hosts = fresh_prefix
    config = Config(emulator=STOCK, persistent=True, seabios=True)
    with Domain(config, *hosts) as domain:
        domain.wait_writing(hosts[0])
        operator = Operator(domain, hosts)
        operator.commands.pop(APPARMOR)  # test_apparmor.py has it
        operator.do("Roll out")
        assert operator.here is hosts[1]
        assert domain.emulator(hosts[1]) == LOCAL
        assert str(LOCAL) in hosts[1].virsh("dumpxml", "--inactive", "guest")
        operator.do("Choose and verify a mechanism")
        assert "dirtyrate.megabytes_per_second=" in operator.do("Measure")
        operator.do("Migrate")
        assert operator.here is hosts[0]
        assert domain.emulator(hosts[0]) == LOCAL
        with migrating(domain, *hosts) as process:
            operator.do("While it goes on")
            assert process.wait() != 0
        wait("gone", lambda: domain.state(hosts[1]) == "absent")
        with migrating(domain, *hosts) as process:
            operator.do("When it does not end")
            assert process.wait() == 0
        assert operator.here is hosts[1]
        operator.do("Roll back")
        assert operator.here is hosts[0]
        assert domain.emulator(hosts[0]) == STOCK
        assert not (hosts[0].root / LOCAL.relative_to("/")).exists()
        assert operator.commands == {}
