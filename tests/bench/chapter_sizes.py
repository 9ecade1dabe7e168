# SPDX-License-Identifier: GPL-2.0-or-later
"""The cost of a migration for a guest that is large and writes little."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure as Drawing

from .blocks import Block, Chapter, Plot, Table, Text, cell, ratio
from .releases import OTHERS, PEER, SHORT, TITLES, VERSIONS, peer_of
from .results import Results
from .step import PYTHON, Lab, Step

QUICK, FULL = (1, 64), (1, 16, 256, 1024)
# The emulated CPU addresses 1 TiB, less than a guest of that size has.
LAB_QUICK, LAB_FULL = (1, 64), (1, 64, 768)
QEMUS = (PEER, "ours")
# The same of each other release, where both are to be had.
PAIRS = {version: (peer, name) for name, version in OTHERS.items()
         if (peer := peer_of(version, VERSIONS))}
# One that is in two of them is measured once.
ALL = tuple(dict.fromkeys(
    name for names in (QEMUS, *PAIRS.values()) for name in names))
TITLED = {**TITLES, **SHORT}
SECONDS, SECONDS_PER_GIB = 10, 0.25
LAB_SECONDS, LAB_SECONDS_PER_GIB = 20, 0.3
LONG_GIB = 256  # takes half a minute and more, so once is enough

# In the lab: the name, QEMU, its mechanism, the kernel.
LAB_ROWS = (("stock", PEER, "log", "stock"),
            ("ours, shared", "ours", "shared", "patched"),
            ("ours, dirty-bits", "ours", "dirty-bits", "patched"))

FIGURES = (
    ("set-up", "set-up, ms"), ("set-up.kvm", "of it KVM, ms"),
    ("set-up.again", "again, ms"), ("sync.first", "first sync, µs"),
    ("sync.again", "first sync again, µs"), ("sync.idle", "idle sync, µs"),
    ("sync.busy", "busy sync, µs"),
    ("sync.busy.bql", "with the BQL, µs"), ("pages", "pages"),
    ("downtime", "downtime, ms"))
CURVES = (("sync.idle", "a sync that finds nothing, µs"),
          ("sync.busy", "a sync that finds 4,096 pages, µs"),
          ("set-up", "set-up, ms"), ("downtime", "downtime, ms"))
COLOURS = {PEER: "#888888", "ours": "#0a7d4f"}

# A sync of this many pages has to move at least this much: each page is set in
# KVM's log or ring and in QEMU's two bitmaps, and there are two bits for that.
# At some 10 GB/s a cache line takes 6 ns, and in the worst case each bit has
# three lines of its own.
LIMIT_US = 4096 * 3 * 0.006


def step_name(where: str, name: str, gib: int) -> str:
    """Of the row with that name."""
    return f"sizes/{where}/{name.replace(', ', '-')}/{gib}"


def step(where: str, name: str, qemu: str, mechanism: str, gib: int,
         lab: Lab | None, runs: int) -> Step:
    """One guest, with one QEMU.

    In the lab it would take minutes to look at the memory of a large one.
    """
    seconds = round(LAB_SECONDS + LAB_SECONDS_PER_GIB * gib if lab
                    else SECONDS + SECONDS_PER_GIB * gib)
    return Step(step_name(where, name, gib),
                PYTHON + ("tests.bench.sync_cost", "--qemu", qemu,
                          "--mechanism", mechanism, "--gib", str(gib),
                          *(["--only-set-up"] if lab else [])),
                lab, runs, seconds, kvm=lab is None)


def steps(quick: bool) -> Sequence[Step]:
    """Rings on this host, and logs in the lab, which has a shared one."""
    here = [step("here", name, name, "ring", gib, None,
                 1 if quick or gib >= LONG_GIB else 3)
            for gib in (QUICK if quick else FULL)
            for name in (QEMUS if quick else ALL)]
    labs = [step("lab", name, qemu, mechanism, gib,
                 Lab(kernel, icount=True, memory=4096), 1)
            for gib in (LAB_QUICK if quick else LAB_FULL)
            for name, qemu, mechanism, kernel in LAB_ROWS]
    return here + labs


def table(results: Results, where: str, sizes: Sequence[int],
          names: Sequence[str], caption: str) -> Table:
    """All figures of each, by size; the first one is the base."""
    rows = []
    for gib in sizes:
        steps_of = [step_name(where, name, gib) for name in names]
        if not any(map(results.samples, steps_of)):
            continue
        stats = [[results.stat(name, figure) for figure, _ in FIGURES]
                 for name in steps_of]
        for name, line in zip(names, stats):
            rows.append((f"{gib:,} GiB, {TITLED.get(name, name)}",
                         *map(cell, line)))
            if line is not stats[0]:
                rows.append(("ratio", *map(ratio, stats[0], line)))
    return Table(("guest", *(heading for _, heading in FIGURES)), rows,
                 caption)


def plot(results: Results, where: str, sizes: Sequence[int]) -> Plot:
    """How each grows with the guest."""
    drawing = Drawing(figsize=(5, 9))
    for place, (figure, title) in enumerate(CURVES, 1):
        axes = drawing.add_subplot(len(CURVES), 1, place)
        for name in QEMUS:
            points = [(gib, stat.median) for gib in sizes if (
                stat := results.stat(step_name(where, name, gib), figure))]
            if points:
                axes.plot(*zip(*points), "o-", color=COLOURS[name],
                          label=SHORT[name])
        if figure == "sync.busy":
            axes.axhline(LIMIT_US, color="#c33", linestyle=":",
                         label="memory's bandwidth")
        axes.set_xscale("log", base=2)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(bottom=0)
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("GiB of guest", fontsize=10)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=9)
        axes.grid(alpha=0.3)
    drawing.tight_layout()
    return Plot(drawing, "With stock all of them grow with the guest; the table "
                "below has the figures.")


WHY = (
    "A busy sync is that of a guest that has written 4,096 pages since the last. "
    "Stock merges and searches a bit for each page of the guest under the BQL; "
    "ours searches a summary of 64 KiB for each TiB, and takes only the groups of "
    "512 pages that are dirty. The set-up that is left to ours is KVM's start of "
    "its log for all memory, where the host's KVM is not ours; the operators' "
    "figures are 4-5 ms per GiB for that, and 10-59 ms per round for fetching "
    "and merging bitmaps at 5-6 GiB.")
LIMIT = (
    "The dotted line is the physical limit: what has to move through memory for "
    "4,096 pages that lie apart, three cache lines for each, at 10 GB/s.")


def blocks(results: Results) -> Sequence[Block]:
    """Curves, then tables."""
    return [
        Text(WHY), plot(results, "here", FULL), Text(LIMIT),
        table(results, "here", FULL, QEMUS, "Dirty rings of 65,536 entries, on this "
              "host's own kernel, whose KVM emulates guests or does not."),
        *(table(results, "here", FULL, pair, f"The same with QEMU {version}.")
          for version, pair in PAIRS.items()),
        table(results, "lab", LAB_FULL, [name for name, *_ in LAB_ROWS],
              "In the lab: stock QEMU with log on the stock kernel, ours on the "
              "patched one, on one CPU, whose time counts instructions."),
    ]


CHAPTER = Chapter("sizes", "By the size of the guest", steps, blocks)
