# SPDX-License-Identifier: GPL-2.0-or-later
"""What kills a mutant: an assertion of the tests, and no other end."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(
    name: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    """A program that is run by meson, as a module."""
    monkeypatch.syspath_prepend(str((ROOT / path).parent))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


# How a test ends, in files of the tests' own, and whether that is a kill.
ENDS = {
    "passes": ("echo ok 1 /slot/one", False),
    "asserts": ("echo 'Bail out! ERROR:{tests}.c:7:f: (a == b)'; kill -ABRT $$",
                True),
    "crashes": ("echo ok 1 /slot/one; kill -SEGV $$", None),
    "the code's own assertion":
        ("echo 'Bail out! ERROR:engine/slot.c:7:f: (a)'; kill -ABRT $$", None),
    "is told to end": ("exit 1", None),
    "glibc's": ("echo 'free(): invalid pointer'; kill -ABRT $$", None),
}


@pytest.mark.parametrize("body, killed", ENDS.values(), ids=ENDS)
def test_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str,
                killed: bool | None) -> None:
    run = load("mutants_run", "tests/mutants/run.py", monkeypatch)
    bench = run.Bench(tmp_path, ["false"])
    program(tmp_path / "one", body.format(tests="unit/test_slot"))
    judged(lambda: bench.test("slot", "one") is not None, run, killed)


@pytest.mark.parametrize("body, killed", ENDS.values(), ids=ENDS)
def test_bitmap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str,
                killed: bool | None) -> None:
    run = load("bitmap_mutants", "tests/bitmap/mutants.py", monkeypatch)
    program(tmp_path / "one", body.format(tests="tests/bitmap/test_hot_pages"))
    judged(lambda: run.fails(tmp_path, "one"), run, killed)


def judged(judge: Callable[[], bool], run: ModuleType,
           killed: bool | None) -> None:
    """What JUDGE has to say; None if that is no answer."""
    if killed is None:
        with pytest.raises(run.Failure, match="no assertion"):
            judge()
    else:
        assert judge() == killed
