# SPDX-License-Identifier: GPL-2.0-or-later
"""The releases of Debian that a test meets, as the scripts take them."""

from __future__ import annotations

import subprocess

from tests.migration.guest import ROOT

COMMON = ROOT / "scripts/lib/common.sh"

# The machine's own, the one whose QEMU and Linux ours are (RELEASE), and the
# version of that Linux.
OWN, CHOSEN, LINUX = subprocess.check_output(
    ["bash", "-c", f'. "{COMMON}" && echo "$own $RELEASE $linux_hooks_fit"'],
    text=True,
).split()
