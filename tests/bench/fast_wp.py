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

from tests.migration.guest import MIB, PAGE, PATTERNS, Writer
from tests.migration.migrate import (MigrationError, Options, finish, start)
from tests.migration.qmp import QMPError
from tests.migration.vm import BOOT_TIMEOUT, VM, Config, VMError, kvm_usable

from .binaries import BINARIES, MECHANISMS, available, awake, mechanism_of
from .ping_pong import lift_after

POLL_SECONDS = 0.001
MOSTLY_NEW = 0.3


def wait_ready(vm: VM) -> None:
    """Wait until it runs; before, its counters are what is in memory."""
    deadline = time.monotonic() + BOOT_TIMEOUT
    while "writer ready" not in vm.serial():
        vm.check()
        if time.monotonic() > deadline:
            raise VMError("the guest did not begin to write.")
        time.sleep(POLL_SECONDS)


def run(args: argparse.Namespace) -> list[str]:
    """Migrate once, and return the lines to print."""
    binary = available(args.qemu)
    mechanism = mechanism_of(binary, args.mechanism)
    writer = Writer(mib=args.written_mib, delay=args.delay,
                    pattern=PATTERNS[args.pattern])
    config = Config(binary, binary.accel(mechanism), mib=args.mib,
                    writer=writer, shared_ram=True)
    options = Options(bandwidth=int(args.mib_per_second * MIB),
                      downtime_limit=args.downtime_ms)
    with contextlib.ExitStack() as stack:
        with awake():
            dst = stack.enter_context(VM("dst", config, incoming=True))
            src = stack.enter_context(VM("src", config, paused=True))
            # Only now: a guest boots sooner than a monitor is connected.
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
    ram = result.info["ram"]
    return [
        f"dirty-rate {written / max(seconds, 0.001):.0f} pages/s",
        f"total {result.total_ms} ms", f"downtime {result.downtime_ms} ms",
        f"pages {ram['normal'] + ram['duplicate']} pages",
        f"rounds {result.rounds} rounds",
        f"mapped-before {mapped * 100:.1f} %"]


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="fast_wp",
        description="A guest that writes while it is migrated.")
    parser.add_argument("--case", choices=("new", "mapped"), default="mapped")
    parser.add_argument("--qemu", default="ours",
                        help=f"{', '.join(BINARIES)}, or a path")
    parser.add_argument("--mechanism", choices=sorted(MECHANISMS),
                        default="log")
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--written-mib", type=int, default=64)
    parser.add_argument("--pattern", choices=PATTERNS, default="sequential")
    parser.add_argument("--delay", type=int, default=0,
                        help="idle loops after each write")
    parser.add_argument("--mib-per-second", type=float, default=100)
    parser.add_argument("--downtime-ms", type=int, default=50)
    parser.add_argument("--rounds-seconds", type=float, default=1,
                        help="lift the downtime limit after so long")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Measure and print."""
    args = arguments(words)
    if not kvm_usable():
        print("fast_wp: /dev/kvm cannot be used on this host",
              file=sys.stderr)
        return 1
    try:
        print("\n".join(run(args)))
    except (VMError, MigrationError, QMPError) as error:
        print(f"fast_wp: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
