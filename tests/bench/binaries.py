# SPDX-License-Identifier: GPL-2.0-or-later
"""The QEMUs and mechanisms that the measuring programs know."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.migration.guest import MIB
from tests.migration.vm import (DIRTY_BITS, LOG, SHARED, STOCKS, VM, WRPROT,
                                Config, Mechanism, Qemu, VMError, pair,
                                path_of, qemu)

BINARIES = ("ours", *(f"ours-{release}" for release in STOCKS), "stock",
            "backports", "next")
RING = Mechanism(65536)
MECHANISMS = {"log": LOG, "ring": RING, "ring-4096": Mechanism(4096),
              "wrprot": WRPROT, "shared": SHARED, "dirty-bits": DIRTY_BITS}


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """Keep some CPU busy with useless work, while VMs are started.

    In a lab that counts instructions, the clock of an idle machine leaps to
    the next timer.  So while a program waits for its files, a process that
    looks for the program every 20 ms finds that minutes have passed.
    """
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spin:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(spin.pid, os.SCHED_IDLE, os.sched_param(0))
        try:
            yield
        finally:
            # It has to run to its end, and a guest that writes leaves no time.
            spin.kill()
            with contextlib.suppress(OSError):
                os.sched_setscheduler(spin.pid, os.SCHED_FIFO,
                                      os.sched_param(1))


def warm(path: Path) -> None:
    """Bring a program into memory, and its libraries."""
    if not os.access(path, os.X_OK):
        raise VMError(f"{path} is missing.")
    with open(path, "rb") as binary:
        while binary.read(MIB):
            pass
    subprocess.run([path, "--version"], stdout=subprocess.DEVNULL, check=False)


def available(name: str) -> Qemu:
    """The QEMU of that name or path; raises VMError with one sentence."""
    with awake():
        warm(path_of(name))
        return qemu(name)


@contextlib.contextmanager
def writing_pair(config: Config) -> Iterator[tuple[VM, VM]]:
    """Two VMs to migrate between; the first one's guest writes."""
    with contextlib.ExitStack() as stack:
        with awake():
            src, dst = stack.enter_context(pair(config))
            src.wait_writing()
        yield src, dst


def mechanism_of(binary: Qemu, name: str) -> Mechanism:
    """The mechanism of that name; raises VMError with one sentence."""
    mechanism = MECHANISMS[name]
    if mechanism.bitmaps != "log" and not binary.patched:
        raise VMError(f"{binary.path} does not know dirty-tracking={name}.")
    if not mechanism.offered:
        raise VMError(f"this host's KVM does not offer {name}.")
    return mechanism
