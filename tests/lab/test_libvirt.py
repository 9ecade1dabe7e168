# SPDX-License-Identifier: GPL-2.0-or-later
"""libvirt on the patched host kernel, by the tests of tests/libvirt.

All of them run in one boot of the lab; each is a test case here.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pytest

from .lab import ROOT, Ended, lab
from .test_migration import OPTIONS, PYTEST

TESTS = "tests/libvirt"
SECONDS = 300  # for one of them, on a busy machine

# There, auto is dirty-bits.
CHECKED = (
    "test_mechanism.py::test_plain[dirty-bits]",
    "test_migration.py::test_ways[p2p]",
)
SOAKED = (
    "test_domain.py::test_usual_domain[build-q35]",
    "test_mechanism.py::test_switch",
    "test_migration.py::test_ways[tunnelled]",
    "test_migration.py::test_to_stock[auto]",
    "test_migration.py::test_from_stock[pc]",
    "test_migration.py::test_postcopy[auto]",
)


@lru_cache(maxsize=None)
def boot(*names: str) -> Ended:
    """Run tests in the lab."""
    return lab(
        *PYTEST,
        *(f"{TESTS}/{name}" for name in names),
        kernel="patched",
        seconds=SECONDS * len(names),
        options=OPTIONS,
        cwd=ROOT,
    )


def assert_passed(name: str, ended: Ended) -> None:
    """Fail unless the test passed; there nothing is skipped."""
    line = rf"^{re.escape(f'{TESTS}/{name}')} PASSED\b"
    passed = re.search(line, ended.stdout, re.MULTILINE)
    assert passed, ended.stdout + ended.stderr


@pytest.mark.parametrize("name", CHECKED)
def test_libvirt(name: str) -> None:
    """A domain has dirty-bits, and all its pages arrive."""
    assert_passed(name, boot(*CHECKED))


@pytest.mark.soak
@pytest.mark.parametrize("name", SOAKED)
def test_libvirt_soak(name: str) -> None:
    """What else concerns the patched kernel."""
    assert_passed(name, boot(*SOAKED))
