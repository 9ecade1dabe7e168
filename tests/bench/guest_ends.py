# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether and when a migration ends of a guest that writes a lot.

usage: python -m tests.bench.guest_ends [options] [QEMU:MECHANISM...]
       scripts/lab --kernel patched --cpus 2 --memory 3072 --timeout 3000 -- \\
           build/venv/bin/python -m tests.bench.guest_ends

Each QEMU and mechanism migrates the same guest once, and the operator asks for
what that QEMU has to make it end: auto-converge, or with rings the dirty limit,
at which all vCPUs together write half of the bandwidth.  --times N sets the
bandwidth, so that the guest alone writes N times as much.  No page waits with
QEMU:MECHANISM:sends-all, for QEMUs of ours.

For each it prints its figures; those of a migration that has not ended after
--seconds say only so.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.migration.guest import MIB, PAGE, PATTERNS, Writer
from tests.migration.migrate import (FAILED, MigrationError, Options,
                                     has_capability, info, start)
from tests.migration.vm import VM, Config, Qemu

from .binaries import MECHANISMS, available, mechanism_of, writing_pair
from .program import POLL_SECONDS, measured

BEFORE_SECONDS = 4.0  # as long as some bursts of a guest on a busy machine
LEAST_MIB = 1  # a second, of the dirty limit and the bandwidth
SENDS_ALL = "sends-all"
HALF = 0.5  # of the bandwidth: what auto-converge tries to reach, too
ROWS = ("stock:log", "ours:log", "ours:shared", "ours:dirty-bits")


@dataclass(frozen=True)
class Row:
    """One QEMU with one mechanism."""

    qemu: Qemu
    mechanism: str
    sends_all: bool = False

    @property
    def name(self) -> str:
        """The end of its figures' names."""
        sends = f"-{SENDS_ALL}" if self.sends_all else ""
        return f"{self.qemu.name}-{self.mechanism}{sends}"

    def config(self, writer: Writer, mib: int) -> Config:
        """Its guest."""
        mechanism = mechanism_of(self.qemu, self.mechanism)
        return Config(self.qemu, self.qemu.accel(mechanism), mib=mib,
                      writer=writer)


def row_of(name: str) -> Row:
    """The row that the command line names."""
    binary, mechanism, *sends = name.split(":")
    return Row(available(binary), mechanism, bool(sends))


@dataclass(frozen=True)
class Brake:
    """What makes a migration end; LIMIT is MiB per second for each vCPU."""

    auto_converge: bool
    limit: int = 0
    by_migration: bool = False

    def prepare(self, src: VM) -> None:
        """Set what is set before a migration starts."""
        if self.limit and self.by_migration:
            src.qmp("migrate-set-parameters", vcpu_dirty_limit=self.limit)

    def pull(self, src: VM) -> None:
        """Set what is set once it has started."""
        if self.limit and not self.by_migration:
            src.qmp("set-vcpu-dirty-limit", dirty_rate=self.limit)


def brake_of(src: VM, row: Row, bandwidth: int, writers: int) -> Brake:
    """The operator's choice; QEMU since 8.1 has dirty-limit itself."""
    if row.mechanism != "ring" or row.qemu.patched:
        return Brake(auto_converge=True)
    limit = max(int(bandwidth / MIB * HALF / writers), LEAST_MIB)
    return Brake(False, limit, by_migration=has_capability(src, "dirty-limit"))


def wait_end(src: VM, seconds: float, begin: float
             ) -> tuple[bool, list[int], float]:
    """Wait for the end; return the last counts of a guest that still ran.

    And when after BEGIN that was.
    """
    counts, when = src.counters(), time.monotonic() - begin
    while True:
        status = info(src).get("status")
        if status in FAILED:
            raise MigrationError(f"The migration is {status}.")
        if status == "completed":
            return True, counts, when
        if when > seconds:
            return False, counts, when
        counts, when = src.counters(), time.monotonic() - begin
        time.sleep(POLL_SECONDS)


def kept(name: str, counts: Sequence[float],
         free: Sequence[float]) -> list[str]:
    """How much of what they did before some vCPUs still did, if any."""
    return [f"{name} {sum(counts) / sum(free) * 100:.1f} %"] if free else []


def ending(state: dict[str, Any], options: Options) -> list[str]:
    """The figures of a migration that ended."""
    over = state["downtime"] > options.downtime_limit
    return [f"total {state['total-time']} ms",
            f"downtime {state['downtime']} ms", f"over {int(over)} runs",
            f"sent {state['ram']['transferred'] / MIB:.1f} MiB"]


def bandwidth_of(args: argparse.Namespace, rate: float) -> int:
    """Bytes per second, for a guest that writes RATE pages per second."""
    wanted = (rate * PAGE / args.times if args.times
              else args.mib_per_second * MIB)
    return max(int(wanted), LEAST_MIB * MIB)


def watched(src: VM, dst: VM, row: Row, args: argparse.Namespace
            ) -> list[str]:
    """Migrate the guest, and return the figures."""
    writers = args.writers or args.cpus
    free = src.rates(BEFORE_SECONDS)
    bandwidth = bandwidth_of(args, sum(free[:writers]))
    brake = brake_of(src, row, bandwidth, writers)
    options = Options(
        bandwidth=bandwidth, downtime_limit=args.downtime_ms,
        auto_converge=brake.auto_converge,
        hot_pages_wait=False if row.sends_all else None,
        capabilities=("dirty-limit",) if brake.by_migration else ())
    brake.prepare(src)
    begun, when_begun = src.counters(), time.monotonic()
    start(src, dst, options)
    brake.pull(src)
    ended, counts, when = wait_end(src, args.seconds, when_begun)
    rates = [(b - a) / when for a, b in zip(begun, counts)]
    if ended:
        src.wait(lambda: info(src)["total-time"] > 0, 10,
                 "it did not say how long the migration took")
    return [f"ended {int(ended)} runs",
            f"bandwidth {bandwidth / MIB:.1f} MiB/s",
            *(ending(info(src), options) if ended else []),
            *kept("writers", rates[:writers], free[:writers]),
            *kept("others", rates[writers:], free[writers:])]


def writer_of(args: argparse.Namespace) -> Writer:
    """How the guest writes."""
    return Writer(mib=args.written_mib, cpus=args.cpus, delay=args.delay,
                  pause=args.pause, writers=args.writers,
                  pattern=PATTERNS[args.pattern])


def migrate_once(row: Row, args: argparse.Namespace) -> list[str]:
    """Migrate one guest; the lines to print."""
    with writing_pair(row.config(writer_of(args), args.mib)) as (src, dst):
        lines = watched(src, dst, row, args)
    return [f"{name}.{row.name} {rest}"
            for name, rest in (line.split(" ", 1) for line in lines)]


def run(args: argparse.Namespace) -> list[str]:
    """Migrate the guest of each row, and return the lines to print."""
    return [line for row in map(row_of, args.rows)
            for line in migrate_once(row, args)]


def row_name(text: str) -> str:
    """A QEMU and a mechanism, as the command line has them."""
    binary, _, rest = text.partition(":")
    mechanism, colon, sends = rest.partition(":")
    if (not binary or mechanism not in MECHANISMS
            or colon and sends != SENDS_ALL):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not QEMU:MECHANISM or QEMU:MECHANISM:{SENDS_ALL}, "
            f"with one of {', '.join(sorted(MECHANISMS))}")
    return text


def positive(text: str) -> float:
    """A number above 0."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="guest_ends", description="Whether and when a migration ends.")
    parser.add_argument("--seconds", type=positive, default=60)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--written-mib", type=int, default=64)
    parser.add_argument("--cpus", type=int, default=1)
    parser.add_argument("--writers", type=int, default=0,
                        help="vCPUs that write, the others compute; 0 for all")
    parser.add_argument("--delay", type=int, default=0,
                        help="idle loops after each write")
    parser.add_argument("--pause", type=int, default=0,
                        help="idle loops after each pass: bursts")
    parser.add_argument("--pattern", choices=PATTERNS, default="random")
    speed = parser.add_mutually_exclusive_group()
    speed.add_argument("--mib-per-second", type=positive, default=200)
    speed.add_argument("--times", type=positive,
                       help="how many times the bandwidth the guest writes")
    parser.add_argument("--downtime-ms", type=int, default=100)
    parser.add_argument("rows", nargs="*",
                        metavar="QEMU:MECHANISM[:sends-all]",
                        type=row_name, default=ROWS)
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Measure and print."""
    return measured("guest_ends", run, arguments(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
