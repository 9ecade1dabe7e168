# SPDX-License-Identifier: GPL-2.0-or-later
"""How test_selftests.py judges a program's end; nothing is booted."""

from __future__ import annotations

import pytest

from . import test_selftests
from .lab import COMPLAINED, Ended
from .selftest_table import HOSTILE_FAILURES_OF, OURS, UPSTREAM, Selftest
from .test_selftests import (Boot, Case, Result, is_known, judge, judge_parts)

OUR = next(test for test in OURS if "eager_page_split" in test.command)
SLOW = next(test for test in UPSTREAM if "memslot_perf" in test.command)
CHECKED = next(test for test in UPSTREAM if not test.soak)
KILLED = 124
GAVE_UP = (254, "sem_timedwait() failed: -1")


class Boots:
    """Stands in for boot(): results by kernel, in the order of the boots."""

    def __init__(self, *ended: tuple[str, int, str], status: int = 0) -> None:
        self.left = list(ended)
        self.status = status  # the lab's, of all boots but the first
        self.booted = 0

    def __call__(
        self, kernel: str, _mmu: str, programs: tuple[Selftest, ...],
        attempt: int = 1,
    ) -> Boot:
        assert attempt == min(self.booted + 1, 2) or kernel == "stock"
        wanted, status, output = self.left.pop(0)
        assert kernel == wanted
        self.booted += 1
        lab = Ended(self.status if self.booted > 1 else 0, "", "WARNING: CPU")
        seconds = 1000.0 if status == KILLED else 1.0
        return Boot(lab, {programs[0].name: Result(status, seconds, output)})


def judged(
    monkeypatch: pytest.MonkeyPatch,
    test: Selftest,
    boots: Boots,
    kernel: str = "patched",
) -> None:
    """Judge test, which has to use all boots, and to record reruns."""
    monkeypatch.setattr(test_selftests, "boot", boots)
    told: list[str] = []
    try:
        judge(
            Case(kernel, "tdp", test),
            (test,),
            lambda name, _value: told.append(name),
        )
    finally:
        assert not boots.left
        assert told == ["rerun"] * (boots.booted > 1)


def test_part_that_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    output = "no-memory\n  no fault injection, skipping test\n"
    judged(monkeypatch, OUR, Boots(("patched", 0, output)))


@pytest.mark.parametrize(
    ("kernel", "part"),
    [
        ("debug", "no fault injection"),
        ("patched", "1 GiB is not mapped as one page"),
        ("patched", "no statistics"),
    ],
)
def test_part_that_has_to_run(
    monkeypatch: pytest.MonkeyPatch, kernel: str, part: str
) -> None:
    output = f"one\n  {part}, skipping test\ntwo\n"
    with pytest.raises(AssertionError, match="left parts out"):
        judged(monkeypatch, OUR, Boots((kernel, 0, output)), kernel)


EXCUSED = "no-memory\n  no fault injection, skipping test\n"


def parts(monkeypatch: pytest.MonkeyPatch, *boots: tuple[int, str]) -> None:
    """Judge the parts that our program left out in each of these boots."""
    stand_in = Boots(*(("patched", *boot) for boot in boots))
    monkeypatch.setattr(test_selftests, "boot", stand_in)
    judge_parts("patched", "tdp", (OUR,))


@pytest.mark.parametrize(
    "boots", [((0, EXCUSED),), ((KILLED, ""), (0, EXCUSED))]
)
def test_excused_parts_are_named(
    monkeypatch: pytest.MonkeyPatch, boots: tuple[tuple[int, str], ...]
) -> None:
    with pytest.raises(pytest.skip.Exception, match="no fault injection"):
        parts(monkeypatch, *boots)


@pytest.mark.parametrize(
    "output", ["", f"{EXCUSED}  no statistics, skipping test\n"]
)
def test_other_parts_than_excused(
    monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    """An excused part that ran, and another part that did not run."""
    with pytest.raises(AssertionError):
        parts(monkeypatch, (0, output))


def test_parts_of_a_program_that_did_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        test_selftests, "boot", lambda *_: Boot(Ended(0, "", ""), {})
    )
    with pytest.raises(AssertionError, match="did not end"):
        judge_parts("patched", "tdp", (OUR,))


SKIPS = ("patched", 4, "1..0 # SKIP - Requirement not met: rings")


def test_upstreams_may_not_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of ours that takes rings away is not to pass by that."""
    with pytest.raises(pytest.fail.Exception, match="status 4"):
        judged(monkeypatch, CHECKED, Boots(SKIPS))


def test_upstreams_of_the_soak_may_skip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(pytest.skip.Exception, match="rings"):
        judged(monkeypatch, SLOW, Boots(SKIPS))


def test_killed_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By who finds no memory, and not by timeout(1)."""
    with pytest.raises(pytest.fail.Exception, match="status 137"):
        judged(monkeypatch, OUR, Boots(("patched", 137, "")))


@pytest.mark.parametrize(("value", "known"), [(5, True), (4, False), (6, False)])
def test_value_that_is_two_iterations_old(value: int, known: bool) -> None:
    """What is older was not kept in a register: the page was lost."""
    says, _ = HOSTILE_FAILURES_OF["6.12"]["dirty_log_test"]
    output = (f"vcpu collected 0 pages\ncollected 812 pages\nSet page 9 value "
              f"{value} incorrect (iteration=7)\n")
    assert is_known(output, says) == known


def test_late_and_then_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    judged(
        monkeypatch, OUR, Boots(("patched", KILLED, ""), ("patched", 0, ""))
    )


def test_late_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    boots = Boots(("patched", KILLED, ""), ("patched", KILLED, ""))
    with pytest.raises(pytest.fail.Exception, match="took too long"):
        judged(monkeypatch, OUR, boots)


def test_in_time_but_the_kernel_complained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boots = Boots(
        ("patched", KILLED, ""), ("patched", 0, ""), status=COMPLAINED
    )
    with pytest.raises(pytest.fail.Exception, match="WARNING: CPU"):
        judged(monkeypatch, OUR, boots)


def test_gives_up_on_stock_too(monkeypatch: pytest.MonkeyPatch) -> None:
    boots = Boots(
        ("patched", *GAVE_UP), ("patched", *GAVE_UP), ("stock", *GAVE_UP)
    )
    with pytest.raises(pytest.skip.Exception, match="stock"):
        judged(monkeypatch, SLOW, boots)


def test_gives_up_on_stock_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    boots = Boots(("stock", *GAVE_UP), ("stock", *GAVE_UP))
    with pytest.raises(pytest.skip.Exception, match="stock"):
        judged(monkeypatch, SLOW, boots, "stock")


def test_gives_up_on_ours_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that never ends has the same symptom."""
    boots = Boots(
        ("patched", *GAVE_UP), ("patched", *GAVE_UP), ("stock", 0, "")
    )
    with pytest.raises(pytest.fail.Exception, match="took too long"):
        judged(monkeypatch, SLOW, boots)


def test_gives_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged(monkeypatch, SLOW, Boots(("patched", *GAVE_UP), ("patched", 0, "")))


def test_fails_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    boots = Boots(("patched", 254, "Test Assertion Failure"))
    with pytest.raises(pytest.fail.Exception, match="status 254"):
        judged(monkeypatch, SLOW, boots)
