# SPDX-License-Identifier: GPL-2.0-or-later
"""A host's result: what it comes to, its page, and who may not pass for one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qualify import result
from qualify.result import Figure, Invalid, Result, Trial, parse, row

HOST = {
    "cpu": {
        "vendor": "AuthenticAMD", "model": "AMD EPYC 7713 | 64", "family": 25,
        "number": 1, "stepping": 1, "microcode": "0xa0011d5",
    },
    "cpus": 128,
    "memory": 515_000,
    "features": {"nested-paging": True, "dirty-bits": True, "pml": False},
    "parameters": {"kvm.tdp_mmu": "Y"},
}
GOOD = Trial("dirty_bits_test", "pass", 3.25)
BAD = Trial("race bits", "fail", 20.0, "begun\npage 7 is lost\n")
DIED = Trial("migrate ring", "died", 0.0)
CHOICE = Trial("mechanism", "pass", 0.0)
PARTLY = Trial("dirty_bits_test", "pass", 3.25,
               "no SMM\nno huge pages\nno huge pages")
CASES = Trial("engine test_kvm", "pass", 9.0,
              "/kvm/a # SKIP no bits\n/kvm/b # SKIP no bits\n/kvm/c # SKIP")


def make(*tests: Trial, **more: Any) -> Result:
    return Result("check", "", "4b0ac82", "6.1.192-fdt", "2026-11-25T12:00:00Z",
                  HOST, "dirty-bits", "the best that this host has",
                  list(tests), **more)


def test_pass() -> None:
    one = make(GOOD, Trial("pml_test", "skip", 0.1, "no PML"))
    assert one.passed
    assert one.page().startswith(
        "PASS: 1 passed, 1 skipped; the kernel has no complaint\n")
    assert "dirty-bits (the best that this host has)" in one.page()


@pytest.mark.parametrize(("one", "why"), [
    (make(GOOD, BAD), "race bits failed; 1 passed"),
    (make(BAD, GOOD, BAD, BAD), "race bits and 2 more failed; 1 passed"),
    (make(GOOD, DIED), "1 passed; then the host went down, or was switched off, during migrate ring"),
    (make(GOOD, report=["[ 1.0] WARNING: CPU: 1"]), "the kernel says: [ 1.0] WARNING: CPU: 1"),
    (make(), "nothing was tried"),
    (make(Trial("a", "skip", 0.0)), "nothing was tried; 1 skipped"),
    (make(CHOICE), "nothing was tried"),
    (make(CHOICE, Trial("pml_test", "skip", 0.1)), "nothing was tried; 1 skipped"),
])
def test_fail(one: Result, why: str) -> None:
    assert not one.passed
    assert " ".join(one.page().split()).startswith(f"FAIL: {why} AMD EPYC")


def test_parts_that_were_left_out() -> None:
    """The verdict counts them, and the page has the reasons."""
    one = make(CHOICE, PARTLY, Trial("pml_test", "skip", 0.1, "no PML"), CASES)
    counts = "PASS: 3 passed, 1 skipped; 6 parts were left out; the kernel"
    assert one.passed and one.page().startswith(counts) and counts in row(one)
    assert one.page().endswith(
        "\n\nleft out:\ndirty_bits_test: no SMM\n"
        "dirty_bits_test: no huge pages (2 times)\n"
        "engine test_kvm: no bits (2 times)\nengine test_kvm: /kvm/c\n")
    assert parse(one.as_json()) == one


def test_all_parts_ran() -> None:
    assert "left out" not in make(GOOD).page()


def test_only_who_passes_has_left_out_parts() -> None:
    """What others say is not read as such."""
    page = make(GOOD, BAD, Trial("a", "skip", 0.0, "no SMM\n")).page()
    assert "left out" not in page


def test_page_with_parts_is_a_small_screen() -> None:
    """The verdict stays on a screen of 25 lines, of which two are not ours."""
    parts = "\n".join(f"reason {number} {'z ' * 60}" for number in range(40))
    one = make(Trial("a", "pass", 1.0, parts), boot=["x " * 60])
    lines = one.page().splitlines()
    assert "40 parts were left out" in lines[0]
    assert len(lines) <= 23 and max(map(len, lines)) <= 79
    assert "a: reason 0 z" in one.page()
    assert lines[-1] == "and more, which result.json has"


def test_result_of_before_parts_were_kept() -> None:
    """Tests that passed had said nothing."""
    text = make(CHOICE, GOOD).as_json()
    assert '"said": ""' in text and parse(text).why() == (
        "2 passed; the kernel has no complaint")


def test_page_is_a_screen() -> None:
    said = "".join(f"{number} {'x' * 200}\n" for number in range(100))
    one = make(
        *(Trial(f"t{number}", "fail", 1.0, said) for number in range(50)),
        *(Trial(f"p{number}", "pass", 1.0, "a\nb") for number in range(50)),
        report=[f"line {number} {'y' * 200}" for number in range(60)],
        figures=[Figure(f"figure {n}", "us", 10.0, 4.0) for n in range(8)],
    )
    lines = one.page().splitlines()
    assert len(lines) <= result.PAGE_LINES
    assert max(map(len, lines)) <= 79
    assert "99 xxx" in one.page() and "87 xxx" not in one.page()
    assert any(line.endswith(" 2.50") for line in lines)
    assert "100 parts were left out" in one.counts()


def test_it_is_read_as_it_was_written() -> None:
    one = make(GOOD, BAD, DIED, report=["a", "b"],
               figures=[Figure("write fault", "ns", 1500.0, 12.5)])
    assert parse(one.as_json()) == one


Change = Callable[[dict[str, Any]], Any]


def test_soak_that_was_switched_off() -> None:
    """Nothing is known against the host, nor for it, until something fails."""
    one = make(GOOD, GOOD, DIED)
    one.mode = "soak"
    assert one.page().startswith(
        "OPEN: 2 passed; then the host went down, or was switched off, during")
    assert "| OPEN: 2 passed; then" in row(one)
    one.tests.append(BAD)
    assert one.verdict == "FAIL"
    skipped = make(CHOICE, Trial("pml_test", "skip", 0.1))
    skipped.mode = "soak"
    assert skipped.verdict == "FAIL"
    first = make(CHOICE, DIED)
    first.mode = "soak"
    assert first.verdict == "OPEN"
    assert make(GOOD, DIED).verdict == "FAIL"


def test_part_of_the_tests() -> None:
    """A part is not taken for the whole."""
    one = make(GOOD)
    one.only = "race"
    assert "check (only race) of 4b0ac82" in one.page()
    assert "check (only race) of 4b0ac82" in row(one)


def test_complaint_at_boot() -> None:
    """It is told, and is not the tests'."""
    one = make(GOOD, boot=["[ 0.1] WARNING: your BIOS is broken"])
    assert one.passed and "your BIOS is broken" in one.page()
    assert "the kernel has complained before, and not since" in one.page()


@pytest.mark.parametrize(("change", "sentence"), [
    (lambda it: it.pop("host"), "the result has no member host"),
    (lambda it: it.update(more=1), "the result has a member more, which there is not"),
    (lambda it: it.update(format=2), "the result.format is 2, which is not allowed"),
    (lambda it: it.update(mode="try"), 'the result.mode is "try", which is not allowed'),
    (lambda it: it.update(started="today"), 'the result.started is "today", which is not allowed'),
    (lambda it: it.update(tests={}), "the result.tests is no list"),
    (lambda it: it["tests"].append(1), "the result.tests[1] is no object"),
    (lambda it: it["tests"][0].update(seconds=True), "the result.tests[0].seconds is true, which is not allowed"),
    (lambda it: it["tests"][0].update(outcome="good"), 'the result.tests[0].outcome is "good", which is not allowed'),
    (lambda it: it["host"]["cpu"].pop("family"), "the result.host.cpu has no member family"),
    (lambda it: it["host"].update(cpus=-1), "the result.host.cpus is -1, which is not allowed"),
    (lambda it: it["host"]["features"].update(pml="no"), 'the result.host.features is {"nested-paging": true, "dirty-bits": true, "pml": "no"}, which is not allowed'),
    (lambda it: it.update(report="Oops"), 'the result.report is "Oops", which is not allowed'),
])
def test_invalid(change: Change, sentence: str) -> None:
    value = json.loads(make(GOOD).as_json())
    change(value)
    with pytest.raises(Invalid) as raised:
        parse(json.dumps(value))
    assert str(raised.value) == sentence


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "1"])
def test_no_result(text: str) -> None:
    with pytest.raises(Invalid):
        parse(text)


def test_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(make(GOOD).as_json())
    bad.write_text("{")
    assert result.main([str(good)]) == 0
    line = row(make(GOOD))
    assert capsys.readouterr().out == f"{line}\n"
    assert line.count(" | ") == 5 and "7713 \\| 64 (25/1/1" in line
    assert result.main([str(bad), str(good), str(tmp_path / "no")]) == 1
    said = capsys.readouterr()
    assert said.out == f"{line}\n"
    assert [text.split(": ")[0] for text in said.err.splitlines()] == [
        str(bad), str(tmp_path / "no"),
    ]
