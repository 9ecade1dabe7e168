# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains that AppArmor confines, as it does on Debian; in the lab."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.migration.guest import BUILD

from .domain import OURS, Config, Domain
from .guide import APPARMOR, LOCAL, sections
from .host import Host, HostError, share_own, two_hosts
from .migrate import migrate_identical, p2p

Hosts = tuple[Host, Host]
ENABLED = Path("/sys/module/apparmor/parameters/enabled")
IN_LAB = "(fdt@lab)"  # in the version of its kernels, by scripts/lib/kbuild.sh
FILES = BUILD / "apparmor"  # by scripts/get-packages


@pytest.fixture(name="confined")
def fixture_confined(possible: None) -> Iterator[Hosts]:
    """Two hosts with our QEMU below /usr/local; the first has AppArmor.

    Both have one kernel: on another machine its profiles would be replaced.
    """
    if IN_LAB not in Path("/proc/version").read_text():
        pytest.skip("this is not the lab, whose profiles are nobody's")
    if not ENABLED.exists() or ENABLED.read_text().strip() != "Y":
        pytest.skip("this kernel has no AppArmor")
    with two_hosts(FILES / "usr", FILES / "etc/apparmor.d") as hosts:
        own = share_own(hosts, "/usr/local")
        (own / "bin").mkdir()
        shutil.copy(OURS, own / "bin")
        yield hosts


def label(domain: Domain, host: Host) -> str:
    """What confines its QEMU."""
    return (host.root / f"proc/{domain.pid(host)}/attr/current").read_text()


def xml_for_unconfined(domain: Domain, host: Host) -> Path:
    """The file with its XML for a host that confines nobody.

    As both hosts have one kernel, only one of them can have its profile.
    """
    xml = host.virsh("dumpxml", "--migratable", domain.name)
    path = host.dir / "unconfined.xml"
    path.write_text(re.sub(r"<seclabel .*/>", "", xml))
    return path


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
        assert "enforce" in label(domain, one)
        assert domain.mechanism(one) == "dirty-bits"
        xml = str(xml_for_unconfined(domain, one))
        migrate_identical(domain, one, other, "--xml", xml, way=p2p)
        assert label(domain, other).startswith("unconfined")
        migrate_identical(domain, other, one, way=p2p)
        assert "enforce" in label(domain, one)
