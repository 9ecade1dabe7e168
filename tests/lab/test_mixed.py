# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest moves between two hosts that differ, and back.

Each host is a machine of the lab, and both run at the same time.
"""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path

import pytest

from tests.migration.compare import assert_none_differ, differing_in_files

from .lab import BUILD, running
from .mixed_host import LEGS, NO_MECHANISM, memory

HOST = [BUILD / "venv/bin/python", "-B", "-m", "tests.lab.mixed_host"]
OPTIONS = ("--cpus", "2", "--memory", "1G")
SECONDS = 300  # on a busy machine


@dataclasses.dataclass(frozen=True)
class Side:
    """A host's kernel and QEMU, and the mechanism that it then has."""

    kernel: str
    mechanism: str
    qemu: str = "ours"
    accel: str = "kvm"

    def command(self, name: str, directory: Path) -> list[str | Path]:
        """What its machine runs."""
        return [*HOST, name, directory, self.qemu, self.accel]


PATCHED = Side("patched", "dirty-bits")
STOCK = Side("stock", "log")
DEBIANS = Side("stock", NO_MECHANISM, qemu="stock")
RING = "kvm,dirty-ring-size=65536"

# The first has both kernels on either side.  In the second, a guest that came
# to the patched kernel leaves it again.
SIDES = {
    "patched-stock": (PATCHED, STOCK),
    "stock-patched": (STOCK, PATCHED),
    "debian's-patched": (DEBIANS, PATCHED),
    "rings": (Side("patched", "ring", accel=RING),
              Side("stock", "ring", accel=RING)),
}


def run(sides: tuple[Side, Side], directory: Path) -> list[str]:
    """Run both hosts to their ends; returns what they printed."""
    ends = socket.socketpair()
    words = [(*OPTIONS, "--share", str(directory), "--wire", str(end.fileno()))
             for end in ends]
    with running(*sides[0].command("first", directory),
                 kernel=sides[0].kernel, seconds=SECONDS, options=words[0],
                 fds=[ends[0].fileno()]) as one, \
            running(*sides[1].command("second", directory),
                    kernel=sides[1].kernel, seconds=SECONDS, options=words[1],
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


@pytest.mark.parametrize("name", [
    "patched-stock",
    *(pytest.param(name, marks=pytest.mark.soak)
      for name in SIDES if name != "patched-stock"),
])
def test_there_and_back(name: str, share: Path) -> None:
    """All memory is the same after each move of a guest that writes.

    Each host has the same mechanism as it sends and as it receives.
    """
    printed = run(SIDES[name], share)
    assert printed == [f"{side.mechanism}\n" * len(LEGS)
                       for side in SIDES[name]]
    for leg in LEGS:
        for files in zip(memory(share, leg, "src"), memory(share, leg, "dst")):
            assert_none_differ(differing_in_files(*files))
