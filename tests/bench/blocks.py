# SPDX-License-Identifier: GPL-2.0-or-later
"""The parts of a chapter of the report, and the form of numbers."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import matplotlib
from matplotlib.figure import Figure as Drawing

from .results import Results, Stat
from .step import Step

NONE = "–"

# The parts of a drawing get the same names each time.  Text stays text, in the
# reader's font.
STYLE = {"svg.hashsalt": "bench", "svg.fonttype": "none",
         "font.family": "sans-serif"}


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Table:
    """Cells that are ready to be read; the first column is left-aligned."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    def filled(self) -> Table:
        """The table without the rows that have no figure."""
        rows = [row for row in self.rows if set(row[1:]) != {NONE}]
        return replace(self, rows=rows)

    def markdown(self) -> str:
        """The table in Markdown, for the documents."""
        lines = [self.headings, ("---", *["--:"] * (len(self.headings) - 1)),
                 *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass(frozen=True)
class Plot:
    """A drawing, and the text for readers who cannot see it."""

    drawing: Drawing
    words: str

    @functools.cached_property
    def svg(self) -> str:
        """An element of a page; the same figures give the same bytes."""
        out = io.StringIO()
        with matplotlib.rc_context(STYLE):
            self.drawing.savefig(out, format="svg", bbox_inches="tight",
                                 metadata={"Date": None, "Creator": None})
        text = out.getvalue()
        return text[text.index("<svg"):]


Block = Text | Table | Plot


@dataclass(frozen=True)
class Chapter:
    """A chapter of the report.

    steps: the steps of a quick or a full run.  Those of one chapter take
    turns, run by run, so that other load of the machine meets all alike.
    blocks: the parts to show; any of the figures may be missing.
    """

    name: str
    title: str
    steps: Callable[[bool], Sequence[Step]]
    blocks: Callable[[Results], Sequence[Block]]


def number(value: float) -> str:
    """A number with at least three significant digits."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def cell(stat: Stat | None) -> str:
    """The median, and the spread if it is larger than the rounding."""
    if stat is None:
        return NONE
    low, middle, high = map(number, (stat.low, stat.median, stat.high))
    return middle if low == high else f"{middle} ({low}–{high})"


def ratio(base: Stat | None, ours: Stat | None) -> str:
    """How often ours fits into the baseline; more is better for ours.

    A figure of nothing, or less by chance, has no ratio.
    """
    if base is None or ours is None:
        return NONE
    if base.median <= 0 or ours.median <= 0:
        return "noise"
    if len(base.values) > 1 and base != ours and base.noise(ours):
        return "noise"
    return f"{number(base.median / ours.median)}×"
