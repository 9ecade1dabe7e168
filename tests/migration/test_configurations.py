# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU builds, links and starts without what some packages of it leave out."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from .guest import BUILD, BUILT, ROOT

LIMIT = 3600  # seconds
STOCK = BUILT / "src/qemu-stock"
# Debian's microvm has next to nothing.
LEAST = ["tcg", "live-block-migration", "replication", "multiprocess", "zstd"]
ACCELERATORS = {"kvm", "tcg"}


def without(*features: str) -> str:
    """Return configure's options, of those features that this QEMU knows."""
    known = (STOCK / "meson_options.txt").read_text(encoding="utf-8")
    return " ".join(
        f"--disable-{feature}" for feature in features
        if f"'{feature.replace('-', '_')}'" in known
    )


@pytest.mark.soak
@pytest.mark.parametrize(("features", "accelerators"), [
    (LEAST, {"kvm"}),
    (["kvm"], {"tcg"}),
], ids=["least", "no-kvm"])
def test_it_links(
    tmp_path: Path, features: list[str], accelerators: set[str]
) -> None:
    """What is left out leaves no reference to it."""
    # QEMU 10.0 is built by what is in there.
    (tmp_path / "venv").symlink_to(BUILD / "venv")
    env = {
        **os.environ,
        "FDT_BUILD": str(tmp_path),
        "QEMU_SRC": str(STOCK),
        "QEMU_CONFIGURE_OPTIONS": without(*features),
    }
    done = subprocess.run(
        [ROOT / "scripts/build-qemu"], env=env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    program, = tmp_path.rglob("qemu/qemu-system-x86_64")
    said = subprocess.check_output([program, "-accel", "help"], text=True)
    assert ACCELERATORS & set(said.split()) == accelerators
