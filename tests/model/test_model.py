# SPDX-License-Identifier: GPL-2.0-or-later
"""Have spin search the models: without error, and with one where we made one.

Each model is searched as a whole; each of its mutants must be refuted; and the
models must be able to do what they are about, or they would prove nothing: the
probes, assertions that such a thing never happens, must fail.
"""

from __future__ import annotations

import re

import pytest

from tests.model.spin import ALL, SHORTEST, Model, error, search, source
from tests.model.table import MODELS, SOAKED
from tests.mutants.model import MUTANTS, refuted
from tests.mutants.mutant import Mutant

# What pan says of a search that left something out.
INCOMPLETE = (
    "Search not completed",
    "max search depth too small",
    "reached -DMEMLIM",
    "out of memory",
    "resize",
    "hash factor",
)

# Large numbers are rounded: 1.3425824e+08.
STATES = re.compile(r"^ *([\d.e+]+) states, stored", re.MULTILINE)
# One that only sizes with a macro can reach begins with its name.
PROBE = re.compile(
    r"^#define ([A-Z_]+) +(\d+) +/\* (?:([A-Z]+): )?", re.MULTILINE
)


def sizes() -> dict[str, list[Model]]:
    """The models by their names."""
    every: dict[str, list[Model]] = {}
    for model in MODELS:
        every.setdefault(model.name, []).append(model)
    return every


def probes() -> list[tuple[str, str, int, str]]:
    """What each model has to reach in one of its sizes, or with a macro."""
    found = []
    for name, models in sizes().items():
        head = source(models[0]).partition("#ifdef PROBE")[0]
        probes_of = head.partition("must be able to reach. */")[2]
        found += [
            (name, probe, int(number), macro)
            for probe, number, macro in PROBE.findall(probes_of)
        ]
    return found


@pytest.mark.parametrize(
    "model",
    (
        *MODELS,
        *(pytest.param(model, marks=pytest.mark.soak) for model in SOAKED),
    ),
    ids=str,
)
def test_nothing_is_lost(
    model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    said = search(str(model), source(model), model.macros, ALL)
    assert not error(said)
    assert "Full statespace search for:" in said
    assert re.search(r"errors: 0$", said, re.MULTILINE), said
    for problem in INCOMPLETE:
        assert problem not in said
    states = STATES.search(said)
    assert states is not None
    with capsys.disabled():
        print(f" {float(states[1]):,.0f} states", end="")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_refuted(
    mutant: Mutant, capsys: pytest.CaptureFixture[str]
) -> None:
    found = refuted(mutant)
    assert found, f"spin finds no error in {mutant.killed_by}"
    with capsys.disabled():
        print(f" {found}", end="")


@pytest.mark.parametrize(
    ("name", "probe", "number", "macro"),
    probes(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_is_reached(name: str, probe: str, number: int, macro: str) -> None:
    assert any(
        f"({number}!={number})"
        in error(
            search(
                f"{model} {probe}",
                source(model),
                (*model.macros, f"PROBE={number}"),
                SHORTEST,
            )
        )
        for model in sizes()[name]
        if not macro or macro in model.macros
    )
