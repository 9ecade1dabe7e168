# SPDX-License-Identifier: GPL-2.0-or-later
"""Huge pages that are split ahead of the guest's writes."""

from __future__ import annotations

from collections.abc import Sequence

from .blocks import Block, Chapter, Table, Text, cell, number, ratio
from .results import Results, Stat
from .step import SELFTESTS, Lab, Step

PROGRAM = f"{SELFTESTS}/dirty_tracking_perf_test"
# Only at boot can pages of 1 GiB be reserved.
HUGE = "hugepagesz=1G hugepages=1 hugepagesz=2M hugepages=40"
MMUS = {"tdp": "kvm.tdp_mmu=1", "old": "kvm.tdp_mmu=0"}
MMU_NAMES = {"tdp": "TDP MMU", "old": "tdp_mmu=0"}
KERNELS = ("stock", "patched")
VCPUS = (1, 2, 4)
BESIDE = "vcpus"
MEMORY = 3584

# Seconds for 1 GiB per vCPU: 4 KiB pages, and 1 GiB that faults split.
PUBLISHED = {
    "old": {1: (0.063, 0.241), 2: (0.066, 0.280), 4: (0.069, 0.359)},
    "tdp": {1: (0.061, 0.238), 2: (0.066, 0.278), 4: (0.070, 0.298)},
}
BACKINGS = {"4k": "4 KiB", "2m": "2 MiB", "1g": "1 GiB"}
SPLITS = {"fault": "by faults", "once": "all at once",
          "chunks": "in chunks of 16 MiB"}

INTRODUCTION = """The first pass of writes over memory whose logging has just
begun. A huge page is not mapped for writing any more: either the first write
to each 4 KiB waits for the fault that splits it, or it was split ahead. Stock
splits all of it inside the ioctl that turns on logging, if
kvm.eager_page_split says so; ours can do that per VM, or afterwards in chunks,
beside the guest. One vCPU is counted in instructions, which repeat; two and
four run in real time on an emulated machine, and each run's spread is shown.
There a vCPU writes less than the 1 GiB of the publication."""

WHY = """Split ahead, huge pages cost what 4 KiB pages do, published and here.
Split by faults they cost 4 times as much where it was published, and here
twice. The published 0.23 µs for a 4 KiB page are less than a fault usually
takes, so that CPU presumably logged by itself (PML). This one has no PML: each
4 KiB page faults once with any backing, by a fault that maps it anew if it was
huge, and by one that only makes it writable if not. With tdp_mmu=0, Linux 6.1
as it is splits nothing ahead, whatever kvm.eager_page_split says; ours does.
With more vCPUs the published ratio grows by contention for mmu_lock, most of
all with tdp_mmu=0; what it comes to here, with as few CPUs and in real time,
has wide spreads."""

COST_WHY = """At once, all of it is one ioctl, under slots_lock: the 30 s for
1.5 TB that were published. Stock then write-protects every 4 KiB page of what
it has split, ours the entries at the top only. In chunks the longest ioctl
stays the same however large the guest is. Page tables are those that the
writes would have made in the end, 4 KiB for each 2 MiB, and no way needs fewer
for memory that is written. A page of 1 GiB is split whole, though the vCPU
writes but a part of it here. The loss: where all is huge, and nothing is
split, to turn on logging costs ours more than stock with the TDP MMU, as our
bitmap has a summary and is mapped."""


def name(kernel: str, mmu: str, kind: str = "one") -> str:
    """The name of a step."""
    return f"eager-split/{kernel}-{mmu}-{kind}"


def one(kernel: str, mmu: str, mebibytes: int) -> Step:
    """One vCPU, in instructions."""
    return Step(name(kernel, mmu),
                (PROGRAM, "-s", str(mebibytes), "split"),
                lab=Lab(kernel, memory=MEMORY, icount=True,
                        append=f"{HUGE} {MMUS[mmu]}"), seconds=30)


def several(kernel: str, mmu: str) -> Step:
    """More vCPUs, in real time."""
    return Step(name(kernel, mmu, BESIDE),
                (PROGRAM, "-v", "2,4", "-s", "16", "split"),
                lab=Lab(kernel, cpus=4, memory=MEMORY,
                        append=f"{HUGE} {MMUS[mmu]}"),
                runs=3 if mmu == "tdp" else 1, seconds=30)


def steps(quick: bool) -> Sequence[Step]:
    """A quick run has one vCPU and the TDP MMU."""
    if quick:
        return [one(kernel, "tdp", 4) for kernel in KERNELS]
    return [make for mmu in MMUS for kernel in KERNELS
            for make in (one(kernel, mmu, 64), several(kernel, mmu))]


def figure(results: Results, kernel: str, mmu: str, what: str,
           vcpus: int = 1) -> Stat | None:
    """A figure that the program printed; WHAT is like first-pass.4k.fault."""
    if vcpus == 1:
        return results.stat(name(kernel, mmu), what)
    return results.stat(name(kernel, mmu, BESIDE), f"{what}.{vcpus}")


def pass_row(results: Results, mmu: str, vcpus: int) -> list[str]:
    """How much longer the first pass takes than with 4 KiB pages."""
    small, large = PUBLISHED[mmu][vcpus]
    row = [f"{MMU_NAMES[mmu]}, {vcpus}", f"{small} / {large}",
           f"{number(large / small)}×"]
    for kernel, splits in (("stock", ("fault", "once")),
                           ("patched", ("fault", "once", "chunks"))):
        base = figure(results, kernel, mmu, "first-pass.4k.fault", vcpus)
        row += [ratio(figure(results, kernel, mmu, f"first-pass.1g.{split}",
                             vcpus), base) for split in splits]
    return row


def pass_table(results: Results) -> Table:
    """The published table, and ours beside it."""
    rows = [pass_row(results, mmu, vcpus) for mmu in MMUS for vcpus in VCPUS]
    return Table(
        ("MMU, vCPUs", "published: 4K / 1G, s", "published ratio",
         "stock: by faults", "stock: at once", "ours: by faults",
         "ours: at once", "ours: in chunks"), rows,
        "First pass over 1 GiB pages, as a multiple of that over 4 KiB pages.")


def time_table(results: Results, mmu: str) -> Table:
    """The first passes themselves."""
    rows = []
    for backing, size in BACKINGS.items():
        for split, how in SPLITS.items():
            if backing == "4k" and split != "fault":
                continue
            what = f"first-pass.{backing}.{split}"
            cells = [cell(figure(results, kernel, mmu, what, vcpus))
                     for vcpus in VCPUS for kernel in KERNELS]
            label = size if backing == "4k" else f"{size}, split {how}"
            rows.append([label, *cells])
    return Table(
        ("pages", *(f"{title}, {unit}" for unit in
                    ("1 vCPU, instructions", "2 vCPUs, ns", "4 vCPUs, ns")
                    for title in ("stock", "ours"))), rows,
        f"First pass of writes after logging began: {MMU_NAMES[mmu]}.")


def cost_table(results: Results, mmu: str) -> Table:
    """The cost of starting the log, and of page tables."""
    rows = []
    for backing, size in BACKINGS.items():
        for split, how in SPLITS.items():
            what = f"{backing}.{split}"
            stock, ours = (
                figure(results, kernel, mmu, f"log-and-split.{what}")
                for kernel in KERNELS)
            longest = figure(results, "patched", mmu, f"longest-ioctl.{what}")
            tables = [figure(results, kernel, mmu, f"page-tables.{what}")
                      for kernel in KERNELS]
            rows.append([f"{size}, split {how}", cell(stock), cell(ours),
                         ratio(stock, ours), cell(longest),
                         *map(cell, tables)])
    return Table(
        ("pages", "stock, instructions", "ours, instructions", "ratio",
         "ours: longest ioctl", "page tables, stock, KiB",
         "page tables, ours, KiB"), rows,
        f"To turn on logging and split: {MMU_NAMES[mmu]}, one vCPU.")


def blocks(results: Results) -> Sequence[Block]:
    """The blocks of the chapter."""
    found: list[Block] = [Text(INTRODUCTION), pass_table(results), Text(WHY)]
    known = [mmu for mmu in MMUS if results.samples(name("patched", mmu))]
    for mmu in known or ["tdp"]:
        found += [time_table(results, mmu), cost_table(results, mmu)]
    return [*found, Text(COST_WHY)]


CHAPTER = Chapter("eager-split", "Huge pages, split ahead", steps, blocks)
