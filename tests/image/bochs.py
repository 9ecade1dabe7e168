# SPDX-License-Identifier: GPL-2.0-or-later
"""A server with an Intel CPU, which Bochs emulates, started from a CD.

It has the lab's settings; WORDS are what Linux has to be told of its clock.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.lab.lab import must
from tests.migration.guest import BUILD, ROOT

sys.path.append(str(ROOT / "lab"))

from intel import (  # noqa: E402
    CLOCK, INTERRUPTS, LINES, MAX_MEMORY, configuration)

BOCHS = BUILD / "bochs/bochs"
POLL_SECONDS = 2.0


WORDS = f"{CLOCK} {INTERRUPTS}"


def run(where: Path, cd: Path, seconds: float) -> str:
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
            configuration(cd, where / "bochs.log", 1, MAX_MEMORY, pipes))
        process = subprocess.Popen(
            [str(BOCHS), "-q", "-f", str(settings)], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(out.fileno(), rest.fileno()),
        )
        deadline = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        timed_out = process.poll() is None
        process.kill()
        process.wait()
    said = log.read_text(errors="replace").replace("\r", "")
    assert not timed_out, f"not switched off after {seconds:.0f} s: {said}"
    return said
