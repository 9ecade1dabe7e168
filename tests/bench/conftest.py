# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures that the benchmarks' tests share with those of migrations."""

from tests.migration.conftest import fixture_ours, fixture_stock
from tests.soak import pytest_collection_modifyitems, pytest_configure

__all__ = ["fixture_ours", "fixture_stock", "pytest_collection_modifyitems",
           "pytest_configure"]
