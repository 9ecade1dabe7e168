# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts whose KVM fails: no page is lost, and none is sent that must not be."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from tests.migration.cases import assert_identical, migrate_identical
from tests.migration.guest import Writer
from tests.migration.migrate import (ANY_DOWNTIME, CRAWL, Options, finish,
                                     start, wait, wait_rounds)
from tests.migration.test_hot_pages import (DISK, NO_ROOM, NO_ROOM_MIB,
                                            add_bitmap, syncs_beside)
from tests.migration.test_loop import assert_unplugged_stays, with_unplugged
from tests.migration.vm import LOG, VM, Config, pair, qemu

KVM_CAP_IRQ_ROUTING = 25

pytestmark = [
    pytest.mark.usefixtures("hide"),
    pytest.mark.skipif(not os.access("/dev/kvm", os.R_OK | os.W_OK),
                       reason="there is no /dev/kvm that could fail")]

# No harvest succeeds, so that every sync finds all memory dirty.
NEVER_CONVERGES = Options(downtime_limit=ANY_DOWNTIME)


@pytest.fixture(name="failing")
def fixture_failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file: as long as it is there, every harvest fails."""
    path = tmp_path / "failing"
    monkeypatch.setenv("FAIL_HARVEST", str(path))
    return path


def config(**fields: object) -> Config:
    """Return a guest of ours that is tracked by KVM_GET_DIRTY_LOG."""
    ours = qemu("ours")
    return dataclasses.replace(Config(ours, ours.accel(LOG)), **fields)


def test_no_page_is_lost(failing: Path) -> None:
    """All memory is sent, and nothing but that is wrong."""
    failing.touch()
    with pair(config(writer=Writer(cpus=2))) as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst, NEVER_CONVERGES)
        assert "harvesting the dirty pages of slot" in src.messages()


def test_unplugged_memory_is_not_sent(failing: Path) -> None:
    """All memory that there is, that is: none that virtio-mem discarded."""
    failing.touch()
    with pair(with_unplugged(config(writer=Writer(cpus=2)))) as (src, dst):
        src.wait_writing()
        result = migrate_identical(src, dst, NEVER_CONVERGES)
        assert_unplugged_stays(result)


def test_nothing_is_sent_to_a_guest_that_runs(failing: Path) -> None:
    """RAM is complete when a postcopy without RAM begins.

    What a sync after that finds would be sent to a QEMU whose guest may run
    already, and which ends when it gets it.
    """
    with pair(config(mib=128, extra=DISK,
                     writer=Writer(mib=8, pattern=1, cpus=2))) as (src, dst):
        src.wait_writing()
        add_bitmap(src, NO_ROOM_MIB)
        # The bitmap takes a second or two, so that the state can be seen.
        src.qmp("migrate-set-parameters", max_postcopy_bandwidth=CRAWL // 16)
        start(src, dst, NO_ROOM)
        wait_rounds(src, dst, 3 if syncs_beside(src) else 1, NO_ROOM)
        src.qmp("migrate-start-postcopy")
        wait(src, dst, NO_ROOM.timeout, "switch",
             lambda state: state.get("status") == "postcopy-active")
        failing.touch()
        src.qmp("migrate-set-parameters", max_postcopy_bandwidth=0)
        finish(src, dst, NO_ROOM)
        assert_identical(src, dst)


def fall_back(accel: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a guest that is started with ACCEL or TCG; return its messages."""
    monkeypatch.setenv("SPOIL_FREED", "1")
    fields = {"accel": accel, "extra": ("-accel", "tcg")}
    with VM("guest", config(**fields)) as vm:
        vm.wait_writing()
        for _ in range(3):
            vm.qmp("stop")
            vm.qmp("cont")
        assert vm.qmp("query-kvm")["enabled"] is False
        return vm.messages()


def test_next_accelerator_if_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mechanism that the host lacks is no reason not to try the next."""
    monkeypatch.setenv("HIDE_CAPS", "192")
    said = fall_back("kvm,dirty-tracking=ring", monkeypatch)
    assert "KVM_CAP_DIRTY_LOG_RING" in said
    assert "falling back to tcg" in said


def test_next_accelerator_if_it_fails_late(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of a KVM that fails with dirty tracking set up."""
    monkeypatch.setenv("HIDE_CAPS", str(KVM_CAP_IRQ_ROUTING))
    assert "falling back to tcg" in fall_back("kvm", monkeypatch)
