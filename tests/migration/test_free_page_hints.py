# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest tells which pages are free, whenever a round begins.

An iothread takes these off the migration's bitmap while that is in use.
"""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import pytest

from .cases import HELD, assert_identical, each_mechanism
from .compare import assert_none_differ, differing_pages
from .guest import PAGE, Hinter
from .migrate import CRAWL, finish, info, release, start
from .vm import VM, Config, Mechanism, Qemu, pair

BALLOON = ("-object", "iothread,id=hints", "-device",
           "virtio-balloon-pci,disable-modern=on,free-page-hint=on,"
           "iothread=hints")

# Free pages lie behind 16 MiB of used ones, so that they are hinted in time.
SLOW = dataclasses.replace(HELD, bandwidth=CRAWL)

ANSWER_TIMEOUT = 60.0
ANSWERS = 4


def state(vm: VM) -> tuple[int, int]:
    """Return how many requests the guest has answered, and its region."""
    answered, region = struct.unpack("<II", vm.read_memory(Hinter.STATE, 8))
    return answered, region


def wait_answers(vm: VM, count: int) -> None:
    """Wait until the guest has answered COUNT requests, or has moved.

    A guest that waits for the host writes nothing: the migration may complete.
    """
    vm.wait(lambda: (state(vm)[0] >= count
                     or info(vm).get("status") == "completed"),
            ANSWER_TIMEOUT, f"the guest did not answer {count} requests")


def never_sent(dst: VM, pages: set[int]) -> int:
    """Return how many of PAGES are missing at DST."""
    memory = dst.read_memory(Hinter.FREE, Hinter.END - Hinter.FREE)
    starts = (page * PAGE - Hinter.FREE for page in pages)
    return sum(memory[at:at + PAGE] == bytes(PAGE) for at in starts)


@each_mechanism
@pytest.mark.parametrize("looks", [False, True], ids=["syncs", "looks"])
def test_hints(ours: Qemu, mechanism: Mechanism, looks: bool) -> None:
    """Free pages are not sent, and pages that are no longer free arrive.

    A page that the guest has written after it said that it was free counts: all
    of them but those of the one region that it was busy with at the stop.
    """
    hinter = Hinter()
    config = Config(ours, ours.accel(mechanism), writer=hinter, extra=BALLOON)
    with pair(config) as (src, dst):
        src.wait_writing()
        start(src, dst, dataclasses.replace(SLOW, auto_converge=looks))
        wait_answers(src, 1)
        src.qmp("migrate-set-parameters", max_bandwidth=HELD.bandwidth)
        wait_answers(src, ANSWERS)
        release(src, HELD)
        finish(src, dst, HELD)
        free = hinter.free()
        # An overflow makes all pages dirty, hinted ones too.
        overflows = src.qmp("query-dirty-tracking")["overflows"]
        assert overflows or never_sent(dst, free) > len(free) // 2
        answered, region = state(src)
        assert answered > 0
        excused = free | set(hinter.pages_of(region) if region else ())
        assert_none_differ([page for page in differing_pages(src, dst)
                            if page not in excused])
    if overflows:
        pytest.skip("rings overflowed, so that free pages were sent as well")


def test_hints_about_shared_memory(ours: Qemu, tmp_path: Path) -> None:
    """Free pages may lie in memory that stays where it is, with no bitmap."""
    halves = ("-object", "memory-backend-ram,id=low,size=32M",
              "-object", "memory-backend-file,id=high,size=32M,share=on,"
              f"mem-path={tmp_path / 'high'}",
              "-numa", "node,memdev=low", "-numa", "node,memdev=high")
    config = Config(ours, "kvm", writer=Hinter(), extra=(*halves, *BALLOON))
    options = dataclasses.replace(SLOW, capabilities=("x-ignore-shared",))
    with pair(config) as (src, dst):
        src.wait_writing()
        start(src, dst, options)
        wait_answers(src, 1)
        release(src, options)
        finish(src, dst, options)
        assert state(src)[0] > 0
        assert_identical(src, dst)
