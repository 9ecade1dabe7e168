# SPDX-License-Identifier: GPL-2.0-or-later
"""Each kernel that is broken on purpose fails the selftest that should see it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutants.kernel import (
    ALL,
    COMMON,
    CONTROLS,
    MUTANTS,
    PAUSE,
    SHADOW,
    Run,
    build,
    killer,
    run,
    run_of,
    says,
    title,
)
from tests.mutants.mutant import Mutant

from .lab import ROOT, selftests

DOCS = ROOT / "docs/host-kernel.md"


@pytest.fixture(name="kernel", scope="module")
def fixture_kernel() -> Path:
    return build()


@pytest.fixture(name="programs", scope="module")
def fixture_programs() -> Path:
    return selftests("patched")


def test_docs_have_what_the_patches_have() -> None:
    table = DOCS.read_text().partition("| `kvm.mutant=` |")[2]
    rows = re.findall(
        rf"^\| `([a-z-]+)( {re.escape(SHADOW)})?` \| ([^|]+) \|",
        table.partition("\n\n")[0],
        re.MULTILINE,
    )
    told = {(name, shadow != "", breaks) for name, shadow, breaks in rows}
    tested = {
        (one.name, SHADOW in run_of(one).kernel, one.invariant)
        for one in ALL
    }
    assert told == tested


def test_messages_are_those_of_the_tests() -> None:
    """A control that passes prints none of them."""
    passed = "839 rounds, 317295 writes, 20 looked at twice, none lost"
    assert not any(re.search(says(one), passed) for one in ALL)


def test_common_controls_are_controls() -> None:
    assert set(CONTROLS) >= set(COMMON)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(
            what,
            id=title(PAUSE, what),
            marks=[] if what in COMMON else [pytest.mark.soak],
        )
        for what in CONTROLS
    ],
)
def test_pauses_alone_lose_nothing(
    what: Run, kernel: Path, programs: Path
) -> None:
    ended = run(PAUSE, what, kernel, programs)
    assert ended.status == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(
            one,
            id=title(one.name, run_of(one)),
            marks=[pytest.mark.soak] if one.option("Soak") else [],
        )
        for one in MUTANTS
    ],
)
def test_mutant_is_noticed(one: Mutant, kernel: Path, programs: Path) -> None:
    print(killer(one, kernel, programs))
