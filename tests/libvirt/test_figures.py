# SPDX-License-Identifier: GPL-2.0-or-later
"""What libvirt and QEMU tell while a migration goes on."""

from __future__ import annotations

import pytest

from .domain import Config, Domain
from .host import Host, HostError
from .migrate import ended, job, migrating, number, release, wait

Hosts = tuple[Host, Host]
MEASURED = "2"  # VIR_DOMAIN_DIRTYRATE_MEASURED

RINGS = pytest.mark.parametrize("ring", (0, 4096), ids=("auto", "ring"))


def dirty_rate(domain: Domain, host: Host) -> dict[str, str]:
    """What domstats says of the last measurement."""
    lines = host.virsh("domstats", "--dirtyrate", domain.name).splitlines()
    return dict(
        line.strip().removeprefix("dirtyrate.").split("=")
        for line in lines
        if "=" in line
    )


def measure(domain: Domain, host: Host, mode: str, seconds: int) -> None:
    """Begin to measure the dirty rate."""
    host.virsh(
        "domdirtyrate-calc", domain.name, f"--seconds={seconds}",
        f"--mode={mode}",
    )


@pytest.mark.parametrize(
    "ring,mode",
    [
        (0, "page-sampling"),
        (0, "dirty-bitmap"),
        pytest.param(4096, "page-sampling", marks=pytest.mark.soak),
        (4096, "dirty-ring"),
    ],
    ids=lambda value: {0: "auto", 4096: "ring"}.get(value, value),
)
def test_dirty_rate(hosts: Hosts, ring: int, mode: str) -> None:
    """It is measured while a migration begins and goes on.

    libvirt begins no measurement in a migration, so this one comes first.
    """
    source = hosts[0]
    with Domain(Config(ring=ring), *hosts) as domain:
        domain.wait_writing(source)
        measure(domain, source, mode, 3)
        with migrating(domain, *hosts) as process:
            wait(
                "measured",
                lambda: dirty_rate(domain, source)["calc_status"] == MEASURED,
            )
            told = dirty_rate(domain, source)
            assert told["calc_mode"] == mode
            assert float(told["megabytes_per_second"]) > 0
            release(domain, source)
            assert ended(process)[0] == 0
        domain.wait_writing(hosts[1])


@pytest.mark.parametrize(
    "ring,mode,said",
    [
        (0, "dirty-ring", "requires dirty-ring feature"),  # libvirt's words
        (4096, "dirty-bitmap", "is not enabled, use other method"),  # QEMU's
    ],
)
def test_wrong_mode(hosts: Hosts, ring: int, mode: str, said: str) -> None:
    """A mode that takes another mechanism is refused."""
    with Domain(Config(ring=ring), *hosts) as domain:
        with pytest.raises(HostError, match=said):
            measure(domain, hosts[0], mode, 1)


@RINGS
def test_job(hosts: Hosts, ring: int) -> None:
    """domjobinfo moves on, and our figures are there for each round."""
    source, target = hosts
    with Domain(Config(ring=ring), *hosts) as domain:
        domain.wait_writing(source)
        with migrating(domain, *hosts) as process:
            first = job(domain, source)
            assert first["Operation"] == "Outgoing migration"
            assert number(first["Memory total"]) >= domain.config.mib
            least = int(first["Iteration"]) + 2
            wait(
                "two rounds more",
                lambda: int(job(domain, source)["Iteration"]) >= least,
            )
            later = job(domain, source)
            for name in ("Data processed", "Time elapsed", "Normal pages"):
                assert number(later[name]) > number(first[name])
            assert number(later["Dirty rate"]) > 0
            told = domain.qmp(source, "query-dirty-tracking")
            assert [one["round"] for one in told["rounds"]][0] == 1
            assert all(one["pages"] > 0 for one in told["rounds"][1:])
            release(domain, source)
            assert ended(process)[0] == 0
        arrived = target.virsh("domjobinfo", domain.name, "--completed")
        assert "Completed" in arrived
