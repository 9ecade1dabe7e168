# SPDX-License-Identifier: GPL-2.0-or-later
"""How spin searches a model, in full or for the shortest of errors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("FDT_BUILD", HERE.parents[1] / "build"))

# Many times what the slowest of make check takes on an idle machine, which is
# 90 s, and three times what the slowest of make soak takes.
LIMIT = 1800  # seconds

# What pan may use, in MiB; it says so, and has failed, if that is too little.
MEMORY = 8192

CFLAGS = ("-w", "-DSAFETY", f"-DMEMLIM={MEMORY}")

# Depth first takes fewer states, which are compressed without loss.
ALL = ("-O2", "-DCOLLAPSE")
DEPTH = 15_000_000

# Breadth first finds the shortest of errors, sooner than gcc could optimise.
SHORTEST = ("-O0", "-DBFS")

ERROR = re.compile(r"^pan:1: (.*) \(at depth (\d+)\)$", re.MULTILINE)


@dataclass(frozen=True)
class Model:
    """A file of this directory, and a size in which to search all of it."""

    name: str
    macros: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.name, *self.macros))


def source(model: Model) -> str:
    """The text of a model."""
    return (HERE / f"{model.name}.pml").read_text(encoding="utf-8")


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
