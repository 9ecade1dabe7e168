# SPDX-License-Identifier: GPL-2.0-or-later
"""What was measured on the stock kernel, beside what was on ours.

Both are by name; tests/bench/step.py tells how the programs print them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.bench.step import parse

from .result import Figure

# The row, and the names of stock's figure and of ours.
ROWS = (
    ("turn on logging", "enable.get", "enable.shared"),
    ("harvest, re-arm: log; shared", "rearm.get", "rearm.shared"),
    ("harvest, re-arm: log; dirty bits", "rearm.get", "rearm.bits"),
    ("write all again: log; shared", "write-again.get", "write-again.shared"),
    ("write all again: log; dirty bits", "write-again.get", "write-again.bits"),
    ("exits of that: log; dirty bits", "write-again-exits.get",
     "write-again-exits.bits"),
    ("migration: writes that are left", "kept-live", "kept-live"),
    ("migration: the guest stands still", "stopped", "stopped"),
    ("migration: total time", "total", "total"),
)

Measured = Mapping[str, tuple[float, str]]


def measured(output: str) -> dict[str, tuple[float, str]]:
    """The single figures that a program has printed, with their units."""
    return {name: (figure.values[0], figure.unit)
            for name, figure in parse(output).items()
            if len(figure.values) == 1}


def side_by_side(stock: Measured, ours: Measured) -> Iterator[Figure]:
    """The rows of which both are known."""
    for title, theirs, own in ROWS:
        if theirs in stock and own in ours:
            number, unit = stock[theirs]
            yield Figure(title, unit, number, ours[own][0])


def save(path: Path, figures: Measured) -> None:
    """For the kernel that is started next."""
    path.write_text(json.dumps(figures), encoding="utf-8")


def load(path: Path) -> dict[str, tuple[float, str]]:
    """What another kernel has saved."""
    saved = json.loads(path.read_text(encoding="utf-8"))
    return {name: (number, unit) for name, (number, unit) in saved.items()}
