# SPDX-License-Identifier: GPL-2.0-or-later
"""The work of the host's KVM, stock and ours: counted, not timed."""

from __future__ import annotations

from collections.abc import Sequence

from .blocks import Block, Chapter, Table, Text, cell, ratio
from .results import Results
from .step import SELFTESTS, Lab, Step

TEST = f"{SELFTESTS}/dirty_tracking_perf_test"
KERNELS = ("stock-keys", "patched-keys")  # what a distribution's would do
QUICK_MIB, FULL_MIB = 32, 512
ROOM_MIB = 1024  # for all else in the machine


def steps(quick: bool) -> Sequence[Step]:
    """The same program on both kernels; counts repeat, so one run each."""
    mib = QUICK_MIB if quick else FULL_MIB
    lab = {kernel: Lab(kernel, memory=mib + ROOM_MIB, icount=True)
           for kernel in KERNELS}
    return [Step(f"kernel/{kernel}", (TEST, "-m", str(mib), "rearm", "enable"),
                 lab[kernel], seconds=10 + mib // 5)
            for kernel in KERNELS]


# The row; the published figures in ns; the names of the baseline and ours.
ROWS = (
    ("harvest and re-arm, all dirty: KVM_GET_DIRTY_LOG; shared bitmap and "
     "write-protect all", "64,289,121 → 137,654 (467×)",
     "rearm.get", "rearm.shared"),
    ("the same: KVM_GET_DIRTY_LOG; fetch only, and write-protect all",
     "64,289,121 → 137,654 (467×)", "rearm.get", "rearm.fetch"),
    ("the same: GET and CLEAR; shared bitmap and write-protect all", "–",
     "rearm.clear", "rearm.shared"),
    ("the same: KVM_GET_DIRTY_LOG; dirty bits", "–", "rearm.get",
     "rearm.bits"),
    ("turn on logging (of which the first fetch had 156 ms)",
     "156 ms → 6 ms", "enable.get", "enable.shared"),
    ("write all of it again", "281,735,017 → 291,150,923 (−3%)",
     "write-again.get", "write-again.shared"),
    ("the same: KVM_GET_DIRTY_LOG; dirty bits", "–", "write-again.get",
     "write-again.bits"),
)

# The names of the steps.
STOCK, OURS = (f"kernel/{kernel}" for kernel in KERNELS)

NOTHING_ENABLED = ("rearm.get", "rearm.clear", "enable.get", "write-again.get",
                   "write-again.clear")

WHY = (
    "All of the guest's memory is mapped by pages of 4 KiB, and dirty. Stock's "
    "KVM_GET_DIRTY_LOG write-protects every leaf; ours write-protects the few "
    "entries at the top, so that its cost is the reading of the bitmap, and the "
    "ratio grows with memory: the published one is of 3 GiB, and its fetch "
    "copied a bitmap that ours has mapped. Writing the memory again was 3% "
    "slower then, as a fault moved the protection down under the lock; ours is "
    "faster than stock, as it opens a whole table at a time without it. With "
    "dirty bits pages stay writable and there is no fault at all: whoever "
    "harvests looks at the page tables instead, which costs more than a "
    "write-protect all and less than stock.")

LOSS = (
    "What a VM pays on our kernel that enables none of this. Both kernels have "
    "static keys.")


def blocks(results: Results) -> Sequence[Block]:
    """One table of the gains, one of the costs for guests that use nothing."""
    stock, ours = (
        {name: results.stat(step, name)
         for row in ROWS for name in row[2:]} for step in (STOCK, OURS))
    gains = [(what, published, cell(stock[base]), cell(ours[new]),
              ratio(stock[base], ours[new]))
             for what, published, base, new in ROWS]
    losses = []
    for name in NOTHING_ENABLED:
        base = results.stat(STOCK, name)
        new = results.stat(OURS, name)
        more = (f"{(new.median / base.median - 1) * 100:+.2f}%"
                if base and new else "–")
        losses.append((name, cell(base), cell(new), more))
    return [
        Table(("what", "published, ns", "stock", "ours", "ratio"), gains,
              "In instructions (the emulated clock's nanoseconds)."),
        Text(WHY), Text(LOSS),
        Table(("figure", "stock", "ours", "more"), losses),
    ]


CHAPTER = Chapter("kernel", "Harvest and re-arm in the host kernel", steps,
                  blocks)
