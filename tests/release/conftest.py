# SPDX-License-Identifier: GPL-2.0-or-later
"""What marks the test that takes long."""

from __future__ import annotations

from tests.soak import pytest_collection_modifyitems, pytest_configure

__all__ = ["pytest_collection_modifyitems", "pytest_configure"]
