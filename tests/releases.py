# SPDX-License-Identifier: GPL-2.0-or-later
"""The releases of Debian that a test meets, as the scripts take them."""

from __future__ import annotations

import os
import subprocess

from tests.migration.guest import ROOT

COMMON = ROOT / "scripts/lib/common.sh"


def from_scripts(variable: str, release: str | None = None) -> str:
    """A variable of common.sh: for RELEASE, or another if that is named.

    With "" that is the machine's own.
    """
    env = {**os.environ}
    if release is not None:
        env["RELEASE"] = release
    return subprocess.check_output(
        ["bash", "-c", f'. "{COMMON}"; echo ${variable}'], env=env, text=True
    ).strip()


# The machine's own, the one whose QEMU and Linux ours are (RELEASE), and the
# version of that Linux.
OWN, CHOSEN, LINUX = map(from_scripts, ("own", "RELEASE", "linux_hooks_fit"))
