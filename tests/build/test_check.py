# SPDX-License-Identifier: GPL-2.0-or-later
"""The check runner: only what ran well may count as passed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/lib"))

from totals import tally  # noqa: E402

# Programs as meson may meet them, and the result that each must have.
TAP = {
    "good": ("echo 1..2; echo ok 1 /a; echo ok 2 /b", "2 0 0"),
    "bad": ("echo 1..2; echo ok 1 /a; echo not ok 2 /b", "1 1 0"),
    "crash": ("echo 1..2; echo ok 1 /a; kill -9 $$", "1 1 0"),
    "short": ("echo 1..2; echo ok 1 /a", "1 1 0"),
    "late": ("echo 1..2; echo ok 1 /a; sleep 1000", "1 1 0"),
    "bail": ("echo 1..2; echo ok 1 /a; echo 'Bail out! no'", "1 1 0"),
    "todo": ("echo 1..1; echo 'not ok 1 /a # TODO later'", "1 0 0"),
    "all": ("echo '1..0 # SKIP no KVM'", "0 0 1"),
    "part": ("echo 1..2; echo ok 1 /a; echo 'ok 2 /b # SKIP no'", "1 0 1"),
    "each": ("echo 1..1; echo 'ok 1 /a # SKIP no'", "0 0 1"),
    "mute": ("exit 0", "0 1 0"),
}
EXIT = {
    "exit-0": ("exit 0", "1 0 0"),
    "exit-1": ("exit 1", "0 1 0"),
    "exit-77": ("exit 77", "0 0 1"),
    "exit-99": ("exit 99", "0 1 0"),
    "exit-late": ("sleep 1000", "0 1 0"),
}
# The same for files of pytest.
PYTEST = {
    "mixed": (
        """
import pytest

def test_good(): pass
def test_rerun(record_property): record_property("rerun", "after 60 s")
def test_bad(): assert False
def test_skipped(): pytest.skip("no KVM")
@pytest.fixture
def broken(): raise OSError
def test_error(broken): pass
""",
        "2 2 1",
    ),
    "none": ("", "0 1 0"),
    "no-import": ("import nothing_like_it", "0 1 0"),
    "dies": ("import os\ndef test_it(): os._exit(0)", "0 1 0"),
    "hangs": ("import time\ndef test_it(): time.sleep(1000)", "0 1 0"),
    "no-build": ("def test_it(): pass", "0 1 0"),
    "release": (
        "import os\n"
        "def test_it():\n"
        "    own = open('/etc/os-release').read()\n"
        "    assert os.environ['RELEASE'] + '\"' not in own",
        "1 0 0",
    ),
}
# What is built before one of them, and how.
BEFORE = {"no-build": "'build-kernel stock',", "release": "'--other-release',"}
# The last lines of check for all of them together.
SAID = [
    "check: skipped: engine-plain: all: no KVM",
    "check: skipped: engine-plain: part 2 /b: no",
    "check: skipped: tests/mixed: tests.mixed.test_mixed test_skipped: no KVM",
    "check: run again: tests/mixed: tests.mixed.test_mixed test_rerun: after 60 s",
    "check: FAILED: engine-plain: bad 2 /b",
    "check: FAILED: engine-plain: mute: it ran no test",
    "check: FAILED: tests/mixed: tests.mixed.test_mixed test_bad",
    "check: FAILED: tests/hangs (TIMEOUT): "
    "tests/hangs/test_hangs.py::test_it",
    "check: FAILED: tests/no-build (FAIL): run-pytest: scripts/build-kernel "
    "stock failed, so the suite was not run",
]


class Project:
    """A checkout with suites of the test's own."""

    def __init__(self, top: Path) -> None:
        self.top = top
        shutil.copytree(ROOT / "scripts", top / "scripts")
        (top / "build").mkdir()
        (top / "build/venv").symlink_to(sys.prefix)
        (top / "tests").mkdir()
        shutil.copy(ROOT / "tests/run-pytest", top / "tests")
        self.lines = ["project('toy', 'c')"]

    def script(self, path: str, body: str) -> None:
        """A shell program."""
        (self.top / path).write_text(f"#!/bin/sh\n{body}\n")
        (self.top / path).chmod(0o755)

    def add(self, name: str, body: str, protocol: str, suite: str) -> None:
        """A test that meson itself runs; that which is late shall be."""
        self.script(f"{name}.sh", body)
        self.lines.append(
            f"test('{name}', find_program('{name}.sh'), suite: "
            f"['{suite}', 'engine'], protocol: '{protocol}', "
            f"timeout: {2 if 'late' in name else 60})"
        )

    def add_pytest(self, name: str, text: str, builds: str = "") -> None:
        """A suite of pytest's, as tests/meson.build has them."""
        path = f"tests/{name}/test_{name}.py"
        (self.top / path).parent.mkdir()
        (self.top / path).write_text(text)
        report = self.top / f"build/log/pytest-{name}.xml"
        self.lines += [
            "if get_option('b_sanitize') == 'none'",
            f"test('tests/{name}', find_program('tests/run-pytest'), args: "
            f"[{builds} '--', '{path}', '--junitxml={report}'], suite: "
            f"'{name}', is_parallel: false, verbose: true, "
            f"timeout: {12 if name == 'hangs' else 20})",
            "endif",
        ]

    def start(self, *suites: str) -> subprocess.Popen[str]:
        """Start scripts/check there."""
        (self.top / "meson.build").write_text("\n".join(self.lines) + "\n")
        env = dict(os.environ)
        env.pop("FDT_BUILD", None)
        return subprocess.Popen(
            [self.top / "scripts/check", *suites],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def check(self, *suites: str) -> subprocess.CompletedProcess[str]:
        """Run scripts/check there to its end."""
        process = self.start(*suites)
        out, err = process.communicate(timeout=600)
        return subprocess.CompletedProcess("", process.returncode, out, err)


@pytest.fixture(name="project")
def fixture_project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


@dataclass
class Checked:
    """A project that has been checked."""

    top: Path
    done: subprocess.CompletedProcess[str]


@pytest.fixture(name="every", scope="module")
def fixture_every(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    """All of the programs, in one run."""
    project = Project(tmp_path_factory.mktemp("check") / "project")
    for name, (body, _) in TAP.items():
        project.add(name, body, "tap", "taps")
    for name, (body, _) in EXIT.items():
        project.add(name, body, "exitcode", "exits")
    for name, (text, _) in PYTEST.items():
        project.add_pytest(name, text, BEFORE.get(name, ""))
    project.script("scripts/build-kernel", "exit 3")
    return Checked(project.top, project.check())


@pytest.mark.parametrize("name", [*TAP, *EXIT, *PYTEST])
def test_result(every: Checked, tmp_path: Path, name: str) -> None:
    """Each program has the result that stands beside it."""
    logs = every.top / "build/meson/meson-logs"
    (tmp_path / "meson-logs").mkdir()
    shutil.copy(logs / "testlog.junit.xml", tmp_path / "meson-logs")
    lines = [
        text
        for text in (logs / "testlog.json").read_text().splitlines()
        if re.search(rf" / (tests/)?{name}$", json.loads(text)["name"])
    ]
    (tmp_path / "meson-logs/testlog.json").write_text("\n".join(lines))
    found = tally(tmp_path, "engine-plain")
    counts = (found.passed, len(found.failures), len(found.skips))
    expected = (TAP | EXIT | PYTEST)[name][1]
    assert " ".join(str(count) for count in counts) == expected, found


def test_totals(every: Checked) -> None:
    """The last line has the sum, with tests in C three times."""
    sums = [0, 0, 0]
    for times, programs in ((3, TAP), (3, EXIT), (1, PYTEST)):
        for _, counts in programs.values():
            for place, number in enumerate(counts.split()):
                sums[place] += times * int(number)
    lines = every.done.stdout.splitlines()
    assert lines[-1] == (
        "{} passed, {} failed, {} skipped".format(*sums)
    )
    assert every.done.returncode == 1
    for kind, sum_of_kind in (("FAILED", sums[1]), ("skipped", sums[2])):
        start = f"check: {kind}: "
        said = [line for line in lines if line.startswith(start)]
        assert len(said) == sum_of_kind


@pytest.mark.parametrize("line", SAID)
def test_line(every: Checked, line: str) -> None:
    """Each skipped or failed program has a line with the reason."""
    assert line in every.done.stdout.splitlines()


def test_every_directory_is_a_suite() -> None:
    """No test of pytest's is left out."""
    text = (ROOT / "tests/meson.build").read_text()
    suites = re.findall(r"^  '(\w+)': \[", text, re.MULTILINE)
    found = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    assert sorted(suites) == sorted(found)


def test_good_suites(project: Project) -> None:
    """Only the suites asked for run; those not in C run once."""
    project.add("good", TAP["good"][0], "tap", "one")
    project.add("bad", TAP["bad"][0], "tap", "two")
    project.add_pytest("three", "def test_it(): pass")
    done = project.check("three")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    assert "test_three.py::test_it PASSED" in done.stdout
    assert not (project.top / "build/meson-tsan").exists()
    done = project.check("one", "three")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "7 passed, 0 failed, 0 skipped"


def test_unknown_suite(project: Project) -> None:
    """One sentence lists the suites, and nothing runs."""
    project.add("good", TAP["good"][0], "tap", "one")
    done = project.check("one", "everything")
    assert done.returncode == 1
    assert done.stderr == (
        "check: there is no suite 'everything'; allowed are engine, one\n"
    )
    assert "passed" not in done.stdout


def test_engine_that_cannot_be_built(project: Project) -> None:
    """It fails once for each sanitizer, and all others run."""
    (project.top / "bad.c").write_text("#error no\n")
    project.lines.append(
        "test('bad', executable('bad', 'bad.c'), suite: ['one', 'engine'])"
    )
    project.add_pytest("three", "def test_it(): pass")
    done = project.check()
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[-4:] == [
        f"check: FAILED: engine-{kind}: it could not be built"
        for kind in ("plain", "tsan", "asan")
    ] + ["1 passed, 3 failed, 0 skipped"]


def test_project_that_meson_does_not_take(project: Project) -> None:
    """Then nothing has passed."""
    project.lines.append("no_such_function()")
    done = project.check("one")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_lost_logs_are_a_failure(project: Project) -> None:
    """Without meson's logs nobody can tell what ran."""
    project.add("good", f"rm -r {project.top}/build/meson/meson-logs",
                "exitcode", "one")  # fmt: skip
    done = project.check("one")
    assert done.returncode == 1
    assert "check: FAILED: engine-plain: [Errno 2]" in done.stdout


def runs(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody waits for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something holds, for a minute at most."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_check_that_is_terminated(project: Project) -> None:
    """It stops the programs, and the processes that these have started."""
    pid = project.top / "pid"
    project.add_pytest(
        "hangs",
        "import subprocess\ndef test_it():\n"
        f"    subprocess.run('sleep 1000 & echo $! >{pid}; wait', shell=True)",
    )
    process = project.start("hangs")
    wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) != 0
    wait_for(lambda: not runs(int(pid.read_text())))
