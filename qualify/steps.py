# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host has to do in each mode: commands, each with a time limit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PASSED, SKIPPED = 0, 4  # exit statuses of a KVM selftest

# The kernel's own, about memory that is logged and zapped, and nested guests.
KERNELS = (
    "dirty_log_test -M dirty-log -i 8",
    "dirty_log_test -M clear-log -i 8",
    "dirty_log_test -M dirty-ring -i 8",
    "dirty_log_perf_test -i 2 -v 2 -b 64M",
    "demand_paging_test -v 2 -b 64M",
    "memslot_modification_stress_test -v 2 -b 64M -i 10",
    "kvm_page_table_test -v 2 -b 64M",
    "x86_64/state_test",
    "x86_64/smm_test",
    "x86_64/vmx_dirty_log_test",
)
OURS = (
    "x86_64/write_protect_all_test",
    "dirty_bitmap_fd_test",
    "x86_64/dirty_bits_test",
    "x86_64/eager_page_split_test",
    "x86_64/nested_write_protect_test",
    "x86_64/private_memory_test",
    "x86_64/pml_test",
    "x86_64/nested_boot_test",
)
# How a race harvests; each re-arms in between.
RACES = ("get", "manual", "shared", "ring", "mix", "bits", "bits -W",
         "get -n", "bits -n")  # -n: the writers are nested guests
FUZZ = "x86_64/dirty_tracking_fuzz_test"
RACE = "x86_64/write_protect_race_test"
RACE_WRITERS = 7  # of one guest; it has no room for more than 8 vCPUs

# Programs in C about the engine, of those that tests/ has; the first takes KVM.
ENGINE = ("test_kvm", "test_dirty_memory", "test_hot_pages", "test_page_bitmap",
          "test_page_states")
# What is migrated, and how.
MIGRATIONS = ("log", "ring", "wrprot", "shared", "dirty-bits",
              "dirty-bits --multifd", "dirty-bits --postcopy")


@dataclass(frozen=True)
class Tools:
    """Where the programs are."""

    selftests: Path
    engine: Path


@dataclass(frozen=True)
class Step:
    """A command, and the seconds that it may take."""

    name: str
    command: tuple[str, ...]
    limit: float


def selftest(tools: Tools, line: str, limit: float) -> Step:
    """A KVM selftest, and its arguments."""
    program, *arguments = line.split()
    name = line.removeprefix("x86_64/")
    return Step(name, (str(tools.selftests / program), *arguments), limit)


def engine(tools: Tools) -> Iterator[Step]:
    """The engine that QEMU has, by itself."""
    for name in ENGINE:
        yield Step(f"engine {name}", (str(tools.engine / name),), 900)


def migrations() -> Iterator[Step]:
    """A guest that writes all the time, migrated within the host."""
    for line in MIGRATIONS:
        command = (sys.executable, "-B", "-m", "qualify.migration")
        yield Step(f"migration {line}", (*command, *line.split()), 180)


def at_once(step: Step, copies: int) -> Step:
    """The same, so many times together."""
    command = (sys.executable, "-B", "-m", "qualify.together", str(copies))
    return Step(f"{step.name}, {copies} at once", command + step.command,
                step.limit)


def races(tools: Tools, cpus: int, seconds: int) -> Iterator[Step]:
    """Writers and who harvests, on all CPUs; each for SECONDS."""
    vcpus = min(max(1, cpus - 1), RACE_WRITERS)
    copies = -(-cpus // (RACE_WRITERS + 1))
    for kind in RACES:
        line = f"{RACE} -m {kind} -v {vcpus} -t {seconds}"
        step = selftest(tools, line, seconds + 120)
        yield at_once(step, copies) if copies > 1 else step


def check(tools: Tools, cpus: int) -> Iterator[Step]:
    """Ten minutes of all kinds of tests, the quickest first."""
    yield from migrations()
    for line in (*OURS, *KERNELS):
        yield selftest(tools, line, 240)
    yield from engine(tools)
    yield from races(tools, cpus, 20)
    yield selftest(tools, f"{FUZZ} -s 1 -t 60", 240)


def soak(tools: Tools, cpus: int, number: int) -> Iterator[Step]:
    """A round of it; each fuzzes with a seed of its own, and races longer."""
    yield from migrations()
    yield selftest(tools, f"{FUZZ} -s {number} -t 600", 1200)
    yield from races(tools, cpus, 120)


def measure(tools: Tools, mib: int, qemu: str, mechanism: str) -> Iterator[Step]:
    """What tracking MIB costs in KVM, and a migration its guest."""
    perf = "x86_64/dirty_tracking_perf_test"
    command = (str(tools.selftests / perf), "-m", str(mib), "rearm", "enable")
    yield Step("measure kernel", command, 1200)
    command = (sys.executable, "-B", "-m", "tests.bench.guest_view",
               "--qemu", qemu, "--mechanism", mechanism)
    yield Step("measure guest", command, 300)
