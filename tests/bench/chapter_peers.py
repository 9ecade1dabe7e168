# SPDX-License-Identifier: GPL-2.0-or-later
"""The chapter on other QEMUs that migrate the same guest."""

from __future__ import annotations

from collections.abc import Sequence

from .blocks import Block, Chapter, Table, Text, cell, ratio
from .chapter_guest_view import PROGRAM, Row
from .results import Results
from .step import COUNTED, Step

LAB_GUEST = ("--pattern", "random", "--mib", "64", "--written-mib", "16",
             "--mib-per-second", "60", "--downtime-ms", "20",
             "--around-seconds", "0.3", "--rounds-seconds", "0.6")
HOST_GUEST = ("--pattern", "random", "--mib", "256", "--written-mib", "64",
              "--mib-per-second", "120", "--downtime-ms", "20",
              "--around-seconds", "1", "--rounds-seconds", "2")
TITLES = {"stock": "Debian's 7.2", "backports": "Debian's 10.0",
          "ours": "ours"}
IN_LAB = (("stock", "log"), ("backports", "log"), ("ours", "log"),
          ("ours", "shared"), ("ours", "dirty-bits"))
ON_HOST = (("stock", "log"), ("backports", "log"), ("ours", "log"),
           ("stock", "ring"), ("backports", "ring"), ("ours", "ring"))


def name_of(where: str, qemu: str, mechanism: str) -> str:
    """The name of a step."""
    return f"peers/{where}-{qemu}-{mechanism}"


def steps(quick: bool) -> Sequence[Step]:
    """A quick run is on this host only, and without rings."""
    host = [Step(name_of("host", *side),
                 (*PROGRAM, *Row(*side).words, *HOST_GUEST), kvm=True,
                 runs=1 if quick else 3, seconds=10)
            for side in ON_HOST if side[1] == "log" or not quick]
    lab = [Step(name_of("lab", *side),
                (*PROGRAM, *Row(*side).words, *LAB_GUEST), COUNTED,
                seconds=60) for side in IN_LAB]
    return host if quick else [*lab, *host]


COLUMNS = (("kept", "writes kept, %"), ("lost", "writes lost, ms"),
           ("total", "total, ms"), ("downtime", "downtime, ms"),
           ("pages", "pages sent"), ("rounds", "rounds"))
HEADINGS = ("QEMU, mechanism", *(name for _, name in COLUMNS),
            "7.2 log's lost to it", "7.2 log's total to it")


def rows(results: Results, where: str,
         sides: Sequence[tuple[str, str]]) -> list[list[str]]:
    """A row for each QEMU and mechanism; the first one is the base."""
    base = name_of(where, *sides[0])
    found = []
    for qemu, mechanism in sides:
        step = name_of(where, qemu, mechanism)
        found.append([
            f"{TITLES[qemu]}, {mechanism}",
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
    "7.2 with its log.")


def blocks(results: Results) -> Sequence[Block]:
    """Both tables, and how to read them."""
    return [Table(HEADINGS, rows(results, "lab", IN_LAB), "In the lab"),
            Table(HEADINGS, rows(results, "host", ON_HOST), "On this host"),
            WHY]


CHAPTER = Chapter("peers", "Other QEMUs with the same guest", steps, blocks)
