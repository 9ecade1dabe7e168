# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest moves between two hosts with different kernels, and back.

Each host is a machine of the lab, and both run at the same time.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.migration.compare import assert_none_differ, differing_in_files

from .lab import BUILD, running
from .mixed_host import LEGS, memory

HOST = [BUILD / "venv/bin/python", "-B", "-m", "tests.lab.mixed_host"]
OPTIONS = ("--cpus", "2", "--memory", "1G")
SECONDS = 300  # on a busy machine

MECHANISMS = {"patched": "dirty-bits", "stock": "log"}


def run(kernels: tuple[str, str], directory: Path) -> list[str]:
    """Run both hosts to their ends; returns what they printed."""
    ends = socket.socketpair()
    words = [(*OPTIONS, "--share", str(directory), "--wire", str(end.fileno()))
             for end in ends]
    with running(*HOST, "first", directory, kernel=kernels[0], seconds=SECONDS,
                 options=words[0], fds=[ends[0].fileno()]) as one, \
            running(*HOST, "second", directory, kernel=kernels[1],
                    seconds=SECONDS, options=words[1],
                    fds=[ends[1].fileno()]) as other:
        # Else a host that waits for the guest would not see the other's end.
        for end in ends:
            end.close()
        ended = [(*process.communicate(), process.returncode)
                 for process in (one, other)]
    for _, errors, _ in ended:
        print(errors)
    assert [status for *_, status in ended] == [0, 0]
    return [output for output, *_ in ended]


# The first has both kernels on either side.  In the other, a guest that came
# to the patched kernel leaves it again.
@pytest.mark.parametrize("kernels", [
    ("patched", "stock"),
    pytest.param(("stock", "patched"), marks=pytest.mark.soak),
], ids="-".join)
def test_there_and_back(kernels: tuple[str, str], share: Path) -> None:
    """All memory is the same after each move of a guest that writes.

    Each host has what auto takes there, as it sends and as it receives.
    """
    printed = run(kernels, share)
    assert printed == [f"{MECHANISMS[kernel]}\n" * len(LEGS)
                       for kernel in kernels]
    for leg in LEGS:
        for files in zip(memory(share, leg, "src"), memory(share, leg, "dst")):
            assert_none_differ(differing_in_files(*files))
