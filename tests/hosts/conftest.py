# SPDX-License-Identifier: GPL-2.0-or-later
"""A KVM that is not as good as that of this host."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Iterator

import pytest


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the library that hides capabilities."""
    path = tmp_path_factory.mktemp("shim") / "hide_caps.so"
    source = Path(__file__).with_name("hide_caps.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(path), str(source),
                    "-ldl"], check=True)
    return path


@pytest.fixture
def hide(shim: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make every program started from here see a lesser KVM."""
    monkeypatch.setenv("LD_PRELOAD", str(shim))
    yield
