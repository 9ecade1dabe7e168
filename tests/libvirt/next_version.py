# SPDX-License-Identifier: GPL-2.0-or-later
"""The next version of a package, for tests of upgrades."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path


def next_version(
    package: Path,
    where: Path,
    change: Callable[[Path], None] = lambda files: None,
) -> Path:
    """Return the same package, in WHERE, newer than it is.

    CHANGE is given the directory of its files before they are packed.
    """
    files, packed = where / "next", where / "next.deb"
    subprocess.run(["dpkg-deb", "-R", package, files], check=True)
    control = files / "DEBIAN/control"
    control.write_text(
        re.sub(r"^(Version: .+)$", r"\1.1", control.read_text(), flags=re.M)
    )
    change(files)
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "-b", files, packed],
        check=True,
    )
    shutil.rmtree(files)
    return packed
