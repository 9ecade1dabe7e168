# SPDX-License-Identifier: GPL-2.0-or-later
"""What two kernels measured, side by side."""

from __future__ import annotations

from pathlib import Path

from qualify.figures import load, measured, save, side_by_side
from qualify.result import Figure

STOCK = """# 3072 MiB
rearm.get 64000 ns
enable.get 156 ns
write-again.get 300 ns
kept-live 2.50 %
rate 1 2 3 per-s
"""
OURS = """rearm.shared 128 ns
rearm.bits 64000 ns
kept-live 98.00 %
"""


def test_lines() -> None:
    assert measured(STOCK) == {
        "rearm.get": (64000.0, "ns"), "enable.get": (156.0, "ns"),
        "write-again.get": (300.0, "ns"), "kept-live": (2.5, "%"),
    }


def test_rows_of_what_both_have() -> None:
    assert list(side_by_side(measured(STOCK), measured(OURS))) == [
        Figure("harvest, re-arm: log; shared", "ns", 64000.0, 128.0),
        Figure("harvest, re-arm: log; dirty bits", "ns", 64000.0, 64000.0),
        Figure("migration: writes that are left", "%", 2.5, 98.0),
    ]


def test_handed_to_the_next_kernel(tmp_path: Path) -> None:
    save(tmp_path / "figures.json", measured(STOCK))
    assert load(tmp_path / "figures.json") == measured(STOCK)
