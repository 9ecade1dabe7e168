# SPDX-License-Identifier: GPL-2.0-or-later
"""What the libvirt tests share; conftest is where pytest looks for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.migration.guest import ROOT
from tests.migration.vm import kvm_usable
from tests.soak import pytest_collection_modifyitems, pytest_configure

from .domain import OURS
from .host import Host, impossible, share_own, two_hosts

ENABLED = Path("/sys/module/apparmor/parameters/enabled")
IN_LAB = "(fdt@lab)"  # in the version of its kernels, by scripts/lib/kbuild.sh

__all__ = ["pytest_collection_modifyitems", "pytest_configure"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With a test that fails, show what its hosts run and have said."""
    report = yield
    if report.when == "call" and report.failed:
        both = item.funcargs.get("hosts") or item.funcargs.get("own_hosts")
        for host in both or ():
            report.sections.append((f"host {host.name}", host.state()))
    return report


def missing() -> str:
    """What of ours or Debian's is not there, or nothing."""
    if not OURS.exists():
        return f"{OURS} is missing"
    for program in ("libvirtd", "virsh", "ip"):
        if shutil.which(program) is None:
            return f"{program} is missing; scripts/deps installs it"
    return ""


@pytest.fixture(name="possible", scope="session")
def fixture_possible() -> None:
    """Skip the test where there can be no hosts or no guests.

    What was to be built or installed before has to be there.
    """
    without = missing()
    if without:
        pytest.fail(without)
    reason = impossible()
    if not reason and not kvm_usable():
        reason = "/dev/kvm cannot be used on this host"
    if reason:
        pytest.skip(reason)


@pytest.fixture(name="apparmor", scope="session")
def fixture_apparmor(possible: None) -> None:
    """Skip the test but in the lab, on a kernel that has AppArmor.

    On another machine its profiles would be replaced.
    """
    if IN_LAB not in Path("/proc/version").read_text():
        pytest.skip("this is not the lab, whose profiles are nobody's")
    if not ENABLED.exists() or ENABLED.read_text().strip() != "Y":
        pytest.skip("this kernel has no AppArmor")


@pytest.fixture(name="hosts", scope="session")
def fixture_hosts(possible: None) -> Iterator[tuple[Host, Host]]:
    """Two hosts for all tests that leave them as they were."""
    with two_hosts() as hosts:
        yield hosts


@pytest.fixture(name="installed", scope="session")
def fixture_installed(hosts: tuple[Host, Host]) -> Path:
    """Our binary where `make install` puts it, on both hosts.

    PREFIX is a directory of the hosts' own there.
    """
    prefix = os.environ.get("PREFIX", "/usr/local")
    share_own(hosts, prefix)
    hosts[0].run("make", "-C", ROOT, "install", f"PREFIX={prefix}")
    return Path(prefix, "bin/qemu-system-x86_64")


@pytest.fixture(name="own_hosts")
def fixture_own_hosts(possible: None) -> Iterator[tuple[Host, Host]]:
    """Two hosts for a test that breaks them."""
    with two_hosts() as hosts:
        yield hosts
