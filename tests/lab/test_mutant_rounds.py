# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of rounds says what the race test said."""

from __future__ import annotations

import pytest

from .lab import Ended
from .mutant_rounds import outcome


@pytest.mark.parametrize(
    ("status", "said", "told"),
    [
        (254, "  page 7 is lost in round 13 (bits, none, pages 0 to 9)", "13"),
        (254, "  page 7 is lost at the end", "at the end"),
        (0, "9 rounds, 8 writes, 7 pages harvested, none lost", "none in 9"),
        (124, "vCPU 1 is stuck after 3 writes, in round 5", "exit 124"),
    ],
)
def test_outcome(status: int, said: str, told: str) -> None:
    assert outcome(Ended(status, f"{said}\n", "")) == told
