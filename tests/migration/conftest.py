# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of the migration tests; pytest looks for them in a conftest."""

from __future__ import annotations

import os

import pytest

from tests.soak import pytest_collection_modifyitems, pytest_configure

from .vm import Qemu, kvm_usable, qemu


def usable(name: str) -> Qemu:
    """Return a binary that runs guests; without KVM the test is skipped."""
    if not kvm_usable():
        pytest.skip("/dev/kvm cannot be used on this host")
    return installed(name)


def installed(name: str) -> Qemu:
    """Return a binary, which must have been built or installed."""
    binary = qemu(name)
    if not os.access(binary.path, os.X_OK):
        pytest.fail(f"{binary.path} is missing")
    return binary


@pytest.fixture(name="ours", scope="session")
def fixture_ours() -> Qemu:
    """The QEMU under test: $QEMU, or the one that was built here."""
    return usable("ours")


@pytest.fixture(name="stock", scope="session")
def fixture_stock() -> Qemu:
    """The distribution's QEMU."""
    return usable("stock")
