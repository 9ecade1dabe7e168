# SPDX-License-Identifier: GPL-2.0-or-later
"""The mutants of the migration loop's bitmaps, hot pages, pace and vCPUs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants import glib
from tests.mutants.mutant import CPUS, ROOT, Failure, Mutant, apply, read_all

TESTS = "tests/bitmap"
BITMAP = "migration/page-bitmap.c"
HOT = "migration/hot-pages.c"
DIRTY = "softmmu/dirty-memory.c"
PACE = "migration/pace.c"
SHARES = "migration/vcpu-shares.c"
THROTTLE = "softmmu/vcpu-throttle.c"
HEADERS = (
    "include/exec/dirty-memory.h",
    "include/exec/page-bitmap.h",
    "include/exec/page-block.h",
    "include/sysemu/dirty-tracking-release.h",
    "include/sysemu/vcpu-throttle.h",
    "migration/hot-pages.h",
    "migration/pace.h",
    "migration/vcpu-shares.h",
)

# The tests and what is linked with each, as in tests/bitmap/meson.build.
# Those that race threads are left out: they find things by chance.
PROGRAMS = {
    "page_bitmap": (BITMAP, HOT),
    "hot_pages": (BITMAP, HOT),
    "dirty_memory": (BITMAP, HOT, DIRTY),
    "pace": (PACE,),
    "vcpu_shares": (SHARES,),
    "vcpu_throttle": (THROTTLE,),
    "page_states": (),  # which has the source in it
}

# An assertion of the tests.
SAYS = glib.asserted(TESTS)


class Bitmap:
    """Directories with all that the tests of the bitmaps are made of."""

    mutants = tuple(read_all("bitmap"))
    at_once = CPUS

    def __init__(self, work: Path, cc: list[str]) -> None:
        self.work = work
        self.cc = cc
        self.cflags = ["-O1", "-w", "-std=gnu11"]
        self.cflags += [f"-I{TESTS}", "-Iinclude", "-Imigration"]
        self.libs = [*glib.flags("--cflags"), *glib.flags("--libs")]
        self.paths: dict[str, list[str]] = {}

    def prepare(
        self, mutants: Sequence[Mutant], pool: ThreadPoolExecutor
    ) -> None:
        """Without a mutant, all pass."""
        programs = sorted({mutant.killed_by for mutant in mutants})
        list(pool.map(self.baseline, programs))

    def baseline(self, program: str) -> None:
        """The bitmaps as they are have to pass."""
        work = self.copy(program)
        self.build(work, program)
        self.paths[program] = glib.paths(work, program)
        if glib.is_killed(work, program, program, SAYS)[0]:
            raise Failure(f"without a mutant, {program} fails already")

    def copy(self, name: str) -> Path:
        """Make a directory that has all the files, and may be changed."""
        work = self.work / f"of-{name}"
        for path in (*HEADERS, BITMAP, HOT, DIRTY, PACE, SHARES, THROTTLE):
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, work / path)
        shutil.copytree(ROOT / TESTS, work / TESTS)
        return work

    def build(self, work: Path, program: str) -> None:
        sources = [f"{TESTS}/test_{program}.c", *PROGRAMS[program]]
        glib.run(
            work,
            [*self.cc, *self.cflags, *sources, *self.libs, "-o", program],
        )

    def killer(self, mutant: Mutant, number: int) -> str:
        """Returns: the test that fails, or "" if all of them pass."""
        work = self.copy(str(number))
        texts = apply(
            mutant.patch.diff,
            lambda path: (work / path).read_text(encoding="utf-8"),
        )
        for path, text in texts.items():
            (work / path).write_text(text, encoding="utf-8")
        program = mutant.killed_by
        self.build(work, program)
        killed, output = glib.is_killed(
            work, program, program, mutant.says or SAYS
        )
        where = glib.first_not_ok(self.paths[program], output)
        return (where.removeprefix("/") or program) if killed else ""
