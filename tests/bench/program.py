# SPDX-License-Identifier: GPL-2.0-or-later
"""Common parts of the programs that migrate a guest."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from tests.migration.guest import MIB, PATTERNS, Writer
from tests.migration.migrate import MigrationError, Options, info, lift
from tests.migration.qmp import QMPError
from tests.migration.vm import VM, Config, VMError, kvm_usable

from .binaries import BINARIES, MECHANISMS, available, mechanism_of

POLL_SECONDS = 0.02


def parser_of(prog: str, description: str, **defaults: object
              ) -> argparse.ArgumentParser:
    """A command line with a QEMU, how the guest writes, and the network.

    DEFAULTS are those of pattern, mib_per_second and downtime_ms.
    """
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--qemu", default="ours",
                        help=f"{', '.join(BINARIES)}, or a path")
    parser.add_argument("--mechanism", choices=sorted(MECHANISMS),
                        default="log")
    parser.add_argument("--pattern", choices=PATTERNS, default="random")
    parser.add_argument("--delay", type=int, default=0,
                        help="idle loops after each write")
    parser.add_argument("--mib-per-second", type=float, default=100)
    parser.add_argument("--downtime-ms", type=int, default=50)
    parser.set_defaults(**defaults)
    return parser


def add_guest(parser: argparse.ArgumentParser, *, mib: int = 128,
              written_mib: int = 64) -> None:
    """Options: the size of the guest, and of the part that it writes."""
    parser.add_argument("--mib", type=int, default=mib)
    parser.add_argument("--written-mib", type=int, default=written_mib)
    parser.add_argument("--cpus", type=int, default=1)


def config_of(args: argparse.Namespace) -> Config:
    """The guest that add_guest() was asked for; VMError with one sentence."""
    writer = Writer(mib=args.written_mib, cpus=args.cpus, delay=args.delay,
                    pattern=PATTERNS[args.pattern])
    return configured(args, writer, args.mib)


def configured(args: argparse.Namespace, writer: Writer, mib: int,
               shared_ram: bool = True) -> Config:
    """A guest of the QEMU and with the mechanism that ARGS names."""
    binary = available(args.qemu)
    mechanism = mechanism_of(binary, args.mechanism)
    return Config(binary, binary.accel(mechanism), mib=mib, writer=writer,
                  shared_ram=shared_ram)


def options_of(args: argparse.Namespace) -> Options:
    """The network."""
    return Options(bandwidth=int(args.mib_per_second * MIB),
                   downtime_limit=args.downtime_ms)


def lift_after(src: VM, seconds: float) -> None:
    """Wait for the migration's end; after some time, lift its limit."""
    deadline = time.monotonic() + seconds
    while info(src).get("status") in ("setup", "active"):
        if time.monotonic() > deadline:
            lift(src)
            return
        time.sleep(POLL_SECONDS)


def measured(prog: str, run: Callable[[argparse.Namespace], list[str]],
             args: argparse.Namespace) -> int:
    """Print the lines that RUN returns, or one sentence; the exit status."""
    if not kvm_usable():
        print(f"{prog}: /dev/kvm cannot be used on this host", file=sys.stderr)
        return 1
    try:
        print("\n".join(run(args)))
    except (VMError, MigrationError, QMPError, RuntimeError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    return 0
