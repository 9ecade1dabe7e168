# SPDX-License-Identifier: GPL-2.0-or-later
"""The files for QEMU and Python on the lab's machine with an Intel CPU.

It has copies of the files that it is told to take, and no others: here are the
interpreter, its libraries, tests/migration, the guest and QEMU.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tests.migration.guest import BUILD, BUILT, IMAGE, ROOT, SOURCES

PYTHON = BUILD / "venv/bin/python"
# Packages of the environment; pytest asks for pluggy's version.
PACKAGES = ("_pytest", "iniconfig", "packaging", "pluggy*", "py.py",
            "pygments", "pytest", "qemu")
QEMU = BUILT / "qemu/qemu-system-x86_64"
# Put before a command.  Nothing there could say where a RELEASE is built.
ENV = ("env", "-u", "RELEASE", f"QEMU={QEMU}")


def taken() -> Iterator[Path]:
    """The files and directories."""
    yield PYTHON
    yield BUILD / "venv/pyvenv.cfg"
    yield Path(sysconfig.get_path("stdlib"))
    site = Path(sysconfig.get_path("purelib"))
    for name in PACKAGES:
        yield from sorted(site.glob(name))
    yield from (ROOT / "tests/migration", ROOT / "tests/soak.py")
    yield from (*SOURCES, IMAGE, QEMU)


def options(*more: Path) -> list[str]:
    """The options of scripts/lab, which takes these files and more."""
    words = ["--cpu", "intel", "--memory", "2G"]
    for path in (*taken(), *more):
        words += ["--take", str(path)]
    return words
