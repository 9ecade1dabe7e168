# SPDX-License-Identifier: GPL-2.0-or-later
"""The cost of dirty tracking on an Intel CPU, with PML and without.

usage: python -m tests.lab.figures_intel [--mebibytes N]

Runs dirty_tracking_perf_test in the lab's machine with an Intel CPU, whose
time counts instructions, on both kernels, with kvm_intel.pml=1 and 0, and
prints a table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from .lab import BUILD_KERNEL, LAB, selftests

TEST = "x86_64/dirty_tracking_perf_test"
STOCK, PATCHED = "stock", "patched"
PML = (1, 0)
PAGES_PER_MIB = 256
TABLE_PAGES = 512  # of 2 MiB
SECONDS = 3000

Figures = dict[str, int]


@dataclass(frozen=True)
class Way:
    """A mechanism, as QEMU and the guide call it."""

    title: str
    name: str  # in the program
    kernel: str
    pml: int


WAYS = (
    Way("stock, `log`, PML", "clear", STOCK, 1),
    Way("stock, `log`", "clear", STOCK, 0),
    Way("stock, `ring`, PML", "ring", STOCK, 1),
    Way("stock, `ring`", "ring", STOCK, 0),
    Way("ours, `log`, PML", "clear", PATCHED, 1),
    Way("`shared`", "shared", PATCHED, 1),
    Way("`dirty-bits`", "bits", PATCHED, 1),
)


@dataclass(frozen=True)
class Row:
    """A sum of the program's figures; %s in their names is the way."""

    what: str
    names: tuple[str, ...]
    pages: int = 0  # not 0: it is given for 1,000 of them

    def cell(self, figures: Figures, way: Way) -> str:
        """The part of the table for one way."""
        value = sum(figures[name % way.name] for name in self.names)
        if self.pages:
            return f"{value * 1000 / self.pages:,.1f}"
        return f"{value:,}"


def measure(kernel: str, pml: int, mebibytes: int) -> Figures:
    """Run the program, and return its numbers, times in instructions."""
    print(f"figures: {kernel}, kvm_intel.pml={pml}", file=sys.stderr)
    test = selftests("patched") / TEST
    done = subprocess.run(
        [
            LAB,
            *("--cpu", "intel", "--kernel", kernel),
            *("--timeout", str(SECONDS), "--memory", "1200M"),
            *("--append", f"kvm_intel.pml={pml}", "--take", test, "--"),
            *("bash", "-c", 'grep "cpu MHz" /proc/cpuinfo && exec "$0" "$@"'),
            *(test, "-m", str(mebibytes), "rearm", "dirty"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    first, *lines = done.stdout.splitlines()
    per_ns = float(first.split()[-1]) / 1000
    found = {}
    for words in map(str.split, lines):
        if len(words) == 3:
            scale = per_ns if words[2] == "ns" else 1
            found[words[0]] = round(int(words[1]) * scale)
    return found


def group(what: str, harvest: str, write: str, exits: str, pages: int
          ) -> list[Row]:
    """The rows about so many dirty pages."""
    return [
        Row(f"harvest and re-arm, {what} dirty", (harvest,)),
        Row("the vCPU writes these again", (write,)),
        Row("both", (harvest, write)),
        Row("exits per 1,000 of these pages", (exits,), pages),
    ]


def rows(pages: int) -> list[Row]:
    """All of the table."""
    sparse = pages // TABLE_PAGES
    return [
        *group(f"all {pages:,}", "rearm.%s", "write-again.%s",
               "write-again-exits.%s", pages),
        *(
            row
            for count, what in (
                (1000, "1,000"), (sparse, f"{sparse}, one in each 2 MiB,"))
            for row in group(what, f"dirty.%s.{count}",
                             f"dirty-write.%s.{count}",
                             f"dirty-exits.%s.{count}", count)
        ),
    ]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=64)
    mebibytes = parser.parse_args(arguments).mebibytes
    for kernel in (STOCK, PATCHED):
        subprocess.run([BUILD_KERNEL, kernel], check=True)
    runs = sorted({(way.kernel, way.pml) for way in WAYS})
    measured = {run: measure(*run, mebibytes) for run in runs}
    print(f"| | {' | '.join(way.title for way in WAYS)} |")
    print(f"|---{'|--:' * len(WAYS)}|")
    for row in rows(mebibytes * PAGES_PER_MIB):
        cells = [row.cell(measured[way.kernel, way.pml], way) for way in WAYS]
        print(f"| {row.what} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
