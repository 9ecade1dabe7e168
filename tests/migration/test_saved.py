# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that is saved to a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cases import HELD, assert_identical, log_and_ring
from .guest import Writer
from .migrate import (finish, has_capability, release, set_capabilities, wait,
                      wait_rounds)
from .vm import VM, Config, Mechanism, Qemu

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
