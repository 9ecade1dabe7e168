# SPDX-License-Identifier: GPL-2.0-or-later
"""Guest memory of two stopped VMs, compared page by page."""

from __future__ import annotations

import mmap
import shutil
from pathlib import Path

from .guest import MIB, PAGE
from .vm import VM, VMError, scratch

CHUNK = 256 * PAGE

# Reads of the legacy VGA window go to a device or to nothing, not to RAM.
LOW_END = 0xA0000
HIGH_START = 0xC0000


def ram_ranges(mib: int) -> list[tuple[int, int]]:
    """Return (address, size) of each range of memory of a guest of MIB."""
    return [(0, LOW_END), (HIGH_START, mib * MIB - HIGH_START)]


def differing_pages(src: VM, dst: VM) -> list[int]:
    """Return the numbers of the pages that are not the same on both sides."""
    pages: list[int] = []
    for address, size in ram_ranges(src.config.mib):
        pages += differing_in(src, dst, address, size)
    return pages


def differing_in(src: VM, dst: VM, address: int, size: int) -> list[int]:
    """Return the numbers of the differing pages in one range."""
    for vm in (src, dst):
        if vm.qmp("query-status")["running"]:
            raise VMError(f"{vm.name}: the memory of a running guest "
                          "cannot be compared.")
    work = scratch()
    try:
        files = []
        for vm in (src, dst):
            files.append(work / vm.name)
            vm.save_memory(address, size, files[-1])
        return [address // PAGE + page for page in differing_in_files(*files)]
    finally:
        shutil.rmtree(work, ignore_errors=True)


def differing_in_files(left: Path, right: Path) -> list[int]:
    """Return the numbers of the pages that are not the same in both."""
    with open(left, "rb") as a, open(right, "rb") as b, \
            mmap.mmap(a.fileno(), 0, prot=mmap.PROT_READ) as left_map, \
            mmap.mmap(b.fileno(), 0, prot=mmap.PROT_READ) as right_map:
        return differing_in_maps(left_map, right_map)


def differing_in_maps(left: mmap.mmap | bytes,
                      right: mmap.mmap | bytes) -> list[int]:
    """Return the numbers of the pages that are not the same in both."""
    if len(left) != len(right):
        raise VMError("The memories differ in size.")
    pages: list[int] = []
    for start in range(0, len(left), CHUNK):
        one = left[start:start + CHUNK]
        other = right[start:start + CHUNK]
        # Nearly all chunks are equal, and far faster to compare than pages.
        if one != other:
            pages += [(start + at) // PAGE
                      for at in range(0, len(one), PAGE)
                      if one[at:at + PAGE] != other[at:at + PAGE]]
    return pages


def assert_none_differ(pages: list[int]) -> None:
    """Fail if there are PAGES, which ought not to differ."""
    assert not pages, (
        f"{len(pages)} pages differ, the first of them "
        f"{', '.join(f'{page:#x}' for page in pages[:8])}")
