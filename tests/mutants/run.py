#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Break the engine on purpose, and see the unit tests fail.

usage: run.py [--sanitize KIND] [--cc COMMAND] ENGINE UNIT UAPI [NAME...]

Applies each mutant of table.py to a copy of the directory ENGINE, and runs the
tests of the directory UNIT on it; UAPI has the Linux headers that are not
upstream's.  One that passes all of them has survived:
either they do not look where it is wrong, or it is not.  What kills it is an
assertion of theirs, and nothing else: a program that crashes, hangs or does
not start has not seen what the mutant does to a guest.  Names, or parts of
them, choose among the mutants.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True  # the source tree is no place for it

from table import MUTANTS, Mutant  # noqa: E402

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
}
INCLUDED = {
    "plain": [],
    "hooked": ["-include", "ordering_hook.h"],
    "clocked": ["-include", "clock_hook.h"],
}
SHARED = ("fake_kvm", "rig", "ordering_hook")

# One seed, so that test_random.c finds today what it found yesterday.
SEED = "--seed=R02S" + 32 * "1"

# Many times what the slowest takes: a busy machine must not pass for a kill.
LIMIT = 120  # seconds


# How GLib ends a program at an assertion of the tests, the rig or the fake KVM.
ASSERTED = re.compile(r"^Bail out! ERROR:unit/\w+\.c:\d+:", re.MULTILINE)


class Failure(Exception):
    """A command that had to succeed did not."""


def how_it_ended(status: int, output: str) -> str:
    """What to say of a program that failed, and not at an assertion."""
    what = (
        f"ended by {signal.Signals(-status).name}"
        if status < 0
        else f"ended with status {status}"
    )
    return f"{what}, at no assertion of the tests:\n{output[-1000:].strip()}"


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: who killed it, or why nobody could."""

    mutant: Mutant
    killer: str = ""
    problem: str = ""
    seconds: float = 0


def run(work: Path, command: Sequence[str]) -> str:
    done = subprocess.run(
        command, cwd=work, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failure(f"{shlex.join(command)}\n{done.stderr.strip()}")
    return done.stdout


def glib(what: str) -> list[str]:
    return shlex.split(run(Path("/"), ["pkg-config", what, "glib-2.0"]))


class Bench:
    """A directory in which the engine is compiled, linked and tested.

    All paths given to the compiler are relative to it, as it has another name
    each time, and ccache would not know the same work again.
    """

    def __init__(self, work: Path, cc: list[str]) -> None:
        self.work = work
        self.cc = cc
        self.cflags = ["-O1", "-w", "-std=gnu11", "-D_GNU_SOURCE"]
        self.cflags += ["-Iengine", "-Iunit", "-isystem", "uapi"]
        self.cflags += glib("--cflags")
        self.libs = ["-pthread", *glib("--libs")]
        self.sources = sorted(p.name for p in (work / "engine").glob("*.c"))
        self.paths: dict[str, list[str]] = {}

    def compile(self, source: str, target: str, variant: str) -> None:
        run(
            self.work,
            [*self.cc, *self.cflags, *INCLUDED[variant]]
            + ["-c", source, "-o", target],
        )

    def engine(self, variant: str) -> dict[str, str]:
        """The objects of the engine, by source."""
        return {s: f"{variant}-{Path(s).stem}.o" for s in self.sources}

    def link(self, program: str, engine: Iterable[str], target: str) -> None:
        units = [f"unit-{name}.o" for name in (f"test_{program}", *SHARED)]
        run(self.work, [*self.cc, *units, *engine, *self.libs, "-o", target])

    def prepare(self, pool: ThreadPoolExecutor) -> None:
        """Compile all that no mutant changes, and what each does."""
        jobs = [
            (f"engine/{source}", target, variant)
            for variant in INCLUDED
            for source, target in self.engine(variant).items()
        ]
        for name in (*SHARED, *(f"test_{program}" for program in VARIANTS)):
            jobs.append((f"unit/{name}.c", f"unit-{name}.o", "plain"))
        list(pool.map(lambda job: self.compile(*job), jobs))

    def test(self, test: str, executable: str) -> str | None:
        """Returns: None if it passes, or whose assertion ended it."""
        program, _, subtest = test.partition("/")
        only = ["-p", f"/{test}"] if subtest else []
        log = self.work / f"{executable}.log"
        with log.open("w", encoding="utf-8") as out:
            try:
                status = subprocess.run(
                    [f"./{executable}", "--tap", SEED, *only],
                    cwd=self.work,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    timeout=LIMIT,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                raise Failure(f"{test} does not end") from None
        if status == 0:
            return None
        output = log.read_text(errors="replace")
        if not subtest:
            test += self.first_not_ok(program, output)
        if not ASSERTED.search(output):
            raise Failure(f"{test} {how_it_ended(status, output)}")
        return test

    def first_not_ok(self, program: str, output: str) -> str:
        """The path of the test it was in, however it ended."""
        passed = {
            words[2]
            for words in map(str.split, output.splitlines())
            if len(words) > 2 and words[0] == "ok"
        }
        for path in self.paths.get(program, []):
            if path not in passed:
                return path.removeprefix(f"/{program}")
        return ""

    def baseline(self, program: str) -> None:
        """The engine as it is has to pass."""
        executable = f"test_{program}"
        self.link(program, self.engine(VARIANTS[program]).values(), executable)
        listed = run(self.work, [f"./{executable}", "-l"]).splitlines()
        self.paths[program] = [line for line in listed if line[:1] == "/"]
        ended = self.test(program, executable)
        if ended:
            raise Failure(f"without a mutant, {ended} fails already")

    def mutate(self, mutant: Mutant, number: int) -> str:
        """Write the file with the mutant in it; returns its path."""
        text = (self.work / "engine" / mutant.file).read_text(encoding="utf-8")
        times = text.count(mutant.old)
        if times != 1:
            raise Failure(f"its old text is {times} times in {mutant.file}")
        path = f"mutant-{number}/{mutant.file}"
        (self.work / path).parent.mkdir()
        (self.work / path).write_text(
            text.replace(mutant.old, mutant.new), encoding="utf-8"
        )
        return path

    def killer(self, mutant: Mutant, number: int) -> str:
        """Returns: the program that fails, or "" if all of them pass."""
        source = self.mutate(mutant, number)
        built: dict[str, list[str]] = {}
        for test in mutant.tests:
            program = test.partition("/")[0]
            variant = VARIANTS[program]
            if variant not in built:
                target = f"mutant-{number}/{variant}.o"
                self.compile(source, target, variant)
                built[variant] = list(
                    (self.engine(variant) | {mutant.file: target}).values()
                )
            executable = f"mutant-{number}/test_{program}"
            self.link(program, built[variant], executable)
            ended = self.test(test, executable)
            if ended:
                return ended
        return ""

    def judge(self, mutant: Mutant, number: int) -> Verdict:
        start = time.monotonic()
        killer = problem = ""
        try:
            killer = self.killer(mutant, number)
        except Failure as failure:
            problem = str(failure)
        seconds = time.monotonic() - start
        return Verdict(mutant, killer, problem, seconds)


def report(number: int, verdict: Verdict) -> bool:
    mutant = verdict.mutant
    name = f"{number} - {mutant.invariant} {mutant.name}"
    if verdict.killer:
        print(f"ok {name}: killed by {verdict.killer}")
    elif verdict.problem:
        first, *others = verdict.problem.splitlines()
        print(f"not ok {name}: {first}")
        for line in others:
            print(f"# {line}")
    else:
        tried = ", ".join(mutant.tests)
        print(f"not ok {name}: survived {tried}")
    print(f"# {verdict.seconds:.1f} s", flush=True)
    return bool(verdict.killer)


def judge_all(bench: Bench, mutants: Sequence[Mutant]) -> bool:
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        bench.prepare(pool)
        tests = {test for mutant in mutants for test in mutant.tests}
        programs = {test.partition("/")[0] for test in tests}
        list(pool.map(bench.baseline, sorted(programs)))
        print(f"1..{len(mutants)}", flush=True)
        numbers = range(1, len(mutants) + 1)
        good = True
        for number, verdict in zip(
            numbers, pool.map(bench.judge, mutants, numbers)
        ):
            good = report(number, verdict) and good
    return good


def compiler(command: str) -> list[str]:
    words = shlex.split(command)
    ccache = shutil.which("ccache")
    if ccache and Path(words[0]).name != "ccache":
        words.insert(0, ccache)
    return words


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Break the engine on purpose, and see its tests fail."
    )
    parser.add_argument("--sanitize", default="none", metavar="KIND")
    parser.add_argument("--cc", default="gcc", metavar="COMMAND")
    parser.add_argument("engine", type=Path)
    parser.add_argument("unit", type=Path)
    parser.add_argument("uapi", type=Path)
    parser.add_argument("names", nargs="*")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    if args.sanitize != "none":
        print("1..0 # SKIP a sanitizer finds nothing more here, only later")
        return 0
    mutants = [
        mutant
        for mutant in MUTANTS
        if not args.names or any(name in mutant.name for name in args.names)
    ]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.pop("KVMD_RANDOM_SEED", None)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        work = Path(name)
        shutil.copytree(args.engine, work / "engine")
        shutil.copytree(args.unit, work / "unit")
        shutil.copytree(args.uapi, work / "uapi")
        try:
            good = judge_all(Bench(work, compiler(args.cc)), mutants)
        except Failure as failure:
            print("Bail out! " + str(failure).replace("\n", "\n# "))
            return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
