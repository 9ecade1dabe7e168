# SPDX-License-Identifier: GPL-2.0-or-later
"""The host kernel's mutants: in the lab, a selftest has to notice each.

All of them are built into one kernel, and kvm.mutant=NAME chooses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.lab.lab import BUILD, COMPLAINED, Ended, lab, mutant, selftests
from tests.mutants.mutant import (
    HERE,
    Failure,
    Mutant,
    Patch,
    is_noticed,
    mutants_of,
    read_patch,
)
from tests.releases import LINUX

PATCHES = HERE / "kernel"
# It has the pauses, and what chooses a mutant; it is the series' first.
PAUSE = "pause"

FIELDS = ("Kernel", "Machine", "Ends", "Linux", "Soak")

# How a selftest ends at an assertion, and what most of them say there.
ASSERTED = "Test Assertion Failure"
LOST = r"page \d+ is lost"

RACE = "x86_64/write_protect_race_test"
SHADOW = "kvm.tdp_mmu=0"
HOSTILE = "--cpu hostile"

# Some lose a page in most runs only.
TRIES = 10
# The race test says that a vCPU is stuck after 20 s; a busy machine is slower.
SECONDS = 120


@dataclass(frozen=True)
class Run:
    """A test and its arguments, the kernel's arguments, the lab's options."""

    test: str
    kernel: str = ""
    machine: str = ""


def run_of(one: Mutant) -> Run:
    """What is run to notice a mutant, and on what."""
    return Run(one.killed_by, one.option("Kernel"), one.option("Machine"))


def title(name: str, what: Run) -> str:
    """Which it is; of the pauses, in which test."""
    words = what.test.split() if name == PAUSE else []
    on = (*what.kernel.split(), *what.machine.split()[1:])
    return "-".join((name, *words, *on))


def says(one: Mutant) -> str:
    """What the test says of this mutant, and of nothing else."""
    return one.says or LOST


def series() -> list[str]:
    """The names of the patches, in the order in which they apply."""
    lines = (PATCHES / "series").read_text(encoding="utf-8").splitlines()
    return [line.removesuffix(".patch") for line in lines if line[:1] != "#"]


def read(name: str) -> Patch:
    return read_patch(PATCHES / f"{name}.patch")


# Those of all releases, and those of the one whose kernel is built.
ALL = tuple(
    one
    for name in series()
    if name != PAUSE
    for one in mutants_of(read(name), FIELDS)
)
MUTANTS = tuple(one for one in ALL if one.option("Linux") in ("", LINUX))
# The pauses alone, which give a mutant its chance, in each test.
CONTROLS = tuple(dict.fromkeys(map(run_of, MUTANTS)))
# Those that are in every make check.
COMMON = (
    Run(RACE),
    Run(RACE, SHADOW),
    Run(f"{RACE} -m bits"),
    Run(f"{RACE} -m bits -v 1 -t 10", machine=HOSTILE),
    Run(f"{RACE} -m shared -w all -v 1 -t 10", machine=HOSTILE),
    Run(f"{RACE} -m shared -w all -v 1 -t 10", SHADOW, HOSTILE),
    Run(f"{RACE} -m shared -w range -v 2 -t 10", machine=HOSTILE),
    Run("x86_64/eager_page_split_test first-page", SHADOW, "--cpu-model max"),
)


def build() -> Path:
    """Build the kernel that has all of them; returns its bzImage."""
    built = {PAUSE, *(one.name for one in MUTANTS)}
    diffs = [read(name).diff for name in series() if name in built]
    patch = BUILD / "mutants.patch"
    BUILD.mkdir(exist_ok=True)
    # Another test may be reading it.
    new = patch.with_name(f"{patch.name}.{os.getpid()}")
    new.write_text("".join(diffs), encoding="utf-8")
    new.replace(patch)
    return mutant(patch)


def run(name: str, what: Run, kernel: Path, programs: Path) -> Ended:
    """A test, on one of the mutants."""
    program, *arguments = what.test.split()
    options = ["--cpus", "4", "--append", f"kvm.mutant={name}"]
    options += what.machine.split()
    for argument in what.kernel.split():
        options += ["--append", argument]
    return lab(
        programs / program,
        *arguments,
        kernel=kernel,
        seconds=SECONDS,
        options=options,
    )


def has_noticed(one: Mutant, ended: Ended) -> bool:
    """The test says what the mutant does, or the kernel's panic does."""
    said = ended.stderr + ended.stdout
    if one.option("Ends") != "panic":
        return is_noticed(ended.status, said, [ASSERTED, says(one)])
    if ended.status not in (0, COMPLAINED):
        raise Failure(f"the kernel has not panicked:\n{said}")
    return is_noticed(ended.status, said, [says(one)])


def killer(one: Mutant, kernel: Path, programs: Path) -> str:
    """Run a mutant until it is noticed; returns what was said of it."""
    runs = []
    for _ in range(TRIES):
        ended = run(one.name, run_of(one), kernel, programs)
        said = ended.stderr + ended.stdout
        try:
            if has_noticed(one, ended):
                lines = said.splitlines()
                found = next(
                    line for line in lines if re.search(says(one), line)
                )
                return found.strip()
            runs.append(said)
        except Failure as failure:
            runs.append(str(failure))
    raise Failure(f"nobody noticed in {TRIES} runs:\n" + "\n".join(runs))


class Kernel:
    """The lab, which has directories of its own below build/."""

    mutants = MUTANTS
    at_once = 1  # each has several vCPUs that have to race

    def __init__(self, work: Path, cc: list[str]) -> None:
        try:
            self.kernel, self.programs = build(), selftests("patched")
        except AssertionError as problem:
            raise Failure(str(problem)) from None

    def prepare(
        self, mutants: Sequence[Mutant], pool: ThreadPoolExecutor
    ) -> None:
        """All is built; tests/lab sees to it that the pauses lose nothing."""

    def killer(self, one: Mutant, number: int) -> str:
        """Returns: what the test, or the panic, says of the mutant."""
        return killer(one, self.kernel, self.programs)
