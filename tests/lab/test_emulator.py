# SPDX-License-Identifier: GPL-2.0-or-later
"""Which QEMU of Debian emulates the lab's machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .lab import ROOT

sys.path.append(str(ROOT / "lab"))

from debian_qemu import is_steady  # noqa: E402


@pytest.mark.parametrize(
    ("says", "steady"),
    [
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u19)", True),
        ("QEMU emulator version 10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)",
         False),
        ("QEMU emulator version 10.7.2 (Debian 1:10.7.2)", False),
        ("", False),
    ],
)
def test_steady(tmp_path: Path, says: str, steady: bool) -> None:
    """Only a release that has run thousands of machines is."""
    debian = tmp_path / "qemu-system-x86_64"
    debian.write_text(f"#!/bin/sh\necho '{says}'\n")
    debian.chmod(0o755)
    assert is_steady(debian) == steady
