# SPDX-License-Identifier: GPL-2.0-or-later
"""Migrations on the patched host kernel, by the tests of tests/migration.

All of them run in one boot of the lab for each MMU; each is a test case here.
With -m soak, all that there are of the mechanisms that take a patched kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import pytest

from .lab import BUILD, COMPLAINED, ROOT, Ended, lab

TESTS = "tests/migration"
MMUS = {"tdp": "kvm.tdp_mmu=1", "shadow": "kvm.tdp_mmu=0"}
OPTIONS = ["--cpus", "2", "--memory", "3G"]
PYTEST = [
    BUILD / "venv/bin/python", "-B", "-m", "pytest", "-v", "--tb=short",
    "-p", "no:cacheprovider", "-p", "no:hypothesispytest",
]
SECONDS = 90  # for one of them, on a busy machine
SOAK_SECONDS = 7200
DIFFER = re.compile(r"pages? differ|is stale|are stale")

# What runs in one boot of a soak.  Rings of other sizes, and log, need no
# patched kernel.
SOAKED = {
    "wrprot": "wrprot",
    "shared": "shared",
    "dirty-bits": "dirty-bits",
    "ring": "4096",
    "others": "(switch or told or split) and not (wrprot or shared or "
              "dirty-bits or 4096)",
}

# Each mechanism meets each pattern, and the one that auto takes there whatever
# else may go on.  Not test_identical[dirty-bits-hot-spot-4-pc]: four vCPUs that
# nothing slows down write more than two emulated CPUs can send meanwhile.
CHECKED = {
    "tdp": (
        "test_identical.py::test_identical[wrprot-hot-spot-1-q35]",
        "test_identical.py::test_identical[shared-sequential-4-pc]",
        "test_identical.py::test_identical[dirty-bits-random-2-q35]",
        "test_identical.py::test_identical[ring 4096-random-4-q35]",
        "test_modes.py::test_multifd[dirty-bits-sequential-1]",
        "test_modes.py::test_postcopy[dirty-bits-hot-spot-2]",
        "test_modes.py::test_cancel_and_retry[dirty-bits-random-4]",
        "test_modes.py::test_reset_while_migrating[dirty-bits-sequential-1]",
        "test_modes.py::test_snapshot[dirty-bits-hot-spot-2]",
        "test_hot_pages.py::test_pages_wait[precopy-dirty-bits]",
        "test_hotplug.py::test_plug_and_unplug[dirty-bits-sequential-3]",
        "test_hotplug.py::test_dimm[dirty-bits]",
        "test_display.py::test_painting[dirty-bits-hot-spot-2]",
        "test_display.py::test_memory_comes_and_goes[dirty-bits-random-4]",
        "test_stock_peer.py::test_to_stock[dirty-bits-pc]",
        "test_switch.py::test_between_two_migrations",
        "test_switch.py::test_started_without[shared]",
        "test_eager_split.py::test_all_or_none[on]",
        "test_eager_split.py::test_auto",
        "test_telemetry.py::test_default_is_told",
        "test_telemetry.py::test_telemetry[dirty-bits]",
        "test_telemetry.py::test_written_before[dirty-bits]",
    ),
    "shadow": (
        "test_identical.py::test_identical[wrprot-sequential-2-q35]",
        "test_identical.py::test_identical[shared-random-1-q35]",
        "test_modes.py::test_postcopy[shared-random-1]",
        "test_display.py::test_memory_comes_and_goes[shared-sequential-2]",
        "test_telemetry.py::test_default_is_told",
    ),
}


@dataclass(frozen=True)
class Boot:
    """How the tests of one boot ended, by their names; none after a crash."""

    ended: Ended
    outcomes: dict[str, str]


def outcomes(output: str) -> dict[str, str]:
    """What pytest -v says of each test."""
    pattern = rf"^{TESTS}/(\S.*?) (PASSED|FAILED|ERROR|SKIPPED)\b"
    return {
        match[1]: match[2]
        for match in re.finditer(pattern, output, re.MULTILINE)
    }


@lru_cache(maxsize=None)
def boot(mmu: str, *arguments: str, seconds: int) -> Boot:
    """Run pytest in the lab."""
    ended = lab(
        *PYTEST,
        *arguments,
        kernel="patched",
        seconds=seconds,
        options=[*OPTIONS, "--append", MMUS[mmu]],
        cwd=ROOT,
    )
    return Boot(ended, outcomes(ended.stdout))


def is_wrong(ended: Ended) -> bool:
    """Whether a page differed, or the kernel complained."""
    return ended.status == COMPLAINED or bool(DIFFER.search(ended.stdout))


@pytest.mark.parametrize(
    "mmu,name",
    [(mmu, name) for mmu, names in CHECKED.items() for name in names],
)
def test_migration(mmu: str, name: str) -> None:
    """On a patched kernel it passes; there nothing is skipped.

    On a busy machine a migration may take too long: then it is run once more,
    in a boot of its own.  A page that differs is never excused, nor what the
    kernel complains of.
    """
    names = CHECKED[mmu]
    done = boot(
        mmu,
        *(f"{TESTS}/{each}" for each in names),
        seconds=SECONDS * len(names),
    )
    if done.outcomes.get(name) != "PASSED" and not is_wrong(done.ended):
        print(f"{done.ended.stdout}{done.ended.stderr}\n{name}: once more")
        done = boot(mmu, f"{TESTS}/{name}", seconds=2 * SECONDS)
    assert done.outcomes.get(name) == "PASSED", (
        done.ended.stdout + done.ended.stderr
    )


@pytest.mark.soak
@pytest.mark.parametrize("mmu", MMUS)
@pytest.mark.parametrize("chosen", SOAKED)
def test_all_migrations(chosen: str, mmu: str) -> None:
    """All that concern the patched kernel pass, those of their soak too."""
    done = boot(mmu, "-m", "soak or not soak", "-k", SOAKED[chosen], TESTS,
                seconds=SOAK_SECONDS)
    assert done.ended.status == 0 and done.outcomes, (
        done.ended.stdout + done.ended.stderr
    )
