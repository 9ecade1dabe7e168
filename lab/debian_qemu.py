# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's QEMU, and whether it can be the lab's machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

PATH = Path("/usr/bin/qemu-system-x86_64")

# Debian 13's QEMU 10.0.13 fails now and then as a machine of several CPUs boots:
# "Assertion `section_index < d->map.sections_nb' failed" (2 of 31 boots), or a CPU
# waits for ever (2 in a make check).
STEADY = re.compile(r"version 7\.2\.")


def is_steady(qemu: Path) -> bool:
    """Whether this QEMU runs machines of several CPUs to their end."""
    done = subprocess.run(
        [qemu, "--version"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return STEADY.search(done.stdout) is not None
