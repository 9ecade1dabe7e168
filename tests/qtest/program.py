# SPDX-License-Identifier: GPL-2.0-or-later
"""Run cases of migration-test, and compare those that fail with stock's."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.migration.guest import BUILT, ROOT

TCG = Path(__file__).with_name("tcg")
BUILD_QEMU = ROOT / "scripts/build-qemu"

PREFIX = "/x86_64/"
# QEMU 10.0 leaves most cases out otherwise; the program of 7.2 has all anyway,
# and ignores an option that it does not know.
ALL = "--full"
LIST_LIMIT = 60  # seconds
CASE_LIMIT = 4 * 60
STOCK_TRIES = 3
# These are about what carries the pages, whoever says which were written;
# TCG does them in a fifth of the time that an emulated KVM takes.
WITH_TCG = re.compile(
    "tls|uuid|xbzrle|zlib|zstd|fd_proto|bad_dest|tcp/plain|preempt/plain"
)
# What stock does is no excuse for memory that was lost or a QEMU that
# crashed, and none for this case: where KVM overfills rings, as this
# host's does, stock loses pages, and not to lose them is what ours is for.
FATAL = re.compile(
    r"^(?:Memory content inconsistency.*|.*\(bad == 0\).*"
    r"|.*detected QEMU death from signal.*)",
    re.MULTILINE,
)
OURS_PASSES = "/x86_64/migration/dirty_ring"
SAID = re.compile(
    r"^(?:Bail out!.*|\*\*$\n.*|ERROR.*|.*kill_qemu\(\) .*)", re.MULTILINE
)


@dataclass
class Result:
    """How a case ended: ok, again, skip, failed or fatal, and why.

    again is ok in another run than the first.
    """

    kind: str
    reason: str = ""

    @property
    def symptom(self) -> str:
        """What two failures have in common: no line numbers, no figures."""
        place = re.search(r"([\w-]+\.c):\d+:(.*)", self.reason)
        if place is None:
            return self.reason
        return f"{place[1]}:{re.sub(r'[)]: [(].*$', ')', place[2])}"


class MigrationTest:
    """QEMU's own migration-test, each case in a process of its own.

    An assertion that fails ends the whole program, so one process for all
    would lose every case after the first failure.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.program = directory / "tests/qtest/migration-test"
        self.qemu = directory / "qemu-system-x86_64"

    def env(self, case: str) -> dict[str, str]:
        """What the program is told about QEMU."""
        with_tcg = WITH_TCG.search(case) is not None
        binary = TCG / self.qemu.name if with_tcg else self.qemu
        return {
            "FDT_QEMU": str(self.qemu),
            "QTEST_QEMU_BINARY": str(binary),
        }

    def run(
        self, options: list[str], case: str, limit: float
    ) -> tuple[int | None, str]:
        """The program's exit status, None if it took too long, and output.

        When the program is killed, the kernel kills the QEMUs it has started:
        QEMU's tests ask for that.
        """
        try:
            done = subprocess.run(
                [self.program, *options],
                cwd=self.directory,
                env=os.environ | self.env(case),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                errors="replace",
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            return None, (late.output or b"").decode(errors="replace")
        return done.returncode, done.stdout

    def cases(self) -> list[str]:
        """The names; there are some, or the program is none.

        GLib 2.84 lists them as comments.
        """
        _, output = self.run([ALL, "-l"], "", LIST_LIMIT)
        lines = (line.removeprefix("# ") for line in output.splitlines())
        names = [line for line in lines if line.startswith(PREFIX)]
        if not names:
            raise RuntimeError(f"{self.program} lists no cases: {output}")
        return names

    def run_case(self, case: str) -> Result:
        """Run one case of its own."""
        status, output = self.run(
            [ALL, "--tap", "-k", "-p", case], case, CASE_LIMIT
        )
        line = re.search(
            rf"^(not )?ok \d+ {re.escape(case)}( # SKIP(.*))?$",
            output,
            re.MULTILINE,
        )
        if status != 0 or line is None or line[1]:
            fatal = FATAL.search(output)
            said = fatal or SAID.search(output)
            may_be_excused = fatal is None and case != OURS_PASSES
            ended = (
                "took too long and was stopped"
                if status is None
                else f"ended with status {status}"
            )
            return Result(
                "failed" if may_be_excused else "fatal",
                said[0] if said else ended,
            )
        if line[2]:
            return Result("skip", line[3].strip())
        return Result("ok")


def stock_has_it_too(case: str, ours: Result, stock: MigrationTest) -> bool:
    """Whether QEMU as Debian has it fails the case on this host as ours did.

    Some cases ask for a pace that a slow or emulated KVM does not reach.
    """
    for _ in range(STOCK_TRIES):
        theirs = stock.run_case(case)
        if theirs.kind == "failed" and theirs.symptom == ours.symptom:
            return True
    return False


def build_stock() -> bool:
    """Whether there is a stock QEMU to compare with."""
    built = subprocess.run(
        [BUILD_QEMU, "--tests", "stock"],
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return built.returncode == 0


def judged(case: str, ours: MigrationTest, stock: MigrationTest) -> Result:
    """What comes of a case with ours: stock may excuse that it failed.

    So may another run, since the host may have been busy for a moment; none
    excuses a page that is lost, or a crash.
    """
    result = ours.run_case(case)
    if result.kind != "failed":
        return result
    if not build_stock():
        return Result("failed", f"{result.reason}; stock cannot be built")
    if stock_has_it_too(case, result, stock):
        return Result(
            "skip", f"stock QEMU fails it on this host too ({result.reason})"
        )
    again = ours.run_case(case)
    return Result("again", result.reason) if again.kind == "ok" else again


OURS = MigrationTest(BUILT / "qemu")
STOCK = MigrationTest(BUILT / "stock/qemu")
