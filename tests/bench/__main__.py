# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure this project against stock QEMU and the stock kernel.

usage: make bench [QUICK=1] [CHAPTERS="NAME..."]

Writes build/bench/report.html and build/bench/results.json.  A run that was
interrupted goes on where it stopped; what other binaries measured does not count.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from tqdm import tqdm

from tests.migration.vm import kvm_usable

from . import report, versions
from .blocks import Chapter
from .chapters import CHAPTERS
from .results import Results
from .step import BUILD, Step, StepError


def in_turns(steps: Sequence[Step]) -> list[tuple[Step, int]]:
    """All runs of the steps, each step's first before any one's second."""
    runs = [(step, run) for step in steps for run in range(step.runs)]
    return sorted(runs, key=lambda one: one[1])


def left_to_do(chapters: Sequence[Chapter], quick: bool,
               results: Results) -> list[tuple[Step, int]]:
    """What no earlier run has measured."""
    left = []
    for chapter in chapters:
        steps = [step for step in chapter.steps(quick)
                 if kvm_usable() or not step.kvm]
        known = {step.name: results.load(step) for step in steps}
        left += [(step, run) for step, run in in_turns(steps)
                 if run >= known[step.name]]
    return left


def measure(left: Sequence[tuple[Step, int]], results: Results) -> None:
    """Run them all; one that fails does not stop the others."""
    total = sum(step.seconds for step, _ in left)
    with tqdm(total=total, unit="s", file=sys.stdout, smoothing=0,
              bar_format="{percentage:3.0f}%|{bar:20}| {elapsed}, "
                         "{remaining} to go: {desc}") as bar:
        for step, run in left:
            bar.set_description_str(f"{step.name} {run + 1}/{step.runs}")
            if step.name not in results.errors:
                try:
                    results.add(step, step.run())
                except StepError as error:
                    results.errors[step.name] = str(error)
                    bar.write(f"bench: {error}")
            bar.update(step.seconds)


def chosen(names: Sequence[str]) -> list[Chapter]:
    """The chapters called NAMES, or all."""
    known = {chapter.name: chapter for chapter in CHAPTERS}
    for name in names:
        if name not in known:
            raise SystemExit(f"bench: there is no chapter {name}; there are "
                             f"{', '.join(known)}")
    return [known[name] for name in names or known]


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bench", description="Measure this project against stock.")
    parser.add_argument("--quick", action="store_true",
                        help="fewer runs and sizes")
    parser.add_argument("--out", type=Path, default=BUILD / "bench",
                        help="the directory of the report")
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER",
                        help="only these")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure what is left to, and write the report.

    Returns: 1 if a program failed, with the others in the report.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    args = arguments(words)
    chapters = chosen(args.chapters)
    binaries = versions.binaries()
    results = Results(args.out / ("quick" if args.quick else "full"), binaries)
    try:
        measure(left_to_do(chapters, args.quick, results), results)
    except KeyboardInterrupt:
        print("bench: interrupted; the same command goes on from here",
              file=sys.stderr)
        return 130
    about = {"date": date.today().isoformat(),
             "command": "make bench" + (" QUICK=1" if args.quick else ""),
             **binaries, **versions.host()}
    path = report.write(args.out, chapters, args.quick, results, about)
    print(f"bench: the report is {path}")
    return 1 if results.errors else 0


if __name__ == "__main__":
    sys.exit(main())
