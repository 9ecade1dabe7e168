# SPDX-License-Identifier: GPL-2.0-or-later
"""Every file in git has its licence in its first lines."""

from __future__ import annotations

import re
import subprocess
from itertools import islice
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAD = 8  # lines
LICENCE = re.compile(r"SPDX-License-Identifier: (\S+)")

JOINS_LINUX = ("host-kernel/", "tests/mutants/kernel/")


def tracked() -> list[str]:
    """The files of the project, or none where git does not know."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT,
                          capture_output=True, text=True, check=False)
    return done.stdout.split("\0")[:-1] if done.returncode == 0 else []


def licence_of(name: str) -> str:
    """The licence that the file names, or nothing."""
    with (ROOT / name).open(encoding="utf-8") as file:
        found = LICENCE.search("".join(islice(file, HEAD)))
    return found[1] if found else ""


def test_licences() -> None:
    """Files that join Linux have Linux's licence, all others QEMU's."""
    names = tracked()
    if not names:
        pytest.skip("this is no git checkout")
    wrong = []
    for name in names:
        linux = name.startswith(JOINS_LINUX)
        wanted = "GPL-2.0-only" if linux else "GPL-2.0-or-later"
        if licence_of(name) != wanted:
            wrong.append(f"{name}: '{licence_of(name)}' is not {wanted}")
    assert not wrong, "\n".join(wrong)
