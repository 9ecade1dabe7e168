#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Break one thing at a time, and see that the tests notice.

usage: run.py [--cc COMMAND] [--sanitize KIND] FAMILY [NAME...]
       run.py --list FAMILY [NAME...]

FAMILY is engine, bitmap, model or kernel; names, or parts of them, choose
among its mutants.  README.md has what a mutant is, and what kills it.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

sys.dont_write_bytecode = True  # the source tree is no place for it
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.mutants import glib  # noqa: E402
from tests.mutants.bitmap import Bitmap  # noqa: E402
from tests.mutants.engine import Engine  # noqa: E402
from tests.mutants.kernel import Kernel  # noqa: E402
from tests.mutants.model import Model  # noqa: E402
from tests.mutants.mutant import Failure, Mutant  # noqa: E402


class Family(Protocol):
    """How the mutants of one kind are built and run."""

    mutants: Sequence[Mutant]
    at_once: int  # how many are judged at the same time

    def __init__(self, work: Path, cc: list[str]) -> None:
        """Work in an empty directory."""

    def prepare(
        self, mutants: Sequence[Mutant], pool: ThreadPoolExecutor
    ) -> None:
        """Build what the mutants share; raises Failure."""

    def killer(self, mutant: Mutant, number: int) -> str:
        """Build one and run its test, in any thread of several.

        number is another one for each.  Returns what has noticed the mutant,
        or "" if nothing has; raises Failure if that cannot be told.
        """


FAMILIES: dict[str, type[Family]] = {
    "engine": Engine,
    "bitmap": Bitmap,
    "model": Model,
    "kernel": Kernel,
}


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: what killed it, or why nothing could."""

    mutant: Mutant
    killer: str = ""
    problem: str = ""
    seconds: float = 0


def judge(family: Family, mutant: Mutant, number: int) -> Verdict:
    start = time.monotonic()
    killer = problem = ""
    try:
        killer = family.killer(mutant, number)
    except Failure as failure:
        problem = str(failure)
    return Verdict(mutant, killer, problem, time.monotonic() - start)


def report(number: int, verdict: Verdict) -> bool:
    mutant = verdict.mutant
    name = f"{number} - {mutant.invariant} {mutant.name}"
    if verdict.killer:
        print(f"ok {name}: killed by {verdict.killer}")
    elif verdict.problem:
        first, *others = verdict.problem.splitlines()
        print(f"not ok {name}: {first}")
        for line in others:
            print(f"# {line}")
    else:
        print(f"not ok {name}: survived {mutant.killed_by}")
    print(f"# {verdict.seconds:.1f} s", flush=True)
    return bool(verdict.killer)


def judge_all(family: Family, mutants: Sequence[Mutant]) -> bool:
    with ThreadPoolExecutor(family.at_once) as pool:
        family.prepare(mutants, pool)
        print(f"1..{len(mutants)}", flush=True)
        numbers = range(1, len(mutants) + 1)
        verdicts = pool.map(
            lambda *one: judge(family, *one), mutants, numbers
        )
        good = True
        for number, verdict in zip(numbers, verdicts):
            good = report(number, verdict) and good
    return good


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Break one thing at a time, and see that the tests notice."
    )
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--sanitize", default="none", metavar="KIND")
    parser.add_argument("--cc", default="gcc", metavar="COMMAND")
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("names", nargs="*", metavar="NAME")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    if args.sanitize != "none":
        print("1..0 # SKIP a sanitizer finds nothing more here, only later")
        return 0
    make = FAMILIES[args.family]
    mutants = [
        mutant
        for mutant in make.mutants
        if not args.names or any(name in mutant.name for name in args.names)
    ]
    if args.list:
        for mutant in mutants:
            print(mutant.invariant, mutant.name, mutant.killed_by, sep="\t")
        return 0
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.pop("KVMD_RANDOM_SEED", None)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        try:
            family = make(Path(name), glib.compiler(args.cc))
            good = judge_all(family, mutants)
        except Failure as failure:
            print("Bail out! " + str(failure).replace("\n", "\n# "))
            return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
