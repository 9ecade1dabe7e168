# SPDX-License-Identifier: GPL-2.0-or-later
"""The mechanisms under test, and the check that most tests end with."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from typing import Callable, Iterator, Optional, Sequence

import pytest

from .compare import assert_none_differ, differing_in, differing_pages
from .guest import MIB, PATTERNS, Writer
from .migrate import (ANY_DOWNTIME, Options, Result, cancel, crawl, migrate,
                      start, wait_rounds)
from .vm import DIRTY_BITS, LOG, SHARED, VM, WRPROT, Mechanism

WATCH_SECONDS = 60  # the most that QEMU measures for
WATCH_TIMEOUT = 60.0
WRITES_TIMEOUT = 60.0

RINGS = (Mechanism(1024), Mechanism(4096), Mechanism(65536))

# These take a patched host kernel, as in the lab.  A guest that may use the
# one kind cannot use the other.
BY_FAULTS = tuple(each for each in (WRPROT, SHARED) if each.offered)
COLLECTED = tuple(each for each in (DIRTY_BITS,) if each.offered)
PATCHED = (*BY_FAULTS, *COLLECTED)
MECHANISMS = (LOG, *BY_FAULTS, *RINGS, *COLLECTED)

# Slow enough for a few rounds over 32 MiB that the guest writes all the time.
# Then the migration ends, however slowly this machine sends.
HELD = Options(bandwidth=100 * MIB, hold=True, downtime_limit=ANY_DOWNTIME)

each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
each_ring = pytest.mark.parametrize("mechanism", RINGS, ids=str)
log_and_ring = pytest.mark.parametrize(
    "mechanism", (LOG, *PATCHED, Mechanism(4096)), ids=str)

CPUS = (1, 2, 4)
MACHINES = ("pc", "q35")
FEATURES = ("multifd", "postcopy", "cancel", "reset", "snapshot", "memory",
            "vcpus", "display")


def matrix(feature: str, cpus: Sequence[int] = CPUS,
           **fields: int) -> pytest.MarkDecorator:
    """Run a test of FEATURE with each mechanism and each sort of writer.

    One writer for each mechanism is outside of the soak: over all features,
    every two values of (feature, mechanism, CPUS, pattern) meet, since each is
    another linear function of two numbers modulo three.
    """
    cases = []
    column = FEATURES.index(feature)
    patterns = list(PATTERNS)
    for row, mechanism in enumerate(MECHANISMS):
        chosen = (cpus[(row + column) % len(cpus)],
                  patterns[(row + 2 * column) % len(patterns)])
        for number, pattern in itertools.product(cpus, patterns):
            cases.append(pytest.param(
                mechanism,
                Writer(cpus=number, pattern=PATTERNS[pattern], **fields),
                marks=() if (number, pattern) == chosen else pytest.mark.soak,
                id=f"{mechanism}-{pattern}-{number}"))
    return pytest.mark.parametrize("mechanism,writer", cases)


def assert_identical(src: VM, dst: VM) -> None:
    """Fail unless the memory of both VMs is the same."""
    assert_none_differ(differing_pages(src, dst))


def assert_identical_in(src: VM, dst: VM, address: int, size: int) -> None:
    """Fail unless one range of memory is the same; a device may have it."""
    assert_none_differ(differing_in(src, dst, address, size))


def watch(vm: VM, mechanism: Mechanism) -> None:
    """Have the dirty rate measured, for longer than most tests take.

    A thread of QEMU's begins it, a while after it has said "measuring".
    """
    vm.qmp("calc-dirty-rate", calc_time=WATCH_SECONDS,
           mode="dirty-ring" if mechanism.ring else "dirty-bitmap")
    wait_watched(vm)


def wait_watched(vm: VM) -> None:
    """Wait until dirty pages are logged."""
    vm.wait(lambda: bool(vm.qmp("query-dirty-tracking")["logged-slots"]),
            WATCH_TIMEOUT, "memory was not watched")


def assert_writes(vm: VM, count: int = 1) -> None:
    """Fail unless every vCPU makes COUNT more writes."""
    before = vm.counters()
    vm.wait(lambda: all(b - a >= count for a, b in zip(before, vm.counters())),
            WRITES_TIMEOUT, f"not every vCPU made {count} writes")


@contextlib.contextmanager
def to_be_cancelled(src: VM, rounds: int = 2) -> Iterator[None]:
    """A migration of SRC that stays in a round, and is cancelled at the end.

    Its rounds take a second, in which a guest on a busy machine writes, too.
    """
    slow = dataclasses.replace(HELD, bandwidth=HELD.bandwidth // 4)
    with VM("dst", src.config, incoming=True) as dst:
        start(src, dst, slow)
        wait_rounds(src, dst, rounds, slow)
        crawl(src)
        yield
        cancel(src)


def migrate_identical(src: VM, dst: VM, options: Options = HELD,
                      held: Optional[Callable[[], None]] = None) -> Result:
    """Migrate SRC to DST and fail unless their memory is then the same."""
    result = migrate(src, dst, options, held)
    assert_identical(src, dst)
    return result
