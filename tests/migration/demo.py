#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Migrate a guest that writes all the time, with each mechanism.

Our QEMU and the distribution's do the same in one run, and a table compares
them.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Sequence

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# The package can be found only from here on.
# pylint: disable=wrong-import-position
from migration.compare import differing_pages  # noqa: E402
from migration.guest import MIB, PAGE, RANDOM, Writer  # noqa: E402
from migration.migrate import (  # noqa: E402
    MigrationError, Options, Result, finish, info, release, start, wait_rounds)
from migration.qmp import QMPError  # noqa: E402
from migration.vm import (  # noqa: E402
    LOG, VM, Config, Mechanism, Qemu, VMError, kvm_usable, pair, qemu)

RUNS = (
    ("ours", LOG), ("ours", Mechanism(1024)), ("ours", Mechanism(4096)),
    ("ours", Mechanism(65536)),
    ("stock", LOG), ("stock", Mechanism(4096)), ("stock", Mechanism(65536)))

WRITER = Writer(mib=64, pattern=RANDOM, cpus=2)
OPTIONS = Options(bandwidth=100 * MIB, hold=True, timeout=60.0)
BEFORE_SECONDS = 1.5
HOLD_ROUNDS = 4
HOLD_SECONDS = 2.5


@dataclass
class Row:
    """The result of one migration; without one it failed."""

    name: str
    mechanism: Mechanism
    before: float = 0.0
    during: float = 0.0
    result: Optional[Result] = None
    pages: Sequence[int] = ()
    error: str = ""

    def cells(self) -> list[str]:
        """Return the row of the table."""
        head = [self.name, str(self.mechanism)]
        before = f"{self.before:,.0f}" if self.before else "-"
        if self.result is None:
            return head + ["-", "-", "-", before, "-", "failed"]
        return head + [
            f"{self.result.total_ms:,} ms", f"{self.result.downtime_ms:,} ms",
            str(self.result.rounds), before, f"{self.during:,.0f}",
            f"{len(self.pages):,}"]


HEADINGS = ("QEMU", "mechanism", "total time", "downtime", "rounds",
            "writes/s before", "during", "pages that differ")


def say(text: str) -> None:
    """Print a message of progress."""
    print(f"demo: {text}", flush=True)


def hold(src: VM, dst: VM, started: float) -> None:
    """Let the migration go on for long enough to measure the guest."""
    wait_rounds(src, dst, HOLD_ROUNDS, OPTIONS)
    while (time.monotonic() - started < HOLD_SECONDS
           and info(src).get("status") == "active"):
        time.sleep(0.05)


def measure(row: Row, src: VM, dst: VM) -> None:
    """Migrate the guest and fill in the row."""
    src.wait_writing()
    row.before = sum(src.rates(BEFORE_SECONDS))
    say(f"{row.name}, {row.mechanism}: migrating it, live, "
        f"while it writes {row.before:,.0f} pages a second")
    begun = sum(src.counters())
    start(src, dst, OPTIONS)
    hold(src, dst, time.monotonic())
    release(src, OPTIONS)
    result = finish(src, dst, OPTIONS)
    seconds = max(result.total_ms - result.downtime_ms, 1) / 1000
    row.during = (sum(src.counters()) - begun) / seconds
    say(f"{row.name}, {row.mechanism}: comparing its "
        f"{src.config.mib * MIB // PAGE:,} pages on both sides")
    row.pages = differing_pages(src, dst)
    row.result = result


def run(binary: Qemu, mechanism: Mechanism) -> Row:
    """Do one migration, from the start of the guest to its comparison."""
    row = Row(binary.name, mechanism)
    config = Config(binary, binary.accel(mechanism), mib=128, writer=WRITER)
    say(f"{row.name}, {row.mechanism}: starting a guest of {config.mib} MiB "
        f"that writes to {WRITER.mib} MiB from {WRITER.cpus} vCPUs")
    try:
        with pair(config) as (src, dst):
            measure(row, src, dst)
    except (VMError, MigrationError, QMPError) as error:
        row.error = str(error)
        say(f"{row.name}, {row.mechanism}: failed: {error}")
    return row


def table(rows: Sequence[Row]) -> str:
    """Return the rows with their columns aligned, text left, numbers right."""
    cells = [list(HEADINGS), *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells)
              for column in range(len(HEADINGS))]
    lines = []
    for line in cells:
        lines.append("  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))))
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def listed(parts: Sequence[str]) -> str:
    """Join PARTS as in a sentence."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def faulty(row: Row) -> bool:
    """Whether the guest's memory differs at the destination."""
    return row.result is None or bool(row.pages)


def outcome(rows: Sequence[Row]) -> str:
    """Return the failures in ROWS, as the predicate of a sentence."""
    parts = []
    wrong = [f"{len(row.pages):,} with {row.mechanism}"
             for row in rows if row.pages]
    if wrong:
        parts.append(f"reported success but delivered wrong pages "
                     f"({listed(wrong)})")
    failed = [str(row.mechanism) for row in rows if row.result is None]
    if failed:
        parts.append(f"failed with {listed(failed)}")
    return listed(parts) or (
        f"delivered every page in all {len(rows)} migrations")


def conclusion(ours: Sequence[Row], stock: Sequence[Row]) -> str:
    """Return the one sentence that sums up the table."""
    differ = any(map(faulty, ours)) != any(map(faulty, stock))
    return (f"Our QEMU {outcome(ours)}, {'while' if differ else 'and'} "
            f"stock QEMU {outcome(stock)}.")


def missing() -> Optional[str]:
    """Return why there can be no demo, if so."""
    if not kvm_usable():
        return "this host has no /dev/kvm that can be used, so there is " \
            "nothing to show."
    for name in ("ours", "stock"):
        path = qemu(name).path
        if not os.access(path, os.X_OK):
            return f"{path} is missing."
    return None


def main() -> int:
    """Run the demo; the status says whether our QEMU kept every page."""
    # An exception unwinds the stack, so that no QEMU is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    problem = missing()
    if problem:
        print(f"demo: {problem}", file=sys.stderr)
        return 1
    rows = [run(qemu(name), mechanism) for name, mechanism in RUNS]
    ours = [row for row in rows if row.name == "ours"]
    stock = [row for row in rows if row.name == "stock"]
    print(f"\n{table(rows)}\n\n{conclusion(ours, stock)}", flush=True)
    return 1 if any(map(faulty, ours)) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
