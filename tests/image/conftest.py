# SPDX-License-Identifier: GPL-2.0-or-later
"""What takes long, here to start servers, is left to `make soak`."""

from tests.soak import pytest_collection_modifyitems, pytest_configure

__all__ = ["pytest_collection_modifyitems", "pytest_configure"]
