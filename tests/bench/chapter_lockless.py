# SPDX-License-Identifier: GPL-2.0-or-later
"""The chapter on the table of lockless write-protection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .blocks import NONE, Block, Chapter, Table, Text, cell, ratio
from .releases import PEER
from .results import Results
from .step import COUNTED, PYTHON, Step

MEMORY = 96
KERNELS = {PEER: "stock", "ours": "patched"}


@dataclass(frozen=True)
class Paging:
    """The way KVM maps the guest's memory, and our best mechanism there."""

    name: str
    title: str
    best: str
    append: str = ""


@dataclass(frozen=True)
class Load:
    """How much the guest writes, and in how many passes."""

    name: str
    title: str
    mib: int
    passes: int


TDP = Paging("tdp", "TDP", "dirty-bits")
OLD = Paging("old-mmu", "TDP, old MMU", "shared", "kvm.tdp_mmu=0")
SHADOW = Paging("shadow", "shadow paging", "shared", "kvm_amd.npt=0")
MANY = Load("many", "32 MiB written", 32, 2000)
FEW = Load("few", "1 MiB written", 1, 40000)
ROWS = ((TDP, MANY), (TDP, FEW), (OLD, MANY), (SHADOW, MANY))


def name_of(paging: Paging, load: Load, side: str) -> str:
    """The name of a step."""
    return f"lockless/{paging.name}-{load.name}-{side}"


def step(paging: Paging, load: Load, side: str, quick: bool) -> Step:
    """One migration of one guest; a quick run's guest makes fewer passes."""
    passes = load.passes // 2 if quick else load.passes
    mechanism = paging.best if side == "ours" else "log"
    return Step(
        name_of(paging, load, side),
        (*PYTHON, "tests.bench.mmtest", "-m", str(load.mib),
         "-c", str(passes), "-t", "1", "--memory", str(MEMORY),
         "--qemu", side, "--mechanism", mechanism, "--shared-ram",
         "--mib-per-second", "100", "--downtime-ms", "20"),
        replace(COUNTED, kernel=KERNELS[side], append=paging.append),
        seconds=50)


def steps(quick: bool) -> Sequence[Step]:
    """In the lab the figures repeat, so one run is enough."""
    return [step(paging, load, side, quick)
            for paging, load in (ROWS[:1] if quick else ROWS)
            for side in KERNELS]


# Guest, migration in ms and benchmark in ns: before, after; EPT, then shadow.
PUBLISHED = (
    ("7 G, 6 vCPUs, -m 3000 -t 60", (21638, 21110), (266601028, 264966696),
     (22542, 21641), (271969284, 270485511)),
    ("25 G, 12 vCPUs, -m 15000 -t 30", (72773, 70516),
     (1278228350, 1266581587), (74198, 64948), (1323180090, 1299283302)),
    ("25 G, 6 vCPUs, -m 15000 -t 200", (267473, 267374),
     (1224657502, 1221520513), (369999, 335737), (1712004428, 1556065063)))


def before_after(pair: tuple[int, int]) -> list[str]:
    """Two published figures and their ratio."""
    return [f"{pair[0]:,}", f"{pair[1]:,}", f"{pair[0] / pair[1]:.3f}×"]


def published() -> Table:
    """The figures to compare with."""
    rows = []
    for guest, *pairs in PUBLISHED:
        for paging, (total, passes) in (("EPT", pairs[:2]),
                                        ("shadow", pairs[2:])):
            rows.append([f"{guest}, {paging}", *before_after(total),
                         *before_after(passes)])
    return Table(("published: guest, paging", "migration before, ms", "after",
                  "ratio", "pass before, ns", "after", "ratio"), rows,
                 "mmtest, as published in 2013")


def row(results: Results, paging: Paging, load: Load) -> list[str]:
    """One row of our measurements."""
    cells = [f"{paging.title}, {load.title}"]
    for name in ("migration", "migrating"):
        pair = [results.stat(name_of(paging, load, side), name)
                for side in KERNELS]
        cells += [*map(cell, pair), ratio(*pair)]
    slow = [results.stat(name_of(paging, load, side), "slowdown")
            for side in KERNELS]
    return [*cells, *(NONE if stat is None else f"{cell(stat)}×"
                      for stat in slow)]


HEADINGS = ("paging, load", "migration, stock, ms", "ours", "ratio",
            "pass, stock, ns", "ours", "ratio", "slower than alone, stock",
            "ours")

WHY = Text(
    "Published: an X5690 with 12 CPUs, on which the log was fetched under "
    "the lock that all vCPUs needed for their faults. Here: one vCPU and one"
    f" CPU that counts instructions, a guest of {MEMORY} MiB at 100 MiB/s; "
    "stock QEMU on the stock kernel against ours on the patched one, with "
    "dirty-bits, or with shared where there is no TDP MMU. Linux 6.1 has fast"
    " page faults without that lock already, and one "
    "CPU has no contention, so that what was gained by not waiting cannot "
    "show here; what shows is the work itself. Most of the slowdown is that "
    "of the two QEMUs, which have the same CPU as the guest. A migration "
    "ends when the guest has made its passes, so that its time has theirs in"
    " it; a ratio below 1 is a loss for ours.")


def blocks(results: Results) -> Sequence[Block]:
    """The published figures, ours, and why they differ."""
    return [published(),
            Table(HEADINGS, [row(results, *pair) for pair in ROWS],
                  "mmtest in the lab"), WHY]


CHAPTER = Chapter("lockless", "The lockless write-protect table", steps,
                  blocks)
