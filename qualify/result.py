# SPDX-License-Identifier: GPL-2.0-or-later
"""What trying a host came to: one JSON file, and one page of text.

usage: python -m qualify.result FILE...

Checks each file, and prints a row for the table in docs/hardware.md.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1
MODES = ("check", "soak", "measure")
OUTCOMES = ("pass", "fail", "skip", "died")  # died: the host went down with it
PAGE_WIDTH = 79
PAGE_LINES = 48  # a screen's
SAID_LINES = 12  # of a test that failed, on the page
LEFT_OUT_LINES = 10  # of parts; with them, a page fits a screen of 25 lines
MECHANISM = "mechanism"  # the trial that every check begins with
TAP_SKIP = "# SKIP"


@dataclass
class Trial:
    """One step: how it ended, and what was said.

    If it passed, that is a line for each part that was left out.
    """

    name: str
    outcome: str
    seconds: float
    said: str = ""

    @property
    def left_out(self) -> list[str]:
        """The parts that did not run, though the test passed."""
        return self.said.splitlines() if self.outcome == "pass" else []


@dataclass
class Figure:
    """What was measured on the stock kernel and on ours, in UNIT."""

    name: str
    unit: str
    stock: float
    ours: float


@dataclass
class Result:
    """All of it.

    A result is written before each test, which is "died" in it then, so that
    a host that goes down leaves the name of the test.
    """

    mode: str
    only: str  # of the tests, those that have this in their names
    commit: str
    kernel: str
    started: str  # UTC, as in 2026-11-25T12:00:00Z
    host: dict[str, Any]
    mechanism: str = "unknown"
    reason: str = ""
    tests: list[Trial] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    boot: list[str] = field(default_factory=list)  # the kernel's report of then
    report: list[str] = field(default_factory=list)  # its first since

    def count(self, outcome: str) -> int:
        """How many tests ended like that."""
        return sum(test.outcome == outcome for test in self.tests)

    @property
    def tried(self) -> bool:
        """Whether a test passed; QEMU's answer of its mechanism is none."""
        return any(test.outcome == "pass" and test.name != MECHANISM
                   for test in self.tests)

    @property
    def clean(self) -> bool:
        """Nothing failed, and the kernel is content."""
        return not (self.count("fail") or self.count("died") or self.report)

    @property
    def passed(self) -> bool:
        """A test passed as well."""
        return self.tried and self.clean

    @property
    def verdict(self) -> str:
        """PASS, FAIL, or OPEN: a soak ends when somebody switches it off."""
        if self.passed:
            return "PASS"
        bad = self.count("fail") or self.report or not self.count("died")
        return "FAIL" if self.mode != "soak" or bad else "OPEN"

    def as_json(self) -> str:
        """The file."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    def counts(self) -> str:
        """How many tests passed, and what did not run."""
        counts = f"{self.count('pass')} passed"
        if self.count("skip"):
            counts += f", {self.count('skip')} skipped"
        parts = sum(len(test.left_out) for test in self.tests)
        if parts:
            were = "part was" if parts == 1 else "parts were"
            counts += f"; {parts} {were} left out"
        return counts

    def why(self) -> str:
        """One sentence: what there is against the host."""
        counts = self.counts()
        for test in self.tests:
            if test.outcome == "died":
                return (f"{counts}; then the host went down, or was switched off, "
                        f"during {test.name}")
        if self.report:
            return f"the kernel says: {self.report[0]}"
        failed = [test.name for test in self.tests if test.outcome == "fail"]
        if failed:
            more = f" and {len(failed) - 1} more" if failed[1:] else ""
            return f"{failed[0]}{more} failed; {counts}"
        if not self.passed:
            skipped = self.count("skip")
            more = f"; {skipped} skipped" if skipped else ""
            return f"nothing was tried{more}"
        since = "complained before, and not since" if self.boot else "no complaint"
        return f"{counts}; the kernel has {since}"

    def left_out_lines(self, room: int) -> list[str]:
        """The parts that were left out, in no more lines than ROOM."""
        room = min(room - 2, LEFT_OUT_LINES)
        parts = Counter((test.name, reason_of(part))
                        for test in self.tests for part in test.left_out)
        if not parts or room < 1:
            return []
        lines = list(wrapped(
            f"{name}: {reason}" + (f" ({times} times)" if times > 1 else "")
            for (name, reason), times in parts.items()))
        if len(lines) > room:
            lines[room - 1:] = ["and more, which result.json has"]
        return ["", "left out:", *lines]

    @property
    def what(self) -> str:
        """What was done, and with what."""
        only = f" (only {self.only})" if self.only else ""
        return f"{self.mode}{only} of {self.commit}"

    def page(self) -> str:
        """At most a screen: the verdict, the host, what failed, the figures."""
        cpu = self.host["cpu"]
        features = [name for name, on in self.host["features"].items() if on]
        lines = [
            f"{self.verdict}: {self.why()}",
            "",
            f"{cpu['model']}, {self.host['cpus']} CPUs, {self.host['memory']} MiB",
            f"family {cpu['family']} model {cpu['number']} stepping {cpu['stepping']}, "
            f"microcode {cpu['microcode']}; {', '.join(features)}",
            f"mechanism: {self.mechanism} ({self.reason})",
            f"{self.what} on {self.kernel}, {self.started}",
        ]
        if self.boot:
            lines.append(f"when it started, the kernel said: {self.boot[0]}")
        lines = list(wrapped(lines))
        for test in self.tests:
            if test.outcome in ("fail", "died"):
                lines += ["", f"{test.outcome}: {test.name}, {test.seconds:.0f} s"]
                lines += test.said.splitlines()[-SAID_LINES:]
                break
        if self.report:
            lines += ["", *self.report[:SAID_LINES]]
        if self.figures:
            lines += ["", f"{'':<40} {'stock':>12} {'ours':>12} {'ratio':>6}"]
            lines += map(figure_line, self.figures)
        lines += self.left_out_lines(PAGE_LINES - len(lines))
        return "".join(f"{line[:PAGE_WIDTH]}\n" for line in lines)


def reason_of(part: str) -> str:
    """Why it was left out; cases of TAP share one."""
    case, _, reason = part.partition(TAP_SKIP)
    return reason.strip(" -:") or case.strip()


def wrapped(lines: Iterable[str]) -> Iterator[str]:
    """The lines, none longer than the page is wide."""
    for line in lines:
        yield from textwrap.wrap(
            line, PAGE_WIDTH, subsequent_indent="  ", break_on_hyphens=False
        ) or [""]


def figure_line(figure: Figure) -> str:
    """A line of the page's table."""
    ratio = figure.stock / figure.ours if figure.ours else float("nan")
    name = f"{figure.name} ({figure.unit})"
    return f"{name:<40} {figure.stock:>12.6g} {figure.ours:>12.6g} {ratio:>6.2f}"


class Invalid(Exception):
    """A sentence: what of a file is not as it must be."""


Check = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def is_one_of(allowed: tuple[str, ...]) -> Check:
    return lambda value: value in allowed


def is_time(value: Any) -> bool:
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    return is_text(value) and re.fullmatch(pattern, value) is not None


def is_map_of(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


CPU = {
    "vendor": is_text,
    "model": is_text,
    "family": is_count,
    "number": is_count,
    "stepping": is_count,
    "microcode": is_text,
}
HOST = {
    "cpu": CPU,
    "cpus": is_count,
    "memory": is_count,
    "features": is_map_of(is_flag),
    "parameters": is_map_of(is_text),
}
TEST = {
    "name": is_text,
    "outcome": is_one_of(OUTCOMES),
    "seconds": is_number,
    "said": is_text,
}
FIGURE = {"name": is_text, "unit": is_text, "stock": is_number, "ours": is_number}
RESULT = {
    "format": lambda value: value == FORMAT,
    "mode": is_one_of(MODES),
    "only": is_text,
    "commit": is_text,
    "kernel": is_text,
    "started": is_time,
    "host": HOST,
    "mechanism": is_text,
    "reason": is_text,
    "tests": [TEST],
    "figures": [FIGURE],
    "boot": is_texts,
    "report": is_texts,
}


def problems(value: Any, wanted: Any, place: str) -> Iterator[str]:
    """What of VALUE is not as WANTED: checks, by the names of members."""
    if isinstance(wanted, list):
        if not isinstance(value, list):
            yield f"{place} is no list"
            return
        for number, one in enumerate(value):
            yield from problems(one, wanted[0], f"{place}[{number}]")
    elif isinstance(wanted, dict):
        if not isinstance(value, dict):
            yield f"{place} is no object"
            return
        for name in [name for name in value if name not in wanted]:
            yield f"{place} has a member {name}, which there is not"
        for name, check in wanted.items():
            if name not in value:
                yield f"{place} has no member {name}"
            else:
                yield from problems(value[name], check, f"{place}.{name}")
    elif not wanted(value):
        yield f"{place} is {json.dumps(value)}, which is not allowed"


def parse(text: str) -> Result:
    """Raises: Invalid, if that is no result."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Invalid(f"this is no JSON: {error}") from None
    for problem in problems(value, RESULT, "the result"):
        raise Invalid(problem)
    del value["format"]
    value["tests"] = [Trial(**test) for test in value["tests"]]
    value["figures"] = [Figure(**figure) for figure in value["figures"]]
    return Result(**value)


def row(result: Result) -> str:
    """Its row in the table of docs/hardware.md."""
    cpu, features = result.host["cpu"], result.host["features"]
    has = ", ".join(name for name, on in features.items() if on)
    cells = (
        f"{cpu['model']} ({cpu['family']}/{cpu['number']}/{cpu['stepping']}, "
        f"{cpu['microcode']})",
        str(result.host["cpus"]),
        has,
        result.mechanism,
        f"{result.what}, {result.started[:10]}",
        f"{result.verdict}: {result.why()}",
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main(names: list[str]) -> int:
    """Returns: the exit status."""
    status = 0
    for name in names:
        try:
            print(row(parse(Path(name).read_text(encoding="utf-8"))))
        except (OSError, UnicodeDecodeError, Invalid) as error:
            print(f"{name}: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
