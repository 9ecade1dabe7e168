# SPDX-License-Identifier: GPL-2.0-or-later
"""A result goes through QR codes and comes out as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import segno
from hypothesis import given
from hypothesis import strategies as st

from qualify import codes, steps
from qualify.codes import shortened, texts, unpacked
from qualify.result import Invalid, Result, Trial

from .test_result import make

SCREENS = (25, 34, 48, 80)  # lines


def checked() -> Result:
    """A result as `check` has it, of a host where all passes."""
    result = make()
    tools = steps.Tools(Path("/x"), Path("/x"))
    result.tests = [Trial(step.name, "pass", number * 1.3 % 20)
                    for number, step in enumerate(steps.check(tools, 224))]
    return result


@pytest.mark.parametrize("rows", SCREENS)
def test_there_and_back(rows: int) -> None:
    result = checked()
    assert unpacked(texts(result, rows)) == result
    assert unpacked(texts(result, rows)[::-1]) == result


@given(st.text(max_size=3000), st.floats(0, 1e6), st.integers(1, 200))
def test_anything_there_and_back(said: str, seconds: float, rows: int) -> None:
    result = make()
    result.tests.append(Trial("x", "fail", seconds, said))
    given_texts = texts(result, rows)
    assert unpacked(given_texts) == shortened(result)
    room = max(codes.ROOM.values())
    assert all(len(text) <= room for text in given_texts)


def test_what_was_said_is_cut() -> None:
    result = make(Trial("x", "fail", 1.0, "".join(f"{n}\n" for n in range(99))),
                  report=[str(n) for n in range(99)])
    cut = unpacked(texts(result, 48))
    assert cut.tests[0].said.splitlines()[0] == "87"
    assert cut.report[-1] == "11"


@pytest.mark.parametrize("rows", SCREENS)
def test_each_fits_the_screen(rows: int) -> None:
    for text in texts(checked(), rows):
        code = segno.make(text, error="l", boost_error=False, micro=False)
        assert code.mode == "alphanumeric"
        side = code.symbol_size(border=codes.BORDER)[1]
        assert (side + 1) // 2 <= rows


def test_smallest_screen_does_not_scroll(
    capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last line is not ended."""
    codes.show(texts(checked(), SCREENS[0])[0])
    assert capsys.readouterr().out.count("\n") == SCREENS[0] - 1


def test_three_are_enough_on_a_screen_of_48_lines() -> None:
    assert len(texts(checked(), 48)) <= 3


def partly() -> Result:
    """Of a host without pages of 1 GiB or dirty bits: much was left out."""
    result = checked()
    pages = "no anonymous_hugetlb_1gb on this host\n" * 4
    bits = "".join(
        f"/kvm/case-{number}-dirty-bits # SKIP dirty-tracking=dirty-bits is not "
        "possible: this host's KVM lacks KVM_CAP_DIRTY_BITS\n"
        for number in range(14))
    said = {"write_protect_all_test": "no such pages on this host\n" * 20,
            "dirty_bits_test": pages, "engine test_kvm": bits,
            "eager_page_split_test": f"{pages}no fault injection\n"}
    for test in result.tests:
        test.said = said.get(test.name, "").rstrip()
    return result


@pytest.mark.parametrize("rows", SCREENS)
def test_parts_that_were_left_out(rows: int) -> None:
    """None is cut, since the page counts them."""
    result = partly()
    read = unpacked(texts(result, rows))
    assert read == result and read.page() == result.page()


def test_parts_take_one_code_more() -> None:
    assert len(texts(partly(), 48)) <= len(texts(checked(), 48)) + 1


@pytest.mark.parametrize(("change", "sentence"), [
    (lambda given: given[:-1], "of 2 codes, number 2 is missing"),
    (lambda given: ["FDT1/1/9999999999:AA"], "of 9999999999 codes, number 2 is missing"),
    (lambda given: ["https://example.org"], "'https://example.org' is no code of ours; each is FDT1/N/M:..."),
    (lambda given: [given[0], "FDT1/2/2:AAAA"], "the codes are not of one result, or not whole"),
])
def test_codes_that_are_no_result(change, sentence: str) -> None:
    with pytest.raises(Invalid) as error:
        unpacked(change(texts(checked(), 48)))
    assert str(error.value) == sentence


def test_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert codes.main(texts(checked(), 48)) == 0
    assert json.loads(capsys.readouterr().out)["mode"] == "check"
    assert codes.main([]) == 1
    assert codes.main(["x"]) == 1
    assert "give all of a result" in capsys.readouterr().err
