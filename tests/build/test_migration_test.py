# SPDX-License-Identifier: GPL-2.0-or-later
"""The results of cases of migration-test, with stand-ins for the program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.qtest import program
from tests.qtest.program import MigrationTest, judged

ROOT = Path(__file__).resolve().parents[2]
CASE = "/x86_64/migration/case"


def stand_in(top: Path, body: str, case: str = CASE) -> MigrationTest:
    """A migration-test with one case."""
    test = MigrationTest(top)
    test.program.parent.mkdir(parents=True)
    test.program.write_text(
        f'#!/bin/sh\n[ "$*" != "--full -l" ] || {{ echo {case}; exit; }}\n{body}\n'
    )
    test.program.chmod(0o755)
    return test


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (f"echo ok 1 {CASE}", "ok"),
        (f"echo not ok 1 {CASE}", "failed"),
        (f"echo 'ok 1 {CASE} # SKIP no KVM'", "skip"),
        (f"echo ok 1 {CASE}; exit 134", "failed"),
        (f"echo ok 1 {CASE}/longer", "failed"),
        ("echo 'Bail out! ERROR: assertion'; exit 134", "failed"),
        ("echo 'Memory content inconsistency at 1'; exit 134", "fatal"),
        ("", "failed"),
    ],
)
def test_kind(tmp_path: Path, body: str, kind: str) -> None:
    """A case passes if the program says so, and ends well."""
    test = stand_in(tmp_path, body)
    assert test.cases() == [CASE]
    assert test.run_case(CASE).kind == kind


def test_case_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The case fails, with the output before the end."""
    monkeypatch.setattr(program, "CASE_LIMIT", 2)
    test = stand_in(tmp_path, "echo ERROR: slow; exec sleep 1000")
    result = test.run_case(CASE)
    assert (result.kind, result.reason) == ("failed", "ERROR: slow")
    test.program.write_text("#!/bin/sh\nexec sleep 1000\n")
    assert test.run_case(CASE).reason == "took too long and was stopped"


def test_program_without_cases(tmp_path: Path) -> None:
    """An empty suite does not count as one without failures."""
    test = stand_in(tmp_path, "", "/aarch64/migration/case")
    with pytest.raises(RuntimeError):
        test.cases()
    test.program.unlink()
    with pytest.raises(FileNotFoundError):
        test.cases()


WANTED = "-accel kvm,dirty-ring-size=4096 -accel tcg"
ONLY_TCG = "-accel tcg -accel tcg"


@pytest.mark.parametrize(
    ("case", "accelerators"),
    [
        ("precopy/tcp/tls/psk/match", ONLY_TCG),
        ("multifd/tcp/plain/zlib", ONLY_TCG),
        ("multifd/tcp/plain/none", ONLY_TCG),
        ("precopy/unix/plain", WANTED),
        ("postcopy/plain", WANTED),
        ("dirty_ring", WANTED),
    ],
)
def test_accelerator(tmp_path: Path, case: str, accelerators: str) -> None:
    """QEMU's arguments when the program asks for KVM, or else TCG."""
    test = stand_in(tmp_path, "")
    test.qemu.write_text('#!/bin/sh\necho "$@"\n')
    test.qemu.chmod(0o755)
    env = test.env(f"/x86_64/migration/{case}")
    called = subprocess.run(
        [env["QTEST_QEMU_BINARY"], "-name", "kvm", *WANTED.split()],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert called.stdout == f"-name kvm {accelerators}\n"


@pytest.fixture(name="stock_is_built", autouse=True)
def fixture_stock_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the script that builds it; it does nothing."""
    monkeypatch.setattr(program, "BUILD_QEMU", Path("/bin/true"))


def bail_out(said: str) -> str:
    """A program that prints this, and ends as GLib's assertions do."""
    return f"echo '{said}'; exit 134"


ASSERTION = "ERROR:../tests/qtest/migration-test.c"
TOO_SLOW = f"Bail out! {ASSERTION}:1856:test_limit: assertion failed (a <= b)"
PAGES = "Memory content inconsistency at 100000 first_byte = 1"
CRASH = "libqtest.c:186: kill_qemu() detected QEMU death from signal 11 (S)"


@pytest.mark.parametrize(
    ("ours", "stock", "kind"),
    [
        (TOO_SLOW, TOO_SLOW, "skip"),
        # Another line of the same test, and other figures.
        (f"{TOO_SLOW}: (25 <= 20)", f"{TOO_SLOW}: (30 <= 20)", "skip"),
        (TOO_SLOW, TOO_SLOW.replace("1856", "1812"), "skip"),
        ("", "", "skip"),
        (TOO_SLOW, TOO_SLOW.replace("a <= b", "c"), "failed"),
        (TOO_SLOW, TOO_SLOW.replace("test_limit", "test_other"), "failed"),
        (TOO_SLOW, "", "failed"),
        (TOO_SLOW, PAGES, "failed"),
        (TOO_SLOW, CRASH, "failed"),
        ("", TOO_SLOW, "failed"),
        # Stock's result does not matter.
        (PAGES, PAGES, "fatal"),
        (f"{ASSERTION}:287:check: assertion failed: (bad == 0)",) * 2
        + ("fatal",),
        (CRASH, CRASH, "fatal"),
    ],
)
def test_comparison_with_stock(
    tmp_path: Path, ours: str, stock: str, kind: str
) -> None:
    """Stock excuses only cases that it fails with the same symptom."""
    result = judged(
        CASE,
        stand_in(tmp_path / "ours", bail_out(ours)),
        stand_in(tmp_path / "stock", bail_out(stock)),
    )
    assert result.kind == kind


def test_failure_that_stock_does_not_have(tmp_path: Path) -> None:
    """The failure counts."""
    ours = stand_in(tmp_path / "ours", bail_out(TOO_SLOW))
    stock = stand_in(tmp_path / "stock", f"echo ok 1 {CASE}")
    assert judged(CASE, ours, stock).kind == "failed"


@pytest.mark.parametrize(
    ("first", "then", "kind"),
    [
        (TOO_SLOW, f"echo ok 1 {CASE}", "again"),
        (TOO_SLOW, bail_out(TOO_SLOW), "failed"),
        (TOO_SLOW, bail_out(PAGES), "fatal"),
        (PAGES, f"echo ok 1 {CASE}", "fatal"),
    ],
)
def test_failure_that_does_not_come_again(
    tmp_path: Path, first: str, then: str, kind: str
) -> None:
    """It does not count, but for a page that is lost."""
    once = f"[ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; "
    ours = stand_in(tmp_path / "ours", f"{once}{bail_out(first)}; }}; {then}")
    stock = stand_in(tmp_path / "stock", f"echo ok 1 {CASE}")
    assert judged(CASE, ours, stock).kind == kind


def test_stock_that_cannot_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock excuses nothing then, nor does its binary of an earlier build."""
    monkeypatch.setattr(program, "BUILD_QEMU", Path("/bin/false"))
    ours = stand_in(tmp_path / "ours", bail_out(TOO_SLOW))
    stock = stand_in(tmp_path / "stock", bail_out(TOO_SLOW))
    result = judged(CASE, ours, stock)
    assert result.kind == "failed" and "stock cannot" in result.reason


def test_dirty_ring_is_not_excused(tmp_path: Path) -> None:
    """Stock fails it where KVM overfills rings."""
    case = program.OURS_PASSES
    ours = stand_in(tmp_path / "ours", bail_out(TOO_SLOW), case)
    stock = stand_in(tmp_path / "stock", bail_out(TOO_SLOW), case)
    assert judged(case, ours, stock).kind == "fatal"


SUITE = """
from tests.qtest import program
from tests.qtest.program import MigrationTest
from pathlib import Path

program.BUILD_QEMU = Path("/bin/true")
program.OURS, program.STOCK = (
    MigrationTest(Path({top!r}, name)) for name in ("ours", "stock")
)
from tests.qtest.test_cases import test_case
"""


@pytest.mark.parametrize(
    ("ours", "counts"),
    [
        (f"echo ok 1 {CASE}", "1 passed"),
        (f"echo 'ok 1 {CASE} # SKIP no KVM'", "1 skipped"),
        (bail_out(TOO_SLOW), "1 skipped"),
        (bail_out(PAGES), "1 failed"),
    ],
)
def test_what_pytest_makes_of_it(
    tmp_path: Path, ours: str, counts: str
) -> None:
    """Each case is a test case of pytest."""
    stand_in(tmp_path / "ours", ours)
    stand_in(tmp_path / "stock", bail_out(TOO_SLOW))
    suite = tmp_path / "test_suite.py"
    suite.write_text(SUITE.format(top=str(tmp_path)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", suite],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f" {counts} in " in done.stdout.splitlines()[-1], done.stdout
