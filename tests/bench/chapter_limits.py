# SPDX-License-Identifier: GPL-2.0-or-later
"""The chapter on how well the limit of the downtime is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .blocks import Block, Chapter, Table, Text, cell
from .chapter_ends import MACHINE, SYSTEMS, Case, figure, share, there
from .results import Results
from .step import Step

QUICK = ("stock:log", "ours:dirty-bits")
LIMITED = ("stock:log", "backports:log", "next:log", "ours:dirty-bits",
           "ours-13:dirty-bits")
CASES = tuple(
    Case(f"limit-{limit}", f"{limit} ms",
         "--written-mib 32 --delay 20000 --mib-per-second 400 "
         f"--downtime-ms {limit}", limit == 100, MACHINE, runs=8,
         seconds=25)
    for limit in (30, 50, 100, 300))


def steps(quick: bool) -> Sequence[Step]:
    """A quick run has one limit."""
    if quick:
        return [replace(case, runs=1).step(QUICK)
                for case in CASES if case.quick]
    return [case.step(there(LIMITED)) for case in CASES]


def row(results: Results, case: Case, system: str) -> list[str]:
    """A limit and a system."""
    return [f"{case.title}: {SYSTEMS[system]}",
            *(cell(results.stat(case.step_name, figure(name, system)))
              for name in ("downtime", "total")),
            share(results, case.step_name, "over", system)]


WHY = Text(
    "The guest writes to 32 MiB of its memory all the time, and is sent at "
    "400 MiB/s, in the lab, on our kernel, on two CPUs and in real time: "
    "medians of 8 runs with their spread.")


def blocks(results: Results) -> Sequence[Block]:
    """Each limit, and the downtimes."""
    found = Table(("limit, QEMU, mechanism", "downtime, ms", "total, ms",
                   "limit exceeded"),
                  [row(results, case, system)
                   for case in CASES for system in LIMITED],
                  "The downtime limit and the downtime").filled()
    return [found, WHY]


CHAPTER = Chapter("limits", "Limits of the downtime", steps, blocks)
