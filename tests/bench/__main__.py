# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure this project against stock QEMU and the stock kernel.

usage: make bench [QUICK=1] [CHAPTERS="NAME..."]

Writes build/bench/report.html and build/bench/results.json.  A run that was
interrupted goes on where it stopped; measurements of other binaries do not
count.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from tqdm import tqdm

from tests.migration.guest import BUILT
from tests.migration.vm import kvm_usable

from . import report, versions
from .blocks import Chapter
from .chapters import CHAPTERS
from .results import Results
from .step import Step, StepError

# Each of those that count instructions keeps one CPU busy.
AT_ONCE = 2


def in_turns(steps: Sequence[Step]) -> list[tuple[Step, int]]:
    """All runs of the steps: the first of each before the second of any."""
    runs = [(step, run) for step in steps for run in range(step.runs)]
    return sorted(runs, key=lambda one: one[1])


def left_to_do(chapters: Sequence[Chapter], quick: bool,
               results: Results) -> list[tuple[Step, int]]:
    """The steps not measured by an earlier run; chapters may share steps."""
    left: list[tuple[Step, int]] = []
    for chapter in chapters:
        steps = [step for step in chapter.steps(quick)
                 if kvm_usable() or not step.kvm]
        known = {step.name: results.load(step) for step in steps}
        left += [(step, run) for step, run in in_turns(steps)
                 if run >= known[step.name] and (step, run) not in left]
    return left


class Progress:
    """The bar, and the steps that run."""

    def __init__(self, left: Sequence[tuple[Step, int]]) -> None:
        self.bar = tqdm(
            total=sum(step.seconds for step, _ in left), unit="s",
            file=sys.stdout, smoothing=0,
            bar_format="{percentage:3.0f}%|{bar:20}| {elapsed}, "
                       "{remaining} to go: {desc}")
        self._running: list[str] = []

    def begin(self, step: Step, run: int) -> str:
        """A run of a step begins; returns the name to give to end()."""
        name = f"{step.name} {run + 1}/{step.runs}"
        self._running.append(name)
        self._show()
        return name

    def end(self, name: str, step: Step) -> None:
        """A run of a step has ended."""
        self._running.remove(name)
        self.bar.update(step.seconds)
        self._show()

    def _show(self) -> None:
        self.bar.set_description_str(", ".join(self._running))


async def measure_one(step: Step, run: int, results: Results,
                      progress: Progress) -> None:
    """One run of a step; one that failed is not run again."""
    name = progress.begin(step, run)
    if step.name not in results.errors:
        try:
            results.add(step, await step.run())
        except StepError as error:
            results.errors[step.name] = str(error)
            progress.bar.write(f"bench: {error}")
    progress.end(name, step)


async def measure_all(left: Sequence[tuple[Step, int]], results: Results,
                      progress: Progress) -> None:
    """Run counted steps first, several at a time, then the others in turn."""
    room = asyncio.Semaphore(AT_ONCE)

    async def beside(step: Step, run: int) -> None:
        async with room:
            await measure_one(step, run, results, progress)

    await asyncio.gather(*(beside(step, run) for step, run in left
                           if step.counted))
    for step, run in left:
        if not step.counted:
            await measure_one(step, run, results, progress)


def measure(left: Sequence[tuple[Step, int]], results: Results) -> None:
    """Run them all; one that fails does not stop the others."""
    progress = Progress(left)
    with progress.bar:
        asyncio.run(measure_all(left, results, progress))


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
    parser.add_argument("--out", type=Path, default=BUILT / "bench",
                        help="the directory of the report")
    parser.add_argument("--check", action="store_true",
                        help="only see whether there are such chapters")
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER",
                        help="only these")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure what is not measured yet, and write the report.

    Returns: 1 if a program failed, with the others in the report.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    args = arguments(words)
    chapters = chosen(args.chapters)
    if args.check:
        return 0
    measured = versions.measured()
    results = Results(args.out / ("quick" if args.quick else "full"), measured,
                      versions.booted())
    try:
        measure(left_to_do(chapters, args.quick, results), results)
    except KeyboardInterrupt:
        print("bench: interrupted; the same command goes on from here",
              file=sys.stderr)
        return 130
    about = {"date": date.today().isoformat(),
             "command": "make bench" + (" QUICK=1" if args.quick else ""),
             **measured, **versions.host()}
    path = report.write(args.out, chapters, args.quick, results, about)
    print(f"bench: the report is {path}")
    return 1 if results.errors else 0


if __name__ == "__main__":
    sys.exit(main())
