# SPDX-License-Identifier: GPL-2.0-or-later
"""Migrations on the patched host kernel, by the tests of tests/migration.

They run in one boot of the lab for each MMU, and in one for the hostile CPU
and Intel's; each is a test case here.  With -m soak, all tests of mechanisms
that take a patched kernel run, and on Intel's CPU one for each mechanism.
"""

from __future__ import annotations

import re
import subprocess
import traceback
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable
from unittest.mock import Mock

import pytest

from tests.migration.compare import assert_none_differ
from tests.migration.migrate import wait
from tests.migration.qmp import Monitor
from tests.migration.vm import VM
from tests.mutants import kernel as mutants

from . import intel
from .lab import (BUILD, COMPLAINED, LAB_FAILED, ROOT, TIMED_OUT, Ended, Record,
                  lab)

TESTS = "tests/migration"
MMUS = {
    "tdp": ("--append", "kvm.tdp_mmu=1"),
    "shadow": ("--append", "kvm.tdp_mmu=0"),
    "hostile": ("--append", "kvm.tdp_mmu=1", "--cpu", "hostile"),
    "intel": ("--append", "kvm.tdp_mmu=1"),
    "intel-shadow": ("--append", "kvm.tdp_mmu=0"),
    "intel-ept0": ("--append", "kvm_intel.ept=0"),
    "intel-eptad0": ("--append", "kvm_intel.eptad=0"),
    "intel-pml0": ("--append", "kvm_intel.pml=0"),
    # KVM emulates the guest in real mode.
    "intel-unrestricted0": ("--append", "kvm_intel.unrestricted_guest=0"),
}
OPTIONS = ["--cpus", "2", "--memory", "3G"]
# With one -v, the summary has only the part of a message that fits the screen.
PYTEST = [
    BUILD / "venv/bin/python", "-B", "-m", "pytest", "-vv", "--tb=short",
    "-p", "no:cacheprovider", "-p", "no:hypothesispytest",
]
SECONDS = 180  # for one of them, on a busy machine
INTEL_SECONDS = 600
SOAK_SECONDS = 7200

# Failed waits in tests/migration end like this: the exception, maybe the VM,
# and the event waited for.  QEMU's own message comes after one more colon.
LATE = re.compile(r"[\w.]+: (\w+: )?[^:]* within \d+ s\b")

# Intel's machine takes ten times as long, so that it has a table of its own.
SOAKED_MMUS = ("tdp", "shadow", "hostile")

# Each of these runs in one boot of a soak.  Rings of other sizes, and log,
# need no patched kernel.  Tests of the pages that wait want a host that sends
# as fast as the bandwidth allows.
SOAKED = {
    "wrprot": "wrprot",
    "shared": "shared",
    "dirty-bits": "dirty-bits",
    "ring": "4096",
    "others": "(switch or told or split) and not (wrprot or shared or "
              "dirty-bits or 4096)",
}
NOT_SOAKED = "test_hot_pages"

# The mechanism that auto takes meets most events, and the others in a soak, as
# other mechanisms do.  tests/release has more, on the other release.  Snapshots have no rounds, and which pages wait is decided
# above the mechanisms: tests/migration has both, and here they take a minute each.
CHECKED = {
    "tdp": (
        "test_modes.py::test_multifd[dirty-bits-sequential-1]",
        "test_modes.py::test_postcopy[dirty-bits-hot-spot-2]",
        "test_modes.py::test_cancel_and_retry[dirty-bits-random-4]",
        "test_converge.py::test_it_ends[dirty-bits]",
        "test_random_commands.py::test_random_commands_with_dirty_bits",
        "test_switch.py::test_between_two_migrations[auto]",
        "test_eager_split.py::test_all_or_none[on]",
        "test_telemetry.py::test_default_is_told",
    ),
    "shadow": (
        "test_identical.py::test_identical[wrprot-sequential-2-q35]",
        "test_identical.py::test_identical[shared-random-1-q35]",
        "test_modes.py::test_postcopy[shared-random-1]",
        "test_display.py::test_memory_comes_and_goes[shared-sequential-2]",
        "test_telemetry.py::test_default_is_told",
    ),
    # Each mechanism meets each pattern on a CPU that keeps what it may.
    "hostile": (
        "test_identical.py::test_identical[wrprot-hot-spot-1-q35]",
        "test_identical.py::test_identical[shared-sequential-4-pc]",
        "test_identical.py::test_identical[dirty-bits-random-2-q35]",
        "test_identical.py::test_identical[ring 4096-random-4-q35]",
        "test_identical.py::test_identical[log-random-2-q35]",
    ),
    # The machine has one CPU, and a guest of two takes twice the time.
    "intel": (
        "test_identical.py::test_identical[dirty-bits-sequential-1-pc]",
    ),
}

# Each mechanism on Intel's CPU, and again where the CPU or KVM lacks something:
# the shadow MMU and tables without dirty bits have no dirty-bits.
FAULTING = (
    "test_identical.py::test_identical[log-random-2-q35]",
    "test_identical.py::test_identical[wrprot-hot-spot-1-q35]",
    "test_identical.py::test_identical[shared-random-1-q35]",
    "test_identical.py::test_identical[ring 4096-hot-spot-1-pc]",
)
COLLECTED = ("test_identical.py::test_identical[dirty-bits-hot-spot-4-pc]",)
INTEL = {
    "intel": (*FAULTING, *COLLECTED,
              "test_modes.py::test_postcopy[dirty-bits-hot-spot-2]"),
    "intel-shadow": FAULTING,
    "intel-ept0": FAULTING,
    "intel-eptad0": FAULTING,
    "intel-pml0": (*FAULTING, *COLLECTED),
    "intel-unrestricted0": COLLECTED,
}

# Kernels that lose pages on purpose, and a migration that has to notice.  It
# cannot notice no-flush: Bochs' TLB has lost its entries when QEMU copies.
BROKEN = (
    ("bits-no-active",
     "test_identical.py::test_identical[dirty-bits-sequential-1-pc]"),
    ("no-children", "test_identical.py::test_identical[shared-random-1-q35]"),
)


@dataclass(frozen=True)
class Boot:
    """How the tests of one boot ended, by their names; none after a crash."""

    ended: Ended
    outcomes: dict[str, str]


def outcomes(output: str) -> dict[str, str]:
    """The outcome of each test, by pytest's output."""
    pattern = rf"^{TESTS}/(\S.*?) (PASSED|FAILED|ERROR|SKIPPED)\b"
    return {
        match[1]: match[2]
        for match in re.finditer(pattern, output, re.MULTILINE)
    }


def options(mmu: str) -> list[str]:
    """The lab's options; Intel's machine has only files that it is given."""
    if mmu.startswith("intel"):
        return [*intel.options(), *MMUS[mmu]]
    return [*OPTIONS, *MMUS[mmu]]


@lru_cache(maxsize=None)
def boot(mmu: str, *arguments: str, seconds: int,
         kernel: str | Path = "patched", append: str = "") -> Boot:
    """Run pytest in the lab."""
    ended = lab(
        *(intel.ENV if mmu.startswith("intel") else ()),
        *PYTEST,
        *arguments,
        kernel=kernel,
        seconds=seconds,
        options=[*options(mmu), "--append", append],
        cwd=ROOT,
    )
    return Boot(ended, outcomes(ended.stdout))


def reasons(output: str, name: str) -> list[str]:
    """The reasons why a test failed, by the summary at pytest's end."""
    test = re.escape(f"{TESTS}/{name}")
    return re.findall(rf"^(?:FAILED|ERROR) {test} - (.*)$", output,
                      re.MULTILINE)


def took_too_long(ended: Ended, name: str) -> bool:
    """Whether a test failed only because it had too little time."""
    if ended.status == TIMED_OUT:  # One that has begun may have hung.
        return f"{TESTS}/{name}" not in ended.stdout
    found = reasons(ended.stdout, name)
    return (ended.status != COMPLAINED and bool(found)
            and all(map(LATE.match, found)))


def passed(done: Boot, name: str) -> bool:
    """Whether a test passed, and the kernel did not complain."""
    return (done.ended.status != COMPLAINED
            and done.outcomes.get(name) == "PASSED")


def judge(mmu: str, names: tuple[str, ...], name: str, record: Record
          ) -> None:
    """Fail unless the test passes; no test may skip on a patched kernel.

    On a busy machine a migration may take too long: then it runs once more, in
    a boot of its own.  Nothing else is excused.
    """
    seconds = INTEL_SECONDS if mmu.startswith("intel") else SECONDS
    done = boot(
        mmu,
        *(f"{TESTS}/{each}" for each in names),
        seconds=seconds * len(names),
    )
    if not passed(done, name) and took_too_long(done.ended, name):
        print(f"{done.ended.stdout}{done.ended.stderr}\n{name}: once more")
        record("rerun", "it took too long")
        done = boot(mmu, f"{TESTS}/{name}", seconds=2 * seconds)
    assert passed(done, name), done.ended.stdout + done.ended.stderr


def cases(table: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    """Each test of a table, with its MMU."""
    return [(mmu, name) for mmu, names in table.items() for name in names]


@pytest.mark.parametrize("mmu,name", cases(CHECKED))
def test_migration(mmu: str, name: str, record_property: Record) -> None:
    judge(mmu, CHECKED[mmu], name, record_property)


@pytest.mark.soak
@pytest.mark.parametrize("mmu,name", cases(INTEL))
def test_intel(mmu: str, name: str, record_property: Record) -> None:
    judge(mmu, INTEL[mmu], name, record_property)


@pytest.mark.soak
@pytest.mark.parametrize("broken,name", BROKEN)
def test_lost_pages_are_noticed(broken: str, name: str) -> None:
    """The guest arrives on Intel's CPU, too, and its memory differs."""
    done = boot("intel", f"{TESTS}/{name}", seconds=INTEL_SECONDS,
                kernel=mutants.build(), append=f"kvm.mutant={broken}")
    said = reasons(done.ended.stdout, name)
    assert any(re.search(r"\b\d+ pages differ", why) for why in said), (
        done.ended.stdout + done.ended.stderr
    )


@pytest.mark.soak
@pytest.mark.parametrize("chosen,mmu", [
    (chosen, mmu) for chosen in SOAKED for mmu in SOAKED_MMUS
    if (chosen, mmu) != ("dirty-bits", "shadow")])
def test_all_migrations(chosen: str, mmu: str) -> None:
    """No test that needs the patched kernel fails, of those of the soak either."""
    done = boot(mmu, "-m", "soak or not soak", "-k",
                f"({SOAKED[chosen]}) and not {NOT_SOAKED}", TESTS,
                seconds=SOAK_SECONDS)
    wanted = "::" if chosen == "others" else "::test_identical["
    found = [name for name, outcome in done.outcomes.items()
             if wanted in name and outcome == "PASSED"]
    assert done.ended.status == 0 and found, (
        done.ended.stdout + done.ended.stderr
    )


NAME = "test_a.py::test_it[ring 4096-1]"
TIMELY = "not ready within 3 s."  # what QEMU itself might say


def vm(**state: str) -> Mock:
    """A VM whose migration is in this state, and whose QEMU has crashed."""
    fake = Mock(spec=VM, _process=Mock(**{"poll.return_value": -6}))
    fake.name = "src"
    fake.qmp.return_value = {"status": "active", "error-desc": TIMELY, **state}
    fake.errors.return_value = TIMELY
    return fake


def told(fail: Callable[[], Any]) -> str:
    """The message of pytest about a failure."""
    with pytest.raises(BaseException) as raised:
        fail()
    return traceback.format_exception_only(raised.value)[-1].strip()


def run(*why: str, status: int = 1, name: str = NAME) -> Ended:
    """The end of a run in which one test failed."""
    lines = [f"{TESTS}/{name} FAILED   [ 50%]", f"E   {why}",
             *(f"FAILED {TESTS}/{name} - {each}" for each in why),
             "assert 3 < 2"]
    return Ended(status, "\n".join(lines), "")


def never(*_: object) -> bool:
    """The event that never comes."""
    return False


VAIN: dict[str, Callable[[], Any]] = {
    "vm": lambda: VM.wait(vm(), never, 0.0, "the guest did not get going"),
    "migration": lambda: wait(vm(), None, 0.0, "complete", never),
    "qmp": lambda: Monitor("src", Path()).finish(Future(), "stop", 0.0),
    "test": lambda: pytest.fail("the limit was not obeyed within 90 s: [1.0]"),
}
WRONG: dict[str, Callable[[], Any]] = {
    "pages": lambda: assert_none_differ([77]),
    "screen": lambda: pytest.fail("8 pages are stale after 30 s"),
    "crash": lambda: VM.check(vm()),
    "failed": lambda: wait(vm(status="failed"), None, 0.0, "complete", never),
    "early": lambda: wait(vm(status="completed"), None, 0.0, "hold", never),
    "assertion": lambda: pytest.fail("assert 1 == 2"),
}


@pytest.mark.parametrize("fail", VAIN.values(), ids=VAIN)
def test_took_too_long(fail: Callable[[], Any]) -> None:
    """It knows each way to wait, even if other tests have failed."""
    assert took_too_long(run(told(fail)), NAME)
    assert not took_too_long(run(told(fail), name=f"{NAME}x"), NAME)
    assert not took_too_long(run(told(fail), status=COMPLAINED), NAME)
    assert not took_too_long(run(told(fail), "assert 1 == 2"), NAME)


@pytest.mark.parametrize("fail", WRONG.values(), ids=WRONG)
def test_is_wrong(fail: Callable[[], Any]) -> None:
    """Time was not the reason, even if QEMU itself speaks of time."""
    assert not took_too_long(run(told(fail)), NAME)


def test_summary(tmp_path: Path) -> None:
    """pytest tells the whole reason, however narrow the screen."""
    file = tmp_path / TESTS / "test_a.py"
    file.parent.mkdir(parents=True)
    file.write_text(f"def test_it(): 1 / 0\n"
                    f"def test_that(): raise Exception({200 * 'x'!r})\n")
    done = subprocess.run([*PYTEST, "--rootdir", tmp_path, file],
                          cwd=tmp_path, env={"COLUMNS": "80"},
                          capture_output=True, text=True, check=False)
    assert reasons(done.stdout, "test_a.py::test_it") == [
        "ZeroDivisionError: division by zero"]
    assert reasons(done.stdout, "test_a.py::test_that") == [
        f"Exception: {200 * 'x'}"]
    assert set(outcomes(done.stdout).values()) == {"FAILED"}


def test_time_limit() -> None:
    """A test that could not begin before the end of the boot is not to blame."""
    assert took_too_long(Ended(TIMED_OUT, "", ""), NAME)
    assert not took_too_long(Ended(TIMED_OUT, f"{TESTS}/{NAME} ", ""), NAME)
    assert not took_too_long(run(status=TIMED_OUT), NAME)
    assert not took_too_long(Ended(LAB_FAILED, "", ""), NAME)


def test_complaint() -> None:
    """A test in which the kernel complained has not passed."""
    assert passed(Boot(Ended(0, "", ""), {NAME: "PASSED"}), NAME)
    assert not passed(Boot(Ended(COMPLAINED, "", ""), {NAME: "PASSED"}), NAME)
    assert not passed(Boot(Ended(0, "", ""), {NAME: "SKIPPED"}), NAME)
