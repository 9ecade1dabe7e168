#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Have spin search the models: without error, and with one where we made one.

Each model is searched as a whole; each of its mutants must be refuted; and the
models must be able to do what they are about, or they would prove nothing: the
probes, assertions that such a thing never happens, must fail.

usage: test_model.py    prints the table of mutants and what kills them
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from table import MODELS, MUTANTS, SOAKED, Model, Mutant

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("FDT_BUILD", HERE.parents[1] / "build"))

# Many times what the slowest takes on an idle machine, which is 90 s.
LIMIT = 600  # seconds

# What pan may use, in MiB; it says so, and has failed, if that is too little.
MEMORY = 4096

CFLAGS = ("-w", "-DSAFETY", f"-DMEMLIM={MEMORY}")

# Depth first takes fewer states, which are compressed without loss.
ALL = ("-O2", "-DCOLLAPSE")
DEPTH = 6_000_000

# Breadth first finds the shortest of errors, sooner than gcc could optimise.
SHORTEST = ("-O0", "-DBFS")

# What pan says of a search that left something out.
INCOMPLETE = (
    "Search not completed",
    "max search depth too small",
    "reached -DMEMLIM",
    "out of memory",
    "resize",
    "hash factor",
)

ERROR = re.compile(r"^pan:1: (.*) \(at depth (\d+)\)$", re.MULTILINE)
STATES = re.compile(r"^ *(\d+) states, stored", re.MULTILINE)
PROBE = re.compile(r"^#define ([A-Z_]+) +(\d+) +/\*", re.MULTILINE)


def run(work: Path, command: Sequence[str]) -> str:
    """The command's output; it has to succeed."""
    done = subprocess.run(
        command,
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}"
    return done.stdout


def source(model: Model) -> str:
    return (HERE / f"{model.name}.pml").read_text(encoding="utf-8")


def search(
    name: str, text: str, macros: Sequence[str], how: Sequence[str]
) -> str:
    """Have spin search all that a model can do; returns what pan says."""
    work = BUILD / "model" / re.sub(r"[^\w=]+", "-", name)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "model.pml").write_text(text, encoding="utf-8")
    defines = [f"-D{macro}" for macro in macros]
    run(work, ["spin", "-a", *defines, "model.pml"])
    run(work, ["gcc", *how, *CFLAGS, "-o", "pan", "pan.c"])
    said = run(work, ["./pan", "-w24", f"-m{DEPTH}"])
    (work / "pan.out").write_text(said, encoding="utf-8")
    return said


def error(said: str) -> str:
    """The error that pan found, and the number of steps to it, or ''."""
    found = ERROR.search(said)
    return f"{found[1]} after {found[2]} steps" if found else ""


def mutate(mutant: Mutant) -> str:
    text = source(mutant.model)
    for old, new in mutant.edits:
        assert text.count(old) == 1, f"not in the model once:\n{old}"
        text = text.replace(old, new)
    return text


def refute(mutant: Mutant) -> str:
    said = search(str(mutant), mutate(mutant), mutant.model.macros, SHORTEST)
    return error(said)


def sizes() -> dict[str, list[Model]]:
    """The models by their names."""
    every: dict[str, list[Model]] = {}
    for model in MODELS:
        every.setdefault(model.name, []).append(model)
    return every


def probes() -> list[tuple[str, str, int]]:
    """What each model has to reach in one of its sizes."""
    found = []
    for name, models in sizes().items():
        head = source(models[0]).partition("#ifdef PROBE")[0]
        probes_of = head.partition("must be able to reach. */")[2]
        found += [
            (name, probe, int(number))
            for probe, number in PROBE.findall(probes_of)
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
        print(f" {int(states[1]):,} states", end="")


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_mutant_is_refuted(
    mutant: Mutant, capsys: pytest.CaptureFixture[str]
) -> None:
    found = refute(mutant)
    assert mutant.killer in found
    with capsys.disabled():
        print(f" {found}", end="")


@pytest.mark.parametrize(
    ("name", "probe", "number"),
    probes(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_is_reached(name: str, probe: str, number: int) -> None:
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
    )


def print_table() -> None:
    print("| model | breaks | mutant | killed by |")
    print("|---|---|---|---|")
    for mutant in MUTANTS:
        name = f"| {mutant.model.name} | {mutant.invariant} | {mutant.name} "
        print(f"{name}| {refute(mutant) or 'SURVIVED'} |", flush=True)


if __name__ == "__main__":
    print_table()
