# SPDX-License-Identifier: GPL-2.0-or-later
"""A server with an Intel CPU, which Bochs emulates, started from a CD.

It has the lab's settings; WORDS are what Linux has to be told of its clock.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.lab import must
from tests.migration.guest import BUILD, ROOT

from .server import serial

sys.path.append(str(ROOT / "lab"))

from intel import (  # noqa: E402
    CLOCK, INTERRUPTS, LINES, MAX_MEMORY, configuration)

BOCHS = BUILD / "bochs/bochs"
SECONDS = 4 * 3600  # a whole check takes a tenth of that if nothing else runs
WORDS = f"{CLOCK} {INTERRUPTS}"


def run(where: Path, cd: Path, cpus: int = 1, seconds: float = SECONDS) -> str:
    """Start it, and wait until it is switched off; returns what it said.

    where takes its files.
    """
    must([ROOT / "scripts/build-bochs"])
    log = where / "serial"
    with log.open("wb") as out, open(os.devnull, "wb") as rest:
        pipes = {name: rest.fileno() for name in LINES}
        pipes[LINES[0]] = out.fileno()
        settings = where / "bochsrc"
        settings.write_text(
            configuration(cd, where / "bochs.log", cpus, MAX_MEMORY, pipes))
        process = subprocess.Popen(
            [str(BOCHS), "-q", "-f", str(settings)], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(out.fileno(), rest.fileno()),
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"not switched off after {seconds} s: {serial(log)}")
        finally:
            process.kill()
            process.wait()
    return serial(log)
