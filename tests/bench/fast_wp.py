# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that writes while it is migrated, with new memory or mapped memory.

usage: python -m tests.bench.fast_wp --case new --mechanism shared

With --case new the migration begins as the guest does, when KVM has mapped
little of its memory.  With --case mapped the guest has written all of it.
The downtime limit is lifted after --rounds-seconds, so that a guest that has
written more takes longer to be sent.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import Sequence

from tests.migration.guest import MIB, PAGE
from tests.migration.migrate import MigrationError, finish, start
from tests.migration.vm import BOOT_TIMEOUT, VM, VMError

from .binaries import awake
from .program import (add_guest, config_of, lift_after, measured, options_of,
                      parser_of)

POLL_SECONDS = 0.001
MOSTLY_NEW = 0.3


def wait_ready(vm: VM) -> None:
    """Wait until it runs; before that, its counters have no meaning."""
    deadline = time.monotonic() + BOOT_TIMEOUT
    while "writer ready" not in vm.serial():
        vm.check()
        if time.monotonic() > deadline:
            raise VMError("the guest did not begin to write.")
        time.sleep(POLL_SECONDS)


def run(args: argparse.Namespace) -> list[str]:
    """Migrate once, and return the lines to print."""
    config, options = config_of(args), options_of(args)
    with contextlib.ExitStack() as stack:
        with awake():
            dst = stack.enter_context(VM("dst", config, incoming=True))
            src = stack.enter_context(VM("src", config, paused=True))
            # Not before: a guest boots sooner than a monitor is connected.
            src.qmp("cont")
            wait_ready(src)
            if args.case == "mapped":
                src.wait_writing(passes=2)
            begun = sum(src.counters())
            start(src, dst, options)
            lift_at = time.monotonic() + args.rounds_seconds
        mapped = min(begun / (args.written_mib * MIB // PAGE), 1)
        if args.case == "new" and mapped > MOSTLY_NEW:
            raise MigrationError("the guest had mapped "
                                 f"{mapped:.0%} before it was migrated.")
        lift_after(src, lift_at - time.monotonic())
        result = finish(src, dst, options)
        written = sum(src.counters()) - begun
    seconds = (result.total_ms - result.downtime_ms) / 1000
    return [
        f"dirty-rate {written / max(seconds, 0.001):.0f} pages/s",
        f"total {result.total_ms} ms", f"downtime {result.downtime_ms} ms",
        f"pages {result.pages} pages",
        f"rounds {result.rounds} rounds",
        f"mapped-before {mapped * 100:.1f} %"]


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = parser_of("fast_wp",
                       "A guest that writes while it is migrated.",
                       pattern="sequential")
    add_guest(parser)
    parser.add_argument("--case", choices=("new", "mapped"), default="mapped")
    parser.add_argument("--rounds-seconds", type=float, default=1,
                        help="lift the downtime limit after so long")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Measure and print."""
    return measured("fast_wp", run, arguments(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
