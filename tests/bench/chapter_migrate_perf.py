# SPDX-License-Identifier: GPL-2.0-or-later
"""The fetches of a migration beside vCPUs that write."""

from __future__ import annotations

from collections.abc import Sequence

from tests.migration.guest import MIB, PAGE

from .blocks import NONE, Block, Chapter, Table, Text, cell, number, ratio
from .results import Results, Stat
from .step import Lab, Step

PROGRAM = "build/meson/tests/bench/migrate-perf"
BASES = ("get", "clear")
OURS = ("wrprot", "wrprot-all", "shared", "shared-all")
MMUS = {"tdp": "", "old": "kvm.tdp_mmu=0", "shadow": "kvm_amd.npt=0"}
MMU_NAMES = {"tdp": "TDP MMU", "old": "nested paging, tdp_mmu=0",
             "shadow": "shadow paging, npt=0"}
BESIDE = "beside"
QUICK = ("-m", "16", "-t", "2", "-i", "10")
FULL = ("-m", "64", "-t", "5", "-i", "30")

# Nanoseconds: what, before, after.
PUBLISHED = (
    ("2013, migrate-perf -c 12 -m 3000 -t 20", 24813809, 8371577),
    ("2017, case 1: KVM_GET_DIRTY_LOG, 3 GiB, 12 vCPUs", 64289121, 137654),
)
WAYS = {
    "get": "KVM_GET_DIRTY_LOG",
    "clear": "the same and KVM_CLEAR_DIRTY_LOG",
    "ring": "dirty ring of 65,536, with reaper",
    "wrprot": "fetch, write-protect 2 MiB regions",
    "wrprot-all": "fetch, write-protect all",
    "shared": "shared bitmap, write-protect 2 MiB regions",
    "shared-all": "shared bitmap, write-protect all",
}

INTRODUCTION = """vCPUs write to all of a guest's memory without a pause, and
its dirty pages are fetched, that is harvested and re-armed, over and over.
What is counted in instructions is the CPU time of the fetching thread, with
one vCPU on the same CPU, where a clock of 1 ns per instruction makes it
repeat; with nested paging all memory is dirty at each fetch. Of rings it is
only what reaper and vCPU have left to do."""

WHY = """Stock's fetch goes through every page that is dirty, under mmu_lock;
the one of 2013 still did, and gave up only the lock. Ours reads a bit for each
page, and re-arms by the entries at the top of the page tables. 3 GiB have 48
times the pages of 64 MiB, so that the ratio there is larger still. What is
left is the harvest, to which the engine adds that it counts the pages and
hands them on. The loss: with tdp_mmu=0 and with shadow paging, to re-arm
regions of 2 MiB, as QEMU asks for, goes through each page that is mapped and
costs more than stock's; only write-protect all is as fast there. Left out are
exits and TLB flushes as hardware has them; there is one flush per fetch with
each way but rings."""

BESIDE_WHY = """In real time, with two vCPUs beside the fetching thread on an
emulated machine, a fetch is mostly the wait until the emulator gave the other
CPUs a turn to flush their TLBs. That wait is as long with any way, so that
these ratios are what is left of the difference, and often noise. On hardware
the program runs as it is, and the wait is microseconds: migrate-perf -c 12 -m
3000 -t 20."""


def name(kernel: str, mmu: str) -> str:
    """The name of a step."""
    return f"migrate-perf/{kernel}-{mmu}"


def counted(kernel: str, mmu: str, quick: bool) -> Step:
    """One vCPU, in instructions."""
    return Step(name(kernel, mmu),
                (PROGRAM, "-c", "1", *(QUICK if quick else FULL)),
                lab=Lab(kernel, memory=1024, icount=True, append=MMUS[mmu]),
                runs=1 if quick or mmu != "tdp" else 2, seconds=30)


def beside(kernel: str) -> Step:
    """Two vCPUs, in real time."""
    return Step(name(kernel, BESIDE),
                (PROGRAM, "-c", "2", "-m", "64", "-t", "10", "-i", "50"),
                lab=Lab(kernel, cpus=3, memory=1024), runs=3, seconds=25)


def steps(quick: bool) -> Sequence[Step]:
    """A quick run has the TDP MMU alone, and no real time."""
    kernels = ("stock", "patched")
    found = [counted(kernel, mmu, quick)
             for mmu in (["tdp"] if quick else MMUS) for kernel in kernels]
    return found if quick else [*found, *map(beside, kernels)]


def least(results: Results, step: str, ways: Sequence[str],
          figure: str) -> tuple[str, Stat | None]:
    """The best of some ways, and its figure."""
    best, stat = NONE, None
    for way in ways:
        found = results.stat(step, f"{figure}.{way}")
        if found and (not stat or found.median < stat.median):
            best, stat = way, found
    return best, stat


def guest_mib(results: Results) -> str:
    """The size of the guest, all of which is dirty with nested paging."""
    pages = results.stat(name("stock", "tdp"), "dirty.get")
    return number(pages.median * PAGE / MIB) if pages else NONE


def published_table(results: Results) -> Table:
    """The published figures, and ours."""
    rows = [(what, f"{before:,}", f"{after:,}", f"{number(before / after)}×")
            for what, before, after in PUBLISHED]
    size = guest_mib(results)
    for mmu, title in MMU_NAMES.items():
        _, base = least(results, name("stock", mmu), BASES, "fetch-cpu")
        way, ours = least(results, name("patched", mmu), OURS, "fetch-cpu")
        rows.append((f"here, {size} MiB, {title}, {way}", cell(base),
                     cell(ours), ratio(base, ours)))
    return Table(("a fetch of all dirty memory", "before or stock, ns",
                  "after or ours, ns", "ratio"), rows,
                 "Published: nanoseconds of their hosts. Here: instructions.")


def ways_table(results: Results, mmu: str, figure: str, unit: str) -> Table:
    """Each way on both kernels."""
    base = results.stat(name("stock", mmu), f"{figure}.get")
    rows = []
    for way, title in WAYS.items():
        stock = results.stat(name("stock", mmu), f"{figure}.{way}")
        ours, dirty, start, writes = (
            results.stat(name("patched", mmu), f"{what}.{way}")
            for what in (figure, "dirty", "start", "writes"))
        rows.append((title, cell(stock), cell(ours),
                     NONE if way == "ring" else ratio(base, ours),
                     cell(dirty), cell(start), cell(writes)))
    title = MMU_NAMES.get(mmu, "real time, 2 vCPUs, TDP MMU")
    return Table(("way", f"stock kernel, {unit}", f"ours, {unit}",
                  "stock's get to ours", "pages found, ours",
                  "start of the log, ours", "pages written per s, ours"), rows,
                 f"A fetch: {title}.")


def blocks(results: Results) -> Sequence[Block]:
    """The blocks of the chapter."""
    found: list[Block] = [Text(INTRODUCTION), published_table(results)]
    found += [ways_table(results, mmu, "fetch-cpu", "instructions")
              for mmu in MMUS if results.samples(name("patched", mmu))]
    found.append(Text(WHY))
    if results.samples(name("patched", BESIDE)):
        found += [ways_table(results, BESIDE, "fetch-median", "ns"),
                  Text(BESIDE_WHY)]
    return found


CHAPTER = Chapter("migrate-perf", "Fetches beside vCPUs that write", steps,
                  blocks)
