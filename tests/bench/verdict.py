# SPDX-License-Identifier: GPL-2.0-or-later
"""The report's first five lines: where ours is ahead or behind."""

from __future__ import annotations

from dataclasses import dataclass

from .blocks import cell, ratio
from .releases import PEER
from .results import Results, Stat


@dataclass(frozen=True)
class Comparison:
    """A figure of stock and of ours, each a step and a name of its own.

    The step or the name ends differently in a quick run, which measures less:
    the first pair of which both were measured counts.
    """

    what: str
    pairs: tuple[tuple[tuple[str, str], tuple[str, str]], ...]
    more_is_better: bool = False

    def figures(self, results: Results) -> tuple[Stat, Stat] | None:
        """Stock's and ours; None if there is no pair."""
        for stock, ours in self.pairs:
            found = results.stat(*stock), results.stat(*ours)
            if found[0] and found[1]:
                return found[0], found[1]
        return None

    def line(self, results: Results) -> str | None:
        """One sentence; None if it was not measured."""
        found = self.figures(results)
        if found is None:
            return None
        stock, ours = found
        base, other = (ours, stock) if self.more_is_better else (stock, ours)
        said = ratio(base, other)
        ahead = base.median > other.median
        what = {"noise": "no difference beyond the noise"}.get(
            said, f"{'ahead' if ahead else 'behind'}, {said}")
        return (f"{self.what}: {what} (stock {cell(stock)}, ours {cell(ours)} "
                f"{ours.unit})")


CPU = "guest-view/own-cpu"
STOCK_LOG = f"{CPU}-{PEER}-log-stock-kernel"
OUR_BITS = f"{CPU}-ours-dirty-bits"
PAGES = "dirty-pages"


def by_pages(figure: str, *counts: int) -> tuple[
        tuple[tuple[str, str], tuple[str, str]], ...]:
    """Stock's KVM_GET_DIRTY_LOG and our dirty bits, with so many pages."""
    return tuple(((f"{PAGES}/stock", f"{figure}.get.{count}"),
                  (f"{PAGES}/patched", f"{figure}.bits.{count}"))
                 for count in counts)


COMPARISONS = (
    Comparison("What a guest keeps of its writes until the stop (dirty-bits)",
               (((STOCK_LOG, "kept-live"), (OUR_BITS, "kept-live")),),
               more_is_better=True),
    Comparison("Harvest and re-arm, all memory dirty (dirty-bits)",
               by_pages("dirty", 262144, 8192)),
    Comparison("A vCPU writes all of that again",
               by_pages("dirty-write", 262144, 8192)),
    Comparison("A sync of an idle guest with rings, the largest measured",
               tuple(((f"sizes/here/{PEER}/{gib}", "sync.idle"),
                      (f"sizes/here/ours/{gib}", "sync.idle"))
                     for gib in (1024, 64))),
    Comparison("Write faults of a VM that enables nothing on our kernel",
               ((("kernel/stock-keys", "write-again.get"),
                 ("kernel/patched-keys", "write-again.get")),)),
)


def verdict(results: Results) -> list[str]:
    """The comparisons that were measured, a line each."""
    return [line for each in COMPARISONS
            if (line := each.line(results)) is not None]
