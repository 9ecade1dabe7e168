# SPDX-License-Identifier: GPL-2.0-or-later
"""Which QEMU and which mechanism the measuring programs can be asked for."""

from __future__ import annotations

import os

from tests.migration.vm import (LOG, SHARED, WRPROT, Mechanism, Qemu, VMError,
                                qemu)

BINARIES = ("ours", "stock", "backports")
RING = Mechanism(65536)
MECHANISMS = {"log": LOG, "ring": RING, "ring-4096": Mechanism(4096),
              "wrprot": WRPROT, "shared": SHARED}


def available(name: str) -> Qemu:
    """The QEMU of that name or path; raises VMError with one sentence."""
    binary = qemu(name)
    if not os.access(binary.path, os.X_OK):
        raise VMError(f"{binary.path} is missing.")
    return binary


def mechanism_of(binary: Qemu, name: str) -> Mechanism:
    """The mechanism of that name; raises VMError with one sentence."""
    mechanism = MECHANISMS[name]
    if mechanism.bitmaps != "log" and not binary.patched:
        raise VMError(f"{binary.path} does not know dirty-tracking={name}.")
    if not mechanism.offered:
        raise VMError(f"this host's KVM does not offer {name}.")
    return mechanism
