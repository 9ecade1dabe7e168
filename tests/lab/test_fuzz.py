# SPDX-License-Identifier: GPL-2.0-or-later
"""A hostile userspace: random operations on /dev/kvm, from several threads.

The fuzzer is a selftest of ours.  The lab's kernel says whether the host has
stayed whole, and the fuzzer whether a page was lost.  tests/mutants/kernel has
the bugs that it must find.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from tests.mutants import kernel as mutants

from .lab import BUILD_KERNEL, Record, lab, must, selftests
from .reached import VMLINUX, begins, fuzz, places, report
from .shrink import FUZZER, ddmin, operations

SECONDS = 15  # of each machine, in make check
SOAK_SECONDS = 300

TDP = ("--append", "kvm.tdp_mmu=1")
SHADOW = ("--append", "kvm.tdp_mmu=0")
LA57 = ("--cpu-model", "max")
HOSTILE = ("--cpu", "hostile")
INTEL = ("--cpu", "intel")

# A second of this machine's takes longer than a second.
SLOWER = {"intel": 6}


@dataclass(frozen=True)
class Machine:
    """The machine that the fuzzer runs on."""

    kernel: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        words = [self.kernel]
        words += [word for word in self.options if word[:2] != "--"]
        return "-".join(words)


CHECKED = (
    Machine("patched", TDP),
    Machine("patched", (*SHADOW, *LA57)),
)
SOAKED = (
    Machine("debug", TDP),
    Machine("debug", SHADOW),
    Machine("debug", (*TDP, *LA57)),
    Machine("debug", (*SHADOW, *LA57)),
    Machine("debug", ("--append", "kvm_amd.npt=0")),
    Machine("debug", (*TDP, *HOSTILE)),
    Machine("debug", (*SHADOW, *HOSTILE)),
    Machine("debug", (*TDP, *INTEL)),
    Machine("debug", (*SHADOW, *INTEL)),
    Machine("patched", (*TDP, *INTEL)),
    Machine("patched", (*SHADOW, *INTEL)),
    Machine("patched", (*TDP, *HOSTILE)),
    Machine("patched", (*SHADOW, *HOSTILE)),
)


def check(
    machine: Machine, seed: int, seconds: int, record_property: Record
) -> None:
    ended = lab(
        selftests("patched") / FUZZER,
        *("-s", str(seed), "-t", str(seconds)),
        kernel=machine.kernel,
        # The last episode may have begun just before the end.
        seconds=SLOWER.get(machine.options[-1], 1) * (seconds + 240),
        options=machine.options,
    )
    assert ended.status == 0, ended.stdout + ended.stderr
    done = re.search(r"^(\d+) episodes, (\d+) pages of the witness changed, "
                     "all is well$", ended.stdout, re.M)
    assert done and int(done[1]) > 0 and int(done[2]) > 0, ended.stdout
    record_property("episodes", int(done[1]))
    record_property("witness-changes", int(done[2]))


@pytest.mark.parametrize("machine", CHECKED, ids=str)
def test_host_stays_whole(machine: Machine, record_property: Record) -> None:
    check(machine, 1, SECONDS, record_property)


def test_lost_page_is_noticed() -> None:
    """On a kernel that forgets to write-protect the children of a table."""
    ended = lab(
        selftests("patched") / FUZZER,
        *("-s", "1", "-t", "60"),
        kernel=mutants.build(),
        seconds=300,
        options=[*TDP, "--append", "kvm.mutant=no-children"],
    )
    assert re.search(r"page \d+ of the witness is lost",
                     ended.stdout + ended.stderr), ended.stdout + ended.stderr


@pytest.mark.soak
@pytest.mark.parametrize("machine", SOAKED, ids=str)
def test_soak(machine: Machine, record_property: Record) -> None:
    check(machine, 2, SOAK_SECONDS, record_property)


@pytest.mark.soak
def test_reaches_most_of_ours() -> None:
    """Most lines not reached are tracepoints and errors of the allocator."""
    must([BUILD_KERNEL, "--quiet", "patched"])
    known = places(VMLINUX, begins(VMLINUX))
    reached = {
        address
        for machine in ("tdp", "shadow")
        for address in fuzz(machine, SOAK_SECONDS, 3, sorted(known))
    }
    sentences, missed = report(known, reached)
    lines = set(known.values())
    assert len(lines) > 600, sentences
    assert len(missed) < len(lines) / 10, (sentences, missed)


def test_operations_do_not_depend_on_others() -> None:
    """The list is the same, whichever operations are left out."""
    listed = operations(1, 0)
    assert len(listed) == len(set(listed)) > 60
    assert listed == operations(1, 0)
    assert len({len(operations(1, episode)) for episode in range(20)}) > 1


@pytest.mark.parametrize(
    "needed", [set(), {0}, {99}, {3, 4}, {0, 50, 99}, set(range(0, 100, 9))]
)
def test_ddmin_finds_what_it_takes(needed: set[int]) -> None:
    tried = 0

    def fails(kept: list[int]) -> bool:
        nonlocal tried
        tried += 1
        return needed <= set(kept)

    left = ddmin(range(100), fails)
    assert set(left) >= needed and len(left) == max(len(needed), 1)
    assert left == sorted(left)
    assert tried < 400


def test_ddmin_with_two_ways_to_fail() -> None:
    """The remaining operations fail; without any one of them they do not."""

    def fails(kept: list[int]) -> bool:
        return {1, 2} <= set(kept) or {3, 90, 91} <= set(kept)

    left = ddmin(range(100), fails)
    assert fails(left)
    assert not any(
        fails(left[:place] + left[place + 1 :]) for place in range(len(left))
    )
