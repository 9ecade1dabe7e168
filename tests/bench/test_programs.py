# SPDX-License-Identifier: GPL-2.0-or-later
"""Each measuring program measures, and refuses what it cannot do."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.migration.guest import MIB
from tests.migration.vm import LOG, VM, Qemu, VMError, kvm_usable

from . import (chapter_ends, fast_wp, guest_beside, guest_ends, guest_view,
               mmtest, ping_pong)
from .binaries import available, mechanism_of
from .blocks import NONE, Table
from .chapters import CHAPTERS
from .guest_view import joined
from .mmtest import Mark, pass_ns
from .releases import VERSIONS
from .results import Results
from .sampler import Reading
from .step import Figure, parse

NAMES = ("guest-view", "lockless", "fast-wp", "ping-pong", "peers")
SMALL = {
    guest_view: ("--mib", "48", "--written-mib", "4", "--around-seconds",
                 "0.2", "--rounds-seconds", "0.1"),
    guest_beside: ("--mib", "48", "--written-mib", "4", "--around-seconds",
                   "0.2", "--rounds-seconds", "0.2"),
    mmtest: ("-m", "4", "-c", "2", "-t", "2"),
    fast_wp: ("--mib", "48", "--written-mib", "4", "--rounds-seconds", "0.1"),
    ping_pong: ("--mib", "48", "--written-mib", "4", "--legs", "2",
                "--rounds-seconds", "0.1", "--rest-seconds", "0.1")}
EXPECTED = {
    guest_view: {"rate", "stop", "resume", "end", "lost", "worst", "zero"},
    guest_beside: {"rate", "end", "lost", "kept-live"},
    mmtest: {"alone", "migrating", "migration", "downtime"},
    fast_wp: {"dirty-rate", "total", "mapped-before"},
    ping_pong: {"legs", "mean", "pages"}}


@pytest.mark.parametrize("program", SMALL, ids=lambda it: it.__name__)
def test_measures(program, capsys: pytest.CaptureFixture[str]) -> None:
    """One small real run has all figures, and they make sense."""
    if not kvm_usable():
        pytest.skip("/dev/kvm cannot be used on this host")
    assert program.main(SMALL[program]) == 0
    sample = parse(capsys.readouterr().out)
    assert EXPECTED[program] <= set(sample)
    for name in {"alone", "migrating", "mean", "total"} & set(sample):
        assert sample[name].values[0] > 0


@pytest.mark.parametrize("program", SMALL, ids=lambda it: it.__name__)
def test_no_such_binary(program, tmp_path: Path,
                        capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence says what is wrong."""
    if not kvm_usable():
        pytest.skip("/dev/kvm cannot be used on this host")
    missing = str(tmp_path / "none")
    assert program.main([*SMALL[program], "--qemu", missing]) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and missing in said.err
    assert not said.out


@pytest.mark.parametrize("program,words,what", [
    (mmtest, ["-t", "17"], "-t 17"), (mmtest, ["-c", "0"], "positive"),
    (mmtest, ["-m", "64", "--memory", "64"], "--memory 64"),
    (guest_ends, ["ours"], "'ours' is not QEMU:MECHANISM"),
    (guest_ends, ["ours:magic"], "log, ring"),
    (guest_ends, ["ours:log:sends"], "QEMU:MECHANISM:sends-all"),
    (guest_ends, ["--times", "0"], "above 0")])
def test_refuses(program, words: list[str], what: str,
                 capsys: pytest.CaptureFixture[str]) -> None:
    """A program refuses the impossible with the reason."""
    with pytest.raises(SystemExit) as end:
        program.main(words)
    assert end.value.code == 2
    assert what in capsys.readouterr().err.splitlines()[-1]


ENDS = ("--mib", "48", "--written-mib", "4", "--seconds", "20")


def test_ends_measures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest that ends has all figures, one that does not says only that."""
    monkeypatch.setattr(guest_ends, "BEFORE_SECONDS", 0.5)
    if not kvm_usable():
        pytest.skip("/dev/kvm cannot be used on this host")
    assert guest_ends.main([*ENDS, "stock:log", "ours:log"]) == 0
    sample = parse(capsys.readouterr().out)
    for row in ("stock-log", "ours-log"):
        assert sample[f"ended.{row}"].values == (1,)
        assert sample[f"total.{row}"].values[0] > 0
        assert f"writers.{row}" in sample
        assert f"others.{row}" not in sample
    endless = (*ENDS, "--seconds", "1", "--written-mib", "16",
               "--mib-per-second", "1", "ours:log")
    assert guest_ends.main(endless) == 0
    sample = parse(capsys.readouterr().out)
    assert sample["ended.ours-log"].values == (0,)
    assert "total.ours-log" not in sample


@pytest.mark.parametrize("known", [False, True])
def test_dirty_limit(known: bool) -> None:
    """Whatever a QEMU is called, what it knows decides how it is limited."""
    src = Mock(spec=VM)
    src.qmp.return_value = [{"capability": "dirty-limit"}] * known
    row = guest_ends.Row(Qemu("x", Path("x"), False), "ring")
    assert guest_ends.brake_of(src, row, 64 * MIB, 2) == guest_ends.Brake(
        auto_converge=False, limit=16, by_migration=known)


def ends_sample(**rows: tuple[int, int]) -> dict[str, Figure]:
    """Whether each row ended, and its total."""
    return {f"{name}.{row.replace('_', '-')}": Figure((value,), "ms")
            for row, values in rows.items()
            for name, value in zip(("ended", "total"), values)
            if name == "ended" or values[0]}


def test_ends_best_peer(tmp_path: Path) -> None:
    """Who ends more often is better than who is sooner; ours is no peer."""
    stock = VERSIONS["stock"]
    case = chapter_ends.CASES[0]
    step = case.step(list(chapter_ends.SYSTEMS))
    results = Results(tmp_path, {})
    results.add(step, ends_sample(stock_log=(1, 500), next_log=(1, 900),
                                  ours_log=(1, 100)))
    results.add(step, ends_sample(stock_log=(0, 0), next_log=(1, 700),
                                  ours_log=(1, 200)))
    assert chapter_ends.best_peer(results, step.name) == "next:log"
    rows = {row[0]: row for row in chapter_ends.rows(results, case)}
    assert rows[f"{stock}, log"][1] == "1 of 2"
    assert rows["ours, log"][-1] == "5.33×"
    assert rows[f"{stock}, ring"][1:] == [NONE] * 7


def test_unknown_to_others() -> None:
    """Only a patched QEMU is asked for its own mechanisms."""
    stock = available("stock")
    assert mechanism_of(stock, "log") == LOG
    with pytest.raises(VMError, match="dirty-tracking=shared"):
        mechanism_of(stock, "shared")


def test_pass_time() -> None:
    """The time is the mean over the vCPUs, each over its own passes."""
    begin = [Mark(1, 1000), Mark(5, 0)]
    end = [Mark(3, 5000), Mark(6, 6000)]
    assert pass_ns(begin, end, 2e9) == pytest.approx(2000)
    with pytest.raises(VMError):
        pass_ns(begin, [Mark(1, 1000), Mark(6, 6000)], 2e9)


READINGS = (Reading(0.0, (0, 0)), Reading(1.0, (100, 0)),
            Reading(2.0, (200, 50)), Reading(3.0, (200, 200)),
            Reading(4.0, (200, 260)))


def test_joined() -> None:
    """Pages that arrive are no writes; the target's own writes are."""
    view = joined(READINGS, resume=2.5)
    assert list(view.counts) == [0, 100, 200, 200, 260]
    assert view.rate(0, 2) == 100
    assert view.at(0.5) == 50
    assert view.longest_zero(0, 4) == 1
    assert view.longest_zero(0, 2.5) == 0
    assert view.gap == 1


def test_joined_lost_page() -> None:
    """A counter that begins anew at the target is no jump back."""
    old = [*READINGS[:3], Reading(3.0, (200, 50)), Reading(4.0, (200, 90))]
    assert list(joined(old, 2.5).counts) == [0, 100, 200, 200, 240]


@pytest.mark.parametrize("name", NAMES)
def test_empty_chapter(name: str, tmp_path: Path) -> None:
    """Without any figure there are dashes; the names of steps are unique."""
    (chapter,) = (one for one in CHAPTERS if one.name == name)
    tables = [block for block in chapter.blocks(Results(tmp_path, {}))
              if isinstance(block, Table)]
    assert any(NONE in row for table in tables for row in table.rows)
    for table in tables:
        assert all(len(row) == len(table.headings) for row in table.rows)
    for quick in (False, True):
        names = [step.name for step in chapter.steps(quick)]
        assert names and len(set(names)) == len(names)
