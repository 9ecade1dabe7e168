# SPDX-License-Identifier: GPL-2.0-or-later
"""Instructions of the engine's hot loops."""

from __future__ import annotations

from collections.abc import Sequence

from .blocks import NONE, Block, Chapter, Table, Text, cell, number, ratio
from .results import Results
from .step import PYTHON, Step

STEP = "engine/loops"
QUICK, FULL = 16, 64  # GiB

LOOPS = {
    "ring": "ring: reap a full one of 65,536",
    "log-sparse": "log: 1,000 dirty pages",
    "log-all": "log: all dirty",
    "wrprot-sparse": "wrprot: 1,000 dirty pages",
    "wrprot-all": "wrprot: all dirty",
    "shared-sparse": "shared: 1,000 dirty pages",
    "shared-all": "shared: all dirty",
}

INTRODUCTION = """What QEMU's side of a sync and of a re-arm costs, without
KVM's: the engine on a fake KVM, whose own instructions are not counted, and
with a publish() that does nothing. No figure was published for it. The numbers
repeat on any machine, however busy: what they are for is that a change of one
is a change of the code."""

WHY = """log and wrprot look at each word of a bitmap that KVM has copied,
dirty or not, so that their cost is that of the guest's size; log does so once
more when it re-arms. shared looks at one bit for 512 pages and at the words of
those with a dirty page. For a guest that is dirty all over shared pays for its
exchanges, word by word. A ring has no bitmap, and a fixed price for each page.
"""


def steps(quick: bool) -> Sequence[Step]:
    """One program, which counts them all."""
    gib = str(QUICK if quick else FULL)
    return [Step(STEP, (*PYTHON, "tests.bench.engine_loops", "--gib", gib),
                 seconds=10 if quick else 30)]


def guest_gib(results: Results) -> str:
    """The size of the guest, by the number of all its pages."""
    pages = results.stat(STEP, "pages.shared-all")
    return f"{number(pages.median / (1 << 18))} GiB" if pages else NONE


def blocks(results: Results) -> Sequence[Block]:
    """The blocks of the chapter."""
    rows = []
    for loop, title in LOOPS.items():
        stats = [results.stat(STEP, f"{what}.{loop}")
                 for what in ("pages", "instructions", "per-page")]
        kind = loop.rpartition("-")[2]
        base = results.stat(STEP, f"instructions.log-{kind}")
        rows.append([title, *map(cell, stats), ratio(base, stats[1])])
    table = Table(("loop", "pages", "instructions", "per page", "log's to it"),
                  rows, "A sync, and the re-arm of all that it found, of a "
                  f"guest of {guest_gib(results)}.")
    return [Text(INTRODUCTION), table, Text(WHY)]


CHAPTER = Chapter("engine", "The engine, in instructions", steps, blocks)
