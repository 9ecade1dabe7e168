# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's mutants: its unit tests, on a fake KVM, have to notice them."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants import glib
from tests.mutants.mutant import CPUS, ROOT, Failure, Mutant, apply, read_all

ENGINE = "accel/kvm/dirty"
UNIT = "tests/unit"
# The Linux headers that are not upstream's.
UAPI = "host-kernel/include/uapi"

# The tests, and the engine each is linked with, as in tests/unit/meson.build.
# Those that race threads are left out: they find things by chance.
VARIANTS = {
    "config": "plain",
    "slot": "plain",
    "log": "plain",
    "ring": "hooked",
    "overflow": "hooked",
    "protect": "hooked",
    "dirty_bits": "plain",
    "switch": "hooked",
    "broken": "plain",
    "random": "hooked",
    "reaper": "clocked",
    "split": "plain",
    "vcpu": "plain",
}
INCLUDED = {
    "plain": [],
    "hooked": ["-include", "ordering_hook.h"],
    "clocked": ["-include", "clock_hook.h"],
}
SHARED = ("fake_kvm", "rig", "ordering_hook")

# An assertion of the tests, the rig or the fake KVM.
SAYS = glib.asserted(UNIT)


def tests_of(mutant: Mutant) -> list[str]:
    """The programs, or program/test, that are tried in turn."""
    return mutant.killed_by.split(", ")


class Engine:
    """A directory in which the engine is compiled, linked and tested.

    All paths given to the compiler are relative to it, as it has another name
    each time, and ccache would not know the same work again.
    """

    mutants = tuple(read_all("engine"))
    at_once = CPUS

    def __init__(self, work: Path, cc: list[str]) -> None:
        self.work = work
        self.cc = cc
        self.cflags = ["-O1", "-w", "-std=gnu11", "-D_GNU_SOURCE"]
        self.cflags += [f"-I{ENGINE}", f"-I{UNIT}", "-isystem", UAPI]
        self.cflags += glib.flags("--cflags")
        self.libs = ["-pthread", *glib.flags("--libs")]
        self.paths: dict[str, list[str]] = {}
        for directory in (ENGINE, UNIT, UAPI):
            shutil.copytree(ROOT / directory, work / directory)
        sources = (work / ENGINE).glob("*.c")
        self.sources = sorted(f"{ENGINE}/{path.name}" for path in sources)

    def compile(self, source: str, target: str, variant: str) -> None:
        glib.run(
            self.work,
            [*self.cc, *self.cflags, *INCLUDED[variant]]
            + ["-c", source, "-o", target],
        )

    def objects(self, variant: str) -> dict[str, str]:
        """The objects of the engine, by source."""
        return {s: f"{variant}-{Path(s).stem}.o" for s in self.sources}

    def link(self, program: str, engine: Iterable[str], target: str) -> None:
        units = [f"unit-{name}.o" for name in (f"test_{program}", *SHARED)]
        glib.run(
            self.work, [*self.cc, *units, *engine, *self.libs, "-o", target]
        )

    def prepare(
        self, mutants: Sequence[Mutant], pool: ThreadPoolExecutor
    ) -> None:
        """Compile all that no mutant changes; and without one, all pass."""
        jobs = [
            (source, target, variant)
            for variant in INCLUDED
            for source, target in self.objects(variant).items()
        ]
        for name in (*SHARED, *(f"test_{program}" for program in VARIANTS)):
            jobs.append((f"{UNIT}/{name}.c", f"unit-{name}.o", "plain"))
        list(pool.map(lambda job: self.compile(*job), jobs))
        tests = {test for mutant in mutants for test in tests_of(mutant)}
        programs = {test.partition("/")[0] for test in tests}
        list(pool.map(self.baseline, sorted(programs)))

    def baseline(self, program: str) -> None:
        """The engine as it is has to pass."""
        executable = f"test_{program}"
        objects = self.objects(VARIANTS[program])
        self.link(program, objects.values(), executable)
        self.paths[program] = glib.paths(self.work, executable)
        killer = self.test(program, executable, SAYS)
        if killer:
            raise Failure(f"without a mutant, {killer} fails already")

    def test(self, test: str, executable: str, says: str) -> str:
        """Returns: whose assertion ended it, or "" if it passes."""
        killed, output = glib.is_killed(self.work, executable, test, says)
        if not killed:
            return ""
        program, _, path = test.partition("/")
        where = glib.first_not_ok(self.paths[program], output)
        return test if path else where.removeprefix("/") or test

    def mutate(self, mutant: Mutant, directory: str) -> dict[str, str]:
        """Write the files with the mutant in them; returns those by source."""
        written = {}
        texts = apply(mutant.patch.diff, lambda path: self.read(path))
        for path, text in texts.items():
            written[path] = f"{directory}/{Path(path).name}"
            (self.work / written[path]).write_text(text, encoding="utf-8")
        return written

    def read(self, path: str) -> str:
        if path not in self.sources:
            raise Failure(f"{path} is no source of the engine")
        return (self.work / path).read_text(encoding="utf-8")

    def killer(self, mutant: Mutant, number: int) -> str:
        """Returns: the test that fails, or "" if all of them pass."""
        directory = f"mutant-{number}"
        (self.work / directory).mkdir()
        sources = self.mutate(mutant, directory)
        built: dict[str, list[str]] = {}
        for test in tests_of(mutant):
            program = test.partition("/")[0]
            variant = VARIANTS[program]
            if variant not in built:
                objects = self.objects(variant)
                for path, source in sources.items():
                    objects[path] = f"{directory}/{objects[path]}"
                    self.compile(source, objects[path], variant)
                built[variant] = list(objects.values())
            executable = f"{directory}/test_{program}"
            self.link(program, built[variant], executable)
            killer = self.test(test, executable, mutant.says or SAYS)
            if killer:
                return killer
        return ""
