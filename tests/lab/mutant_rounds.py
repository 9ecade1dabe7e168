# SPDX-License-Identifier: GPL-2.0-or-later
"""The round in which each broken kernel loses a page, on both CPUs.

usage: python -m tests.lab.mutant_rounds [--runs N] [NAME]...

Runs write_protect_race_test on the mutants that it is the test of, or on those
that are named, on the kind and the hostile CPU, with seeds from 1 on, and
prints a table.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace

from tests.mutants.kernel import LOST, MUTANTS, RACE, build, run, run_of, says
from tests.mutants.mutant import Mutant

from .lab import Ended, selftests

LOST_IN = re.compile(r"page \d+ is lost (?:in round (\d+)|at the end)")
LOST_NOT = re.compile(r"^(\d+) rounds, .* none lost$", re.MULTILINE)


def outcome(ended: Ended) -> str:
    """The table's entry for one run."""
    said = ended.stdout + ended.stderr
    lost, passed = LOST_IN.search(said), LOST_NOT.search(said)
    if lost:
        return lost[1] or "at the end"
    return f"none in {passed[1]}" if passed else f"exit {ended.status}"


def row(one: Mutant, outcomes: list[list[str]]) -> str:
    """One mutant: its name, its test, and the results on each CPU."""
    name = f"{one.name} {one.option('Kernel')}".rstrip()
    arguments = one.killed_by.removeprefix(RACE).strip()
    cells = (", ".join(cpu) for cpu in outcomes)
    return f"| `{name}` | `{arguments}` | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    races = [
        one
        for one in MUTANTS
        if one.killed_by.split()[0] == RACE and says(one) == LOST
    ]
    known = {one.name for one in races}
    if not set(arguments.names) <= known:
        parser.error(f"NAME is one of {' '.join(sorted(known))}")

    kernel, programs = build(), selftests("patched")
    print("| kernel | test | kind | hostile |\n|---|---|--:|--:|")
    for one in races:
        if arguments.names and one.name not in arguments.names:
            continue
        outcomes: list[list[str]] = [[], []]
        for seed in range(1, arguments.runs + 1):
            for cpu, name in enumerate(("kind", f"hostile={seed}")):
                what = replace(run_of(one), machine=f"--cpu {name}")
                ended = run(one.name, what, kernel, programs)
                outcomes[cpu].append(outcome(ended))
        print(row(one, outcomes), flush=True)


if __name__ == "__main__":
    main()
