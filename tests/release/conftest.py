# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests of the other release share with those of the lab."""

from __future__ import annotations

from tests.soak import pytest_collection_modifyitems, pytest_configure

__all__ = ["pytest_collection_modifyitems", "pytest_configure"]
