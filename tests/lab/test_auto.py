# SPDX-License-Identifier: GPL-2.0-or-later
"""The user guide's table of hosts is true: auto is tried on each of them.

So is its text on PML, the log that Intel's CPUs keep of a guest's writes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache

import pytest

from . import intel
from .cpu_log import Seen
from .lab import BUILD_KERNEL, ROOT, lab, must

GUIDE = ROOT / "docs/guide.md"
HEAD = "| host | `auto` | PML |\n|---|---|---|\n"
# The PML of each row, in cpu_log's words, for a CPU that has it.
PML = {
    "off for this guest": "off",
    "AMD has none": "none",
    "there is none then": "none",
    "on": "on",
    "as that kernel has it": "on",
}
AUTO = "kvm"
SECONDS = 900


@dataclass(frozen=True)
class Host:
    """A machine of the lab."""

    cpu: str
    append: str = ""
    kernel: str = "patched"

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kernel, self.cpu, self.append)))


def both(append: str = "", kernel: str = "patched") -> tuple[Host, ...]:
    """The same with the CPU of either maker."""
    return Host("AMD", append, kernel), Host("Intel", append, kernel)


# By their names in the table.
HOSTS = {
    "our kernel, Intel, EPT with accessed and dirty bits": (Host("Intel"),),
    "our kernel, AMD, NPT": (Host("AMD"),),
    "our kernel, Intel, EPT without them: older than Haswell, or "
    "`kvm_intel.eptad=0`": (Host("Intel", "kvm_intel.eptad=0"),),
    "our kernel with `kvm.tdp_mmu=0`": both("kvm.tdp_mmu=0"),
    "our kernel with `kvm_intel.ept=0` or `kvm_amd.npt=0`": (
        Host("Intel", "kvm_intel.ept=0"), Host("AMD", "kvm_amd.npt=0")),
    "our kernel with `kvm.dirty_tracking=0`, which is read as a guest starts":
        both("kvm.dirty_tracking=0"),
    "any other kernel": both(kernel="stock"),
}


@pytest.fixture(scope="module", autouse=True)
def fixture_kernel() -> None:
    """Built before the first test, so that no test's time is a build's."""
    must([BUILD_KERNEL, "--quiet", "patched"])


def rows() -> dict[str, tuple[str, str]]:
    """The guide's table: the mechanism and PML of each host."""
    text = GUIDE.read_text()
    assert text.count(HEAD) == 1
    body = text.partition(HEAD)[2].partition("\n\n")[0]
    lines = re.findall(r"^\| (.+?) \| `([\w-]+)` \| (.+?) \|$", body, re.M)
    assert len(lines) == len(body.splitlines())
    return {host: (mechanism, pml) for host, mechanism, pml in lines}


@lru_cache(maxsize=None)
def observed(host: Host, *accels: str) -> list[Seen]:
    """The findings on guests there, one for each value of -accel."""
    options = ["--append", host.append] if host.append else []
    env: tuple[str, ...] = ()
    if host.cpu == "Intel":
        env = intel.ENV
        options += intel.options(ROOT / "tests/lab/cpu_log.py",
                                 ROOT / "tests/lab/__init__.py")
    ended = lab(*env, intel.PYTHON, "-B", "-m", "tests.lab.cpu_log", *accels,
                kernel=host.kernel, seconds=SECONDS, options=options)
    assert ended.status == 0, ended.stdout + ended.stderr
    seen = [Seen(**json.loads(line)) for line in ended.stdout.splitlines()]
    assert len(seen) == len(accels)
    return seen


def cases() -> list[object]:
    """Each host of the table; Intel's take a minute each."""
    return [pytest.param(row, host, id=str(host),
                         marks=pytest.mark.soak if host.cpu == "Intel" else ())
            for row, hosts in HOSTS.items() for host in hosts]


def test_table_is_all_tried() -> None:
    assert set(rows()) == set(HOSTS)


@pytest.mark.parametrize(("row", "host"), cases())
def test_auto(row: str, host: Host) -> None:
    mechanism, pml = rows()[row]
    (seen,) = observed(host, AUTO)
    assert seen.mechanism == mechanism, seen
    assert seen.logged_by_cpu == ("none" if host.cpu == "AMD" else PML[pml])


@pytest.mark.soak
def test_log_and_ring() -> None:
    """The guide's text below the table holds."""
    by_log, by_ring = "kvm,dirty-tracking=log", "kvm,dirty-ring-size=4096"
    log, ring = observed(Host("Intel"), by_log, by_ring)
    assert (log.mechanism, log.logged_by_cpu) == ("log", "on")
    assert (ring.mechanism, ring.logged_by_cpu) == ("ring", "on")
    (ring,) = observed(Host("Intel", kernel="stock"), by_ring)
    assert (ring.mechanism, ring.logged_by_cpu) == ("ring", "on")
