# SPDX-License-Identifier: GPL-2.0-or-later
"""Steps that pass, fail, hang, or take the host with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from qualify.result import Result, Trial, parse
from qualify.run import Store, after_death, run, run_all
from qualify.steps import Step, at_once

from .test_result import make

WARNING = "[    1.500000] WARNING: CPU: 0 PID: 1 at mm.c:1 f\n[    1.600000] x\n"


def shell(text: str, limit: float = 60.0, name: str = "a test") -> Step:
    return Step(name, ("sh", "-c", text), limit)


class Host:
    """What is said, and the kernel's log."""

    def __init__(self, *directories: Path) -> None:
        self.said: list[str] = []
        self.log = ""
        self.store = Store(directories, self.said.append)
        self.result = make()

    def run(self, *steps: Step, log: Callable[[], str] | None = None) -> Result:
        log = log or (lambda: self.log)
        self.outputs = run_all(steps, self.result, self.store,
                               self.said.append, log, log().splitlines())
        return self.result


@pytest.mark.parametrize(("text", "outcome", "said"), [
    ("echo fine", "pass", ""),
    ("echo no such CPU; exit 4", "skip", "no such CPU"),
    ("echo lost; echo page >&2; exit 254", "fail", "lost\npage\nit ended with status 254"),
    ("kill -SEGV $$", "fail", "it ended with status -11"),
])
def test_outcome(text: str, outcome: str, said: str) -> None:
    done, _ = run(shell(text))
    assert (done.outcome, done.said) == (outcome, said)


@pytest.mark.parametrize(("printed", "parts"), [
    ("  no anonymous_hugetlb_1gb on this host, skipping test\n",
     ["no anonymous_hugetlb_1gb on this host"]),
    ("a\n\nno SMM, skipping test\nb\n  no such pages, skipping test\nc\n"
     "  no such pages, skipping test\n",
     ["no SMM", "no such pages", "no such pages"]),
    ("1..2\nok 1 /kvm/log\nok 2 /kvm/dirty-bits # SKIP there are none\n",
     ["/kvm/dirty-bits # SKIP there are none"]),
    ("    ok 12 - a case # SKIP no reason\n", ["a case # SKIP no reason"]),
    ("ok 1 # SKIP of the kernel's\n", ["# SKIP of the kernel's"]),
    ("1..0 # SKIP - no TSC\n", ["# SKIP - no TSC"]),
    ("# SKIP no huge pages\n", ["# SKIP no huge pages"]),
    ("ok 1 /kvm/skipping\n# skipping test, not\n", []),
])
def test_parts_that_are_left_out(printed: str, parts: list[str]) -> None:
    """A test that passes says what of it did not run, and nothing else."""
    done, _ = run(Step("a test", ("printf", "%s", printed), 60.0))
    assert (done.outcome, done.said.splitlines()) == ("pass", parts)


def test_left_out_by_programs_that_run_at_once(tmp_path: Path) -> None:
    """They all leave out the same."""
    step = shell("echo no SMM, skipping test")
    done, _ = run(at_once(step, 3))
    assert (done.outcome, done.said) == ("pass", "no SMM")


def test_page_has_what_was_left_out(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.run(shell("exit 0", name="one"),
             shell("echo '  no huge pages, skipping test'", name="two"))
    page = (tmp_path / "result.txt").read_text()
    assert page.startswith("PASS: 2 passed; 1 part was left out; the kernel")
    assert page.endswith("\nleft out:\ntwo: no huge pages\n")
    assert parse((tmp_path / "result.json").read_text()) == host.result


def test_command_that_is_not_there() -> None:
    done, _ = run(Step("gone", ("/no/such/program",), 1.0))
    assert done.outcome == "fail"
    assert done.said == "it cannot be run: No such file or directory"


def test_limit(tmp_path: Path) -> None:
    """What a step has started ends with it, whatever it does of a signal."""
    child = tmp_path / "child"
    begun = time.monotonic()
    stubborn = "(trap '' TERM; while :; do sleep 1; done)"
    done, _ = run(shell(f"{stubborn} & echo $! >{child}; echo on; wait", 3.0))
    assert done.outcome == "fail"
    assert done.said == "on\nit had not ended after 3 s"
    assert time.monotonic() - begun < 60
    with pytest.raises(ProcessLookupError):
        for _ in range(100):
            os.kill(int(child.read_text()), 0)
            time.sleep(0.05)


def test_long_output() -> None:
    done, printed = run(shell("seq 100000; exit 1"))
    assert len(done.said) < 4100 and "\n100000\n" in done.said
    assert printed.startswith("1\n2\n")


def test_files(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.run(shell("exit 0", name="one"), shell("exit 1", name="two"))
    kept = parse((tmp_path / "result.json").read_text())
    assert kept == host.result
    assert [test.outcome for test in kept.tests] == ["pass", "fail"]
    assert (tmp_path / "result.txt").read_text() == kept.page()
    assert sorted(os.listdir(tmp_path)) == ["result.json", "result.txt"]
    assert host.said == ["one ...", "one: pass", "two ...", "two: fail"]


def test_earlier_results_are_kept(tmp_path: Path) -> None:
    """The stick has been in another host."""
    for number in range(3):
        if number != 1:  # That one was not fit, and has only a page.
            (tmp_path / "result.json").write_text(f"{number}")
        (tmp_path / "result.txt").write_text(f"{number}")
        Store([tmp_path], print).set_aside()
    names = ("result-1.json", "result-1.txt", "result-2.txt", "result-3.json",
             "result-3.txt")
    assert [(tmp_path / name).read_text() for name in names] == list("00122")
    assert sorted(os.listdir(tmp_path)) == sorted(names)


def test_page_is_there_at_each_step(tmp_path: Path) -> None:
    host = Host(tmp_path)
    seen = tmp_path / "seen"
    host.run(shell("exit 0"), shell(f"cp {tmp_path}/result.txt {seen}", name="b"))
    assert seen.read_text().startswith("FAIL: 1 passed; then the host went down")


def test_complaint_of_before(tmp_path: Path) -> None:
    """A BIOS that Linux warns of is none of the tests' doing."""
    host = Host(tmp_path)
    host.log = WARNING
    result = host.run(shell("exit 0"), shell("exit 0"))
    assert result.passed and len(result.tests) == 2
    assert result.boot == WARNING.splitlines() and result.report == []


def test_soak_ends_with_what_fails(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.result.mode = "soak"
    result = host.run(shell("exit 0"), shell("exit 1"), shell("exit 0"))
    assert [test.outcome for test in result.tests] == ["pass", "fail"]


def test_kernel_that_complains(tmp_path: Path) -> None:
    """No further step; the kernel's words are in the result."""
    host = Host(tmp_path)
    logs = iter(["", WARNING, WARNING])
    result = host.run(shell("exit 0"), shell(f"touch {tmp_path}/second"),
                      log=lambda: next(logs))
    assert not (tmp_path / "second").exists()
    assert result.report == WARNING.splitlines()
    assert not result.passed
    assert "FAIL: the kernel says" in (tmp_path / "result.txt").read_text()


def test_host_that_goes_down(tmp_path: Path) -> None:
    """Whatever ends the host, the stick has the name of the test."""
    script = f"""
import sys
from pathlib import Path
from tests.image.test_run import Host, shell
Host(Path({str(tmp_path)!r})).run(
    shell("exit 0", name="first"), shell("kill -KILL $PPID", name="second"))
"""
    done = subprocess.run([sys.executable, "-B", "-c", script], check=False)
    assert done.returncode == -signal.SIGKILL
    kept = parse((tmp_path / "result.json").read_text())
    assert [test.outcome for test in kept.tests] == ["pass", "died"]
    assert kept.why() == (
        "1 passed; then the host went down, or was switched off, during second")


@pytest.mark.parametrize(("log", "report"), [
    (f"[ 1.0] begun\n{WARNING}", WARNING.splitlines()),
    ("".join(f"[ 1.0] {n}\n" for n in range(50)), [f"[ 1.0] {n}" for n in range(10, 50)]),
])
def test_words_of_a_kernel_that_went_down(
    tmp_path: Path, log: str, report: list[str]
) -> None:
    host = Host(tmp_path)
    host.result.tests.append(Trial("race bits", "died", 0.0))
    host.store.keep("result.json", host.result.as_json())
    page = after_death(host.store, f"[ 0.5] qualify: race bits ...\n{log}")
    assert parse((tmp_path / "result.json").read_text()).report == report
    assert (tmp_path / "result.txt").read_text() == page
    assert "during race bits" in page and report[0] in page


OLDER = WARNING.replace("mm.c", "firmware.c")


@pytest.mark.parametrize(("log", "report"), [
    (f"{OLDER}[ 1.0] qualify: race bits ...\n{WARNING}", WARNING),
    # The kernel goes on after some; what it says then is of no use.
    (f"[ 1.0] qualify: one ...\n{OLDER}[ 1.0] qualify: race bits ...\n[ 2.0] x\n",
     f"[ 1.0] qualify: one ...\n{OLDER}[ 1.0] qualify: race bits ...\n[ 2.0] x\n"),
    # Its first lines are lost, and all the names of steps.
    (f"[ 1.0] y\n{WARNING}", WARNING),
    ("", "it went down, and its log could not be read\n"),
], ids=["complaint-of-before", "no-complaint-since", "no-marks", "empty"])
def test_which_words_are_of_its_end(
    tmp_path: Path, log: str, report: str
) -> None:
    """A result that is of that kernel is kept."""
    host = Host(tmp_path)
    host.result.tests.append(Trial("race bits", "died", 0.0))
    host.store.keep("result.json", host.result.as_json())
    assert "during race bits" in after_death(host.store, log)
    assert parse((tmp_path / "result.json").read_text()).report == (
        report.splitlines())


MARKED = (
    "[    1.0] qualify: one ...\n[    1.1] qualify: one: pass\n"
    f"[    1.2] qualify: two ...\n{WARNING}"
)


@pytest.mark.parametrize("left", [
    None, "{", "", make().as_json(), make(Trial("one", "pass", 1.0)).as_json(),
])
def test_nothing_was_left(tmp_path: Path, left: str | None) -> None:
    """The kernel's log has the names of the steps, too.

    What another kernel has left is not taken for this one's.
    """
    if left is not None:
        (tmp_path / "result.json").write_text(left)
    wanted = f"FAIL: the host went down during two\n\n{WARNING}"
    assert after_death(Store([tmp_path], print), MARKED) == wanted
    assert (tmp_path / "result.txt").read_text() == wanted


@pytest.mark.parametrize(("left", "log"), [
    (make(Trial("one", "died", 1.0)), "[    0.0] Linux version 6.1\n[ 1.0] x\n"),
    (make(Trial("one", "died", 1.0), report=["y"]), "[ 1.0] x\n"),
    (make(Trial("one", "pass", 1.0)), "[ 1.0] x\n"),
], ids=["whole-log", "has-its-words", "did-not-die"])
def test_another_host_has_left_a_result(
    tmp_path: Path, left: Result, log: str
) -> None:
    """This one went down before it had a result."""
    (tmp_path / "result.json").write_text(left.as_json())
    page = after_death(Store([tmp_path], print), log)
    assert page == f"FAIL: the host went down\n\n{log}"


def test_log_that_cannot_be_read() -> None:
    """That is no reason to say PASS."""
    page = after_death(Store([], print), "")
    assert page.startswith("FAIL: ") and "could not be read" in page


def test_no_stick_and_nothing_in_the_log() -> None:
    page = after_death(Store([], print), "[    0.1] Linux\n")
    assert page == "FAIL: the host went down\n\n[    0.1] Linux\n"


def test_stick_that_is_pulled(tmp_path: Path) -> None:
    """One sentence, and the tests go on; what memory has is whole."""
    memory, stick = tmp_path / "memory", tmp_path / "stick"
    memory.mkdir()
    stick.mkdir()
    host = Host(memory, stick)
    result = host.run(
        shell("exit 0"), shell(f"rm -r {stick}"), shell("exit 0"),
        shell("exit 0"),
    )
    assert len(result.tests) == 4 and result.passed
    sentences = [text for text in host.said if "no results" in text]
    assert sentences == [
        f"{stick} takes no results any more (No such file or directory); "
        "they are on the screen and the serial line"
    ]
    assert parse((memory / "result.json").read_text()) == result


def test_no_stick() -> None:
    host = Host()
    assert host.run(shell("exit 0")).passed
    assert host.said == ["a test ...", "a test: pass"]


def test_full_stick(tmp_path: Path) -> None:
    """What was there stays whole."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    script = f"""
import json, sys
from pathlib import Path
from tests.image.test_run import Host, shell
stick = Path({str(tmp_path)!r})
host = Host(stick)
host.run(shell("exit 0"))
before = (stick / "result.json").read_text()
(stick / "fill").write_bytes(bytes(
    __import__("os").statvfs(stick).f_bavail * 4096))
host.run(shell("exit 0", name="x" * 9000))
assert (stick / "result.json").read_text() == before
assert any("No space left" in text for text in host.said), host.said
"""
    mount = f"mount -t tmpfs -o size=64k tmpfs {tmp_path} && exec \"$@\""
    subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-B",
         "-c", script],
        check=True,
    )
