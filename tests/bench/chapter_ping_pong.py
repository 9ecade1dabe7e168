# SPDX-License-Identifier: GPL-2.0-or-later
"""The chapter on a guest that is migrated back and forth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .blocks import NONE, Block, Chapter, Table, Text, cell, number, ratio
from .releases import PEER, SHORT
from .results import Results
from .step import PYTHON, Lab, Step

MACHINE = Lab(cpus=2, memory=2048)
PROGRAM = (*PYTHON, "tests.bench.ping_pong")
HOST = ("--mib", "256", "--mib-per-second", "100", "--downtime-ms", "50")
IN_LAB = ("--mib", "96", "--mib-per-second", "25", "--downtime-ms", "50",
          "--rest-seconds", "0.3")
LEGS = ("--legs", "6", "--rounds-seconds", "3")
QUICK_LEGS = ("--legs", "2", "--rounds-seconds", "2")


@dataclass(frozen=True)
class Load:
    """How much the guest writes, in MiB, with a delay in idle loops."""

    name: str
    mib: int
    delay: int

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments of the program."""
        return ("--written-mib", str(self.mib), "--delay", str(self.delay))


# A loop takes about 0.4 us on a host whose KVM emulates each instruction, and a
# few ns in the lab.
LOADS = (Load("light", 8, 400), Load("moderate", 128, 130),
         Load("heavy", 128, 0))
LAB_LOADS = (Load("moderate", 32, 100_000),)
SIDES = ((PEER, "log"), ("ours", "log"), ("ours", "ring"),
         ("ours", "ring-4096"))
LAB_SIDES = ((PEER, "log"), ("ours", "ring"), ("ours", "dirty-bits"))


def name_of(where: str, load: Load, qemu: str, mechanism: str) -> str:
    """The name of a step."""
    return f"ping-pong/{where}-{load.name}-{qemu}-{mechanism}"


def steps(quick: bool) -> Sequence[Step]:
    """A quick run has two legs, which are short, and on this host only."""
    legs = QUICK_LEGS if quick else LEGS
    host = [
        Step(name_of("host", load, *side),
             (*PROGRAM, "--qemu", side[0], "--mechanism", side[1],
              *load.words, *HOST, *legs), kvm=True,
             seconds=25 if quick else 40)
        for load in LOADS for side in SIDES
        if not quick or (load.name == "moderate" and side in SIDES[:3])]
    lab = [
        Step(name_of("lab", load, *side),
             (*PROGRAM, "--qemu", side[0], "--mechanism", side[1],
              *load.words, *IN_LAB, *legs), MACHINE, seconds=60)
        for load in LAB_LOADS for side in LAB_SIDES]
    return host if quick else [*host, *lab]


def legs_of(results: Results, step: str) -> str:
    """The time of each leg, in seconds."""
    series = results.series(step, "legs")
    return " ".join(number(leg / 1000) for leg in series) or NONE


def rows(results: Results, where: str, loads: Sequence[Load],
         sides: Sequence[tuple[str, str]]) -> list[list[str]]:
    """A row for each load, QEMU and mechanism; the first side is the base."""
    found = []
    for load in loads:
        base = results.stat(name_of(where, load, *sides[0]), "mean")
        for side in sides:
            step = name_of(where, load, *side)
            mean = results.stat(step, "mean")
            found.append([
                f"{load.name}, {SHORT[side[0]]}, {side[1]}",
                legs_of(results, step),
                cell(mean), ratio(base, mean),
                *(cell(results.stat(step, name))
                  for name in ("pages", "rounds", "written"))])
    return found


HEADINGS = ("load, QEMU, mechanism", "legs, s", "mean, ms", "stock log to it",
            "pages sent", "rounds", "written, MiB/s")

PUBLISHED = Table(
    ("mechanism", "legs, s", "mean, s", "log to it"),
    (("log", "58 70 48 52 49 54", "55", "1×"),
     ("ring of 4k entries", "70 78 72 74 83 65", "73", "0.75×")),
    "Published: 24 G, 8 vCPUs, 10 Gbit/s, 800 MB/s random writes over 20 G")

WHY = Text(
    "Published rings were slower than the log under heavy random writing, "
    "and no different else. Light is 8 MiB written slowly. Here the guest is"
    " small, as is the bandwidth (100 MiB/s on this host, 25 MiB/s in the "
    "lab), and each leg goes to a new QEMU. Moderate is meant to be the "
    "published load, about two thirds of the bandwidth; the last column has "
    "what was written in truth before the first leg. Heavy is as fast as the"
    " guest can: such a migration does not converge, and has its downtime "
    "limit lifted after 3 s, so that its time is mostly those 3 s. A ratio "
    "below 1 is a loss against stock's log. Single runs in real time on a "
    "shared machine: differences of some percent are noise. Stock rings are "
    "left out, because stock QEMU loses pages or aborts where KVM overfills "
    "rings, as on this host.")


def blocks(results: Results) -> Sequence[Block]:
    """The published figures, ours, and why they differ."""
    return [PUBLISHED,
            Table(HEADINGS, rows(results, "host", LOADS, SIDES),
                  "On this host"),
            Table(HEADINGS, rows(results, "lab", LAB_LOADS, LAB_SIDES),
                  "In the lab, with our host kernel"), WHY]


CHAPTER = Chapter("ping-pong", "Back and forth", steps, blocks)
