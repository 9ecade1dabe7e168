# SPDX-License-Identifier: GPL-2.0-or-later
"""How long a guest takes to write all of some memory, alone and migrated.

usage: python -m tests.bench.mmtest -m 3000 -c 30 -t 6

The guest takes the time itself, by its time stamp counter, at the end of each
pass.  It makes -c passes alone, and as many while it is migrated.  If the
migration has not converged by then, its downtime limit is lifted.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
from dataclasses import dataclass, replace
from typing import Sequence

from tests.migration.guest import CPU_PAGES, MIB, PAGE, PATTERNS, Writer
from tests.migration.migrate import Options, Result, finish, info, lift, start
from tests.migration.vm import VM, VMError

from .binaries import writing_pair
from .program import (POLL_SECONDS, configured, measured, options_of,
                      parser_of)

PASSES = struct.Struct("<I")
PASSES_AT, TSC_AT = 12, 32
TSC = struct.Struct("<Q")
MAX_CPUS = 16
BELOW_WRITTEN_MIB, SPARE_MIB = 16, 32  # of the guest's memory


@dataclass(frozen=True)
class Mark:
    """The passes of a vCPU, and its counter at the end of the last."""

    passes: int
    ticks: int


def marks(vm: VM) -> list[Mark]:
    """The marks of all vCPUs."""
    return [_mark(vm, CPU_PAGES + cpu * PAGE)
            for cpu in range(vm.config.writer.cpus)]


def _mark(vm: VM, page: int) -> Mark:
    # The guest stores the one after the other: both are of one pass only if
    # neither changes while they are read.
    while True:
        first, second = (vm.read_memory(page, TSC_AT + TSC.size)
                         for _ in range(2))
        if first[PASSES_AT:] == second[PASSES_AT:]:
            return Mark(*PASSES.unpack_from(first, PASSES_AT),
                        *TSC.unpack_from(first, TSC_AT))


def pass_ns(begin: Sequence[Mark], end: Sequence[Mark], hertz: float) -> float:
    """The mean time of a pass of any vCPU; each has to have ended one."""
    means = [(b.ticks - a.ticks) / (b.passes - a.passes)
             for a, b in zip(begin, end) if b.passes > a.passes]
    if len(means) < len(begin):
        raise VMError("a vCPU did not end a pass while it was measured.")
    return sum(means) / len(means) / hertz * 1e9


def least(begin: Sequence[Mark], end: Sequence[Mark]) -> int:
    """How many passes the slowest vCPU has made in between."""
    return min(b.passes - a.passes for a, b in zip(begin, end))


def alone(vm: VM, count: int, timeout: float) -> tuple[list[Mark], list[Mark]]:
    """Wait until all vCPUs have made COUNT passes; the marks around them."""
    begin = marks(vm)
    deadline = time.monotonic() + timeout
    while True:
        time.sleep(POLL_SECONDS)
        now = marks(vm)
        if least(begin, now) >= count:
            return begin, now
        vm.check()
        if time.monotonic() > deadline:
            raise VMError(f"the guest made {least(begin, now)} of {count} "
                          f"passes within {timeout:.0f} s.")


def migrated(src: VM, dst: VM, options: Options,
             count: int) -> tuple[list[Mark], list[Mark], Result]:
    """The same while it is migrated, and the result of the migration."""
    begin = marks(src)
    start(src, dst, options)
    deadline = time.monotonic() + options.timeout
    end = marks(src)
    while (info(src).get("status") in ("setup", "active")
           and least(begin, end) < count and time.monotonic() < deadline):
        time.sleep(POLL_SECONDS)
        end = marks(src)
    lift(src)
    result = finish(src, dst, options)
    # It has written until the stop; its counter is now that of the last pass.
    return begin, marks(src), result


def hertz_of(vm: VM) -> float:
    """The frequency of the guest's time stamp counter."""
    cpu = vm.qmp("query-cpus-fast")[0]["qom-path"]
    hertz = float(vm.qmp("qom-get", path=cpu, property="tsc-frequency"))
    if not hertz:
        raise VMError("QEMU does not know the guest's TSC frequency.")
    return hertz


def run(args: argparse.Namespace) -> list[str]:
    """Measure, and return the lines to print."""
    writer = Writer(base=BELOW_WRITTEN_MIB * MIB, mib=args.m, cpus=args.t,
                    pattern=PATTERNS[args.pattern], delay=args.delay)
    mib = args.memory or BELOW_WRITTEN_MIB + args.m + SPARE_MIB
    config = configured(args, writer, mib, args.shared_ram)
    options = replace(options_of(args), timeout=args.timeout)
    with writing_pair(config) as (src, dst):
        hertz = hertz_of(src)
        before = pass_ns(*alone(src, args.c, args.timeout), hertz)
        begin, end, result = migrated(src, dst, options, args.c)
        during = pass_ns(begin, end, hertz)
    return [
        f"alone {before:.0f} ns", f"migrating {during:.0f} ns",
        f"passes {least(begin, end)} passes",
        f"slowdown {during / before:.4f} x",
        f"migration {result.total_ms} ms", f"downtime {result.downtime_ms} ms",
        f"pages {result.pages} pages",
        f"rounds {result.rounds} rounds"]


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = parser_of(
        "mmtest", "How long a guest takes to write all of some memory, alone "
        "and while it is migrated.", pattern="sequential",
        mib_per_second=1200, downtime_ms=300)
    parser.add_argument("-m", type=int, default=3000, metavar="MIB",
                        help="how much it writes, over and over (3000)")
    parser.add_argument("-c", type=int, default=30, metavar="COUNT",
                        help="how many passes are measured of each (30)")
    parser.add_argument("-t", type=int, default=1, metavar="THREADS",
                        help="how many vCPUs write, each its share (1)")
    parser.add_argument("--memory", type=int, default=0, metavar="MIB",
                        help="of the guest; what it writes and 48 by default")
    parser.add_argument("--timeout", type=float, default=300,
                        help="for each of the two, in seconds")
    parser.add_argument("--shared-ram", action="store_true",
                        help="memory is a file, not anonymous")
    args = parser.parse_args(words)
    if not 1 <= args.t <= MAX_CPUS:
        parser.error(f"-t {args.t} is not between 1 and {MAX_CPUS}")
    if args.m < 1 or args.c < 1:
        parser.error("-m and -c have to be positive")
    if args.memory and args.memory < args.m + BELOW_WRITTEN_MIB:
        parser.error(f"--memory {args.memory} is less than "
                     f"{args.m + BELOW_WRITTEN_MIB}, which -m {args.m} takes")
    return args


def main(words: Sequence[str]) -> int:
    """Measure and print."""
    return measured("mmtest", run, arguments(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
