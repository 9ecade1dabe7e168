# SPDX-License-Identifier: GPL-2.0-or-later
"""Twenty migrations out of twenty; run with -m soak."""

from __future__ import annotations

import pytest

from .cases import CPUS, each_mechanism, migrate_identical
from .guest import PATTERNS, Writer
from .vm import Config, Mechanism, Qemu, pair

RUNS = 20


@pytest.mark.soak
@pytest.mark.parametrize("run", range(RUNS))
@each_mechanism
def test_soak(ours: Qemu, mechanism: Mechanism, run: int) -> None:
    """Every migration keeps memory identical, whatever the guest."""
    patterns = list(PATTERNS.values())
    writer = Writer(pattern=patterns[run % len(patterns)],
                    cpus=CPUS[run // len(patterns) % len(CPUS)])
    with pair(Config(ours, ours.accel(mechanism), writer=writer)) \
            as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst)
