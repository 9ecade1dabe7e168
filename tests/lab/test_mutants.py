# SPDX-License-Identifier: GPL-2.0-or-later
"""Each kernel that is broken on purpose fails the selftest that should see it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from .lab import COMPLAINED, ROOT, Ended, lab, mutant, selftests
from .mutant_table import COMMON, CONTROLS, MUTANTS, SHADOW, Mutant

PATCH = Path(__file__).with_name("mutants.patch")
DOCS = ROOT / "docs/host-kernel.md"

# Some lose a page in most runs only.
TRIES = 10
# The race test says that a vCPU is stuck after 20 s; a busy machine is slower.
SECONDS = 120


def cases(table: tuple[Mutant, ...]) -> list[ParameterSet]:
    return [
        pytest.param(
            one, id=one.title, marks=[pytest.mark.soak] if one.soak else []
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
    options += one.machine
    for argument in one.kernel_arguments:
        options += ["--append", argument]
    return lab(
        programs / program,
        *arguments,
        kernel=kernel,
        seconds=SECONDS,
        options=options,
    )


def is_noticed(one: Mutant, ended: Ended) -> bool:
    """The test says what the mutant does.

    One that could not run, took too long or failed in another way has noticed
    nothing.
    """
    said = ended.stderr + ended.stdout
    failed = (
        ended.status == COMPLAINED
        if one.panics
        else "Test Assertion Failure" in said
    )
    return failed and re.search(one.says, said) is not None


def test_patch_has_what_the_table_has() -> None:
    """No mutant is built that nothing tests."""
    built = set(re.findall(r'\bmutant\("([^"]+)"\)', PATCH.read_text()))
    assert built == {one.name for one in MUTANTS}


def test_docs_have_what_the_table_has() -> None:
    table = DOCS.read_text().partition("| `kvm.mutant=` |")[2]
    rows = re.findall(
        rf"^\| `([a-z-]+)( {re.escape(SHADOW)})?` \|",
        table.partition("\n\n")[0],
        re.MULTILINE,
    )
    told = {(name, shadow != "") for name, shadow in rows}
    tested = {(one.name, SHADOW in one.kernel_arguments) for one in MUTANTS}
    assert told == tested


def test_messages_are_those_of_the_tests() -> None:
    """A control that passes says none of them, whatever it prints."""
    passed = "839 rounds, 317295 writes, 20 looked at twice, none lost"
    assert not any(re.search(one.says, passed) for one in MUTANTS)


def test_common_controls_are_controls() -> None:
    runs = {one.run for one in CONTROLS}
    assert runs >= set(COMMON)


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
        if is_noticed(one, ended):
            return
        said.append(ended.stdout + ended.stderr)
    pytest.fail(f"{one.how}, and nobody noticed:\n" + "\n".join(said))
