# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/libvirt.md, as far as tests follow it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.migration.guest import ROOT

GUIDE = ROOT / "docs" / "libvirt.md"
LOCAL = Path("/usr/local/bin/qemu-system-x86_64")
APPARMOR = "Where AppArmor confines domains"


def sections() -> dict[str, list[str]]:
    """The commands of the guide, by the titles of its sections."""
    found: dict[str, list[str]] = {}
    for section in GUIDE.read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        found[title] = re.findall(r"^ {4}([^ <].*)$", text, re.MULTILINE)
    return found
