# SPDX-License-Identifier: GPL-2.0-or-later
"""Linux is compiled through ccache, but never from it when that is wrong."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

CCACHE_GCC = Path(__file__).parents[2] / "scripts/lib/ccache-gcc"
DATA = {"part.S": ".incbin \"data\"\n",
        "kernel/configs.c": "asm(\".incbin \\\"data\\\"\");\n"}


def build(directory: Path, source: str) -> bytes:
    """Compile as kbuild does, and return the object."""
    made = directory / "made.o"
    subprocess.run(
        [CCACHE_GCC, "-Wp,-MMD,made.d", "-c", "-o", made, source],
        cwd=directory,
        env=os.environ | {"CCACHE_DIR": str(directory / "ccache"),
                          "CCACHE_DEPEND": "1"},
        check=True,
    )
    return made.read_bytes()


def hits(directory: Path) -> int:
    """How often ccache has found what it was asked for."""
    stats = subprocess.run(
        ["ccache", "--print-stats"],
        env=os.environ | {"CCACHE_DIR": str(directory / "ccache")},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    counts = dict(line.split("\t") for line in stats.splitlines())
    return int(counts["direct_cache_hit"])


@pytest.mark.parametrize("source", DATA)
def test_what_is_included_may_change(tmp_path: Path, source: str) -> None:
    """What a source includes by .incbin is no part of what ccache knows."""
    (tmp_path / source).parent.mkdir(exist_ok=True)
    (tmp_path / source).write_text(DATA[source])
    for data in (b"what was", b"what is:"):
        (tmp_path / "data").write_bytes(data)
        assert data in build(tmp_path, source)


def test_what_is_known_is_found(tmp_path: Path) -> None:
    """All other sources are compiled once, until a header changes."""
    (tmp_path / "main.c").write_text('#include "word.h"\nint word = WORD;\n')
    (tmp_path / "word.h").write_text("#define WORD 1\n")
    os.utime(tmp_path / "word.h", (1, 1))
    first = build(tmp_path, "main.c")
    assert build(tmp_path, "main.c") == first
    assert hits(tmp_path) == 1
    (tmp_path / "word.h").write_text("#define WORD 2\n")
    os.utime(tmp_path / "word.h", (2, 2))
    assert build(tmp_path, "main.c") != first
    assert hits(tmp_path) == 1
