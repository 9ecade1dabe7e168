# SPDX-License-Identifier: GPL-2.0-or-later
"""The writer guest: its image, its parameters and its write counters."""

from __future__ import annotations

import functools
import os
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.path.abspath(os.environ.get("FDT_BUILD", ROOT / "build")))


@functools.lru_cache(maxsize=None)
def built(release: str) -> Path:
    """Return where what depends on a release of Debian is built."""
    return Path(
        subprocess.run(
            [ROOT / "scripts/lib/release-dir"], stdout=subprocess.PIPE,
            text=True, env={**os.environ, "RELEASE": release}, check=True,
        ).stdout.strip()
    )


# Where that of RELEASE is.  Nobody need ask for the machine's own.
RELEASE = os.environ.get("RELEASE")
BUILT = built(RELEASE) if RELEASE else BUILD
BUILD_SCRIPT = ROOT / "tests" / "guests" / "build.sh"
SOURCES = (BUILD_SCRIPT, BUILD_SCRIPT.with_name("writer.S"))
IMAGE = BUILD / "meson" / "tests" / "guests" / "writer.img"
HINTER_SOURCES = (BUILD_SCRIPT, BUILD_SCRIPT.with_name("hinter.c"))
HINTER_IMAGE = IMAGE.with_name("hinter.img")

MIB = 1 << 20
PAGE = 4096

SEQUENTIAL, RANDOM, HOT_SPOT = range(3)
PATTERNS = {"sequential": SEQUENTIAL, "random": RANDOM, "hot-spot": HOT_SPOT}

CPU_PAGES = 0x10000
# At the start of a vCPU's: page writes, 1 while it runs, passes.
COUNTERS = struct.Struct("<QII")
PARAMS_OFFSET = 0x40
PARAMS = struct.Struct("<13I")
MOST_LOOPS = (1 << 32) - 1  # of a delay or a pause
MAGIC = 0x31575444

# As firmware: `from_rom` in writer.S, and a jump there where a CPU begins.
ROM = 64 << 10
FROM_ROM = 0xC0
RESET_VECTOR = 0xFFF0
JUMP = struct.Struct("<BH")
NEAR_JUMP = 0xE9

HOTPLUG_PORT = {"pc": 0xAF00, "q35": 0x0CD8}


@dataclass(frozen=True)
class Writer:
    """The guest's behaviour, in the fields of its parameter block."""

    base: int = 16 * MIB
    mib: int = 32
    pattern: int = SEQUENTIAL
    cpus: int = 1
    delay: int = 0
    report: int = 1
    fb_pages: int = 0
    hotplug: int = 0
    fb_moves: int = 0
    dimm_pages: int = 0
    writers: int = 0
    pause: int = 0

    def image(self) -> bytes:
        """Return the disk image with these parameters in it."""
        image = bytearray(_plain_image(IMAGE, SOURCES))
        magic, *_ = PARAMS.unpack_from(image, PARAMS_OFFSET)
        if magic != MAGIC:
            raise ValueError("the writer image has no parameter block.")
        PARAMS.pack_into(
            image, PARAMS_OFFSET, MAGIC, self.base, self.mib, self.pattern,
            self.cpus, self.delay, self.report, self.fb_pages, self.hotplug,
            self.fb_moves, self.dimm_pages, self.writers, self.pause)
        return bytes(image)

    def firmware(self) -> bytes:
        """Return a ROM with these parameters, which replaces the BIOS.

        Where KVM emulates what a guest executes, a BIOS takes ten seconds.
        """
        rom = bytearray(self.image()[:ROM])
        distance = FROM_ROM - RESET_VECTOR - JUMP.size
        JUMP.pack_into(rom, RESET_VECTOR, NEAR_JUMP, distance % (1 << 16))
        return bytes(rom)


@dataclass(frozen=True)
class Hinter(Writer):
    """The other guest, hinter.c: fields that differ from these do nothing.

    From FREE to END it has regions of REGION bytes; one of every KINDS stays
    free, beginning with the first.
    """

    mib: int = 16

    FREE: ClassVar[int] = 32 * MIB
    END: ClassVar[int] = 60 * MIB
    REGION: ClassVar[int] = 300 * PAGE
    KINDS: ClassVar[int] = 3
    STATE: ClassVar[int] = CPU_PAGES + 16  # answers; a region's address, or 0

    def image(self) -> bytes:
        """Return the beginning of the ROM."""
        return _plain_image(HINTER_IMAGE, HINTER_SOURCES).ljust(ROM, b"\0")

    def pages_of(self, start: int) -> range:
        """Return the numbers of the pages of the region at START."""
        return range(start // PAGE, min(start + self.REGION, self.END) // PAGE)

    def free(self) -> set[int]:
        """Return the numbers of the pages that stay free."""
        starts = range(self.FREE, self.END, self.KINDS * self.REGION)
        return {page for start in starts for page in self.pages_of(start)}


@functools.lru_cache(maxsize=None)
def _plain_image(image: Path, sources: tuple[Path, ...]) -> bytes:
    """Return what the engine's build made: to make it takes 3 s in the lab."""
    newest = max(source.stat().st_mtime for source in sources)
    if not image.exists() or image.stat().st_mtime < newest:
        subprocess.run([str(BUILD_SCRIPT), str(image)], check=True)
    return image.read_bytes()


def unpack_counters(pages: bytes, cpus: int) -> list[int]:
    """Return the write counter of each vCPU out of its counter pages.

    It is 0 for a vCPU that does not run: firmware leaves things of its own
    there before the guest starts.
    """
    found = (COUNTERS.unpack_from(pages, PAGE * cpu) for cpu in range(cpus))
    return [count if alive == 1 else 0 for count, alive, _ in found]
