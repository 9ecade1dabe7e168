# SPDX-License-Identifier: GPL-2.0-or-later
"""One guest that is migrated back and forth, and how long each leg takes.

usage: python -m tests.bench.ping_pong --mechanism ring --legs 6 --delay 50000

Each leg goes to a new QEMU, which resumes the guest by itself.  A leg that has
not converged after --rounds-seconds has its downtime limit lifted.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from dataclasses import dataclass
from typing import Sequence

from tests.migration.guest import MIB, PAGE
from tests.migration.migrate import Options, Result, finish, start
from tests.migration.vm import VM, Config

from .program import (add_guest, config_of, lift_after, measured, options_of,
                      parser_of)


@dataclass(frozen=True)
class Leg:
    """The result of one migration."""

    result: Result
    rate: float  # pages written per second before it


def migrate_leg(src: VM, dst: VM, options: Options,
                args: argparse.Namespace) -> Leg:
    """Migrate once, after the guest has had some time to write."""
    rate = sum(src.rates(args.rest_seconds))
    start(src, dst, options)
    # The target then runs the guest as soon as it can.
    dst.qmp("cont")
    lift_after(src, args.rounds_seconds)
    return Leg(finish(src, dst, options), rate)


def legs(config: Config, options: Options,
         args: argparse.Namespace) -> list[Leg]:
    """Do all legs; of two QEMUs one ends when the next one is started."""
    found = []
    with contextlib.ExitStack() as stack:
        src = stack.enter_context(VM("first", config))
        src.wait_writing()
        for leg in range(args.legs):
            dst = stack.enter_context(VM(f"leg{leg}", config, incoming=True))
            found.append(migrate_leg(src, dst, options, args))
            src.stop()
            src = dst
    return found


def run(args: argparse.Namespace) -> list[str]:
    """Measure, and return the lines to print."""
    config, options = config_of(args), options_of(args)
    found = legs(config, options, args)
    totals = [leg.result.total_ms for leg in found]
    mean = sum(totals) / len(totals)
    return [
        f"legs {' '.join(map(str, totals))} ms", f"mean {mean:.1f} ms",
        f"downtimes {' '.join(str(leg.result.downtime_ms) for leg in found)}"
        " ms",
        f"pages {sum(leg.result.pages for leg in found)} pages",
        f"rounds {sum(leg.result.rounds for leg in found)} rounds",
        f"written {found[0].rate * PAGE / MIB:.2f} MiB/s"]


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = parser_of("ping_pong",
                       "A guest that is migrated back and forth.")
    add_guest(parser)
    parser.add_argument("--legs", type=int, default=6)
    parser.add_argument("--rest-seconds", type=float, default=0.5,
                        help="how long the guest runs before each leg")
    parser.add_argument("--rounds-seconds", type=float, default=3,
                        help="lift the downtime limit after so long")
    args = parser.parse_args(words)
    if args.legs < 1:
        parser.error("--legs has to be positive")
    return args


def main(words: Sequence[str]) -> int:
    """Measure and print."""
    return measured("ping_pong", run, arguments(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
