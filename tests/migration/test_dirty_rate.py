# SPDX-License-Identifier: GPL-2.0-or-later
"""calc-dirty-rate and the dirty page limit of a vCPU."""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Callable

import pytest

from .cases import HELD, PATCHED, RINGS, each_ring, migrate_identical
from .guest import Writer
from .migrate import crawl, info, start, throttle_least, wait
from .vm import LOG, VM, Config, Mechanism, Qemu, pair

TWO_CPUS = Writer(cpus=2)
MEASURE_TIMEOUT = 60.0

# Measured for a second, of which a crawling migration ends no round or one.
WRITTEN_MIB = 32
SLOWED = dataclasses.replace(HELD, auto_converge=True)

# A limit takes effect step by step, one step each second.
LIMIT_TIMEOUT = 90.0
LIMIT_MB = 8


def measure(vm: VM, mode: str) -> dict[str, Any]:
    """Return the answer of query-dirty-rate after a measurement."""
    vm.qmp("calc-dirty-rate", calc_time=1, mode=mode)
    vm.wait(lambda: vm.qmp("query-dirty-rate")["status"] == "measured",
            MEASURE_TIMEOUT, "no dirty rate was measured")
    answer: dict[str, Any] = vm.qmp("query-dirty-rate")
    return answer


@pytest.mark.parametrize(
    "mechanism,mode",
    [(LOG, "page-sampling"), (LOG, "dirty-bitmap"),
     *((mechanism, "dirty-bitmap") for mechanism in PATCHED),
     (RINGS[1], "page-sampling"),
     *((ring, "dirty-ring") for ring in RINGS)], ids=str)
def test_dirty_rate(ours: Qemu, mechanism: Mechanism, mode: str) -> None:
    """QEMU measures a rate, and with rings that of each vCPU.

    It samples no page of a block of less than 128 MiB.
    """
    config = Config(ours, ours.accel(mechanism), mib=128, writer=TWO_CPUS)
    with pair(config) as (src, dst):
        src.wait_writing()
        answer = measure(src, mode)
        assert answer["dirty-rate"] > 0
        if mode == "dirty-ring":
            assert [vcpu["id"] for vcpu in answer["vcpu-dirty-rate"]] == [0, 1]
            assert all(vcpu["dirty-rate"] > 0
                       for vcpu in answer["vcpu-dirty-rate"])
        migrate_identical(src, dst)


@pytest.mark.parametrize("mechanism", (LOG, *PATCHED), ids=str)
def test_beside_auto_converge(ours: Qemu, mechanism: Mechanism) -> None:
    """A page counts as often as its guest's rounds end, and in no look."""
    writer = Writer(mib=WRITTEN_MIB, cpus=2)
    config = Config(ours, ours.accel(mechanism), writer=writer)
    with VM("src", config) as src, VM("dst", config, incoming=True) as dst:
        src.wait_writing()
        # The guest is to write all the time.
        throttle_least(src)
        start(src, dst, SLOWED)
        wait(src, dst, SLOWED.timeout, "slow the guest down",
             lambda state: state.get("cpu-throttle-percentage", 0) > 0)
        crawl(src)
        answer = measure(src, "dirty-bitmap")
        assert 0 < answer["dirty-rate"] <= 2 * WRITTEN_MIB
        assert info(src)["status"] == "active"


def wait_rates(vm: VM, what: str,
               done: Callable[[list[float]], bool]) -> list[float]:
    """Wait until the write rates are DONE."""
    deadline = time.monotonic() + LIMIT_TIMEOUT
    while True:
        rates = vm.rates(1.0)
        if done(rates):
            return rates
        if time.monotonic() > deadline:
            pytest.fail(f"the limit was not {what} within "
                        f"{LIMIT_TIMEOUT:.0f} s: {rates} writes per second")


@each_ring
def test_dirty_limit(ours: Qemu, mechanism: Mechanism) -> None:
    """A limit slows the guest down, and it speeds up again without."""
    config = Config(ours, ours.accel(mechanism), writer=TWO_CPUS)
    with pair(config) as (src, dst):
        src.wait_writing()
        before = sum(src.rates(1.0))
        src.qmp("set-vcpu-dirty-limit", dirty_rate=LIMIT_MB)
        wait_rates(src, "obeyed", lambda rates: sum(rates) < before / 2)
        src.qmp("cancel-vcpu-dirty-limit")
        wait_rates(src, "lifted", lambda rates: sum(rates) > before / 2)
        migrate_identical(src, dst)
