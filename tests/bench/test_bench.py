# SPDX-License-Identifier: GPL-2.0-or-later
"""The benchmarks' frame: steps, their samples, and the report."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Drawing

from . import __main__ as bench
from . import report
from .blocks import Block, Chapter, Plot, Table, Text, cell, number, ratio
from .chapters import CHAPTERS
from .results import Results, Stat
from .step import ROOT, Figure, Lab, Step, StepError, parse
from .verdict import COMPARISONS, verdict
from .versions import PROGRAMS, booted, programs

VERSIONS = {"our QEMU": "1"}
ABOUT = {"date": "2000-01-01", "command": "make bench"}
VOID = {"area", "base", "br", "col", "img", "link", "meta", "input", "hr"}


def echo(name: str, *lines: str, runs: int = 1) -> Step:
    """A step that prints lines."""
    return Step(name, ("printf", r"%s\n", *lines), runs=runs, seconds=1)


def test_parse() -> None:
    """A figure has a name, numbers and a unit; nothing else counts."""
    found = parse("a.b 1 ns\nbooting 2\nrate 1 2.5 3e3 per-s\n# x 1 ns\nx y z\n"
                  "migrate-fetch.get -1 %\n")
    assert found == {"a.b": Figure((1,), "ns"),
                     "rate": Figure((1, 2.5, 3000), "per-s"),
                     "migrate-fetch.get": Figure((-1,), "%")}


@pytest.mark.parametrize("command,said", [
    (("false",), "ended with status 1: it said nothing"),
    (("sh", "-c", "echo bad luck >&2; exit 3"), "status 3: bad luck"),
    (("true",), "printed no figure"),
    (("/nowhere",), "did not end"),
])
def test_step_fails(command: tuple[str, ...], said: str) -> None:
    """One sentence names the command and the error."""
    with pytest.raises(StepError, match=said) as raised:
        asyncio.run(Step("x", command).run())
    assert command[0] in str(raised.value)


def test_step_in_the_lab() -> None:
    """A shell can run the command that a step prints."""
    step = Step("x", ("a", "b c"), Lab("stock", memory=64, icount=True))
    assert str(step) == ("scripts/lab --kernel stock --icount --memory 64M "
                         "--timeout 300 -- a 'b c'")


def test_turns() -> None:
    """Each step has its first run before any has its second."""
    one, two = echo("one", runs=2), echo("two", runs=3)
    assert [(step.name, run) for step, run in bench.in_turns([one, two])] == [
        ("one", 0), ("two", 0), ("one", 1), ("two", 1), ("two", 2)]


def test_noise() -> None:
    """A difference within the spread does not count."""
    stat = [Stat(values, "ns") for values in ((1, 2, 3), (3, 4, 5), (4, 5, 6))]
    assert ratio(stat[0], stat[1]) == "noise"
    assert ratio(stat[2], stat[0]) == "2.5×"
    assert ratio(Stat((6.0,), "ns"), Stat((2.0,), "ns")) == "3×"
    assert ratio(None, stat[0]) == ratio(stat[0], None) == "–"
    less = Stat((-0.5,), "ns")
    assert ratio(less, stat[0]) == ratio(stat[0], less) == "noise"
    assert cell(stat[0]) == "2 (1–3)" and cell(None) == "–"
    assert number(1234567) == "1,234,567" and number(0.01234) == "0.0123"


def chapter(steps: Sequence[Step]) -> Chapter:
    """A chapter with one table of one figure."""
    def blocks(results: Results) -> Sequence[Block]:
        drawing = Drawing()
        drawing.add_subplot().plot([1, 2])
        return [Text("a < b"), Plot(drawing, "a line"), Table(("what", "ns"), [
            (step.name, cell(results.stat(step.name, "t"))) for step in steps])]
    return Chapter("one", "The one", lambda quick: steps, blocks)


def test_resume(tmp_path: Path) -> None:
    """A step is not measured again, unless the binaries are others."""
    step = echo("one", "t 5 ns", runs=3)
    results = Results(tmp_path, VERSIONS)
    bench.measure(bench.left_to_do([chapter([step])], True, results)[:2],
                  results)
    again = Results(tmp_path, VERSIONS)
    left = bench.left_to_do([chapter([step])], True, again)
    assert left == [(step, 2)]
    assert again.stat("one", "t") == Stat((5, 5), "ns")
    changed = echo("one", "t 6 ns", runs=3)
    for other, versions in ((step, {"our QEMU": "2"}), (changed, VERSIONS)):
        fresh = Results(tmp_path, versions)
        assert len(bench.left_to_do([chapter([other])], True, fresh)) == 3


def test_another_host(tmp_path: Path) -> None:
    """A figure of the last kernel is none of this one's, but for the lab's."""
    here = echo("one", "t 5 ns")
    there = replace(here, name="other", lab=Lab("stock"))
    before = Results(tmp_path, VERSIONS, {"kernel": "6.1.0"})
    for step in (here, there):
        before.add(step, {"t": Figure((5.0,), "ns")})
    for kernel, known in (("6.1.0", 1), ("6.1.192-fdt", 0)):
        results = Results(tmp_path, VERSIONS, {"kernel": kernel})
        assert results.load(here) == known
        assert results.load(there) == 1
    assert "kernel" in booted() and booted() == booted()


def test_measuring_programs(tmp_path: Path) -> None:
    """Programs count as others if a source changes or comes, not a chapter."""
    directory = tmp_path / PROGRAMS[0]
    directory.mkdir(parents=True)
    seen = []
    for name in ("one.py", "one.py", "two.py", "chapter_one.py", "test_one.py"):
        (directory / name).write_text(f"{len(seen)}")
        seen.append(programs(tmp_path))
    assert len(set(seen[:3])) == 3
    assert seen[2:] == [seen[2]] * 3


def test_all_that_is_compiled_is_measuring() -> None:
    """The sources that meson compiles into the programs are in the digest."""
    build = (ROOT / "tests/bench/meson.build").read_text(encoding="utf-8")
    compiled = re.findall(r"'([^']+\.c)'", build)
    places = {str((ROOT / "tests/bench" / name).resolve().parent
                  .relative_to(ROOT)) for name in compiled}
    assert len(places) > 1
    assert places <= set(PROGRAMS)


def test_shared_step(tmp_path: Path) -> None:
    """A step of two chapters is measured once."""
    step = echo("one", "t 5 ns", runs=2)
    both = [chapter([step]), chapter([step, echo("two", "t 6 ns")])]
    left = bench.left_to_do(both, True, Results(tmp_path, VERSIONS))
    assert [(one.name, run) for one, run in left] == [
        ("one", 0), ("one", 1), ("two", 0)]


def meeting(name: str, directory: Path, other: str, icount: bool) -> Step:
    """A step that tells whether OTHER ran while it did."""
    class Here(Lab):
        """A machine that stands for this one."""

        def words(self, seconds: int) -> list[str]:
            return []

    script = (f"touch {name}; for i in 1 2 3 4 5 6 7 8 9 10; do "
              f"test -e {other} && met=1; sleep 0.1; done; rm {name}; "
              "echo met ${met:-0} times")
    return Step(name, ("sh", "-c", f"cd {directory}; {script}"),
                Here(icount=icount), seconds=1)


@pytest.mark.parametrize("icount", [True, False])
def test_at_once(tmp_path: Path, icount: bool) -> None:
    """Two counted steps run side by side, and no others do."""
    steps = [meeting("a", tmp_path, "b", icount),
             meeting("b", tmp_path, "a", icount)]
    results = Results(tmp_path, VERSIONS)
    bench.measure([(step, 0) for step in steps], results)
    assert not results.errors
    assert [results.stat(name, "met") for name in "ab"] == [
        Stat((float(icount),), "times")] * 2


def test_torn_file(tmp_path: Path) -> None:
    """A file that cannot be read counts as none."""
    (tmp_path / "one.json").write_text('{"key": ')
    assert Results(tmp_path, VERSIONS).load(echo("one", "t 1 ns")) == 0


class Checker(HTMLParser):
    """The elements left open, and the files that the page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str,
                        attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.loads += [value for name, value in attrs
                       if name in ("src", "href", "xlink:href") and value
                       and not value.startswith("#")]

    def handle_startendtag(self, tag: str,
                           attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def assert_self_contained(html: str) -> None:
    """Fail unless the page is well-formed and needs nothing else."""
    checker = Checker()
    checker.feed(html)
    assert not checker.open and not checker.loads


def test_report(tmp_path: Path) -> None:
    """The page stands alone; results.json has every sample."""
    steps = [echo("one", "t 5 ns"), Step("two", ("false",))]
    results = Results(tmp_path / "steps", VERSIONS)
    bench.measure(bench.left_to_do([chapter(steps)], True, results), results)
    path = report.write(tmp_path, [chapter(steps)], True, results, ABOUT)
    html = path.read_text()
    assert_self_contained(html)
    assert "a &lt; b" in html and "status 1" in html and "2000-01-01" in html
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept["steps"]["one"]["samples"] == [
        {"t": {"values": [5.0], "unit": "ns"}}]
    assert "status 1" in kept["steps"]["two"]["error"]
    assert "| one | 5 |" in (tmp_path / "tables.md").read_text()
    assert (tmp_path / "one-1.svg").read_text().startswith("<svg")


def test_quick_leaves_out(tmp_path: Path) -> None:
    """A quick report has no row, nor table, for steps not measured."""
    half = Table(["a", "b"], [["x", "1"], ["y", "–"]])
    none = Table(["a", "b"], [["z", "–"]])
    one = Chapter("c", "C", lambda quick: [], lambda results: [half, none])
    for quick, rows in ((True, ["x"]), (False, ["x", "y", "z"])):
        shown = report.drawn([one], quick, Results(tmp_path, VERSIONS))
        tables = [block for block in shown[0][1] if isinstance(block, Table)]
        assert [row[0] for table in tables for row in table.rows] == rows


@pytest.mark.parametrize("one", CHAPTERS, ids=lambda one: one.name)
def test_chapter_without_figures(one: Chapter, tmp_path: Path) -> None:
    """A chapter of which nothing was measured can be shown."""
    results = Results(tmp_path, VERSIONS)
    for quick in (True, False):
        shown = report.drawn([one], quick, results)
        assert_self_contained(report.page(shown, quick, results, ABOUT))
        assert one.steps(quick)


def test_verdict(tmp_path: Path) -> None:
    """Figures that are better, worse or equal say so; the rest say nothing."""
    kept, harvest, write = COMPARISONS[:3]
    lines = {
        kept.pairs[0]: ("kept-live 50 %", "kept-live 75 %"),
        harvest.pairs[1]: ("dirty.get.8192 1 ns", "dirty.bits.8192 2 ns"),
        write.pairs[0]: ("dirty-write.get.262144 -1 ns",
                         "dirty-write.bits.262144 2 ns"),
    }
    steps: dict[str, list[str]] = {}
    for pair, figures in lines.items():
        for (step, _), figure in zip(pair, figures):
            steps.setdefault(step, []).append(figure)
    one = chapter([echo(name, *said) for name, said in steps.items()])
    results = Results(tmp_path, VERSIONS)
    bench.measure(bench.left_to_do([one], True, results), results)
    assert [re.sub(r"^.*?: | \(stock.*", "", line)
            for line in verdict(results)] == [
        "ahead, 1.5×", "behind, 0.5×", "no difference beyond the noise"]


def test_verdict_is_of_steps_that_there_are() -> None:
    """Each comparison names steps that a full run has."""
    steps = {step.name for one in CHAPTERS for step in one.steps(False)}
    for each in COMPARISONS:
        assert {step for step, _ in each.pairs[0]} <= steps, each.what


@pytest.mark.parametrize("quick", [True, False])
def test_names(quick: bool) -> None:
    """A name is that of one step, of a chapter or of several."""
    steps = {step for one in CHAPTERS for step in one.steps(quick)}
    assert len({step.name for step in steps}) == len(steps)
    for one in CHAPTERS:
        names = [step.name for step in one.steps(quick)]
        assert len(set(names)) == len(names)
        assert {name.split("/")[0] for name in names} <= {
            chapter.name for chapter in CHAPTERS}


def test_unknown_chapter() -> None:
    """One sentence lists the names."""
    with pytest.raises(SystemExit, match="no chapter nothing; there are .*kernel"):
        bench.main(["--check", "nothing"])
    assert bench.main(["--check", "kernel"]) == 0
