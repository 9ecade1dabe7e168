# SPDX-License-Identifier: GPL-2.0-or-later
"""The effects of its own migration on a guest that writes, every 10 ms.

usage: python -m tests.bench.guest_view --qemu ours --mechanism shared

One guest is migrated once.  Its write counters are read out of its memory, before,
during and after, on the side that it runs on; the target resumes it by itself.
All times are in seconds since the migration began.
"""

from __future__ import annotations

import argparse
import bisect
import sys
import time
from dataclasses import dataclass
from typing import Sequence

from tests.migration.migrate import (MigrationError, Options, Result, finish,
                                     lift, start)
from tests.migration.vm import VM

from .binaries import writing_pair
from .program import add_guest, config_of, measured, options_of, parser_of
from .sampler import Reading, Sampler

STEP_MS = 10


@dataclass(frozen=True)
class Times:
    """The times of events, as of time.time()."""

    begin: float
    stop: float
    resume: float
    end: float


@dataclass(frozen=True)
class View:
    """The writes that the guest has made in all, at each time."""

    times: Sequence[float]
    counts: Sequence[float]

    def at(self, when: float) -> float:
        """The writes that it had made by then."""
        i = bisect.bisect_right(self.times, when)
        if i == 0 or i == len(self.times):
            return self.counts[min(i, len(self.times) - 1)]
        t0, t1 = self.times[i - 1:i + 1]
        c0, c1 = self.counts[i - 1:i + 1]
        return c0 + (c1 - c0) * (when - t0) / (t1 - t0)

    def rate(self, start_: float, end: float) -> float:
        """Its writes per second in between."""
        return (self.at(end) - self.at(start_)) / (end - start_)

    def longest_zero(self, start_: float, end: float) -> float:
        """The longest time in between without a write."""
        longest, since = 0.0, None
        for i, when in enumerate(self.times[:-1]):
            idle = self.counts[i + 1] <= self.counts[i]
            inside = start_ <= when and self.times[i + 1] <= end
            since = (when if since is None else since) \
                if idle and inside else None
            if since is not None:
                longest = max(longest, self.times[i + 1] - since)
        return longest

    @property
    def gap(self) -> float:
        """The longest time between two readings."""
        return max(b - a for a, b in zip(self.times, self.times[1:]))


def joined(readings: Sequence[Reading], resume: float) -> View:
    """The guest's writes, first at the source and then at the target.

    The target's counter jumps when its page arrives, and begins where the
    source's ended.  If that page was lost, it begins with the page that came.
    """
    final = readings[-1].counts[0]
    after = [reading for reading in readings if reading.time >= resume]
    base = min(final, after[0].counts[1]) if after else final
    return View(
        [reading.time for reading in readings],
        [reading.counts[0] + (max(reading.counts[1] - base, 0)
                              if reading.time >= resume else 0)
         for reading in readings])


def event_time(vm: VM, name: str) -> float:
    """The time of the last event of that name."""
    times = vm.monitor.event_times(name)
    if not times:
        raise MigrationError(f"{vm.name} has sent no event {name}.")
    return times[-1]


def watch(src: VM, dst: VM, options: Options,
          args: argparse.Namespace) -> tuple[Result, Times, list[Reading]]:
    """Migrate, with the counters read all the time.

    If there are rounds_seconds, the downtime limit is lifted after so long.
    """
    files = [vm.dir / "ram" for vm in (src, dst)]
    with Sampler(files, src.config.writer.cpus, STEP_MS) as sampler:
        time.sleep(args.around_seconds)
        begin = time.time()
        start(src, dst, options)
        # The target then runs the guest as soon as it can.
        dst.qmp("cont")
        if args.rounds_seconds:
            time.sleep(args.rounds_seconds)
            lift(src)
        result = finish(src, dst, options)
        time.sleep(args.around_seconds)
    stop, resume = event_time(src, "STOP"), event_time(dst, "RESUME")
    return (result, Times(begin, stop, resume,
                          max(begin + result.total_ms / 1000, resume)),
            sampler.readings)


def grid(times: Times, around: float, step: float) -> list[float]:
    """The ends of the intervals that the series is made of."""
    first = -int(around / step)
    last = int((times.end - times.begin + around) / step)
    return [times.begin + i * step for i in range(first, last + 1)]


def report(view: View, times: Times, around: float,
           result: Result) -> list[str]:
    """The lines to print."""
    step = STEP_MS / 1000
    edges = grid(times, around, step)
    rates = [view.rate(a, b) for a, b in zip(edges, edges[1:])]
    before = view.rate(edges[0], times.begin)
    if not before:
        raise MigrationError("The guest did not write before it was migrated.")
    live = [rate for rate, a in zip(rates, edges)
            if times.begin <= a < times.end
            and (a + step < times.stop or a > times.resume)]
    took = times.end - times.begin
    during = view.rate(times.begin, times.end) / before
    live_kept = view.rate(times.begin, times.stop) / before
    after = view.rate(times.end, edges[-1]) / before
    return [
        f"rate {' '.join(f'{rate:.0f}' for rate in rates)} per-s",
        f"first {edges[0] - times.begin:.3f} s",
        f"step {STEP_MS} ms",
        "begin 0 s",
        *(f"{name} {getattr(times, name) - times.begin:.4f} s"
          for name in ("stop", "resume", "end")),
        f"before {before:.0f} per-s",
        f"kept {during * 100:.2f} %",
        f"kept-live {live_kept * 100:.2f} %",
        f"lost {(1 - during) * took * 1000:.1f} ms",
        f"lost-after {(1 - after) * around * 1000:.1f} ms",
        f"worst {min(live, default=0) / before * 100:.2f} %",
        f"zero {1000 * view.longest_zero(times.begin, edges[-1]):.1f} ms",
        f"zero-live {1000 * view.longest_zero(times.begin, times.stop):.1f}"
        " ms",
        f"stopped {(times.resume - times.stop) * 1000:.1f} ms",
        f"downtime {result.downtime_ms} ms",
        f"total {result.total_ms} ms",
        f"pages {result.pages} pages",
        f"rounds {result.rounds} rounds",
        f"sample-gap {view.gap * 1000:.1f} ms"]


def run(args: argparse.Namespace) -> list[str]:
    """Migrate once, and return the lines to print."""
    config, options = config_of(args), options_of(args)
    with writing_pair(config) as (src, dst):
        result, times, readings = watch(src, dst, options, args)
    return report(joined(readings, times.resume), times, args.around_seconds,
                  result)


def view_parser(prog: str, description: str,
                rounds: str) -> argparse.ArgumentParser:
    """The options of a program that watches a guest; ROUNDS says what for."""
    parser = parser_of(prog, description, mib_per_second=50, downtime_ms=300)
    add_guest(parser, written_mib=32)
    parser.add_argument("--around-seconds", type=float, default=2,
                        help="how long to watch before and after")
    parser.add_argument("--rounds-seconds", type=float, default=0, help=rounds)
    return parser


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    return view_parser("guest_view", "A migration as its guest sees it.",
                       "lift the downtime limit after so long"
                       ).parse_args(words)


def main(words: Sequence[str]) -> int:
    """Measure and print."""
    return measured("guest_view", run, arguments(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
