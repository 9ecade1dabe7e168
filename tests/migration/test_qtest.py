# SPDX-License-Identifier: GPL-2.0-or-later
"""A test of QEMU's own in which each new query- command must be entered."""

from __future__ import annotations

import os
import subprocess

from .guest import BUILT
from .vm import Qemu

PROGRAM = BUILT / "qemu/tests/qtest/qmp-cmd-test"
CASE = "/x86_64/qmp/query-dirty-tracking"


def test_query_command(ours: Qemu) -> None:
    """Without KVM its error has the class that QEMU's test expects."""
    assert PROGRAM.exists(), "scripts/build-qemu --tests builds it"
    done = subprocess.run(
        [PROGRAM, "--tap", "-p", CASE], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "QTEST_QEMU_BINARY": str(ours.path)}, timeout=120,
        check=False)
    assert done.returncode == 0, done.stdout
    assert f"ok 1 {CASE}\n" in done.stdout
