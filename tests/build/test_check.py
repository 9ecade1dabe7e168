# SPDX-License-Identifier: GPL-2.0-or-later
"""The check runner: nothing that did not run well may count as passed."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load_check() -> ModuleType:
    """scripts/check has no .py in its name, so import cannot find it."""
    loader = importlib.machinery.SourceFileLoader(
        "fdt_check", str(ROOT / "scripts/check")
    )
    spec = importlib.util.spec_from_loader("fdt_check", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fdt_check"] = module
    loader.exec_module(module)
    return module


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = load_check()
    monkeypatch.setattr(module, "BUILD", tmp_path)
    monkeypatch.setattr(module, "LOGS", tmp_path / "log")
    return module


REPORT = """<testsuites>
<testsuite name="ring">
  <testcase name="reap"/>
  <testcase name="overflow"><failure/></testcase>
  <testcase name="reset"><error/></testcase>
  <testcase name="soft"><skipped message="no KVM"/></testcase>
  <testcase name="race"><properties>
    <property name="rerun" value="after 60 s"/></properties></testcase>
</testsuite></testsuites>"""


def test_junit_report_is_counted(check: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    tally = check.junit_tally(report, "engine")
    assert str(tally) == "2 passed, 2 failed, 1 skipped, 1 run again"
    assert tally.skips == ["engine: ring soft: no KVM"]
    assert tally.reruns == ["engine: ring race: after 60 s"]


def test_reruns_are_in_the_total(
    check: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    suites = {
        name: lambda name=name: check.Tally(passed=1, reruns=[f"{name}: late"])
        for name in ("tests/build", "tests/model")
    }
    monkeypatch.setattr(check, "suites", lambda: suites)
    assert check.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == [
        "check: run again: tests/build: late",
        "check: run again: tests/model: late",
        "2 passed, 0 failed, 0 skipped, 2 run again",
    ]


# Programs as meson may meet them, and what each must count as.
MESON_TESTS = {
    "good": ("echo 1..2; echo ok 1 /a; echo ok 2 /b", "2 0 0"),
    "bad": ("echo 1..2; echo ok 1 /a; echo not ok 2 /b", "1 1 0"),
    "crash": ("echo 1..2; echo ok 1 /a; kill -9 $$", "1 1 0"),
    "short": ("echo 1..2; echo ok 1 /a", "1 1 0"),
    "late": ("echo 1..1; sleep 20", "0 1 0"),
    "all": ("echo '1..0 # SKIP no KVM'", "0 0 1"),
    "part": ("echo 1..2; echo ok 1 /a; echo 'ok 2 /b # SKIP no'", "1 0 1"),
    "plain-good": ("exit 0", "1 0 0"),
    "plain-bad": ("exit 1", "0 1 0"),
    "plain-skip": ("exit 77", "0 0 1"),
    "plain-none": ("exit 99", "0 1 0"),
}


@pytest.fixture(scope="module")
def meson_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of one run of all of them."""
    source = tmp_path_factory.mktemp("meson")
    lines = ["project('tests')"]
    for name, (body, _) in MESON_TESTS.items():
        program = source / f"{name}.sh"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        protocol = "exitcode" if name.startswith("plain") else "tap"
        lines.append(
            f"test('{name}', find_program('{name}.sh'), timeout: 1,"
            f" protocol: '{protocol}')"
        )
    (source / "meson.build").write_text("\n".join(lines) + "\n")
    for command in (["setup", "build"], ["test", "-C", "build"]):
        subprocess.run(
            ["meson", *command],
            cwd=source,
            env={**os.environ, "PATH": "/usr/bin:/bin"},
            stdout=subprocess.DEVNULL,
            check=command[0] == "setup",
        )
    return source / "build/meson-logs"


@pytest.mark.parametrize("name", MESON_TESTS)
def test_meson_result(
    check: ModuleType, meson_logs: Path, tmp_path: Path, name: str
) -> None:
    line = [
        text
        for text in (meson_logs / "testlog.json").read_text().splitlines()
        if json.loads(text)["name"] == name
    ]
    (tmp_path / "log.json").write_text("\n".join(line))
    tally = check.meson_tally(
        tmp_path / "log.json", meson_logs / "testlog.junit.xml", "unit"
    )
    counts = (tally.passed, len(tally.failures), len(tally.skips))
    assert " ".join(str(count) for count in counts) == MESON_TESTS[name][1]


def test_suite_that_runs_nothing_has_failed(check: ModuleType) -> None:
    tally = check.run_suite("empty", lambda: check.Tally())
    assert tally.failures == ["empty: it ran no test"]


def test_suite_that_breaks_has_failed(check: ModuleType) -> None:
    def broken() -> None:
        raise FileNotFoundError("no such program")

    tally = check.run_suite("broken", broken)
    assert str(tally) == "0 passed, 1 failed, 0 skipped"


def test_kernel_that_cannot_be_built_has_failed(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "build-kernel"
    script.write_text('#!/bin/sh\n[ "$1" = stock ]\n')
    script.chmod(0o755)
    monkeypatch.setattr(check, "SCRIPTS", tmp_path)
    tally = check.run_suite("kernel", check.kernel_build)
    assert tally.failures == [
        "kernel: the build of patched ended with status 1"
    ]


def test_missing_pytest_directory_has_failed(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    tally = check.run_suite("tests/none", check.pytest("none"))
    assert tally.passed == 0
    assert len(tally.failures) == 1


def test_missing_migration_test_has_failed(check: ModuleType) -> None:
    tally = check.run_suite("migration-test", check.migration_test)
    assert tally.failures == ["migration-test: it did not start"]


def runs(pid: int) -> bool:
    """Whether it is there; a zombie that nobody waits for does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_command_that_hangs_is_stopped(check: ModuleType) -> None:
    """With what it has started."""
    ran = check.run("hang", ["sh", "-c", "sleep 1000 & echo $!; wait"], 2)
    assert ran.status is None
    sleeper = int(ran.output)
    until = time.monotonic() + 60
    while runs(sleeper) and time.monotonic() < until:
        time.sleep(0.1)
    assert not runs(sleeper)


def migration_program(check: ModuleType, top: Path, body: str) -> Any:
    """A stand-in for QEMU's migration-test with one case."""
    program = top / "tests/qtest/migration-test"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        '[ "$1" != -l ] || { echo /x86_64/migration/case; exit; }\n' + body
    )
    program.chmod(0o755)
    return check.MigrationTest(top)


def build_stock(check: ModuleType, where: Path) -> None:
    """A stand-in for scripts/build-stock, which has nothing to do."""
    script = where / "build-stock"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    setattr(check, "SCRIPTS", where)


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("echo ok 1 /x86_64/migration/case", "ok"),
        ("echo not ok 1 /x86_64/migration/case", "failed"),
        ("echo 'ok 1 /x86_64/migration/case # SKIP no KVM'", "skip"),
        ("echo ok 1 /x86_64/migration/case; exit 134", "failed"),
        ("echo ok 1 /x86_64/migration/case/longer", "failed"),
        ("echo 'Bail out! ERROR: assertion'; exit 134", "failed"),
        ("echo 'Memory content inconsistency at 1'; exit 134", "fatal"),
        ("", "failed"),
    ],
)
def test_migration_case(
    check: ModuleType, tmp_path: Path, body: str, result: str
) -> None:
    test = migration_program(check, tmp_path / "qemu", body)
    assert test.cases() == ["/x86_64/migration/case"]
    assert test.run_case("/x86_64/migration/case")[0] == result


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
def test_accelerator_of_migration_case(
    check: ModuleType, tmp_path: Path, case: str, accelerators: str
) -> None:
    """What QEMU is called with when the program asks for KVM, or else TCG."""
    test = migration_program(check, tmp_path, "")
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


def bail_out(said: str) -> str:
    """A program that ends as GLib's assertions do, after saying this."""
    return f"echo '{said}'; exit 134"


ASSERTION = "ERROR:../tests/qtest/migration-test.c"
TOO_SLOW = f"Bail out! {ASSERTION}:1856:test_limit: assertion failed (a <= b)"
PAGES = "Memory content inconsistency at 100000 first_byte = 1"
CRASH = "libqtest.c:186: kill_qemu() detected QEMU death from signal 11 (S)"


@pytest.mark.parametrize(
    ("ours", "stock", "skipped"),
    [
        (TOO_SLOW, TOO_SLOW, True),
        # Another line of the same test, and other figures.
        (f"{TOO_SLOW}: (25 <= 20)", f"{TOO_SLOW}: (30 <= 20)", True),
        (TOO_SLOW, TOO_SLOW.replace("1856", "1812"), True),
        ("", "", True),
        (TOO_SLOW, TOO_SLOW.replace("a <= b", "c"), False),
        (TOO_SLOW, TOO_SLOW.replace("test_limit", "test_other"), False),
        (TOO_SLOW, "", False),
        (TOO_SLOW, PAGES, False),
        (TOO_SLOW, CRASH, False),
        ("", TOO_SLOW, False),
        # Whatever stock does.
        (PAGES, PAGES, False),
        (f"{ASSERTION}:287:check: assertion failed: (bad == 0)",) * 2
        + (False,),
        (CRASH, CRASH, False),
    ],
)
def test_failure_is_compared_with_stock(
    check: ModuleType, tmp_path: Path, ours: str, stock: str, skipped: bool
) -> None:
    migration_program(check, tmp_path / "qemu", bail_out(ours))
    migration_program(check, tmp_path / "stock/qemu", bail_out(stock))
    build_stock(check, tmp_path)
    tally = check.migration_test()
    assert (len(tally.skips), len(tally.failures)) == (skipped, not skipped)


def test_failure_that_stock_does_not_have(
    check: ModuleType, tmp_path: Path
) -> None:
    migration_program(check, tmp_path / "qemu", bail_out(TOO_SLOW))
    migration_program(
        check, tmp_path / "stock/qemu", "echo ok 1 /x86_64/migration/case"
    )
    build_stock(check, tmp_path)
    assert str(check.migration_test()) == "0 passed, 1 failed, 0 skipped"


def test_dirty_ring_is_not_excused(check: ModuleType, tmp_path: Path) -> None:
    """Stock fails it where KVM overfills rings."""
    for top in ("qemu", "stock/qemu"):
        program = migration_program(check, tmp_path / top, bail_out(TOO_SLOW))
        text = program.program.read_text()
        program.program.write_text(text.replace("/case", "/dirty_ring"))
    build_stock(check, tmp_path)
    assert str(check.migration_test()) == "0 passed, 1 failed, 0 skipped"


@pytest.mark.parametrize("broken", ["build-lab-cpu", "build-bochs"])
def test_cpu_that_cannot_be_built_has_failed(
    check: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    broken: str,
) -> None:
    for name in ("build-lab-cpu", "build-bochs"):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\nexit {3 if name == broken else 0}\n")
        script.chmod(0o755)
    monkeypatch.setattr(check, "SCRIPTS", tmp_path)
    tally = check.run_suite("lab-cpu", check.lab_cpu_build)
    assert tally.failures == [f"lab-cpu: {broken} ended with status 3"]


def test_unknown_suite(
    check: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check.main(["everything"]) == 1
    assert capsys.readouterr().err.startswith(
        "check: there is no suite 'everything'; allowed are engine-plain, "
    )


@pytest.mark.parametrize(
    ("build", "suite"),
    [("qemu", "migration"), ("kernel", "lab"), ("lab-cpu", "lab")],
)
def test_without_a_build_its_suites_fail(
    check: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    build: str,
    suite: str,
) -> None:
    monkeypatch.setattr(
        check,
        "suites",
        lambda: {
            build: lambda: check.Tally(failures=[f"{build}: it failed"]),
            f"tests/{suite}": lambda: check.Tally(passed=7),
            "tests/build": lambda: check.Tally(passed=2),
        },
    )
    assert check.main([]) == 1
    assert (
        capsys.readouterr().out.splitlines()[-1]
        == "2 passed, 2 failed, 0 skipped"
    )
