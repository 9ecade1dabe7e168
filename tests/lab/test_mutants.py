# SPDX-License-Identifier: GPL-2.0-or-later
"""Each kernel that is broken on purpose fails the selftest that should see it."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from .lab import COMPLAINED, TIMED_OUT, Ended, lab, mutant, selftests
from .mutant_table import CONTROLS, MUTANTS, Mutant

PATCH = Path(__file__).with_name("mutants.patch")

# Some lose a page in most runs only.
TRIES = 10
SECONDS = 45


def cases(table: tuple[Mutant, ...]) -> list[ParameterSet]:
    return [
        pytest.param(
            one, id=str(one), marks=[pytest.mark.soak] if one.soak else []
        )
        for one in table
    ]


@pytest.fixture(name="kernel", scope="module")
def fixture_kernel() -> Path:
    return mutant(PATCH)


@pytest.fixture(name="programs", scope="module")
def fixture_programs() -> Path:
    return selftests("patched")


def run(one: Mutant, kernel: Path, programs: Path) -> Ended:
    """The mutant's test, on the mutant."""
    program, *arguments = one.test
    options = ["--cpus", "4", "--append", f"kvm.mutant={one.name}"]
    for argument in one.kernel_arguments:
        options += ["--append", argument]
    return lab(
        programs / program,
        *arguments,
        kernel=kernel,
        seconds=SECONDS,
        options=options,
    )


def is_noticed(ended: Ended) -> bool:
    """A page was lost, the kernel complained, or nothing moved any more.

    A test that could not run at all has noticed nothing.
    """
    said = ended.stderr + ended.stdout
    return (
        ended.status in (COMPLAINED, TIMED_OUT)
        or "Test Assertion Failure" in said
    )


@pytest.mark.parametrize("one", cases(CONTROLS))
def test_pauses_alone_lose_nothing(
    one: Mutant, kernel: Path, programs: Path
) -> None:
    ended = run(one, kernel, programs)
    assert ended.status == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("one", cases(MUTANTS))
def test_mutant_is_noticed(one: Mutant, kernel: Path, programs: Path) -> None:
    said = []
    for _ in range(TRIES):
        ended = run(one, kernel, programs)
        if is_noticed(ended):
            return
        said.append(ended.stdout + ended.stderr)
    pytest.fail(f"{one.how}, and nobody noticed:\n" + "\n".join(said))
