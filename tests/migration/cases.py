# SPDX-License-Identifier: GPL-2.0-or-later
"""The mechanisms under test, and the check that most tests end with."""

from __future__ import annotations

from typing import Callable, Optional

import pytest

from .compare import assert_none_differ, differing_pages
from .guest import MIB
from .migrate import ANY_DOWNTIME, Options, Result, migrate
from .vm import DIRTY_BITS, LOG, SHARED, VM, WRPROT, Mechanism

RINGS = (Mechanism(1024), Mechanism(4096), Mechanism(65536))

# What takes a patched host kernel: there are such hosts in the lab.  A guest
# that may use the one kind cannot use the other.
BY_FAULTS = tuple(each for each in (WRPROT, SHARED) if each.offered)
COLLECTED = tuple(each for each in (DIRTY_BITS,) if each.offered)
PATCHED = (*BY_FAULTS, *COLLECTED)
MECHANISMS = (LOG, *BY_FAULTS, *RINGS, *COLLECTED)

# Slow enough for a few rounds over 32 MiB that is written all the time.  Then
# it ends, whatever this machine can send while the guest writes.
HELD = Options(bandwidth=100 * MIB, hold=True, downtime_limit=ANY_DOWNTIME)

each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
each_ring = pytest.mark.parametrize("mechanism", RINGS, ids=str)
log_and_ring = pytest.mark.parametrize(
    "mechanism", (LOG, *PATCHED, Mechanism(4096)), ids=str)


def assert_identical(src: VM, dst: VM) -> None:
    """Fail unless the memory of both VMs is the same."""
    assert_none_differ(differing_pages(src, dst))


def migrate_identical(src: VM, dst: VM, options: Options = HELD,
                      held: Optional[Callable[[], None]] = None) -> Result:
    """Migrate SRC to DST and fail unless their memory is the same then."""
    result = migrate(src, dst, options, held=held)
    assert_identical(src, dst)
    return result
