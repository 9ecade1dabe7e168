# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of QEMU's own that are about what ours adds to it, or hooks into."""

from __future__ import annotations

import os
import subprocess

import pytest

from .guest import BUILT
from .vm import Qemu

PROGRAMS = BUILT / "qemu/tests/qtest"
NETWORK = ("pc/i440FX-pcihost/pci-bus-pc/pci-bus/virtio-net-pci/virtio-net/"
           "virtio-net-tests")


@pytest.mark.parametrize("program,case", [
    # Without KVM the error has the class that QEMU's test expects.
    ("qmp-cmd-test", "/x86_64/qmp/query-dirty-tracking"),
    # What such a device writes is in a log that QEMU shares with it.
    ("qos-test", f"/x86_64/{NETWORK}/vhost-user/migrate"),
], ids=["query", "vhost-user"])
def test_of_qemu(ours: Qemu, program: str, case: str) -> None:
    """It passes with our binary."""
    path = PROGRAMS / program
    assert path.exists(), "scripts/build-qemu --tests builds it"
    done = subprocess.run(
        [path, "--tap", "-p", case], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "QTEST_QEMU_BINARY": str(ours.path)}, timeout=120,
        check=False)
    assert done.returncode == 0, done.stdout
    assert f"ok 1 {case}\n" in done.stdout
