# SPDX-License-Identifier: GPL-2.0-or-later
"""The mutants' patches are whole; only its test's message kills a mutant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.lab.lab import COMPLAINED, Ended
from tests.mutants import bitmap, engine, glib, kernel, model
from tests.mutants.mutant import (
    HERE,
    ROOT,
    Failure,
    Mutant,
    Patch,
    apply,
    mutants_of,
    read_patch,
)

HEADER = "SPDX-License-Identifier: GPL-2.0-or-later\nInvariant: I3\n"
DIFF = """
--- a/one.c
+++ b/one.c
@@ -7,3 +7,3 @@
 first
-second
+other
 third
"""


def program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


# The ends of tests, and whether each is a kill.
ENDS = {
    "passes": ("echo ok 1 /slot/one", False),
    "asserts": (
        "echo 'Bail out! ERROR:{tests}.c:7:f: (a == b)'; kill -ABRT $$",
        True,
    ),
    "crashes": ("echo ok 1 /slot/one; kill -SEGV $$", None),
    "the code's own assertion": (
        "echo 'Bail out! ERROR:accel/kvm/dirty/slot.c:7:f: (a)'; exit 134",
        None,
    ),
    "is told to end": ("exit 1", None),
    "glibc's": ("echo 'free(): invalid pointer'; kill -ABRT $$", None),
}


@pytest.mark.parametrize(
    "says, tests",
    [
        (engine.SAYS, "tests/unit/test_slot"),
        (bitmap.SAYS, "tests/bitmap/test_hot_pages"),
    ],
    ids=["engine", "bitmap"],
)
@pytest.mark.parametrize("body, killed", ENDS.values(), ids=ENDS)
def test_glib(
    tmp_path: Path, says: str, tests: str, body: str, killed: bool | None
) -> None:
    """None is the end of a program that has not noticed the mutant."""
    program(tmp_path / "one", body.format(tests=tests))
    if killed is None:
        with pytest.raises(Failure, match="did not say"):
            glib.is_killed(tmp_path, "one", "slot", says)
    else:
        assert glib.is_killed(tmp_path, "one", "slot", says)[0] == killed


def test_that_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glib, "LIMIT", 0.1)
    program(tmp_path / "one", "exec sleep 9")
    with pytest.raises(Failure, match="does not end"):
        glib.is_killed(tmp_path, "one", "slot", engine.SAYS)


def mutant(*fields: tuple[str, str]) -> Mutant:
    """A kernel mutant that is killed by a test and has these fields."""
    head = (("Invariant", "I3"), ("Killed-by", kernel.RACE), *fields)
    return mutants_of(Patch("one", head, "Wrong.", DIFF), kernel.FIELDS)[0]


LOSES = f"{kernel.ASSERTED}\n  page 7 is lost in round 2"
PANIC = (("Says", "BUG: "), ("Ends", "panic"))


@pytest.mark.parametrize(
    "fields, status, said, killed",
    [
        ((), 254, LOSES, True),
        ((), 0, "9 rounds, none lost", False),
        ((), 254, f"{kernel.ASSERTED}\n  vCPU 1 is stuck", None),
        ((), 124, "page 7 is lost in round 2", None),
        ((), COMPLAINED, "BUG: page fault", None),
        (PANIC, COMPLAINED, "BUG: page fault", True),
        (PANIC, COMPLAINED, "WARNING: 7", None),
        (PANIC, 254, "BUG: page fault", None),
        (PANIC, 0, "", False),
    ],
)
def test_kernel(
    fields: tuple[tuple[str, str], ...],
    status: int,
    said: str,
    killed: bool | None,
) -> None:
    ended = Ended(status, "", said)
    if killed is None:
        with pytest.raises(Failure):
            kernel.has_noticed(mutant(*fields), ended)
    else:
        assert kernel.has_noticed(mutant(*fields), ended) == killed


@pytest.mark.parametrize(
    "text",
    [
        DIFF,
        HEADER.partition("\n")[2] + "Killed-by: a\n\nIt is wrong.\n" + DIFF,
        HEADER + DIFF,
        HEADER + "Killed-by: ring\n" + DIFF,
        HEADER + "Killed-by: ring\n\nIt is wrong.\n",
        HEADER + "Says: lost\nKilled-by: ring\n\nIt is wrong.\n" + DIFF,
        HEADER + "Killed-by: ring\nSoak: yes\n\nIt is wrong.\n" + DIFF,
        HEADER + "Killed-by: a\nSays: b\nSays: c\n\nIt is wrong.\n" + DIFF,
    ],
    ids=[
        "nothing",
        "no licence",
        "no Killed-by",
        "no text",
        "no diff",
        "Says before Killed-by",
        "a field of another family",
        "a field twice",
    ],
)
def test_header_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "one.patch").write_text(text)
    with pytest.raises(Failure):
        mutants_of(read_patch(tmp_path / "one.patch"))


def test_header(tmp_path: Path) -> None:
    """Fields belong to the Killed-by before them."""
    head = "Killed-by: a\nKilled-by: b -c\nSays: d: e\nSoak: yes\n\nWrong.\n"
    (tmp_path / "one.patch").write_text(HEADER + head + DIFF)
    first, second = mutants_of(read_patch(tmp_path / "one.patch"), ["Soak"])
    assert (first.name, first.invariant, first.killed_by) == ("one", "I3", "a")
    assert (first.says, first.option("Soak")) == ("", "")
    assert (second.killed_by, second.says) == ("b -c", "d: e")
    assert second.option("Soak") == "yes"
    assert apply(first.patch.diff, lambda _: "first\nsecond\nthird\n") == {
        "one.c": "first\nother\nthird\n"
    }


@pytest.mark.parametrize(
    "text",
    [
        "first\nsecond\nfourth\n",
        "first\nsecond\nthird\nfirst\nsecond\nthird\n",
        "not first\nsecond\nthird\n",
    ],
    ids=["nowhere", "twice", "within a line"],
)
def test_patch_that_does_not_apply(text: str) -> None:
    with pytest.raises(Failure, match="times in one.c"):
        apply(DIFF, lambda _: text)


@pytest.mark.parametrize(
    "mutants",
    [engine.Engine.mutants, bitmap.Bitmap.mutants, model.MUTANTS],
    ids=["engine", "bitmap", "model"],
)
def test_patches_apply(mutants: Sequence[Mutant]) -> None:
    for one in mutants:
        changed = apply(one.patch.diff, lambda path: (ROOT / path).read_text())
        assert len(changed) == 1, one.name


def test_kernel_series() -> None:
    """The series has all patches, and each contains its own mutant("")."""
    names = kernel.series()
    assert names[0] == kernel.PAUSE
    assert sorted(f"{name}.patch" for name in names) == sorted(
        path.name for path in (HERE / "kernel").glob("*.patch")
    )
    for name in names[1:]:
        diff = kernel.read(name).diff
        added, removed = (
            set(re.findall(rf'^\{sign}.*\bmutant\("([^"]+)"\)', diff, re.M))
            for sign in "+-"
        )
        assert added - removed == {name}
