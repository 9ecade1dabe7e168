# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU refuses what is impossible with one line that names the option."""

from __future__ import annotations

import os
import subprocess
from typing import Sequence

import pytest

from .conftest import installed
from .vm import DIRTY_BITS, SHARED, WRPROT, Mechanism, Qemu

TIMEOUT = 60.0


def refuse(command: Sequence[str]) -> list[str]:
    """Run COMMAND, which must fail, and return the lines of its errors."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=TIMEOUT, check=False, text=True)
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    # QEMU adds this line where another accelerator might have been tried.
    if len(lines) > 1 and "failed to initialize kvm: " in lines[-1]:
        lines.pop()
    return lines


def start(qemu: Qemu, accel: str) -> list[str]:
    """Return a command that would start an empty machine."""
    return [str(qemu.path), "-machine", "none", "-nodefaults",
            "-no-user-config", "-display", "none", "-S", "-accel", accel]


@pytest.mark.parametrize("size", ["3", "1", "1048576", "4294967295",
                                  "4294967296", "-1", "x", ""])
def test_ring_size(ours: Qemu, size: str) -> None:
    """No host can give a ring of this size."""
    (line,) = refuse(start(ours, f"kvm,dirty-ring-size={size}"))
    assert "dirty-ring-size" in line


@pytest.mark.parametrize("tracking", ["foo", "", "RING", "log|ring"])
def test_tracking(ours: Qemu, tracking: str) -> None:
    """There is no such mechanism."""
    (line,) = refuse(start(ours, f"kvm,dirty-tracking={tracking}"))
    assert "dirty-tracking" in line


@pytest.mark.parametrize("accel", [
    "kvm,dirty-tracking=log,dirty-ring-size=4096",
    "kvm,dirty-ring-size=4096,dirty-tracking=log",
    "kvm,dirty-tracking=wrprot,dirty-ring-size=4096",
    "kvm,dirty-tracking=shared,dirty-ring-size=4096",
    "kvm,dirty-tracking=dirty-bits,dirty-ring-size=4096"])
def test_contradiction(ours: Qemu, accel: str) -> None:
    """A ring size for a mechanism that has no rings."""
    (line,) = refuse(start(ours, accel))
    assert "dirty-ring-size" in line and "dirty-tracking" in line


@pytest.mark.parametrize("mechanism", [
    mechanism for mechanism in (WRPROT, SHARED, DIRTY_BITS)
    if not mechanism.offered], ids=str)
def test_unpatched(ours: Qemu, mechanism: Mechanism) -> None:
    """The mechanism takes a patched host kernel, and this one is not."""
    (line,) = refuse(start(ours, ours.accel(mechanism)))
    assert f"dirty-tracking={mechanism.name}" in line
    assert ("KVM_CAP_DIRTY_BITS" if SHARED.offered else
            "KVM_CAP_WRITE_PROTECT_ALL_MEM") in line


@pytest.mark.parametrize("accel", ["kvm", "kvm,dirty-tracking=ring"])
def test_no_kvm(accel: str) -> None:
    """On a host without KVM, the options are not blamed."""
    ours = installed("ours")
    if os.geteuid() != 0:
        pytest.skip("only root can hide /dev/kvm from QEMU")
    hide = "mount -t tmpfs none /dev && exec \"$@\""
    lines = refuse(["unshare", "--mount", "sh", "-c", hide, "sh",
                    *start(ours, accel)])
    assert "KVM" in lines[0]
