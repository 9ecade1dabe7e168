# SPDX-License-Identifier: GPL-2.0-or-later
"""Migrations that begin while dirty pages are being logged already."""

from __future__ import annotations

import time

from .cases import HELD, assert_identical, each_mechanism, watch
from .guest import Writer
from .migrate import cancel, finish, info, release, start, wait_rounds
from .vm import VM, Config, Mechanism, Qemu

TWO_CPUS = Writer(cpus=2)
NANOSECONDS = 10**9


def check_rounds(vm: VM, seconds: float) -> None:
    """Fail unless the rounds are those of this migration."""
    rounds = info(vm)["dirty-tracking-rounds"]
    assert rounds[0]["round"] == 1
    assert [each["round"] for each in rounds] == [
        number + 1 for number in range(len(rounds))]
    assert sum(each["bql-hold-time"] for each in rounds) < (
        seconds * NANOSECONDS)


@each_mechanism
def test_measured(ours: Qemu, mechanism: Mechanism) -> None:
    """Each of two migrations counts its own rounds, and none from before."""
    config = Config(ours, ours.accel(mechanism), writer=TWO_CPUS)
    with VM("src", config) as src:
        src.wait_writing()
        watch(src, mechanism)
        time.sleep(2)  # which is nobody's time under the lock
        for ends in (False, True):
            with VM("dst", config, incoming=True) as dst:
                begun = time.monotonic()
                start(src, dst, HELD)
                wait_rounds(src, dst, 3, HELD)
                check_rounds(src, time.monotonic() - begun)
                if not ends:
                    cancel(src)
                    continue
                release(src, HELD)
                finish(src, dst, HELD)
                assert_identical(src, dst)
