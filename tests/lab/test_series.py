# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel builds after each patch of the series."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.migration.guest import BUILT, ROOT

from .lab import BUILD_KERNEL, BUILD_LIMIT

SOURCE = BUILT / "src/linux-stock"


def series_of_source() -> Path:
    """The directory of the series that is for this release of Linux."""
    makefile = (SOURCE / "Makefile").read_text()
    version = re.findall(r"^(?:VERSION|PATCHLEVEL) = (.*)$", makefile, re.M)
    return ROOT / f"host-kernel/patches/linux-{'.'.join(version)}"


def names(series: Path) -> list[str]:
    """The patches in their order."""
    lines = (series / "series").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.soak
def test_each_patch_builds(tmp_path: Path) -> None:
    """The patches build one after the other in one tree, without a warning."""
    series, build = tmp_path / "series", tmp_path / "build"
    series.mkdir()
    env = {
        **os.environ,
        "FDT_BUILD": str(build),
        "FDT_LINUX_SERIES": str(series),
        "LINUX_SRC": str(SOURCE),
    }
    ours = series_of_source()
    for name in names(ours):
        shutil.copy(ours / name, series)
        with (series / "series").open("a") as file:
            file.write(f"{name}\n")
        done = subprocess.run(
            [BUILD_KERNEL, "patched"],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        (log,) = build.glob("**/log/build-kernel-patched.log")
        said = log.read_text()
        assert "warning:" not in said, f"{name}: {said[-4000:]}"
