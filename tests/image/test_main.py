# SPDX-License-Identifier: GPL-2.0-or-later
"""What qualify/__main__.py makes of a host, without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from qualify import __main__ as program
from qualify.__main__ import FAILED, PASSED, UNFIT, judged, main, speaker
from qualify.codes import unpacked
from qualify.host import Cpu, Host, Unfit
from qualify.result import PAGE_WIDTH, Result, Trial, parse
from qualify.steps import Step

from .test_result import make

OURS = {"kvm.dirty_tracking": "Y", "kvm.tdp_mmu": "Y"}
INTEL = {"kvm_intel.ept": "Y", "kvm_intel.eptad": "Y"}


@pytest.mark.parametrize(("has", "parameters", "mechanism", "outcome"), [
    (True, {**OURS, **INTEL}, "dirty-bits", "pass"),
    (True, {**OURS, "kvm_amd.npt": "Y"}, "dirty-bits", "pass"),
    # KVM switches off what the CPU lacks.
    (False, {**OURS, **INTEL, "kvm_intel.eptad": "N"}, "shared", "pass"),
    (False, {**OURS, **INTEL, "kvm_intel.eptad": "N"}, "log", "fail"),
    (False, {**OURS, "kvm_amd.npt": "0"}, "wrprot", "fail"),
    (True, {**OURS, "kvm.tdp_mmu": "N"}, "log", "fail"),
    (True, {**OURS, **INTEL}, "log", "fail"),
    (True, {**OURS, **INTEL}, "shared", "fail"),
    (True, {"kvm.tdp_mmu": "Y"}, "log", "fail"),
    (True, {**OURS, "kvm.tdp_mmu": "N"}, "shared", "skip"),
    (True, {**OURS, **INTEL, "kvm_intel.eptad": "N"}, "shared", "skip"),
    (True, {**OURS, "kvm_amd.npt": "0"}, "shared", "skip"),
    (True, {**OURS, "kvm.dirty_tracking": "N"}, "log", "skip"),
])
def test_mechanism_that_is_due(
    has: bool, parameters: dict[str, str], mechanism: str, outcome: str
) -> None:
    """A kernel that does not offer what the CPU can do does not pass."""
    cpu = Cpu("GenuineIntel", "x", 6, 85, 4, "none")
    host = Host(cpu, 4, 4096, {"dirty-bits": has}, parameters)
    assert judged(host, mechanism).outcome == outcome


def test_marks_fit_the_kernels_log(tmp_path: Path) -> None:
    mark = tmp_path / "kmsg"
    speaker(mark)("x" * 5000)
    assert len(mark.read_bytes()) < 1000


def test_host_that_is_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page says so, and nothing older is left beside it."""
    (tmp_path / "result.json").write_text("of another host")
    status = main(["check", "--qemu", str(tmp_path / "none"),
                   "--store", str(tmp_path)])
    assert status == UNFIT != PASSED
    page = (tmp_path / "result.txt").read_text()
    assert page.startswith("FAIL: ") and page[6:] in capsys.readouterr().out
    assert not (tmp_path / "result.json").exists()
    assert (tmp_path / "result-1.json").read_text() == "of another host"


@pytest.mark.parametrize(("mode", "begins"), [
    ("check", "begin with migration, write_protect_all_test, dirty_bitmap_fd_test,"),
    ("soak", "begin with migration, dirty_tracking_fuzz_test, write_protect_race_test"),
])
def test_text_that_no_test_has(
    mode: str, begins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing was tried, whatever else is well; the page says all of it."""
    cpu = Cpu("GenuineIntel", "x", 6, 85, 4, "none")
    host = Host(cpu, 4, 4096, {"dirty-bits": True}, {**OURS, **INTEL})
    monkeypatch.setattr(program, "read", lambda memory: host)
    monkeypatch.setattr(program, "ask", lambda qemu: ("dirty-bits", "best"))
    monkeypatch.setattr(program, "kernel_log", str)
    assert main([mode, "--only", "raec", "--store", str(tmp_path)]) == FAILED
    page = (tmp_path / "result.txt").read_text()
    assert capsys.readouterr().out == page
    assert page.startswith("FAIL: qualify.only=raec failed; 1 passed\n")
    assert f'no test has "raec" in its name; the names {begins}' in (
        " ".join(page.split()))
    kept = parse((tmp_path / "result.json").read_text())
    assert kept.verdict == "FAIL" and kept.tests[-1].outcome == "fail"
    assert max(map(len, kept.tests[-1].said.splitlines())) <= PAGE_WIDTH


def be_amd(monkeypatch: pytest.MonkeyPatch,
           ask: Callable[[str], tuple[str, str]], log: Callable[[], str]
           ) -> None:
    """Have the program find an AMD host, with QEMU's answer and that log."""
    cpu = Cpu("AuthenticAMD", "x", 25, 1, 1, "none")
    host = Host(cpu, 4, 4096, {"dirty-bits": True}, OURS)
    monkeypatch.setattr(program, "read", lambda memory: host)
    monkeypatch.setattr(program, "ask", ask)
    monkeypatch.setattr(program, "kernel_log", log)


def check_pml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int,
    ask: Callable[[str], tuple[str, str]], log: Callable[[], str],
) -> tuple[int, str]:
    """Check an AMD host by one test, which ends with STATUS.

    Returns: the program's exit status, and the page.
    """
    be_amd(monkeypatch, ask, log)
    selftest = tmp_path / "x86_64/pml_test"
    selftest.parent.mkdir()
    selftest.write_text(f"#!/bin/sh\nexit {status}\n")
    selftest.chmod(0o755)
    ended = main(["check", "--only", "pml", "--selftests", str(tmp_path),
                  "--store", str(tmp_path)])
    return ended, (tmp_path / "result.txt").read_text()


@pytest.mark.parametrize(("status", "verdict", "begins"), [
    (4, FAILED, "FAIL: nothing was tried; 1 skipped\n"),
    (0, PASSED, "PASS: 2 passed; the kernel has no complaint\n"),
])
def test_mechanism_alone_does_not_pass(
    status: int, verdict: int, begins: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All chosen tests are skipped: no PML on AMD."""
    ended, page = check_pml(tmp_path, monkeypatch, status,
                            lambda qemu: ("dirty-bits", "best"), str)
    assert ended == verdict
    assert page.startswith(begins)


def test_warning_of_the_first_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QEMU is asked with a guest; what the kernel says of that counts."""
    log: list[str] = []

    def ask(qemu: str) -> tuple[str, str]:
        log.append("[    9.000000] WARNING: CPU: 0 PID: 9 at mmu.c:1 f\n")
        return "dirty-bits", "best"

    ended, page = check_pml(tmp_path, monkeypatch, 0, ask,
                            lambda: "".join(log))
    assert ended == FAILED
    assert page.startswith("FAIL: the kernel says: ") and "mmu.c:1" in page


def test_texts_of_the_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the serial line has of a result is all of it."""
    result = make(Trial("race", "pass", 20.1))
    (tmp_path / "result.json").write_text(result.as_json())
    assert main(["codes", "--text", "--store", str(tmp_path)]) == PASSED
    assert unpacked(capsys.readouterr().out.splitlines()) == result


def test_no_result_for_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["codes", "--store", str(tmp_path)]) != PASSED
    assert "there is no result.json" in capsys.readouterr().out


@pytest.mark.parametrize(("status", "warns", "goes_on", "begins"), [
    (0, False, True, "FAIL: 2 passed; then the host went down, or was switched "
     "off, during start of our kernel\n"),
    (254, False, False, "FAIL: measure kernel and 1 more failed; 0 passed\n"),
    (0, True, False, "FAIL: the kernel says: "),
])
def test_stock_kernel_is_measured(
    status: int, warns: bool, goes_on: bool, begins: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    """Ours is started only if that went well, and nobody says that it was."""
    log = iter(["", "[    9.000000] WARNING: CPU: 0 PID: 9 at mmu.c:1 f\n"])
    ended = measure(tmp_path, monkeypatch, f"exit {status}", "--first",
                    (lambda: next(log)) if warns else str)
    assert (ended == PASSED) == goes_on
    page = " ".join((tmp_path / "result.txt").read_text().split("\n  "))
    assert page.startswith(begins)
    assert bool(capsys.readouterr().out.count("FAIL: ")) != goes_on


def test_ours_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left of what the first kernel had written before."""
    say = "echo rearm.get 4 ns; echo rearm.shared 2 ns"
    assert measure(tmp_path, monkeypatch, say, "--first", str) == PASSED
    assert measure(tmp_path, monkeypatch, say, "--second", str) == PASSED
    kept = parse((tmp_path / "result.json").read_text())
    assert kept.passed and kept.figures
    assert {path.name for path in tmp_path.glob("result*")} == {
        "result.json", "result.txt"}


def measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, half: str,
    log: Callable[[], str],
) -> int:
    """One half of it, of two steps that run SCRIPT; returns the exit status."""
    wanted = [Step(f"measure {name}", ("sh", "-c", script), 60.0)
              for name in ("kernel", "guest")]
    be_amd(monkeypatch, lambda qemu: ("dirty-bits", "best"), log)
    monkeypatch.setattr(program.steps, "measure", lambda *_: wanted)
    return main(["measure", half, str(tmp_path / "figures"),
                 "--store", str(tmp_path)])


@pytest.mark.parametrize("left", [None, make(Trial("race", "pass", 1.0))])
def test_ours_does_not_get_far(
    left: Result | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the stock kernel has left stays, and so does another host's."""
    assert measure(tmp_path, monkeypatch, "exit 0", "--first", str) == PASSED
    if left:  # The stick is not the one that the first kernel had.
        (tmp_path / "result.json").write_text(left.as_json())
    before = (tmp_path / "result.json").read_text()
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path, monkeypatch, "exit 0", "--second",
                Mock(side_effect=KeyboardInterrupt))
    name = "result-1.json" if left else "result.json"
    assert (tmp_path / name).read_text() == before


@pytest.mark.parametrize("text", ["-M", "--multifd", "--store"])
def test_text_that_looks_like_an_option(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of tests have such words."""
    monkeypatch.setattr(program, "read", Mock(side_effect=Unfit("no")))
    assert main(["check", f"--only={text}", "--store", str(tmp_path)]) == UNFIT
