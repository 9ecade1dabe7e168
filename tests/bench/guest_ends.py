# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether and when a migration ends of a guest that writes more than is sent.

usage: python -m tests.bench.guest_ends [options]
       scripts/lab --kernel patched --cpus 2 --memory 3072 --timeout 3000 -- \\
           build/venv/bin/python -m tests.bench.guest_ends

Each QEMU and mechanism migrates the same guest, in turns.  The table has
medians; a migration that has not ended after --seconds counts as endless.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from dataclasses import dataclass, field
from typing import Sequence

from tests.migration.guest import MIB, PATTERNS, Writer
from tests.migration.migrate import FAILED, MigrationError, Options, info, \
    start
from tests.migration.vm import (DIRTY_BITS, LOG, SHARED, VM, Config, Mechanism,
                                Qemu, pair, qemu)

from .guest_writes import table

BEFORE_SECONDS = 1.0
MECHANISMS = {"log": LOG, "shared": SHARED, "dirty-bits": DIRTY_BITS,
              "ring": Mechanism(65536)}
HEADINGS = ("QEMU, mechanism", "ended", "total ms", "downtime ms", "MiB sent",
            "writers kept", "others kept")


@dataclass(frozen=True)
class Outcome:
    """What a migration came to; infinite if it did not end."""

    total_ms: float
    downtime_ms: float
    mib: float
    writers_kept: float
    others_kept: float


def percent(value: float) -> str:
    """How the table shows a share; there may be no such vCPUs."""
    return "–" if math.isnan(value) else f"{value:.0%}"


@dataclass
class Row:
    """One QEMU with one mechanism, and its migrations."""

    qemu: Qemu
    mechanism: Mechanism
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.qemu.name} {self.mechanism}"

    def median(self, name: str) -> float:
        """The median over all migrations."""
        return statistics.median(getattr(each, name)
                                 for each in self.outcomes)

    def cells(self) -> list[str]:
        """The line of the table."""
        ended = sum(math.isfinite(each.total_ms) for each in self.outcomes)
        return [self.name, f"{ended} of {len(self.outcomes)}",
                *(f"{self.median(name):,.0f}" for name in (
                    "total_ms", "downtime_ms", "mib")),
                *(percent(self.median(name)) for name in (
                    "writers_kept", "others_kept"))]


def rows(names: Sequence[str]) -> list[Row]:
    """The rows asked for, but for mechanisms that the host does not have."""
    found = []
    for name in names:
        binary, mechanism = name.split(":")
        if MECHANISMS[mechanism].offered:
            found.append(Row(qemu(binary), MECHANISMS[mechanism]))
    return found


def wait_end(src: VM, seconds: float) -> tuple[bool, list[int], float]:
    """Wait for the end; return the last counts of a guest that still ran."""
    begin = time.monotonic()
    counts, when = src.counters(), 0.0
    while True:
        status = info(src).get("status")
        if status in FAILED:
            raise MigrationError(f"The migration is {status}.")
        if status == "completed":
            return True, counts, when
        if when > seconds:
            return False, counts, when
        counts, when = src.counters(), time.monotonic() - begin
        time.sleep(0.02)


def share(counts: Sequence[float], free: Sequence[float]) -> float:
    """How much of what they did before some vCPUs still did."""
    return sum(counts) / sum(free) if free else math.nan


def migrate_once(row: Row, writer: Writer, mib: int, options: Options,
                 seconds: float) -> None:
    """Migrate one guest, and add what that came to."""
    config = Config(row.qemu, row.qemu.accel(row.mechanism), mib=mib,
                    writer=writer)
    writers = writer.writers or writer.cpus
    with pair(config) as (src, dst):
        src.wait_writing(range(writers))
        free, begun = src.rates(BEFORE_SECONDS), src.counters()
        start(src, dst, options)
        ended, counts, when = wait_end(src, seconds)
        if ended:
            src.wait(lambda: info(src)["total-time"] > 0, 10,
                     "it did not say how long the migration took")
        state = info(src)
        rates = [(b - a) / max(when, 0.001) for a, b in zip(begun, counts)]
        row.outcomes.append(Outcome(
            state["total-time"] if ended else math.inf,
            state.get("downtime", 0) if ended else math.inf,
            state["ram"]["transferred"] / MIB,
            share(rates[:writers], free[:writers]),
            share(rates[writers:], free[writers:])))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Whether and when a migration ends.")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--written-mib", type=int, default=64)
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--writers", type=int, default=0,
                        help="vCPUs that write, the others compute; 0 for all")
    parser.add_argument("--pause", type=int, default=0,
                        help="idle loops after each pass: bursts")
    parser.add_argument("--pattern", choices=PATTERNS, default="random")
    parser.add_argument("--mib-per-second", type=int, default=200)
    parser.add_argument("--downtime-ms", type=int, default=100)
    parser.add_argument("--no-auto-converge", action="store_true")
    parser.add_argument("rows", nargs="*", metavar="QEMU:MECHANISM", default=[
        "stock:log", "ours:log", "ours:shared", "ours:dirty-bits"])
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    args = arguments()
    writer = Writer(mib=args.written_mib, cpus=args.cpus, pause=args.pause,
                    writers=args.writers, pattern=PATTERNS[args.pattern])
    options = Options(bandwidth=args.mib_per_second * MIB,
                      downtime_limit=args.downtime_ms,
                      auto_converge=not args.no_auto_converge)
    measured = rows(args.rows)
    for run in range(args.runs):
        for row in measured:
            migrate_once(row, writer, args.mib, options, args.seconds)
            print(f"{run + 1}/{args.runs} {row.name}: {row.outcomes[-1]}",
                  flush=True)
    print(table(HEADINGS, [row.cells() for row in measured]))


if __name__ == "__main__":
    main()
