# SPDX-License-Identifier: GPL-2.0-or-later
"""The effects of another guest's migration on one that writes, every 10 ms.

usage: python -m tests.bench.guest_beside --qemu ours

The guest that writes stays where it is, and its memory is not tracked.  The other
one is stopped, so that it is sent once, and has so much memory that this takes
the seconds asked for.  The writing guest loses what sending costs on this
machine: with a mechanism that cost nothing, guest_view's would lose as much.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from tests.migration.guest import MIB, SEQUENTIAL, Writer
from tests.migration.migrate import Result, finish, start
from tests.migration.vm import VM

from .binaries import awake, writing_pair
from .guest_view import STEP_MS, Times, View, report, view_parser
from .program import config_of, measured, options_of
from .sampler import Reading, Sampler


def watch(guest: VM, src: VM, dst: VM, args: argparse.Namespace
          ) -> tuple[Result, Times, list[Reading]]:
    """Migrate SRC, with the counters of GUEST read all the time."""
    options = options_of(args)
    with Sampler([guest.dir / "ram"], args.cpus, STEP_MS) as sampler:
        time.sleep(args.around_seconds)
        begin = time.time()
        start(src, dst, options)
        result = finish(src, dst, options)
        time.sleep(args.around_seconds)
    end = begin + result.total_ms / 1000
    return result, Times(begin, end, end, end), sampler.readings


def run(args: argparse.Namespace) -> list[str]:
    """Migrate once, and return the lines to print."""
    config = config_of(args)
    sent = Writer(mib=round(args.mib_per_second * args.rounds_seconds),
                  pattern=SEQUENTIAL)
    other = replace(config, writer=sent, mib=sent.base // MIB + sent.mib)
    with contextlib.ExitStack() as stack:
        src, dst = stack.enter_context(writing_pair(other))
        src.qmp("stop")
        with awake():
            guest = stack.enter_context(VM("guest", config))
            guest.wait_writing()
        result, times, readings = watch(guest, src, dst, args)
    view = View([reading.time for reading in readings],
                [reading.counts[0] for reading in readings])
    return report(view, times, args.around_seconds, result)


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = view_parser("guest_beside", "Another's migration, as a guest that "
                         "writes sees it.", "how long that is to take")
    parser.set_defaults(rounds_seconds=3)
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Measure and print."""
    return measured("guest_beside", run, arguments(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
