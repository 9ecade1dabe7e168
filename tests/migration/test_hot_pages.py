# SPDX-License-Identifier: GPL-2.0-or-later
"""Pages that are written all the time wait for the stop."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from .cases import RINGS, assert_identical, log_and_ring
from .guest import MIB, Writer
from .migrate import (Options, cancel, finish, info, release, rounds, start,
                      throttle_least, wait, wait_rounds)
from .vm import LOG, VM, Config, Mechanism, Qemu, pair

# An eighth of the pages that are written all the time may remain at the stop:
# the migration does not converge, and has room for a few groups that wait.
WRITER = Writer(mib=64, pattern=1, cpus=2)
ROUNDS = Options(bandwidth=100 * MIB, downtime_limit=80)

# A disk whose dirty bitmap is sent after the stop, or after a switch to postcopy
# that leaves no RAM for it.  QEMU counts a byte for each of its bits.
DISK_BYTES = 4 << 40
DISK = ("-blockdev", f"null-co,node-name=disk,size={DISK_BYTES}")
BESIDE_BITMAP = dataclasses.replace(ROUNDS, capabilities=("dirty-bitmaps",))
# A bitmap of so much is more than may remain at the stop.
NO_ROOM_MIB = 64
NO_ROOM = dataclasses.replace(BESIDE_BITMAP, downtime_limit=300)

# The migration ends even if no fault slows the guest down.
ENDS = Options(downtime_limit=2000)


def waits(state: dict[str, Any]) -> int:
    """Return how many pages have waited, by the answer of query-migrate."""
    return int(state.get("hot-pages", {}).get("waits", 0))


def saved(state: dict[str, Any]) -> int:
    """Return how many pages need not be sent, by the same answer."""
    size = int(state.get("hot-pages", {}).get("saved-bytes", 0))
    assert size % 4096 == 0
    return size // 4096


def shown(found: dict[str, int]) -> str:
    """How "info migrate" prints the pages that wait."""
    return (f"hot pages: {found['waiting']} waiting, "
            f"{found['waits']} waits, "
            f"{found['saved-bytes'] // 1024} kbytes saved")


def wait_for_waits(src: VM, dst: VM, options: Options) -> dict[str, Any]:
    """Wait until pages wait."""
    return wait(src, dst, options.timeout, "have pages wait", waits)


def config_of(qemu: Qemu, mechanism: Mechanism) -> Config:
    """Return a guest that writes half of its memory all the time."""
    return Config(qemu, qemu.accel(mechanism), mib=128, writer=WRITER)


@log_and_ring
@pytest.mark.parametrize("options", [
    ROUNDS, dataclasses.replace(ROUNDS, multifd=2, transport="tcp"),
    dataclasses.replace(ROUNDS, auto_converge=True)],
    ids=["precopy", "multifd", "auto-converge"])
def test_pages_wait(ours: Qemu, mechanism: Mechanism,
                    options: Options) -> None:
    """They arrive as they are at the stop, and query-migrate counts them.

    A page counts as saved once, in however many rounds it waits.
    """
    with pair(config_of(ours, mechanism)) as (src, dst):
        src.wait_writing()
        if options.auto_converge:
            # More, and the migration ends before pages have waited.
            throttle_least(src)
        start(src, dst, options)
        found = wait(src, dst, options.timeout, "have pages wait on",
                     lambda state: waits(state) > saved(state) > 0)
        found = found["hot-pages"]
        assert found["waiting"] <= found["saved-bytes"] // 4096
        release(src, ENDS)
        result = finish(src, dst, options)
        assert waits(result.info) >= found["waits"]
        assert result.info["hot-pages"]["waiting"] == 0
        lines = src.hmp("info migrate").splitlines()
        assert shown(result.info["hot-pages"]) in lines
        assert_identical(src, dst)


@pytest.mark.parametrize("mechanism", [LOG, RINGS[-1]], ids=str)
def test_turned_off(ours: Qemu, mechanism: Mechanism) -> None:
    """Every page that is dirty is sent in every round."""
    options = dataclasses.replace(ROUNDS, hot_pages_wait=False)
    with pair(config_of(ours, mechanism)) as (src, dst):
        src.wait_writing()
        start(src, dst, options)
        wait_rounds(src, dst, 4, options)
        release(src, options)
        result = finish(src, dst, options)
        assert waits(result.info) == 0
        assert_identical(src, dst)


@pytest.mark.parametrize("parameters", [
    {"hot_pages_wait": False}, {"downtime_limit": 1}], ids=["off", "no-room"])
def test_no_longer(ours: Qemu, parameters: dict[str, Any]) -> None:
    """If waiting is turned off, or room is short, they are sent after all."""
    with pair(config_of(ours, LOG)) as (src, dst):
        src.wait_writing()
        start(src, dst, ROUNDS)
        wait_for_waits(src, dst, ROUNDS)
        src.qmp("migrate-set-parameters", **parameters)
        wait(src, dst, ROUNDS.timeout, "have no page wait",
             lambda state: state["hot-pages"]["waiting"] == 0)
        release(src, ROUNDS)
        finish(src, dst, ROUNDS)
        assert_identical(src, dst)


@log_and_ring
def test_postcopy(ours: Qemu, mechanism: Mechanism) -> None:
    """Pages that wait at the switch are sent after it."""
    options = dataclasses.replace(ROUNDS, postcopy=True)
    with pair(config_of(ours, mechanism)) as (src, dst):
        src.wait_writing()
        start(src, dst, options)
        wait_for_waits(src, dst, options)
        finish(src, dst, options)
        assert_identical(src, dst)


def add_bitmap(vm: VM, mib: int) -> None:
    """Give the disk a dirty bitmap that counts as so much to be sent."""
    vm.qmp("block-dirty-bitmap-add", node="disk", name="bitmap",
           granularity=DISK_BYTES // (mib * MIB))


def syncs_beside(vm: VM) -> bool:
    """Whether rounds go on while a large dirty bitmap remains to be sent.

    QEMU 8.0 and later do not ask how much RAM remains before all the rest is
    little enough, and so send RAM only once before the switch.
    """
    return int(vm.qmp("query-version")["qemu"]["major"]) < 8


def with_disk(qemu: Qemu, mechanism: Mechanism, mib: int) -> Config:
    """Return a guest with a disk that writes so much all the time."""
    return dataclasses.replace(config_of(qemu, mechanism), extra=DISK,
                               writer=dataclasses.replace(WRITER, mib=mib))


@log_and_ring
def test_postcopy_without_ram(ours: Qemu, mechanism: Mechanism) -> None:
    """If only dirty bitmaps go on after the switch, RAM is sent before it.

    RAM or the bitmap alone fit into the limit; both do not, and so it does not
    end without the switch.  It would if the guest wrote less than a quarter of
    its pages in a round, as on a busy machine it may.
    """
    options = dataclasses.replace(BESIDE_BITMAP, downtime_limit=420)
    with pair(with_disk(ours, mechanism, 38)) as (src, dst):
        src.wait_writing()
        add_bitmap(src, 32)
        start(src, dst, options)
        if syncs_beside(src):
            wait_for_waits(src, dst, options)
        else:
            wait_rounds(src, dst, 1, options)
        src.qmp("migrate-start-postcopy")
        finish(src, dst, options)
        assert_identical(src, dst)


@log_and_ring
def test_no_room(ours: Qemu, mechanism: Mechanism) -> None:
    """No page waits for a stop that a dirty bitmap alone would fill."""
    with pair(with_disk(ours, mechanism, 8)) as (src, dst):
        src.wait_writing()
        add_bitmap(src, NO_ROOM_MIB)
        start(src, dst, NO_ROOM)
        if not syncs_beside(src):
            pytest.skip("QEMU 8.0 and later have no rounds then")
        wait_rounds(src, dst, 8, NO_ROOM)
        assert waits(info(src)) == 0
        src.qmp("migrate-start-postcopy")
        finish(src, dst, NO_ROOM)
        assert_identical(src, dst)


@log_and_ring
def test_little_room(ours: Qemu, mechanism: Mechanism) -> None:
    """Rounds go on beside a dirty bitmap that fills more than half a stop.

    What waits and the bitmap must not be too much together for good.
    """
    options = dataclasses.replace(BESIDE_BITMAP, downtime_limit=130)
    with pair(with_disk(ours, mechanism, 64)) as (src, dst):
        src.wait_writing()
        add_bitmap(src, 8)
        start(src, dst, options)
        state = wait(src, dst, options.timeout, "stall",
                     lambda state: state.get("convergence", {}).get("stalled"))
        wait_rounds(src, dst, rounds(state) + 8, options)
        release(src, ENDS)
        finish(src, dst, options)
        assert_identical(src, dst)


def test_cancel_and_retry(ours: Qemu) -> None:
    """A retry begins with no page that waits, and counts anew."""
    config = config_of(ours, LOG)
    with VM("src", config) as src:
        src.wait_writing()
        with VM("dst", config, incoming=True) as dst:
            start(src, dst, ROUNDS)
            wait_for_waits(src, dst, ROUNDS)
            cancel(src)
        with VM("dst", config, incoming=True) as dst:
            off = dataclasses.replace(ROUNDS, hot_pages_wait=False)
            start(src, dst, off)
            wait_rounds(src, dst, 3, off)
            assert waits(info(src)) == 0
            release(src, ENDS)
            finish(src, dst, off)
            assert_identical(src, dst)


def test_parameter(ours: Qemu) -> None:
    """Waiting is on by default, and both monitors show and change it."""
    with VM("vm", config_of(ours, LOG)) as vm:
        assert vm.qmp("query-migrate-parameters")["hot-pages-wait"] is True
        assert "hot-pages-wait: on" in vm.hmp("info migrate_parameters")
        vm.hmp("migrate_set_parameter hot-pages-wait off")
        assert vm.qmp("query-migrate-parameters")["hot-pages-wait"] is False
        assert "hot-pages-wait: off" in vm.hmp("info migrate_parameters")
