# SPDX-License-Identifier: GPL-2.0-or-later
"""The mutants of the models: spin has to refute them."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.model import spin
from tests.mutants.mutant import (
    CPUS,
    ROOT,
    Failure,
    Mutant,
    apply,
    is_noticed,
    read_all,
)

# A page that the destination lacks for ever, as pan prints the assertion.
SAYS = r"!\(stale"

MUTANTS = tuple(read_all("model"))


def refuted(mutant: Mutant) -> str:
    """Returns: the error that spin finds, or "" if it finds none."""
    name, *macros = mutant.killed_by.split()
    path = f"tests/model/{name}.pml"
    texts = apply(
        mutant.patch.diff,
        lambda path: (ROOT / path).read_text(encoding="utf-8"),
    )
    try:
        said = spin.search(
            f"mutant {mutant.name}", texts[path], macros, spin.SHORTEST
        )
    except (AssertionError, subprocess.TimeoutExpired) as problem:
        raise Failure(str(problem)) from None
    found = spin.error(said)
    is_noticed(int(found != ""), found, [mutant.says or SAYS])
    return found


class Model:
    """Spin, which has a directory of its own below build/."""

    mutants = MUTANTS
    at_once = CPUS

    def __init__(self, work: Path, cc: list[str]) -> None:
        pass

    def prepare(
        self, mutants: Sequence[Mutant], pool: ThreadPoolExecutor
    ) -> None:
        """Nothing is shared; tests/model verifies what is no mutant."""

    def killer(self, mutant: Mutant, number: int) -> str:
        """Returns: the error that spin finds, or "" if it finds none."""
        return refuted(mutant)
