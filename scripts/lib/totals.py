# SPDX-License-Identifier: GPL-2.0-or-later
"""Count what ran under meson, case by case, from meson's and pytest's logs."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPORT = "--junitxml="  # in the command of a test that is pytest's
NOTHING_TO_RUN = re.compile(r"^1\.\.0\s*#\s*skip\S*\s*(.*)$", re.I | re.M)
SKIPPED = 77  # an exit status


@dataclass
class Tally:
    """What tests came to; each failure and skip says why.

    Those that ran once more, as they had too little time, count as they ended.
    """

    passed: int = 0
    failures: list[str] = field(default_factory=list)
    skips: list[str] = field(default_factory=list)
    reruns: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failures += other.failures
        self.skips += other.skips
        self.reruns += other.reruns

    def __bool__(self) -> bool:
        return bool(self.passed or self.failures or self.skips)

    def __str__(self) -> str:
        return (
            f"{self.passed} passed, {len(self.failures)} failed, "
            f"{len(self.skips)} skipped"
        )


def count(cases: Iterable[ElementTree.Element], prefix: str) -> Tally:
    """Count test cases of JUnit as meson and pytest write them."""
    tally = Tally()
    for case in cases:
        place = case.get("classname", "").rpartition(" / ")[2]
        name = f"{prefix}: {place} {case.get('name', '')}"
        tally.reruns += [
            f"{name}: {found.get('value')}"
            for found in case.iter("property")
            if found.get("name") == "rerun"
        ]
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            tally.failures.append(name)
        elif skipped is not None:
            reason = skipped.get("message") or case.findtext("system-out", "")
            tally.skips.append(f"{name}: {reason}".rstrip(": "))
        else:
            tally.passed += 1
    return tally


def pytest_report(test: Mapping[str, Any]) -> Path | None:
    """Where the test's cases are, if pytest ran them."""
    for word in test["command"]:
        if word.startswith(REPORT):
            return Path(word.removeprefix(REPORT))
    return None


def last_words(test: Mapping[str, Any]) -> str:
    lines = (test["stdout"] + test.get("stderr", "")).strip().splitlines()
    return f": {lines[-1]}" if lines else ""


def judge(test: Mapping[str, Any], cases: Tally, name: str) -> Tally:
    """Add to a test's cases what only its result tells.

    A program that crashes after its first cases, or runs out of time, has
    only cases that passed, and so has one that ran fewer than it should.
    """
    result = test["result"]
    if result in ("OK", "EXPECTEDFAIL"):
        if not cases and pytest_report(test) is None:
            cases.passed = 1
    elif result == "SKIP":
        said = NOTHING_TO_RUN.search(test["stdout"])
        if not cases and (said or test["returncode"] == SKIPPED):
            reason = said[1] if said else ""
            cases.skips.append(f"{name}: {reason}".rstrip(": "))
    elif not cases.failures:
        cases.failures.append(f"{name} ({result}){last_words(test)}")
    if not cases:
        cases.failures.append(f"{name}: it ran no test")
    return cases


def tally(directory: Path, prefix: str) -> Tally:
    """Count what the last `meson test` ran in a build directory."""
    logs = directory / "meson-logs"
    total = Tally()
    root = ElementTree.parse(logs / "testlog.junit.xml").getroot()
    cases_of = {
        suite.get("name", "").partition(".")[2]: suite.findall("testcase")
        for suite in root
    }
    for line in (logs / "testlog.json").read_text().splitlines():
        test = json.loads(line)
        name = test["name"].rpartition(" / ")[2]
        report = pytest_report(test)
        if report is None:
            name = f"{prefix}: {name}"
            cases = count(cases_of.get(test["name"], []), prefix)
        elif report.exists():
            cases = count(ElementTree.parse(report).iter("testcase"), name)
        else:
            cases = Tally()
        total.add(judge(test, cases, name))
    return total
