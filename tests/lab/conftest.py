# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests in the lab share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import leave_out_soak, pytest_configure

from .lab import BUILD_KERNEL, must

__all__ = ["pytest_configure"]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave the soak out, and say what may run beside each other.

    Bochs takes one of this machine's CPUs, whatever it emulates, and test_lab.py
    mostly boots, which takes one as well.  If pytest-xdist is told to keep groups
    together, these run beside all others, and the tests of one boot stay together.
    """
    leave_out_soak(config, items)
    for item in items:
        name = item.nodeid.lower()
        one_cpu = "intel" in name or "test_lab.py" in name
        group = "one-cpu" if one_cpu else "all-cpus"
        item.add_marker(pytest.mark.xdist_group(group))


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
