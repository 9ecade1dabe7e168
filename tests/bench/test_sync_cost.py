# SPDX-License-Identifier: GPL-2.0-or-later
"""The figures read out of the trace of a migration's syncs."""

from __future__ import annotations

from tests.migration.vm import VM, Qemu

from .sync_cost import ATTEMPTS, Costs, config, figures, parse, set_up

LARGE_GIB = 256

TRACE = """\
7@100.000000:global_dirty_changed bitmask 0x1
7@100.250000:migration_bitmap_sync_start
7@100.250100:kvm_dirty_sync_end BQL held for 90000 ns
7@100.250150:migration_bitmap_sync_end dirty_pages 0
7@100.300000:migration_bitmap_sync_start
7@100.300040:migration_bitmap_sync_end dirty_pages 30
7@101.300000:migration_bitmap_sync_start
7@101.300050:migration_bitmap_sync_end dirty_pages 70
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
    costs = Costs([9, 2, 4], [first], busy, busy[1:], 5, 0)
    found = figures(costs)
    assert found["set-up"] == (9, "ms")
    assert found["set-up.again"] == (3, "ms")
    assert round(found["set-up.kvm"][0]) == 250
    assert found["pages"] == (22.5, "pages")
    assert "sync.busy.bql" not in found


def test_idle(ours: Qemu) -> None:
    """With a large stopped guest, each sync has a time and no page."""
    costs = Costs()
    with VM("src", config(ours, LARGE_GIB)) as vm:
        vm.wait_writing()
        set_up(vm, costs)
    assert len(costs.setup_ms) == ATTEMPTS
    assert len(costs.first + costs.idle) == ATTEMPTS
    assert all(sync.total > 0 for sync in costs.first + costs.idle)
    assert [sync.pages for sync in costs.idle] == [0] * (ATTEMPTS - 1)
