# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo's sentence agrees with its rows, good or bad."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .demo import Row, conclusion, table
from .migrate import Result
from .vm import LOG, Mechanism

DEMO = Path(__file__).with_name("demo.py")
RING = Mechanism(4096)
DONE = Result("completed", 2500, 30, 6, 1 << 28)


def row(name: str, mechanism: Mechanism, pages: int = 0,
        result: Result | None = DONE) -> Row:
    """Return a row with as many differing pages."""
    return Row(name, mechanism, 1e5, 9e4, result, range(pages))


def test_only_stock_loses() -> None:
    """The sentence tells the difference, with its numbers."""
    assert conclusion(
        [row("ours", LOG), row("ours", RING)],
        [row("stock", LOG), row("stock", RING, 1234)]) == (
        "Our QEMU delivered every page in all 2 migrations, while stock QEMU "
        "reported success but delivered wrong pages (1,234 with ring 4096).")


def test_both_are_well() -> None:
    """The sentence makes nothing up where stock loses nothing."""
    assert conclusion(
        [row("ours", LOG), row("ours", RING)],
        [row("stock", LOG), row("stock", RING)]) == (
        "Our QEMU delivered every page in all 2 migrations, and stock QEMU "
        "delivered every page in all 2 migrations.")


def test_ours_loses() -> None:
    """Our own loss comes first."""
    assert conclusion([row("ours", LOG, 2)],
                      [row("stock", RING, 0, None)]) == (
        "Our QEMU reported success but delivered wrong pages (2 with log), "
        "and stock QEMU failed with ring 4096.")


def test_table_is_aligned() -> None:
    """All lines end in the same column."""
    lines = table([row("ours", LOG), row("stock", RING, 1234),
                   row("stock", RING, 0, None)]).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert "failed" in lines[-1]


def test_without_kvm() -> None:
    """A host without KVM gets one sentence and a failure."""
    if os.geteuid() != 0:
        pytest.skip("only root can hide /dev/kvm from the demo")
    hide = "mount -t tmpfs none /dev && exec \"$@\""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", hide, "sh", sys.executable,
         str(DEMO)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, timeout=60, check=False, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "/dev/kvm" in line
