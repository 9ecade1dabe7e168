# SPDX-License-Identifier: GPL-2.0-or-later
"""The chapter on how well the limit of the downtime is kept."""

from __future__ import annotations

from collections.abc import Sequence

from .blocks import Block, Chapter, Table, Text, cell
from .chapter_ends import BASE, SYSTEMS, Case, figure, named, share, there
from .releases import OUR_TITLES, VERSIONS
from .results import Results, Stat
from .step import Step

QUICK = (BASE, "ours:dirty-bits")
LIMITED = (*named(VERSIONS, "log"), *named(OUR_TITLES, "dirty-bits"))
LIMITS = (30, 50, 100)
# Idle loops after each write.  Runs of one guest would be much the same.
DELAYS = (2000, 3000, 5000, 7000, 9000)


def case_of(limit: int, delay: int) -> Case:
    """One limit, and one guest."""
    return Case(f"limit-{limit}-{delay}", f"{limit} ms",
                f"--written-mib 32 --delay {delay} --mib-per-second 200 "
                f"--downtime-ms {limit}", runs=1, seconds=110)


def steps(quick: bool) -> Sequence[Step]:
    """A quick run has one limit, and one guest."""
    if quick:
        return [case_of(LIMITS[-1], DELAYS[0]).step(QUICK)]
    return [case_of(limit, delay).step(there(LIMITED))
            for limit in LIMITS for delay in DELAYS]


def of_all(results: Results, limit: int, name: str, system: str) -> Stat | None:
    """The figure NAME of all guests."""
    found = [stat for delay in DELAYS
             if (stat := results.stat(case_of(limit, delay).step_name,
                                      figure(name, system)))]
    return Stat(tuple(value for stat in found for value in stat.values),
                found[0].unit) if found else None


def row(results: Results, limit: int, system: str) -> list[str]:
    """A limit and a system."""
    return [f"{limit} ms: {SYSTEMS[system]}",
            *(cell(of_all(results, limit, name, system))
              for name in ("downtime", "total")),
            *(share(of_all(results, limit, name, system))
              for name in ("over", "ended"))]


WHY = Text(
    "Five guests write to 32 MiB of their memory all the time, from once to "
    "five times as much as is sent, at 200 MiB/s, with auto-converge. All "
    "of it is in the lab, on our kernel and on one CPU, whose time counts "
    "instructions: medians with their spread. On a busy machine any "
    "limit can be exceeded, since whoever is to send the rest may have to "
    "wait for a CPU.")


def blocks(results: Results) -> Sequence[Block]:
    """Each limit, and the downtimes."""
    found = Table(("limit, QEMU, mechanism", "downtime, ms", "total, ms",
                   "limit exceeded", "ended"),
                  [row(results, limit, system)
                   for limit in LIMITS for system in LIMITED],
                  "The downtime limit and the downtime").filled()
    return [found, WHY]


CHAPTER = Chapter("limits", "Limits of the downtime", steps, blocks)
