# SPDX-License-Identifier: GPL-2.0-or-later
"""auto-converge together with what else QEMU can do to a migration."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import Callable

import pytest

from .cases import PATCHED, log_and_ring
from .guest import HOTPLUG_PORT, MIB, MOST_LOOPS, PAGE, RANDOM, Writer
from .migrate import (CRAWL, Options, cancel, has_capability, info, release,
                      rounds, start, wait)
from .qmp import QMPError
from .test_converge import (ANY, ENDLESS, SLOW, SLOWED, STALLED, WHO_IS_KNOWN,
                            WRITER, config_of, end, throttle, wait_throttled)
from .test_dirty_rate import LIMIT_MB, wait_rates
from .test_guest import wait_starts
from .test_hotplug import IDLE_CORE, assert_all_write, plug, with_cores
from .test_switch import refused
from .vm import BOOT_TIMEOUT, LOG, VM, Config, Mechanism, Qemu, pair

RING = Mechanism(4096)
# vCPU 0 writes, vCPU 1 computes.
WRITES_AND_COMPUTES = Writer(mib=32, pattern=RANDOM, cpus=2, writers=1)

who_is_known = pytest.mark.parametrize("mechanism", WHO_IS_KNOWN, ids=str)

# Of one burst; a second of the bandwidth sends it twice.
BURST_MIB = 10
BURST_PAGES = BURST_MIB * MIB // PAGE
# Several times as fast as it is sent, and slow enough to be met in one.
BURST_SECONDS = 0.15
PAUSE_SECONDS = 2.0

CHECKPOINT_MS = 200
CHECKPOINTS = 5

CACHE_MIB = 4

RESETS = 3


@functools.lru_cache(maxsize=None)
def idle_loops(ours: Qemu) -> float:
    """Return how many idle loops a guest does in a second.

    KVM on a CPU does a thousand times as many as one that emulates.
    """
    for pause in (1 << 16, 1 << 20, 1 << 24, 1 << 28):
        writer = Writer(mib=1, pause=pause)
        with VM("idle", config_of(ours, LOG, writer)) as vm:
            vm.wait_writing()
            # The most, so that a busy moment is not taken for the pace.
            rate = max(vm.rates(1.0)[0] for _ in range(3))
            passes = rate * PAGE / MIB
        if passes < 50:
            break
    return max(passes, 0.1) * pause


def pace(vm: VM) -> float:
    """Return how much vCPU 0 does for each thing that vCPU 1 does.

    Both share the host, so that its load changes this for a moment at most.
    """
    writes, computes = vm.rates(2.0)
    return writes / max(computes, 1)


def wait_pace(vm: VM, before: float) -> None:
    """Wait until vCPU 0 is as fast as before, compared with vCPU 1."""
    vm.wait(lambda: pace(vm) > before / 2, 30,
            "the guest has not its pace back")


def is_active(vm: VM) -> bool:
    """Whether the migration goes on."""
    return bool(info(vm)["status"] == "active")


def assert_stops(vm: VM) -> None:
    """Stop the guest, and fail unless no vCPU does anything until `cont`."""
    vm.qmp("stop")
    stopped = vm.counters()
    assert max(vm.rates(0.5)) == 0
    vm.qmp("cont")
    vm.wait(lambda: all(now > then for now, then
                        in zip(vm.counters(), stopped)),
            30, "the guest did not go on after a stop")


@log_and_ring
def test_bursts(ours: Qemu, mechanism: Mechanism) -> None:
    """A guest that writes in bursts is stopped between two of them."""
    loops = idle_loops(ours)
    writer = Writer(mib=BURST_MIB,
                    delay=int(BURST_SECONDS * loops / BURST_PAGES),
                    pause=min(int(PAUSE_SECONDS * loops), MOST_LOOPS))
    options = dataclasses.replace(SLOWED, bandwidth=CRAWL // 4,
                                  downtime_limit=100)
    with pair(config_of(ours, mechanism, writer)) as (src, dst):
        src.wait_writing()
        first = src.counters()[0]
        start(src, dst, options)
        # In the first round, so that there is another one.
        src.wait(lambda: src.counters()[0] >= first + 2 * BURST_PAGES,
                 BOOT_TIMEOUT, "the guest made no burst")
        assert rounds(info(src)) == 1
        # In a burst: a migration that did not look would stop the guest there.
        src.wait(lambda: 0 < src.counters()[0] % BURST_PAGES < BURST_PAGES / 2,
                 BOOT_TIMEOUT, "the guest was not met in a burst")
        # A burst is faster, on a busy machine too, and a pause sends one.
        src.qmp("migrate-set-parameters", max_bandwidth=SLOW.bandwidth // 2)
        end(src, dst)
        assert dst.counters()[0] % BURST_PAGES == 0


@pytest.mark.parametrize("mechanism", (LOG, *PATCHED), ids=str)
def test_xbzrle(ours: Qemu, mechanism: Mechanism) -> None:
    """It ends with pages of which only the difference is sent, too."""
    options = dataclasses.replace(SLOWED, capabilities=("xbzrle",))
    with pair(config_of(ours, mechanism, WRITER)) as (src, dst):
        src.wait_writing()
        # Too small for all of them: so some are sent as they are.
        src.qmp("migrate-set-parameters", xbzrle_cache_size=CACHE_MIB * MIB)
        start(src, dst, options)
        result = end(src, dst)
        assert src.monitor.event_times(STALLED)
        assert result.info["xbzrle-cache"]["pages"] > 0
        assert result.info["xbzrle-cache"]["cache-miss"] > 0
        assert throttle(result.info) == 0


@pytest.mark.parametrize("mechanism", (LOG, *PATCHED), ids=str)
def test_multifd(ours: Qemu, mechanism: Mechanism) -> None:
    """No page overtakes itself that looks find again, on another channel."""
    options = dataclasses.replace(SLOWED, multifd=4, transport="tcp")
    with pair(config_of(ours, mechanism, WRITER)) as (src, dst):
        src.wait_writing()
        start(src, dst, options)
        result = end(src, dst)
        assert src.monitor.event_times(STALLED)
        assert throttle(result.info) == 0


@pytest.mark.parametrize("mechanism", (LOG, *PATCHED), ids=str)
def test_compress(ours: Qemu, mechanism: Mechanism) -> None:
    """Nor with threads that compress, which later QEMU does not have."""
    options = dataclasses.replace(SLOWED, capabilities=("compress",))
    with pair(config_of(ours, mechanism, WRITER)) as (src, dst):
        if not has_capability(src, "compress"):
            pytest.skip("this QEMU has no threads that compress")
        src.wait_writing()
        start(src, dst, options)
        result = end(src, dst)
        assert result.rounds > 2
        assert result.info["compression"]["pages"] > 0


@pytest.mark.parametrize("mechanism", (LOG, *PATCHED), ids=str)
def test_resets(ours: Qemu, mechanism: Mechanism) -> None:
    """A BIOS makes itself writable, while pages are looked for.

    That changes slots which overlap, and QEMU keeps ioctls out meanwhile.
    """
    config = dataclasses.replace(config_of(ours, mechanism, WRITER),
                                 seabios=True)
    with pair(config) as (src, dst):
        src.wait_writing()
        src.qmp("migrate-set-parameters", max_cpu_throttle=30)
        start(src, dst, ENDLESS)
        wait_throttled(src, dst, 20)
        for number in range(RESETS):
            src.qmp("system_reset")
            wait_starts(src, number + 2)
            src.wait_writing()
        assert is_active(src)
        release(src, ANY)
        end(src, dst)


def last_round(vm: VM) -> int:
    """Return the number of the last sync that is known of."""
    done = vm.qmp("query-dirty-tracking").get("rounds", [])
    return int(done[-1]["round"]) if done else 0


@log_and_ring
def test_colo(ours: Qemu, mechanism: Mechanism) -> None:
    """The checkpoints of COLO are no rounds: nobody is slowed down for them.

    Each sends all that the guest has written since the last, as a round does
    of a migration that stalls.
    """
    options = Options(capabilities=("x-colo",), auto_converge=True)
    with pair(config_of(ours, mechanism, WRITES_AND_COMPUTES)) as (src, dst):
        src.wait_writing([0])
        for vm in (src, dst):
            vm.qmp("migrate-set-parameters", x_checkpoint_delay=CHECKPOINT_MS)
        start(src, dst, options)
        wait(src, dst, options.timeout, "begin with checkpoints",
             lambda state: state.get("status") == "colo")
        stalls = len(src.monitor.event_times(STALLED))
        first = last_round(src)
        src.wait(lambda: last_round(src) >= first + CHECKPOINTS,
                 options.timeout, "there were not so many checkpoints")
        assert info(src)["status"] == "colo"
        assert len(src.monitor.event_times(STALLED)) == stalls
        assert "COLO" in refused(dst, LOG.name)
        src.qmp("x-colo-lost-heartbeat")
        src.wait(lambda: info(src)["status"] == "completed", 30,
                 "the primary did not go on alone")
        assert throttle(info(src)) == 0
        src.wait(lambda: min(src.rates(0.5)) > 0, 30,
                 "the guest did not go on with it")


def test_dirty_limit(ours: Qemu) -> None:
    """A dirty limit of vCPUs takes the place of auto-converge meanwhile."""
    with pair(config_of(ours, RING, WRITER)) as (src, dst):
        src.wait_writing()
        before = sum(src.rates(1.0))
        start(src, dst, ENDLESS)
        wait_throttled(src, dst, 60)
        src.qmp("set-vcpu-dirty-limit", dirty_rate=LIMIT_MB)
        src.wait(lambda: throttle(info(src)) == 0, 30, "it is not let go")
        wait_rates(src, "obeyed", lambda rates: sum(rates) < before / 2)
        assert is_active(src)
        assert throttle(info(src)) == 0
        assert src.qmp("query-vcpu-dirty-limit")[0]["limit-rate"] == LIMIT_MB
        src.qmp("cancel-vcpu-dirty-limit")
        wait(src, dst, SLOWED.timeout, "slow the vCPU down again",
             lambda state: throttle(state) >= 60)
        release(src, ANY)
        assert throttle(end(src, dst).info) == 0
        dst.qmp("cont")
        wait_rates(dst, "lifted", lambda rates: sum(rates) > before / 2)


@pytest.mark.parametrize("asked", [False, True], ids=["lifted", "asked"])
@pytest.mark.parametrize("ends", ["completed", "cancelled", "failed"])
def test_dirty_limit_capability(ours: Qemu, ends: str, asked: bool) -> None:
    """QEMU limits a vCPU when a migration stalls, and lifts that at its end.

    It may be ASKED to at the same time: two must not do it at once.
    """
    options = dataclasses.replace(SLOW, downtime_limit=1,
                                  capabilities=("dirty-limit",))
    with pair(config_of(ours, RING, WRITER)) as (src, dst):
        if not has_capability(src, "dirty-limit"):
            pytest.skip("QEMU has this capability since 8.1")
        src.wait_writing()
        src.qmp("migrate-set-parameters", vcpu_dirty_limit=LIMIT_MB)
        start(src, dst, options)
        wait(src, dst, options.timeout, "limit the vCPU", lambda state:
             state.get("dirty-limit-throttle-time-per-round", 0) > 0)
        assert src.qmp("query-vcpu-dirty-limit")
        if ends == "completed":
            release(src, ANY)
            end(src, dst)
        elif ends == "cancelled":
            cancel(src)
        else:
            dst.stop()
        src.wait(lambda: info(src)["status"] == ends, BOOT_TIMEOUT,
                 f"the migration was not {ends}")
        if asked:
            with contextlib.suppress(QMPError):
                src.qmp("cancel-vcpu-dirty-limit")
        src.wait(lambda: not src.qmp("query-vcpu-dirty-limit"), BOOT_TIMEOUT,
                 "the vCPU stays limited")
        src.wait(lambda: "limited" not in refused(src, LOG.name),
                 BOOT_TIMEOUT, "memory stays logged")


# vCPU 0 alone needs so long for a pass, and does not look meanwhile for what
# is asked of it.
PASS_SECONDS = 5.0


def cores(vm: VM) -> int:
    """Return how many vCPUs there are."""
    return len(vm.qmp("query-cpus-fast"))


def test_unplug(ours: Qemu) -> None:
    """A vCPU goes while it is slowed down, and the loop goes on for others.

    QEMU refuses device_del and device_add while it migrates, but the guest
    may take its time with a vCPU that was asked back before.
    """
    writer = dataclasses.replace(WRITER, cpus=3, hotplug=HOTPLUG_PORT["pc"])
    share = writer.mib * MIB // PAGE // writer.cpus
    delay = int(idle_loops(ours) * PASS_SECONDS / share)
    config = Config(ours, ours.accel(Mechanism(65536)), mib=96,
                    writer=dataclasses.replace(writer, delay=delay),
                    smp="1,maxcpus=4,sockets=1,cores=4")
    with pair(config, with_cores(config, 1)) as (src, dst):
        src.wait_writing([0])
        for core in (1, 2):
            plug(src, core)
        assert_all_write(src, (0, 1, 2))
        src.qmp("migrate-set-parameters", max_cpu_throttle=25)
        # It looks after the last page of a pass: so wait for the next one's.
        ended = (src.counters()[0] // share + 1) * share
        src.wait(lambda: src.counters()[0] > ended, BOOT_TIMEOUT,
                 "vCPU 0 did not begin another pass")
        src.qmp("device_del", id="core2")
        start(src, dst, ENDLESS)
        wait_throttled(src, dst, 20)
        assert cores(src) == 3
        src.wait(lambda: cores(src) == 2, BOOT_TIMEOUT,
                 "no vCPU was unplugged")
        src.qmp("migrate-set-parameters", max_cpu_throttle=60)
        wait(src, dst, BOOT_TIMEOUT, "slow the others down",
             lambda state: throttle(state) >= 50)
        with pytest.raises(QMPError, match="not allowed while migrating"):
            plug(src, IDLE_CORE)
        release(src, ANY)
        assert throttle(end(src, dst).info) == 0


def while_running(vm: VM) -> None:
    """Cancel a migration of a guest that was stopped for a moment."""
    assert_stops(vm)
    assert is_active(vm)
    cancel(vm)


def while_stopped(vm: VM) -> None:
    """Cancel a migration of a guest that stands still."""
    vm.qmp("stop")
    cancel(vm)
    vm.qmp("cont")


@who_is_known
@pytest.mark.parametrize("cancelled", [while_running, while_stopped],
                         ids=["running", "stopped"])
def test_stop_and_cancel(ours: Qemu, mechanism: Mechanism,
                         cancelled: Callable[[VM], None]) -> None:
    """A vCPU that was slowed down has its pace back after a cancel."""
    config = config_of(ours, mechanism, WRITES_AND_COMPUTES)
    with VM("src", config) as src:
        src.wait_writing([0])
        before = pace(src)
        with VM("dst", config, incoming=True) as dst:
            start(src, dst, ENDLESS)
            wait_throttled(src, dst, 80)
            assert pace(src) < before / 2
            cancelled(src)
        wait_pace(src, before)


@who_is_known
def test_stop_and_go_on(ours: Qemu, mechanism: Mechanism) -> None:
    """A stop does not end it: the vCPU is slowed down as before."""
    with pair(config_of(ours, mechanism, WRITES_AND_COMPUTES)) as (src, dst):
        src.wait_writing([0])
        before = pace(src)
        start(src, dst, ENDLESS)
        wait_throttled(src, dst, 80)
        assert_stops(src)
        wait(src, dst, 30, "go on slowing down",
             lambda state: throttle(state) >= 80)
        assert pace(src) < before / 2
        release(src, ANY)
        end(src, dst)
        dst.qmp("cont")
        wait_pace(dst, before)
