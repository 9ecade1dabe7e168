# SPDX-License-Identifier: GPL-2.0-or-later
"""The figures read out of the trace of a migration's syncs."""

from __future__ import annotations

import pytest

from tests.migration.conftest import usable
from tests.migration.vm import VM, Qemu

from .sync_cost import (ATTEMPTS, STILL, Costs, config, figures, parse, set_up,
                        stand_still, trace)

LARGE_GIB = 256

TRACE = """\
7@100.000000:global_dirty_changed bitmask 0x1
7@100.250000:migration_bitmap_sync_start
7@100.250100:kvm_dirty_sync_end BQL held for 90000 ns
7@100.250150:migration_bitmap_sync_end dirty_pages 0
7@100.300000:migration_bitmap_sync_start
7@100.300040:migration_bitmap_sync_end dirty_pages 30
7@101.299990:kvm_dirty_sync_ahead of the stop 0
7@101.300000:migration_bitmap_sync_start
7@101.300040:migration_bitmap_sync_end dirty_pages 70
7@101.400000:migration_bitmap_sync_start
7@101.400050:migration_bitmap_sync_end dirty_pages 5
"""


def test_parse() -> None:
    """Times and pages are those of each sync."""
    found = parse(TRACE)
    assert [round(sync.total) for sync in found] == [150, 40, 50, 50]
    assert [sync.pages for sync in found] == [0, 30, 40, 5]
    assert [sync.held for sync in found] == [90, 0, 0, 0]
    assert [round(sync.log) for sync in found] == [250000, 0, 0, 0]


def test_figures() -> None:
    """No figure is made up that QEMU does not tell."""
    first, *busy = parse(TRACE)
    costs = Costs([9, 2, 4], [first], [first], busy, busy[1:], 5, 0)
    found = figures(costs)
    assert found["set-up"] == (9, "ms")
    assert found["set-up.again"] == (3, "ms")
    assert round(found["set-up.kvm"][0]) == 250
    assert found["pages"] == (22.5, "pages")
    assert "sync.busy.bql" not in found


def test_set_up(ours: Qemu) -> None:
    """With a large stopped guest, each sync has a time and no page."""
    costs = Costs()
    with VM("src", config(ours, LARGE_GIB)) as vm:
        vm.wait_writing()
        set_up(vm, costs)
    assert len(costs.setup_ms) == ATTEMPTS
    assert len(costs.first + costs.again) == ATTEMPTS
    assert all(sync.total > 0 for sync in costs.first + costs.again)
    assert [sync.pages for sync in costs.again] == [0] * (ATTEMPTS - 1)


@pytest.mark.parametrize("name", ["ours", "stock"])
def test_guest_that_stands_still(name: str) -> None:
    """Its rounds end with syncs that find nothing, with either QEMU."""
    costs = Costs()
    with VM("src", config(usable(name), 1)) as vm:
        vm.wait_writing()
        stand_still(vm, costs)
        text = trace(vm)
    assert len(costs.idle) >= STILL
    assert [sync.pages for sync in costs.idle] == [0] * len(costs.idle)
    ahead = text.count(":kvm_dirty_sync_ahead of the stop 0")
    assert ahead == (len(costs.idle) if name == "ours" else 0)
