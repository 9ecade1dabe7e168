# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that never stops writing arrives with every page as it was."""

from __future__ import annotations

import pytest

from .cases import (CPUS, MACHINES, MECHANISMS, assert_writes,
                    migrate_identical)
from .guest import PATTERNS, Writer
from .vm import Config, Mechanism, Qemu, pair


def selection() -> list[tuple[Mechanism, str, int, str]]:
    """Return cases in which any two values of two columns meet."""
    return [(mechanism, pattern, CPUS[(row + column) % len(CPUS)],
             MACHINES[(row + column) % len(MACHINES)])
            for row, mechanism in enumerate(MECHANISMS)
            for column, pattern in enumerate(PATTERNS)]


@pytest.mark.parametrize("mechanism,pattern,cpus,machine", selection(),
                         ids=str)
def test_identical(ours: Qemu, mechanism: Mechanism, pattern: str, cpus: int,
                   machine: str) -> None:
    """The memory of both sides is the same, page by page."""
    config = Config(ours, ours.accel(mechanism), machine=machine,
                    writer=Writer(pattern=PATTERNS[pattern], cpus=cpus))
    with pair(config) as (src, dst):
        src.wait_writing()
        told = src.qmp("query-dirty-tracking")["mechanism"]
        assert told == mechanism.name
        # A vCPU that hangs would make no page differ.
        migrate_identical(src, dst, held=lambda: assert_writes(src))
