# SPDX-License-Identifier: GPL-2.0-or-later
"""The chapter on other QEMUs that migrate the same guest."""

from __future__ import annotations

from collections.abc import Sequence

from .blocks import Block, Chapter, Table, Text, cell, ratio
from .chapter_guest_view import (HOST_SET, LAB_SET, Row, Set, counted,
                                 on_host)
from .releases import OUR_TITLES, PEER, TITLES, VERSIONS
from .results import Results
from .step import Step

BASE, BASE_VERSION = Row(PEER, "log"), VERSIONS[PEER]
EACH_LOG = tuple(Row(name, "log") for name in TITLES)
IN_LAB = (*EACH_LOG, *(Row(name, mechanism) for name in OUR_TITLES
                       for mechanism in ("shared", "dirty-bits")))
ON_HOST = (*EACH_LOG, *(Row(name, "ring") for name in TITLES))


def steps(quick: bool) -> Sequence[Step]:
    """The guest is that of guest-view, and so are the steps.

    A quick run is on this host only, and without rings.
    """
    host = [on_host(row, quick) for row in ON_HOST
            if row.mechanism == "log" or not quick]
    return host if quick else [*map(counted, IN_LAB), *host]


COLUMNS = (("kept", "writes kept, %"), ("lost", "writes lost, ms"),
           ("total", "total, ms"), ("downtime", "downtime, ms"),
           ("pages", "pages sent"), ("rounds", "rounds"))
HEADINGS = ("QEMU, mechanism", *(name for _, name in COLUMNS),
            f"{BASE_VERSION} log's lost to it",
            f"{BASE_VERSION} log's total to it")


def rows(results: Results, chosen: Set,
         sides: Sequence[Row]) -> list[list[str]]:
    """A row for each QEMU and mechanism."""
    base = chosen.step(BASE)
    found = []
    for row in sides:
        step = chosen.step(row)
        found.append([
            f"{TITLES[row.qemu]}, {row.mechanism}",
            *(cell(results.stat(step, name)) for name, _ in COLUMNS),
            *(ratio(results.stat(base, name), results.stat(step, name))
              for name in ("lost", "total"))])
    return found


WHY = Text(
    "The same guest writes without a pause and is migrated at the same "
    "bandwidth by each QEMU, on the same kernel, with the downtime limit "
    "lifted after the same time. No figures were published for these. In the"
    " lab the kernel is ours, and one CPU, which counts instructions, has "
    "the guest and both QEMUs: what is lost there is mostly the time of the "
    "two QEMUs. On this host the figures are medians in real time with their"
    " spread. Where the host's KVM overfills rings, QEMUs other than ours "
    "may abort or lose pages with them; then a row has no figures, or less "
    "pages than should be sent. A ratio below 1 is a loss against Debian's "
    f"{BASE_VERSION} with its log.")


def blocks(results: Results) -> Sequence[Block]:
    """Both tables, and how to read them."""
    return [Table(HEADINGS, rows(results, LAB_SET, IN_LAB), "In the lab"),
            Table(HEADINGS, rows(results, HOST_SET, ON_HOST), "On this host"),
            WHY]


CHAPTER = Chapter("peers", "Other QEMUs with the same guest", steps, blocks)
