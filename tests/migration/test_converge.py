# SPDX-License-Identifier: GPL-2.0-or-later
"""A migration that ends, of a guest that writes more than can be sent."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from .cases import PATCHED, assert_identical, log_and_ring
from .guest import MIB, RANDOM, Writer
from .migrate import (ANY_DOWNTIME, Options, Result, cancel, crawl, finish,
                      info, release, rounds, start, wait, wait_rounds)
from .vm import LOG, VM, Config, Mechanism, Qemu, pair

# It writes all of its 32 MiB many times a second, and 6 MiB may remain.
WRITER = Writer(mib=32, pattern=RANDOM)
# One vCPU that writes, and two that do not.
COMPUTERS = dataclasses.replace(WRITER, cpus=3, writers=1)
SLOW = Options(bandwidth=20 * MIB, downtime_limit=300)
SLOWED = dataclasses.replace(SLOW, auto_converge=True)
ANY = Options(downtime_limit=ANY_DOWNTIME)
ENDLESS = dataclasses.replace(SLOWED, downtime_limit=1)
# A vCPU of three may go without a host CPU for a while, and write nothing then.
SCARCE = dataclasses.replace(ENDLESS, bandwidth=5 * MIB)
STALLED = "MIGRATION_STALLED"
PACE_TIMEOUT = 90.0  # others may use the host at the same time
# What is known there: entries of each vCPU's ring, or its faults.
WHO_IS_KNOWN = (Mechanism(65536), *PATCHED)


def throttle(state: dict[str, Any]) -> int:
    """Return by how much the vCPU that is slowed down most is."""
    return int(state.get("cpu-throttle-percentage", 0))


def wait_throttled(src: VM, dst: VM, percent: int) -> dict[str, Any]:
    """Wait until a vCPU is slowed down by so much.

    It goes on so: after the first round next to nothing is sent.
    """
    wait_rounds(src, dst, 2, SLOWED)
    crawl(src)
    return wait(src, dst, SLOWED.timeout, "slow a vCPU down",
                lambda state: throttle(state) >= percent)


def config_of(qemu: Qemu, mechanism: Mechanism, writer: Writer) -> Config:
    """Return a guest with this writer."""
    return Config(qemu, qemu.accel(mechanism), mib=96, writer=writer)


def end(src: VM, dst: VM) -> Result:
    """Wait for the end, and compare all memory."""
    result = finish(src, dst, SLOWED)
    assert_identical(src, dst)
    return result


@log_and_ring
def test_it_ends(ours: Qemu, mechanism: Mechanism) -> None:
    """With auto-converge; and the guest has its pace back at the target."""
    with pair(config_of(ours, mechanism, WRITER)) as (src, dst):
        src.wait_writing()
        before = sum(src.rates(1.0))
        start(src, dst, SLOWED)
        result = end(src, dst)
        assert len(src.monitor.event_times(STALLED)) == 1
        assert throttle(result.info) == 0
        dst.qmp("cont")
        dst.wait(lambda: sum(dst.rates(0.5)) > before / 3, PACE_TIMEOUT,
                 "the guest has not its pace back")


@log_and_ring
def test_told(ours: Qemu, mechanism: Mechanism) -> None:
    """Without auto-converge it is told what would make the migration end."""
    with pair(config_of(ours, mechanism, WRITER)) as (src, dst):
        src.wait_writing()
        start(src, dst, SLOW)
        wait(src, dst, SLOW.timeout, "stall",
             lambda state: state.get("convergence", {}).get("stalled"))
        assert src.monitor.event_times(STALLED)
        # A small ring may overflow: pages of zeros are then sent as well, and
        # what such a round tells does not hold for the next.
        state = wait(src, dst, SLOW.timeout, "tell of a round without zeros",
                     lambda state: (state["convergence"]["bandwidth"]
                                    < 2 * SLOW.bandwidth))
        assert throttle(state) == 0
        told = state["convergence"]
        lines = src.hmp("info migrate").splitlines()
        assert any(line.startswith("convergence: stalled, ") for line in lines)
        assert told["bandwidth-needed"] == pytest.approx(
            2 * told["write-rate"], abs=4)
        src.qmp("migrate-set-parameters",
                downtime_limit=min(2 * told["downtime-needed"] + 300,
                                   ANY_DOWNTIME))
        end(src, dst)


def test_told_under_tcg(ours: Qemu) -> None:
    """All vCPUs sleep as much there, which what is needed includes."""
    config = Config(ours, "tcg,thread=multi", mib=96, writer=WRITER)
    with pair(config) as (src, dst):
        src.wait_writing()
        src.qmp("migrate-set-parameters", cpu_throttle_initial=90,
                max_cpu_throttle=90)
        start(src, dst, ENDLESS)
        slowed = wait(src, dst, SLOWED.timeout, "slow its vCPUs down",
                      lambda state: throttle(state) == 90)
        # The rate of the round after the next is that of vCPUs that sleep.
        state = wait(src, dst, SLOWED.timeout, "begin two more rounds",
                     lambda state: rounds(state) > rounds(slowed) + 1)
        told = state["convergence"]
        excess = told["write-rate"] / (told["bandwidth"] / 2)
        assert excess > 0.2
        assert told["throttle-needed"] == pytest.approx(
            100 - 10 / excess, abs=1)
        release(src, ANY)
        end(src, dst)


def test_no_stall(ours: Qemu) -> None:
    """A guest that writes little is neither slowed down nor told of."""
    writer = Writer(mib=1, delay=1000)
    with pair(config_of(ours, LOG, writer)) as (src, dst):
        src.wait_writing()
        start(src, dst, SLOWED)
        end(src, dst)
        assert not src.monitor.event_times(STALLED)
        assert info(src).get("hot-pages", {}).get("waits", 0) == 0


@pytest.mark.parametrize("mechanism", WHO_IS_KNOWN, ids=str)
def test_who_computes_goes_on(ours: Qemu, mechanism: Mechanism) -> None:
    """Only the vCPU that writes is slowed down."""
    with pair(config_of(ours, mechanism, COMPUTERS)) as (src, dst):
        src.wait_writing([0])
        start(src, dst, SCARCE)
        wait_throttled(src, dst, 60)
        # However busy the machine is, it is as busy for all three.
        writes, *computes = src.run_times(6.0)
        assert writes < 0.7 * min(computes)
        src.qmp("migrate-set-parameters", max_cpu_throttle=20,
                cpu_throttle_initial=20)
        src.wait(lambda: throttle(info(src)) <= 20, 30, "it is not let go")
        release(src, ANY)
        end(src, dst)


def test_limits(ours: Qemu) -> None:
    """No vCPU is slowed down more than max-cpu-throttle says."""
    with pair(config_of(ours, LOG, WRITER)) as (src, dst):
        src.wait_writing()
        src.qmp("migrate-set-parameters", cpu_throttle_initial=10,
                max_cpu_throttle=30)
        start(src, dst, ENDLESS)
        wait_throttled(src, dst, 30)
        src.rates(1.0)
        assert throttle(info(src)) == 30
        release(src, ANY)
        end(src, dst)


def test_cancelled(ours: Qemu) -> None:
    """A guest that was slowed down has its pace back."""
    config = config_of(ours, LOG, WRITER)
    with VM("src", config) as src:
        src.wait_writing()
        before = sum(src.rates(1.0))
        with VM("dst", config, incoming=True) as dst:
            start(src, dst, ENDLESS)
            wait_throttled(src, dst, 80)
            cancel(src)
        src.wait(lambda: sum(src.rates(0.5)) > before / 2, PACE_TIMEOUT,
                 "the guest has not its pace back")
