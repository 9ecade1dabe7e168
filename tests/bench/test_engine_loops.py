# SPDX-License-Identifier: GPL-2.0-or-later
"""engine-loops: its command line, and its counts."""

from __future__ import annotations

import subprocess

import pytest

from .engine_loops import LOOPS, PROGRAM, count
from .step import parse


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Its output and how it ends."""
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True,
                          timeout=60, check=False)


@pytest.mark.parametrize("words, what", [
    ((), "no LOOP"),
    (("bitmap",), "bitmap"),
    (("-g", "0", "ring"), "0"),
    (("-g", "1025", "ring"), "1025"),
    (("-n", "many", "ring"), "many"),
    (("-x", "ring"), "-x"),
    (("ring", "again"), "again"),
])
def test_bad_arguments(words: tuple[str, ...], what: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (f"engine-loops: {what} is not allowed; -h tells "
                           "what is\n")


def test_help_names_the_loops() -> None:
    done = run("-h")
    assert done.returncode == 0
    assert done.stdout.split("one of: ")[1].split() == list(LOOPS)


@pytest.mark.parametrize("loop", LOOPS)
def test_loop(loop: str) -> None:
    done = run("-g", "1", "-n", "2", loop)
    assert done.returncode == 0, done.stderr
    assert parse(done.stdout)[f"pages.{loop}"].values[0] > 0


def test_counts_repeat_and_leave_kvm_out() -> None:
    once, pages = count("shared-sparse", 1)
    assert pages == 1000
    assert 0 < once < 10_000 * pages
    assert count("shared-sparse", 1) == (once, pages)
