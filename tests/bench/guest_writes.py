# SPDX-License-Identifier: GPL-2.0-or-later
"""The writes that a guest that never stops writing loses to its migration.

usage: python -m tests.bench.guest_writes [options]
       scripts/lab --kernel patched --cpus 2 --memory 3072 --timeout 1800 -- \\
           build/venv/bin/python -m tests.bench.guest_writes

For each QEMU and mechanism the same guest is migrated, over and over and in
turns, so that other load of the machine meets all of them alike.  The table
has medians.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass, field, replace
from typing import Optional, Sequence

from tests.migration.guest import MIB, PATTERNS, Writer
from tests.migration.migrate import (ANY_DOWNTIME, Options, Result, finish,
                                     release, start, wait_rounds)
from tests.migration.vm import (LOG, SHARED, WRPROT, Config, Mechanism, Qemu,
                                pair, qemu)

BEFORE_SECONDS = 2.0
ROUNDS_BEFORE = 4
RELEASED = Options(downtime_limit=ANY_DOWNTIME)


@dataclass
class Row:
    """One QEMU with one mechanism, and the results of its migrations."""

    qemu: Qemu
    mechanism: Mechanism
    hot_pages_wait: Optional[bool] = None
    kept: list[float] = field(default_factory=list)
    total_ms: list[float] = field(default_factory=list)
    downtime_ms: list[float] = field(default_factory=list)
    pages: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name in the table."""
        sends = ", no page waits" if self.hot_pages_wait is False else ""
        return f"{self.qemu.name} {self.mechanism}{sends}"

    def add(self, kept: float, result: Result) -> None:
        """Take in one migration."""
        self.kept.append(kept)
        self.total_ms.append(result.total_ms)
        self.downtime_ms.append(result.downtime_ms)
        self.pages.append(result.pages)
        self.rounds.append(result.rounds)

    def cells(self) -> list[str]:
        """The line of the table."""
        return [self.name, f"{statistics.median(self.kept):.1%}",
                *(f"{statistics.median(values):,.0f}" for values in (
                    self.total_ms, self.downtime_ms, self.pages,
                    self.rounds))]


HEADINGS = ("QEMU, mechanism", "writes kept", "total ms", "downtime ms",
            "pages sent", "rounds")


def rows(names: Sequence[str]) -> list[Row]:
    """The rows asked for, without mechanisms that the host lacks."""
    known = {"log": LOG, "wrprot": WRPROT, "shared": SHARED,
             "ring": Mechanism(65536)}
    found = []
    for name in names:
        binary, mechanism, *sends = name.split(":")
        if known[mechanism].offered:
            found.append(Row(qemu(binary), known[mechanism],
                             False if sends == ["sends-all"] else None))
    return found


def migrate_once(row: Row, writer: Writer, mib: int, options: Options,
                 rounds_seconds: float) -> None:
    """Migrate one guest, and note how much it could write meanwhile.

    If ROUNDS_SECONDS is not 0, it writes for so long in rounds that do not
    converge.
    """
    config = Config(row.qemu, row.qemu.accel(row.mechanism), mib=mib,
                    writer=writer)
    options = replace(options, hot_pages_wait=row.hot_pages_wait)
    with pair(config) as (src, dst):
        src.wait_writing()
        before = sum(src.rates(BEFORE_SECONDS))
        begun = sum(src.counters())
        start(src, dst, options)
        if rounds_seconds:
            wait_rounds(src, dst, ROUNDS_BEFORE, options)
            kept = sum(src.rates(rounds_seconds)) / before
            release(src, RELEASED)
        result = finish(src, dst, options)
        if not rounds_seconds:
            seconds = max(result.total_ms - result.downtime_ms, 1) / 1000
            kept = (sum(src.counters()) - begun) / seconds / before
        row.add(kept, result)


def table(headings: Sequence[str], rows_: Sequence[Sequence[str]]) -> str:
    """The rows in the form of the documents."""
    lines = [headings, ("---", *["--:"] * (len(headings) - 1)), *rows_]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="What a guest loses while it is migrated.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--written-mib", type=int, default=64)
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--pattern", choices=PATTERNS, default="random")
    parser.add_argument("--mib-per-second", type=int, default=400)
    parser.add_argument("--downtime-ms", type=int, default=300)
    parser.add_argument("--rounds-seconds", type=float, default=0)
    parser.add_argument(
        "rows", nargs="*", metavar="QEMU:MECHANISM[:sends-all]", default=[
            "stock:log", "stock:ring", "ours:log", "ours:ring", "ours:wrprot",
            "ours:shared", "ours:shared:sends-all"])
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    args = arguments()
    writer = Writer(mib=args.written_mib, cpus=args.cpus,
                    pattern=PATTERNS[args.pattern])
    options = Options(bandwidth=args.mib_per_second * MIB,
                      downtime_limit=args.downtime_ms)
    measured = rows(args.rows)
    for run in range(args.runs):
        for row in measured:
            migrate_once(row, writer, args.mib, options, args.rounds_seconds)
            print(f"{run + 1}/{args.runs} {row.name}: kept "
                  f"{row.kept[-1]:.1%} of its writes, "
                  f"{row.total_ms[-1]:.0f} ms, {row.pages[-1]:,.0f} pages, "
                  f"{row.rounds[-1]} rounds", flush=True)
    print(table(HEADINGS, [row.cells() for row in measured]))


if __name__ == "__main__":
    main()
