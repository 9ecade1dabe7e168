# SPDX-License-Identifier: GPL-2.0-or-later
"""Instructions of the engine's hot loops, which repeat on any machine.

usage: python -m tests.bench.engine_loops [--gib N] [LOOP ...]

Runs engine-loops under callgrind, and prints the instructions of each loop,
for each page that it handled.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence

from .step import ROOT, parse

PROGRAM = ROOT / "build/meson/tests/bench/engine-loops"
LOOPS = ("ring", "log-sparse", "log-all", "wrprot-sparse", "wrprot-all",
         "shared-sparse", "shared-all")
# Entered, and left, collecting begins or ends: KVM's part ends it for a while.
ENGINE = ("kvmd_sync", "kvmd_slot_clear", "hot_ioctl")
COLLECTED = re.compile(r"Collected : (\d+)")


class LoopError(Exception):
    """A loop that could not be counted."""


def command(loop: str, gib: int, toggles: Sequence[str]) -> list[str]:
    """The command line that counts one loop."""
    return ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
            *(f"--toggle-collect={name}" for name in toggles),
            str(PROGRAM), "-g", str(gib), loop]


def count(loop: str, gib: int) -> tuple[int, int]:
    """Instructions, and pages."""
    # Otherwise the first call of each function would count the linker, too.
    environment = {**os.environ, "LD_BIND_NOW": "1"}
    words = command(loop, gib, ENGINE)
    try:
        done = subprocess.run(words, env=environment, capture_output=True,
                              text=True, check=False)
    except FileNotFoundError as error:
        raise LoopError("valgrind is missing; scripts/deps installs it"
                        ) from error
    collected = COLLECTED.search(done.stderr)
    pages = parse(done.stdout).get(f"pages.{loop}")
    if done.returncode or not collected or not pages:
        said = [line for line in done.stderr.splitlines()
                if not line.startswith("==")] or ["it said nothing"]
        raise LoopError(f"{' '.join(words)} ended with status "
                        f"{done.returncode}: {said[-1]}")
    return int(collected[1]), int(pages.values[0])


def main() -> int:
    """Count the loops that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=int, default=64)
    parser.add_argument("loops", nargs="*", metavar="LOOP",
                        help=f"one of {', '.join(LOOPS)}; or all")
    arguments = parser.parse_args()
    for loop in arguments.loops:
        if loop not in LOOPS:
            print(f"engine_loops: there is no loop {loop}; --help names all",
                  file=sys.stderr)
            return 2
    try:
        for loop in arguments.loops or LOOPS:
            instructions, pages = count(loop, arguments.gib)
            print(f"instructions.{loop} {instructions} instructions")
            print(f"pages.{loop} {pages} pages")
            print(f"per-page.{loop} {instructions / pages:.3f} instructions",
                  flush=True)
    except LoopError as error:
        print(f"engine_loops: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
