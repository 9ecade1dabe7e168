# SPDX-License-Identifier: GPL-2.0-or-later
"""Migrates a guest within this host, and compares all of its memory.

usage: python -m qualify.migration MECHANISM [--multifd | --postcopy]

Ends with 0 if every page arrived as it was, with 4 if the host does not have the
mechanism, and with 1 otherwise, after a sentence.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from tests.bench.binaries import MECHANISMS
from tests.migration.compare import differing_pages
from tests.migration.guest import MIB, RANDOM, Writer
from tests.migration.migrate import (ANY_DOWNTIME, MigrationError, Options,
                                     migrate)
from tests.migration.qmp import QMPError
from tests.migration.vm import Config, VMError, pair, qemu

from .steps import PASSED, SKIPPED

FAILED = 1
CHANNELS = 2
SHOWN = 8  # numbers of pages in the sentence


def options_of(given: argparse.Namespace) -> Options:
    """Slow enough for a few rounds over what the guest writes all the time."""
    return Options(
        bandwidth=100 * MIB, hold=not given.postcopy,
        downtime_limit=ANY_DOWNTIME, postcopy=given.postcopy,
        multifd=CHANNELS if given.multifd else 0,
    )


def verdict(pages: Sequence[int]) -> str:
    """The sentence about the pages that differ."""
    first = ", ".join(map(str, pages[:SHOWN]))
    return f"{len(pages)} pages differ at the destination, the first are {first}"


def run(given: argparse.Namespace) -> int:
    """Returns: the exit status."""
    mechanism = MECHANISMS[given.mechanism]
    if not mechanism.offered:
        print(f"this kernel does not have {mechanism}")
        return SKIPPED
    binary = qemu("ours")
    config = Config(binary, binary.accel(mechanism),
                    writer=Writer(pattern=RANDOM, cpus=2))
    with pair(config) as (src, dst):
        src.wait_writing()
        migrate(src, dst, options_of(given))
        pages = differing_pages(src, dst)
    if pages:
        print(verdict(pages))
        return FAILED
    return PASSED


def main(words: list[str]) -> int:
    """Returns: the exit status."""
    parse = argparse.ArgumentParser(prog="migration", allow_abbrev=False)
    parse.add_argument("mechanism", choices=sorted(MECHANISMS))
    how = parse.add_mutually_exclusive_group()
    how.add_argument("--multifd", action="store_true")
    how.add_argument("--postcopy", action="store_true")
    # What ends a step that takes too long: its guest's memory is not to stay.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(FAILED))
    try:
        return run(parse.parse_args(words))
    except (VMError, MigrationError, QMPError) as error:
        print(error)
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
