# SPDX-License-Identifier: GPL-2.0-or-later
"""The release of Debian that the machine has not: its QEMU, on its kernel.

All tests run with the machine's own release.  With the other one, which RELEASE
names here, each mechanism migrates, libvirt once, and what only 10.0 can do.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.lab import test_libvirt, test_migration
from tests.lab.lab import ROOT, Record, must
from tests.migration.vm import kvm_usable

pytestmark = pytest.mark.usefixtures("release")
MIGRATIONS = (
    "test_identical.py::test_identical[log-random-2-q35]",
    "test_identical.py::test_identical[wrprot-hot-spot-1-q35]",
    "test_identical.py::test_identical[shared-sequential-4-pc]",
    "test_identical.py::test_identical[dirty-bits-random-2-q35]",
    "test_identical.py::test_identical[ring 4096-random-4-q35]",
    "test_modes.py::test_postcopy[dirty-bits-hot-spot-2]",
    "test_converge.py::test_it_ends[dirty-bits]",
    "test_hotplug.py::test_many_slots[shared]",
)
# What QEMU 7.2 does not have, with the mechanisms of this host's own KVM.
HERE = (
    "test_channels.py::test_channel_fails_at_the_switchover",
    "test_converge_modes.py::test_dirty_limit_capability[completed-lifted]",
    "test_cpr.py",
    "test_saved.py",
)
LIBVIRT = ("test_mechanism.py::test_plain[dirty-bits]",)


@pytest.mark.parametrize("name", MIGRATIONS)
def test_release_migrates(name: str, record_property: Record) -> None:
    test_migration.judge("tdp", MIGRATIONS, name, record_property)


@pytest.mark.parametrize("name", HERE)
def test_release_migrates_here(name: str) -> None:
    if not kvm_usable():
        pytest.skip("/dev/kvm cannot be used on this host")
    if os.environ["RELEASE"] == "12":
        pytest.skip("QEMU 7.2 does not have it")
    said = must([*test_migration.PYTEST, f"{test_migration.TESTS}/{name}"])
    assert "skipped" not in said.splitlines()[-1], said


@pytest.mark.parametrize("name", LIBVIRT)
def test_release_has_libvirt(name: str) -> None:
    test_libvirt.assert_passed(name, test_libvirt.boot(*LIBVIRT))


def test_release_is_installed(tmp_path: Path) -> None:
    """By the meson that configured it, which need not be the machine's."""
    must([ROOT / "scripts/install-qemu"], DESTDIR=str(tmp_path))
    must([tmp_path / "usr/local/bin/qemu-system-x86_64", "--version"])
