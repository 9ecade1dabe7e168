# SPDX-License-Identifier: GPL-2.0-or-later
"""Nested guests that come and go, and what is left of them."""

from __future__ import annotations

from collections.abc import Sequence

from .blocks import Block, Chapter, Table, Text, cell, ratio
from .results import Results
from .step import SELFTESTS, Lab, Step

TEST = f"{SELFTESTS}/nested_boot_test"
KERNELS = ("stock", "patched")
QUICK, FULL = ("-i", "6", "-m", "4"), ("-i", "20", "-m", "16")
QUICK_SECONDS, FULL_SECONDS = 10, 60

# The figure, and its published values, before and after.
ROWS = (
    ("boot.first", "a boot, in the first iteration", "–"),
    ("boot.last", "a boot, in the last", "10% longer than the first → as long"),
    ("left.page-tables", "page tables that KVM has more in the end, KiB", "–"),
    ("zapped", "shadow pages zapped meanwhile", "–"),
    ("delete-slot", "deleting the slot with the guests' memory",
     "over a minute → some ms"),
)

WHY = (
    "Ten guests at a time are booted by an L1 that builds their page tables out "
    "of a pool, and has all of them end by clearing one entry each; 20 times. "
    "Each boot writes all of its memory. Linux has had the cure since 5.10, so "
    "stock has no ill to show, and ours must not bring it back: what write-protect "
    "all does with shadow pages of nested page tables is that it leaves them to be "
    "linked again. The loss is what our VM pays here, with "
    "KVM_CAP_WRITE_PROTECT_ALL_MEM enabled, for each table and leaf that is made. "
    "The published guests had 2 GiB each, and an L1 of 64 GiB.")


def steps(quick: bool) -> Sequence[Step]:
    """The same program on both kernels; counts repeat, so one run each."""
    return [Step(f"nested/{kernel}", (TEST, *(QUICK if quick else FULL)),
                 Lab(kernel, memory=2048, icount=True),
                 seconds=QUICK_SECONDS if quick else FULL_SECONDS)
            for kernel in KERNELS]


def blocks(results: Results) -> Sequence[Block]:
    """One table."""
    rows = []
    for name, what, published in ROWS:
        base, ours = (results.stat(f"nested/{kernel}", name)
                      for kernel in KERNELS)
        rows.append((what, published, cell(base), cell(ours),
                     ratio(base, ours)))
    return [Text(WHY),
            Table(("what", "published", "stock", "ours", "ratio"), rows,
                  "Times in instructions (the emulated clock's ns).")]


CHAPTER = Chapter("nested", "Nested guests", steps, blocks)
