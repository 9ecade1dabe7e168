# SPDX-License-Identifier: GPL-2.0-or-later
"""One program that measures something, and its output.

A measuring program prints a line for each figure: its name, one number or more,
and their unit, with blanks between.  Other lines do not count.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass

from tests.migration.guest import BUILT, ROOT

# As it is typed, from the top of the checkout.
SELFTESTS = f"{os.path.relpath(BUILT, ROOT)}/linux/selftests-patched/x86_64"
PYTHON = ("build/venv/bin/python", "-B", "-m")

NUMBER = r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
LINE = re.compile(rf"^([a-z][\w.,/-]*) ((?:{NUMBER} )+)(\S+)$", re.MULTILINE)

SLACK = 10  # times the expected time is too long
LEAST_SECONDS = 300


@dataclass(frozen=True)
class Lab:
    """A machine of scripts/lab; memory in MiB.

    With icount there is one CPU, and the clock counts instructions.
    """

    kernel: str = "patched"
    cpus: int = 2
    memory: int = 3072
    icount: bool = False
    append: str = ""

    def words(self, seconds: int) -> list[str]:
        """The start of the command line."""
        words = ["scripts/lab", "--kernel", self.kernel]
        words += ["--icount"] if self.icount else ["--cpus", str(self.cpus)]
        words += ["--memory", f"{self.memory}M", "--timeout", str(seconds)]
        if self.append:
            words += ["--append", self.append]
        return [*words, "--"]


# For a guest and both QEMUs of its migration.
COUNTED = Lab(icount=True, memory=1200)


@dataclass(frozen=True)
class Figure:
    """The figures that a program printed under one name."""

    values: tuple[float, ...]
    unit: str


Sample = dict[str, Figure]


class StepError(Exception):
    """A program measured nothing."""


@dataclass(frozen=True)
class Step:
    """A program, run RUNS times, SECONDS each as it is expected.

    The name is that of a file, and of no other step.  Without a lab the
    program runs on this host, and needs /dev/kvm if KVM is set.
    """

    name: str
    command: tuple[str, ...]
    lab: Lab | None = None
    runs: int = 1
    seconds: int = 10
    kvm: bool = False

    @property
    def limit(self) -> int:
        """The seconds after which it is given up."""
        return max(self.seconds * SLACK, LEAST_SECONDS)

    def words(self) -> list[str]:
        """The command line, from the root of the project."""
        return [*(self.lab.words(self.limit) if self.lab else ()), *self.command]

    def __str__(self) -> str:
        return shlex.join(self.words())

    @property
    def counted(self) -> bool:
        """Whether its figures are independent of other load of the machine."""
        return self.lab is not None and self.lab.icount

    async def _output(self) -> tuple[int, str, str]:
        """Run it, and end it with the process that waits for it."""
        process = await asyncio.create_subprocess_exec(
            *self.words(), cwd=ROOT, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
        try:
            printed, said = await asyncio.wait_for(
                process.communicate(), self.limit + LEAST_SECONDS)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return (process.returncode, printed.decode(errors="replace"),
                said.decode(errors="replace"))

    async def run(self) -> Sample:
        """Run it once; raises StepError with one sentence."""
        try:
            status, printed, said = await self._output()
        except (OSError, TimeoutError) as error:
            raise StepError(f"{self} did not end: {error}") from error
        if status:
            lines = (said.strip() or printed.strip()).splitlines()
            raise StepError(f"{self} ended with status {status}: "
                            f"{lines[-1] if lines else 'it said nothing'}")
        sample = parse(printed)
        if not sample:
            raise StepError(f"{self} printed no figure")
        return sample


def parse(text: str) -> Sample:
    """The figures in what a program printed."""
    return {name: Figure(tuple(map(float, numbers.split())), unit)
            for name, numbers, unit in LINE.findall(text)}
