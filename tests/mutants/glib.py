# SPDX-License-Identifier: GPL-2.0-or-later
"""How the tests that are GLib's test programs are built and run."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.mutant import Failure, is_noticed

# One seed, so that what is random finds today what it found yesterday.
SEED = "--seed=R02S" + 32 * "1"

# Many times what the slowest takes: a busy machine must not pass for a kill.
LIMIT = 120  # seconds


def run(work: Path, command: Sequence[str]) -> str:
    """The output of a command that has to succeed."""
    done = subprocess.run(
        command, cwd=work, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failure(f"{shlex.join(command)}\n{done.stderr.strip()}")
    return done.stdout


def flags(what: str) -> list[str]:
    """What pkg-config has of GLib's: --cflags or --libs."""
    return shlex.split(run(Path("/"), ["pkg-config", what, "glib-2.0"]))


def compiler(command: str) -> list[str]:
    """The command to compile with, through ccache if that is there."""
    words = shlex.split(command)
    ccache = shutil.which("ccache")
    if ccache and Path(words[0]).name != "ccache":
        words.insert(0, ccache)
    return words


def asserted(tests: str) -> str:
    """How GLib ends a program at an assertion of a source below tests.

    GLib 2.74 says why as it bails out, and 2.84 as it says that a test is
    not ok.
    """
    return rf"^(?:Bail out!|not ok \S+ -) ERROR:{tests}/\w+\.c:\d+:"


def is_killed(
    work: Path, executable: str, test: str, says: str
) -> tuple[bool, str]:
    """Run a program, or one of its tests, as in program/test.

    Returns: whether an assertion has ended it, and what it has printed.
    """
    path = test.partition("/")[2]
    only = ["-p", f"/{test}"] if path else []
    log = work / f"{executable}.log"
    # What malloc() gives has no zeros that nobody has written.
    environment = {**os.environ, "MALLOC_PERTURB_": "165"}
    with log.open("w", encoding="utf-8") as out:
        try:
            status = subprocess.run(
                [f"./{executable}", "--tap", SEED, *only],
                cwd=work,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=LIMIT,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise Failure(f"{test} does not end") from None
    output = log.read_text(errors="replace")
    return is_noticed(status, output, [says]), output


def paths(work: Path, executable: str) -> list[str]:
    """The program's tests.  GLib 2.84 lists them as comments."""
    listed = run(work, [f"./{executable}", "-l"]).splitlines()
    names = [line.removeprefix("# ") for line in listed]
    return [name for name in names if name[:1] == "/"]


def first_not_ok(listed: Sequence[str], output: str) -> str:
    """The test that a program was in, however it ended."""
    passed = {
        words[2]
        for words in map(str.split, output.splitlines())
        if len(words) > 2 and words[0] == "ok"
    }
    return next((path for path in listed if path not in passed), "")
