# SPDX-License-Identifier: GPL-2.0-or-later
"""Shrink a failing episode of the fuzzer to the operations that it needs.

    build/venv/bin/python -m tests.lab.shrink --seed 1 --episode 12 \\
        -- --kernel debug --append kvm.tdp_mmu=0

The options after -- are the lab's.  Each step is a boot of the lab.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from .lab import COMPLAINED, LAB, Ended, lab, selftests

T = TypeVar("T")

FUZZER = "x86_64/dirty_tracking_fuzz_test"


def ddmin(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """Zeller's algorithm: the fewest items, in order, that still fail.

    All items together fail.  If any one of the remaining items is left out,
    they do not fail.
    """
    left, parts = list(items), 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        for start in range(0, len(left), size):
            rest = left[:start] + left[start + size :]
            if fails(rest):
                left, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(left))
    return left


def failure(ended: Ended) -> str | None:
    """The failure in a form that can be compared; None if there is none."""
    if ended.status == 0:
        return None
    if ended.status == COMPLAINED:
        # The first line of the report, without time, names and numbers.
        report = re.search(
            r"^\[ *\d+\.\d+\] (\w+: ?[a-z ]*)", ended.stderr, re.M
        )
        return report[1] if report else "the kernel complained"
    said = re.search(r"^  (page|pages) ", ended.stdout + ended.stderr, re.M)
    return said[0] if said else f"status {ended.status}"


def arguments(seed: int, episode: int) -> list[str]:
    """The fuzzer's options for one episode."""
    return ["-s", str(seed), "-e", str(episode)]


def operations(seed: int, episode: int) -> list[str]:
    """The operations of the episode, as the fuzzer's -k takes them."""
    program = selftests("patched") / FUZZER
    listed = subprocess.run(
        [program, *arguments(seed, episode), "-l"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split()[0] for line in listed.stdout.splitlines()]


def run(
    seed: int,
    episode: int,
    kept: Sequence[str],
    options: Sequence[str],
    times: int,
) -> Ended:
    """Some operations of an episode, several times over, in one boot."""
    return lab(
        selftests("patched") / FUZZER,
        *arguments(seed, episode),
        *("-k", ",".join(kept), "-r", str(times), "-v"),
        kernel="patched",
        seconds=300,
        options=options,
    )


def shrink(
    seed: int,
    episode: int,
    options: Sequence[str],
    times: int,
    tell: Callable[[str], object] = print,
) -> tuple[list[str], Ended]:
    """The rest of an episode, and how that ended."""
    last = run(seed, episode, operations(seed, episode), options, times)
    wanted = failure(last)
    if wanted is None:
        raise ValueError(
            f"episode {episode} of seed {seed} does not fail; it must, to be "
            "shrunk"
        )
    tell(f"it fails: {wanted}")

    def fails(kept: list[str]) -> bool:
        nonlocal last
        ended = run(seed, episode, kept, options, times)
        same = failure(ended) == wanted
        tell(f"{len(kept)} operations: {'it fails' if same else 'passes'}")
        if same:
            last = ended
        return same

    return ddmin(operations(seed, episode), fails), last


def main(words: Sequence[str]) -> int:
    mine, options = list(words), []
    if "--" in mine:
        cut = mine.index("--")
        mine, options = mine[:cut], mine[cut + 1 :]
    parse = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parse.add_argument("--seed", type=int, required=True)
    parse.add_argument("--episode", type=int, required=True)
    parse.add_argument(
        "--times",
        type=int,
        default=3,
        help="how often each is tried; 3 by default",
    )
    given = parse.parse_args(mine)
    try:
        kept, ended = shrink(given.seed, given.episode, options, given.times)
    except ValueError as error:
        print(f"shrink: {error}", file=sys.stderr)
        return 1
    print(ended.stdout + ended.stderr)
    print(
        f"{FUZZER} -s {given.seed} -e {given.episode} -k {','.join(kept)}"
        f" # scripts/lab {' '.join(options)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
