# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the steps of a mode, one after the other, and keeps what they came to."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from .result import TAP_SKIP, Invalid, Result, Trial, parse
from .steps import PASSED, SKIPPED, Step

sys.path.append(str(Path(__file__).resolve().parent.parent / "lab"))

from complaints import first_report  # noqa: E402

RESULT, PAGE = "result.json", "result.txt"
SAID = 4000  # the last characters of what a test that did not pass has said
KILL_SECONDS = 10.0
LOG_LINES = 40  # of a kernel that says nothing we know
GOES_ON = " ..."
# Ours in the kernel's log, which has all that is said.
MARK = re.compile(rf"\] qualify: (.+){re.escape(GOES_ON)}$", re.M)
BEGINS = "Linux version "  # the kernel's log, unless its first lines are lost
OUTCOMES = {PASSED: "pass", SKIPPED: "skip"}
# What a KVM selftest's print_skip() prints, and a case of TAP that is skipped.
LEFT_OUT = re.compile(
    r"^\s*(?:(.+), skipping test"
    rf"|(?:ok \d+ ?|1\.\.0 )?(?:- )?(.*{TAP_SKIP}.*))$",
    re.M,
)


class Store:
    """Directories that a result is kept in: of memory, and of the stick.

    A stick may be pulled, or be full; then there is a sentence, once, and no
    other try.
    """

    def __init__(
        self, directories: Iterable[Path], say: Callable[[str], None]
    ) -> None:
        self.directories = list(directories)
        self._say = say

    def keep(self, name: str, text: str) -> None:
        """Write a file so that it is there whole, or as it was before."""
        for directory in list(self.directories):
            try:
                write(directory, name, text)
            except OSError as error:
                self._say(
                    f"{directory} takes no results any more "
                    f"({error.strerror}); they are on the screen and the "
                    "serial line"
                )
                self.directories.remove(directory)

    def set_aside(self, but: Callable[[Path], bool] = lambda _: False) -> None:
        """Give both files of an earlier try the same number.

        BUT tells of a result whether it is to stay.
        """
        for directory in self.directories:
            paths = (directory / RESULT, directory / PAGE)
            if but(paths[0]):
                continue
            number = unused(paths)
            for path in paths:
                with contextlib.suppress(OSError):
                    path.rename(numbered(path, number))

    def text(self, name: str) -> str | None:
        """The file, of the last directory that has it."""
        for directory in reversed(self.directories):
            try:
                return (directory / name).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
        return None


def numbered(path: Path, number: int) -> Path:
    """As result-1.json is result.json's."""
    return path.with_stem(f"{path.stem}-{number}")


def unused(paths: Sequence[Path]) -> int:
    """The first number that none of them has."""
    return next(number for number in itertools.count(1)
                if not any(os.path.exists(numbered(path, number))
                           for path in paths))


def write(directory: Path, name: str, text: str) -> None:
    """Replace a file when the new one is on the medium.

    Raises: OSError.
    """
    new = directory / f"{name}.new"
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(directory / name)
    folder = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def end(process: subprocess.Popen[bytes]) -> bool:
    """End a step and all that it started; returns whether that worked."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        # Who is left of the group may not have ended with its leader.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_SECONDS)
    return process.returncode is not None


def left_out(printed: str) -> str:
    """The parts that a test did not run, though it passes; each has a line."""
    parts = (match[1] or match[2] for match in LEFT_OUT.finditer(printed))
    return "\n".join(part.strip() for part in parts)


def run(step: Step) -> tuple[Trial, str]:
    """Run one step to its end, or to its limit; returns its output, too."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                step.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            said = f"it cannot be run: {error.strerror}"
            return Trial(step.name, "fail", 0.0, said), ""
        more = ""
        try:
            status = process.wait(step.limit)
        except subprocess.TimeoutExpired:
            status = -1
            more = f"it had not ended after {step.limit:.0f} s"
            if not end(process):
                more += ", and cannot be killed"
        output.seek(0)
        printed = output.read().decode(errors="replace")
    outcome = OUTCOMES.get(status, "fail")
    if outcome == "fail" and not more:
        more = f"it ended with status {status}"
    seconds = round(time.monotonic() - begun, 1)
    if outcome == "pass":
        said = left_out(printed)
    else:
        said = f"{printed[-SAID:].rstrip()}\n{more}".strip()
    return Trial(step.name, outcome, seconds, said), printed


def keep_result(store: Store, result: Result) -> None:
    """The whole result, and its page."""
    store.keep(RESULT, result.as_json())
    store.keep(PAGE, result.page())


def new_lines(log: str, known: Iterable[str]) -> str:
    """What of the log was not there before; each line has its time."""
    before = set(known)
    return "\n".join(line for line in log.splitlines() if line not in before)


def run_all(
    steps: Iterable[Step],
    result: Result,
    store: Store,
    say: Callable[[str], None],
    log: Callable[[], str],
    known: Sequence[str],
) -> dict[str, str]:
    """Run the steps until one fails the kernel; RESULT has what came of it.

    A soak ends with the first that fails at all.  LOG returns the kernel's
    log; KNOWN are the lines that it had before anything was tried.  Before
    each step the store has it as "died": if the host goes down with it, that
    is what is found there.
    Returns: the outputs, by the steps' names.
    """
    outputs = {}
    result.boot = first_report("\n".join(known))
    for step in steps:
        say(f"{step.name}{GOES_ON}")
        result.tests.append(Trial(step.name, "died", 0.0))
        keep_result(store, result)
        result.tests[-1], outputs[step.name] = run(step)
        result.report = first_report(new_lines(log(), known))
        outcome = result.tests[-1].outcome
        say(f"{step.name}: {outcome}")
        if result.report or outcome == "fail" and result.mode == "soak":
            break
    keep_result(store, result)
    return outputs


def last_step(log: str) -> tuple[str, str]:
    """The step that had begun, and what the kernel has said since; or "", LOG."""
    name, since = "", log
    for mark in MARK.finditer(log):
        name, since = mark[1], log[mark.end():]
    return name, since


def words_of(log: str) -> list[str]:
    """What a kernel that went down has said of it, and not what before."""
    _, since = last_step(log)
    lines = first_report(since) or log.splitlines()[-LOG_LINES:]
    return lines or ["it went down, and its log could not be read"]


def page_of_log(log: str) -> str:
    """What is known without a stick: the step, and the kernel's words."""
    name, _ = last_step(log)
    where = f" during {name}" if name else ""
    return "\n".join([f"FAIL: the host went down{where}", "", *words_of(log), ""])


def is_of(result: Result, log: str) -> bool:
    """Whether a kernel with that log has left the result.

    A log may have lost the step, but then it has lost its first lines as well;
    and the result is of a host that went down, and has no words of that yet.
    """
    if not result.tests:
        return False
    name, _ = last_step(log)
    last = result.tests[-1]
    if name:
        return last.name == name
    return last.outcome == "died" and not result.report and BEGINS not in log


def after_death(store: Store, log: str) -> str:
    """Add the words of a kernel that went down to what it left behind.

    Returns: the page.
    """
    try:
        result = parse(store.text(RESULT) or "")
        if not is_of(result, log):
            raise Invalid("this is not of the kernel that went down")
    except Invalid:
        page = page_of_log(log)
        store.keep(PAGE, page)
        return page
    result.report = words_of(log)
    keep_result(store, result)
    return result.page()
