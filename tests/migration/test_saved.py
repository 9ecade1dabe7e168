# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that is saved to a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .cases import HELD, assert_identical, log_and_ring
from .guest import Writer
from .migrate import (finish, has_capability, info, release,
                      set_capabilities, wait, wait_rounds)
from .vm import LOG, VM, Config, Mechanism, Qemu

# A disk whose first flush after a write fails.
UNFLUSHED = ("-blockdev", json.dumps({
    "driver": "blkdebug", "node-name": "disk",
    "image": {"driver": "null-co", "size": 1 << 20, "read-zeroes": True},
    "inject-error": [{"event": "none", "iotype": "flush", "errno": 5,
                      "once": True}]}))
TWO_CPUS = Writer(cpus=2)


def assert_saved(src: VM, dst: VM, path: Path) -> None:
    """Wait until SRC is in the file, and fail unless DST is the same then."""
    wait(src, dst, HELD.timeout, "complete",
         lambda state: state.get("status") == "completed")
    dst.qmp("migrate-incoming", uri=f"file:{path}")
    finish(src, dst, HELD)
    assert_identical(src, dst)


@log_and_ring
@pytest.mark.parametrize("channels", (0, 4))
def test_mapped_ram(ours: Qemu, mechanism: Mechanism, channels: int,
                    tmp_path: Path) -> None:
    """Each page has one place in the file, whichever round wrote it last."""
    config = Config(ours, ours.accel(mechanism), writer=TWO_CPUS)
    path = tmp_path / "guest"
    wanted = ["mapped-ram", *(["multifd"] if channels else [])]
    with VM("src", config) as src, VM("dst", config, incoming=True) as dst:
        if not has_capability(src, "mapped-ram"):
            pytest.skip("QEMU has mapped-ram since 9.0")
        src.wait_writing()
        for vm in (src, dst):
            set_capabilities(vm, *wanted)
            if channels:
                vm.qmp("migrate-set-parameters", multifd_channels=channels)
        src.qmp("migrate-set-parameters", downtime_limit=1,
                max_bandwidth=HELD.bandwidth)
        src.qmp("migrate", uri=f"file:{path}")
        wait_rounds(src, dst, 4, HELD)
        release(src, HELD)
        assert_saved(src, dst, path)


@log_and_ring
def test_stopped_first(ours: Qemu, mechanism: Mechanism,
                       tmp_path: Path) -> None:
    """With the mode cpr-reboot the guest stops, and then its RAM is saved."""
    config = Config(ours, ours.accel(mechanism), writer=TWO_CPUS)
    path = tmp_path / "guest"
    with VM("src", config) as src, VM("dst", config, incoming=True) as dst:
        if "mode" not in src.qmp("query-migrate-parameters"):
            pytest.skip("QEMU has cpr-reboot since 8.2")
        src.wait_writing()
        for vm in (src, dst):
            vm.qmp("migrate-set-parameters", mode="cpr-reboot")
        src.qmp("migrate", uri=f"file:{path}")
        assert_saved(src, dst, path)


@pytest.mark.parametrize("channels", (0, 4))
def test_stop_that_fails(ours: Qemu, channels: int, tmp_path: Path) -> None:
    """The guest goes on if its disk cannot be flushed before the save."""
    config = Config(ours, ours.accel(LOG), writer=TWO_CPUS, extra=UNFLUSHED)
    with VM("src", config) as src:
        if "mode" not in src.qmp("query-migrate-parameters"):
            pytest.skip("QEMU has cpr-reboot since 8.2")
        src.wait_writing()
        src.qmp("human-monitor-command",
                command_line='qemu-io disk "write 0 512"')
        src.qmp("migrate-set-parameters", mode="cpr-reboot")
        if channels:
            set_capabilities(src, "mapped-ram", "multifd")
        src.qmp("migrate", uri=f"file:{tmp_path / 'guest'}")
        src.wait(lambda: info(src)["status"] == "failed", HELD.timeout,
                 "the stop did not fail")
        src.wait(lambda: src.qmp("query-status")["status"] == "running",
                 HELD.timeout, "the guest does not go on")
