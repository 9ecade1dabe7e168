# SPDX-License-Identifier: GPL-2.0-or-later
"""Which QEMU and which mechanism the measuring programs can be asked for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.migration.guest import MIB
from tests.migration.vm import (LOG, SHARED, WRPROT, Mechanism, Qemu, VMError,
                                path_of, qemu)

BINARIES = ("ours", "stock", "backports")
RING = Mechanism(65536)
MECHANISMS = {"log": LOG, "ring": RING, "ring-4096": Mechanism(4096),
              "wrprot": WRPROT, "shared": SHARED}


def warm(path: Path) -> None:
    """Bring a program into memory, and its libraries.

    In a lab that counts instructions the clock leaps while somebody waits for
    a file, and with it what is timed, and the time limits.
    """
    if not os.access(path, os.X_OK):
        raise VMError(f"{path} is missing.")
    with open(path, "rb") as binary:
        while binary.read(MIB):
            pass
    subprocess.run([path, "--version"], stdout=subprocess.DEVNULL, check=False)


def available(name: str) -> Qemu:
    """The QEMU of that name or path; raises VMError with one sentence."""
    warm(path_of(name))
    return qemu(name)


def mechanism_of(binary: Qemu, name: str) -> Mechanism:
    """The mechanism of that name; raises VMError with one sentence."""
    mechanism = MECHANISMS[name]
    if mechanism.bitmaps != "log" and not binary.patched:
        raise VMError(f"{binary.path} does not know dirty-tracking={name}.")
    if not mechanism.offered:
        raise VMError(f"this host's KVM does not offer {name}.")
    return mechanism
