# SPDX-License-Identifier: GPL-2.0-or-later
"""The cost of a harvest and re-arm, by the number of dirty pages."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from .blocks import (NONE, Block, Chapter, Plot, Table, Text, cell, number,
                     ratio)
from .results import Results, Stat
from .step import SELFTESTS, Lab, Step

PROGRAM = f"{SELFTESTS}/dirty_tracking_perf_test"
KERNELS = ("stock", "patched")
COPY = "dirty-pages/copy"
QUICK, FULL = 32, 1024  # MiB

# The kernel, the way, and its name for the reader.
WAYS = (
    ("stock", "get", "stock: KVM_GET_DIRTY_LOG"),
    ("stock", "clear", "stock: GET and CLEAR"),
    ("patched", "fetch", "ours: fetch, write-protect all"),
    ("patched", "shared", "ours: shared bitmap, write-protect all"),
    ("patched", "bits", "ours: dirty bits"),
)
STYLES = ("o-", "s-", "o--", "s--", "^-.")
# The kinds of figures: the beginning of their names, and who pays.
HARVEST = ("dirty", "harvest and re-arm")
WRITE = ("dirty-write", "the vCPU writes them again")
LIMIT = "a copy of the dirty pages"

INTRODUCTION = """Pages that are evenly spread over a guest's memory are
harvested and re-armed; then a vCPU writes them again. Both in instructions of
a clock of 1 ns each. Beside it is what a migration cannot do without: a copy of
the dirty pages, in nanoseconds of this host, from its own rate of memcpy()."""

WHY = """Stock pays for each dirty page: some 280 instructions if all are
dirty, and up to 1,600 for one that is far from the next. Ours has next to no
price for a page: the whole guest is re-armed through a few entries. The
harvest of the shared bitmap looks at those parts only that its summary names,
and that is all that is saved when few pages are dirty; fetch copies all of the
bitmap, 32 KiB per GiB, whatever is dirty. Dirty bits take the price from the
vCPU, which pays nothing where it goes on writing, and 1,500 for each 2 MiB that
wakes up, to who harvests: 76 for a page, and 1,800 for a page alone in its
2 MiB. Where pages are that sparse, both together cost more than stock's. These
are without the exits of faults and without TLB flushes as hardware has them.
Nobody published such a row."""


def name(kernel: str) -> str:
    """The name of a step."""
    return f"dirty-pages/{kernel}"


def steps(quick: bool) -> Sequence[Step]:
    """Both kernels, and how fast this host copies."""
    mebibytes = QUICK if quick else FULL
    lab = {kernel: Lab(kernel, memory=mebibytes + 1024, icount=True)
           for kernel in KERNELS}
    return [*(Step(name(kernel), (PROGRAM, "-m", str(mebibytes), "dirty"),
                   lab=lab[kernel], seconds=20 if quick else 100)
              for kernel in KERNELS),
            Step(COPY, (PROGRAM, "copy"), runs=3, seconds=1)]


def counts(results: Results) -> list[int]:
    """The numbers of dirty pages, as far as they are known."""
    found = {int(figure.rsplit(".", 1)[1])
             for kernel in KERNELS for sample in results.samples(name(kernel))
             for figure in sample if figure.startswith("dirty.")}
    return sorted(found)


def cost(results: Results, what: str, kernel: str, way: str,
         count: int) -> Stat | None:
    """In instructions."""
    return results.stat(name(kernel), f"{what}.{way}.{count}")


def limit(results: Results, count: int) -> float | None:
    """In ns."""
    page = results.stat(COPY, "copy.page")
    return page.median * count if page else None


def table(results: Results, what: str, caption: str) -> Table:
    """A row for each number of pages."""
    rows = []
    for count in counts(results):
        stats = [cost(results, what, kernel, way, count)
                 for kernel, way, _ in WAYS]
        rows.append([f"{count:,}", *map(cell, stats),
                     *(ratio(stats[0], stat) for stat in stats[3:]),
                     number_or_none(limit(results, count))])
    return Table(("dirty pages", *(title for _, _, title in WAYS),
                  "stock's GET to shared", "stock's GET to dirty bits",
                  f"{LIMIT}, ns"), rows, caption)


def number_or_none(value: float | None) -> str:
    """The text of a cell."""
    return NONE if value is None else number(value)


def panel(axes: Axes, results: Results, what: str, title: str) -> None:
    """One of the plots, both axes logarithmic."""
    pages = counts(results)
    for (kernel, way, label), style in zip(WAYS, STYLES):
        points = [(count, stat.median) for count in pages
                  if (stat := cost(results, what, kernel, way, count))]
        if points:
            axes.plot(*zip(*points), style, label=label)
    points = [(count, ns) for count in pages
              if (ns := limit(results, count)) is not None]
    if points:
        axes.plot(*zip(*points), "k:", label=LIMIT)
    if pages:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_ylabel("instructions, or ns")
    axes.grid(True, which="major", alpha=0.3)


def plot(results: Results) -> Plot:
    """Two panels: the cost of the harvest, and of the writes."""
    drawing = Drawing(figsize=(6, 8), layout="constrained")
    upper, lower = drawing.subplots(2, 1, sharex=True, sharey=True)
    panel(upper, results, *HARVEST)
    panel(lower, results, *WRITE)
    if counts(results):
        upper.legend(fontsize="small")
    lower.set_xlabel("dirty pages")
    return Plot(drawing, "The cost by the number of dirty pages. Above, harvest "
                "and re-arm: stock's grows with them, as that of copying them "
                "does, ours by write-protection levels off far below, and by "
                "dirty bits is in between. Below, writing them again: dirty "
                "bits take a hundredth of what the others do.")


def blocks(results: Results) -> Sequence[Block]:
    """The blocks of the chapter."""
    return [Text(INTRODUCTION), plot(results),
            table(results, HARVEST[0],
                  "Instructions for a harvest and re-arm."),
            table(results, WRITE[0],
                  "Instructions of the vCPU that writes these pages again."),
            Text(WHY)]


CHAPTER = Chapter("dirty-pages", "The cost by dirty pages", steps, blocks)
