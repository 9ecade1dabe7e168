# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests of the other release share with those of the lab."""

from __future__ import annotations

import os

import pytest

from tests.soak import pytest_collection_modifyitems, pytest_configure

__all__ = ["pytest_collection_modifyitems", "pytest_configure"]


@pytest.fixture(name="release", scope="module")
def fixture_release() -> None:
    """Nothing is proven by one release twice."""
    if not os.environ.get("RELEASE"):
        pytest.fail("RELEASE is not set; it must be the other release")
