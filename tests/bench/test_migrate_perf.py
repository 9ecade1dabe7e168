# SPDX-License-Identifier: GPL-2.0-or-later
"""migrate-perf: its command line, and one small run."""

from __future__ import annotations

import os
import subprocess

import pytest

from .step import ROOT, parse

PROGRAM = ROOT / "build/meson/tests/bench/migrate-perf"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Its output and how it ends."""
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True,
                          timeout=60, check=False)


@pytest.mark.parametrize("words, said", [
    (("-c", "0"), "-c 0 is not allowed: it takes a number from 1 to 32"),
    (("-c", "33"), "-c 33 is not allowed: it takes a number from 1 to 32"),
    (("-m", "4k"), "-m 4k is not allowed: it takes a number from 1 to 3840"),
    (("-t", "-1"), "-t -1 is not allowed: it takes a number from 1 to 1000000"),
    (("-i", ""), "-i  is not allowed: it takes a number from 0 to 60000"),
    (("-w", "bitmap"), "-w bitmap is not a way; -h names all"),
    (("-x",), "-x is not an option; -h names all"),
    (("-c",), "-c needs a value; -h tells which"),
    (("4",), "'4' is no option; -h names all"),
])
def test_bad_arguments(words: tuple[str, ...], said: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"migrate-perf: {said}\n"


def test_help() -> None:
    done = run("-h")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: migrate-perf ")
    assert done.stderr == ""


@pytest.mark.skipif(not os.access("/dev/kvm", os.R_OK | os.W_OK),
                    reason="/dev/kvm cannot be used")
@pytest.mark.parametrize("way", ["off", "get", "clear"])
def test_small_run(way: str) -> None:
    done = run("-m", "1", "-t", "2", "-i", "20", "-w", way)
    assert done.returncode == 0, done.stderr
    sample = parse(done.stdout)
    assert sample[f"writes.{way}"].unit == "per-s"
    assert (f"fetch.{way}" in sample) == (way != "off")
    if way != "off":
        assert sample[f"fetch.{way}"].values[0] > 0
        assert 0 < sample[f"dirty.{way}"].values[0] <= 256
