# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the write counters of writer guests whose memory is a file, for long.

usage: python -m tests.bench.sampler CPUS MILLISECONDS RAM...

It is a process of its own, because a thread would wait for Python's lock just
when the machine is busy.  It prints a line when it begins, and goes on
until its standard input ends; then it prints a line for each sample: the time,
as of time.time(), and the page writes that each guest has made.
"""

from __future__ import annotations

import mmap
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Optional, Sequence

from tests.migration.guest import CPU_PAGES, PAGE, ROOT, unpack_counters


@dataclass(frozen=True)
class Reading:
    """The page writes of all guests at some time."""

    time: float
    counts: tuple[int, ...]


class Sampler:
    """The process; leaving the context ends it, and has the readings."""

    def __init__(self, files: Sequence[Path], cpus: int,
                 milliseconds: int = 10) -> None:
        self.readings: list[Reading] = []
        command = [sys.executable, "-B", "-m", "tests.bench.sampler",
                   str(cpus), str(milliseconds), *map(str, files)]
        # Ended by stop() or with this process, whose end closes its input.
        self._process = subprocess.Popen(  # pylint: disable=consider-using-with
            command, cwd=ROOT, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)

    def __enter__(self) -> Sampler:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            self._process.wait()
            raise RuntimeError("the sampler did not start.")
        return self

    def __exit__(self, kind: Optional[type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        printed, _ = self._process.communicate()
        for line in printed.splitlines():
            first, *counts = line.split()
            self.readings.append(Reading(float(first),
                                         tuple(map(int, counts))))


def be_punctual() -> None:
    """Go before all others, where that is allowed: it takes next to no time."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        pass


def count(ram: mmap.mmap, cpus: int) -> int:
    """The page writes of all vCPUs of a guest."""
    pages = ram[CPU_PAGES:CPU_PAGES + PAGE * cpus]
    return sum(unpack_counters(pages, cpus))


def sample(maps: Sequence[mmap.mmap], cpus: int,
           seconds: float) -> list[Reading]:
    """Read all counters every SECONDS until the standard input ends."""
    readings = []
    due = time.monotonic()
    while True:
        readings.append(Reading(time.time(),
                                tuple(count(ram, cpus) for ram in maps)))
        # A late sample does not make the next one early.
        now = time.monotonic()
        due = max(due + seconds, now)
        if select.select([sys.stdin], [], [], due - now)[0]:
            return readings


def main(arguments: Sequence[str]) -> None:
    """Sample, then print."""
    cpus, milliseconds = map(int, arguments[:2])
    maps = []
    for name in arguments[2:]:
        with open(name, "rb") as ram:
            maps.append(mmap.mmap(ram.fileno(), 0, prot=mmap.PROT_READ))
    be_punctual()
    print("sampling", flush=True)
    for reading in sample(maps, cpus, milliseconds / 1000):
        print(f"{reading.time:.6f}", *reading.counts)


if __name__ == "__main__":
    main(sys.argv[1:])
