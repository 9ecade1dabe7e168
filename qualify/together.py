# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs one command several times at once, so that all CPUs have to do.

usage: python -m qualify.together N COMMAND...

Ends as the first does that does not pass, and ends the others then.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO

from .steps import PASSED

# By process.  Python waits for a process that it has no object of any more.
Started = dict[int, tuple["subprocess.Popen[bytes]", IO[bytes]]]


def start(command: Sequence[str], count: int) -> Started:
    """Start them; each has an output of its own."""
    started = {}
    for _ in range(count):
        output = tempfile.TemporaryFile()
        process = subprocess.Popen(command, stdout=output, stderr=output)
        started[process.pid] = process, output
    return started


def wait(started: Started) -> int:
    """Returns: the exit status of all; prints what one said.

    That is the one that failed, or the last: all leave out the same parts.
    """
    while started:
        pid, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        _, output = started.pop(pid)
        if code != PASSED or not started:
            output.seek(0)
            sys.stdout.buffer.write(output.read())
        if code != PASSED:
            # A signal's number is negative.
            return code if code > 0 else 128 - code
    return PASSED


def main(words: list[str]) -> int:
    """Returns: the exit status."""
    started = start(words[1:], int(words[0]))
    try:
        return wait(started)
    finally:
        for pid in started:
            os.kill(pid, 9)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
