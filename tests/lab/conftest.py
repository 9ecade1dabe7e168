# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of the tests in the lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import pytest_collection_modifyitems, pytest_configure

from .lab import BUILD_KERNEL, must


@pytest.fixture(scope="session", autouse=True)
def fixture_stock_kernel() -> None:
    """Built before the first test, so that no test's time is a build's."""
    must([BUILD_KERNEL, "--quiet", "stock"])


@pytest.fixture(name="share")
def fixture_share(tmp_path: Path) -> Path:
    """A directory to give to the lab with --share."""
    path = tmp_path / "with a space, and a comma"
    path.mkdir()
    return path
