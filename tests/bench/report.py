# SPDX-License-Identifier: GPL-2.0-or-later
"""The page of the measurements, and the same for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jinja2

from .blocks import Block, Chapter, Plot, Table, Text, number
from .results import Results
from .step import Step
from .verdict import verdict

TEMPLATE = "report.html.j2"
# The chapters with their blocks: drawn once, for all files.
Shown = Sequence[tuple[Chapter, Sequence[Block]]]
KINDS = {Text: "text", Table: "table", Plot: "plot"}


def figures(step: Step, results: Results) -> list[dict[str, Any]]:
    """All single numbers that a step printed, over its runs."""
    names = {name: None for sample in results.samples(step.name)
             for name, figure in sample.items() if len(figure.values) == 1}
    stats = [(name, results.stat(step.name, name)) for name in names]
    return [{"name": name, "unit": stat.unit, "runs": len(stat.values),
             "median": stat.median, "low": stat.low, "high": stat.high}
            for name, stat in stats if stat]


def measured(chapter: Chapter, quick: bool,
             results: Results) -> list[dict[str, Any]]:
    """The steps of a chapter and their results."""
    return [{"name": step.name, "command": str(step),
             "error": results.errors.get(step.name),
             "figures": figures(step, results)}
            for step in chapter.steps(quick)]


def filled(blocks: Sequence[Block]) -> list[Block]:
    """The blocks without those that a quick run has no figures for."""
    found = [block.filled() if isinstance(block, Table) else block
             for block in blocks]
    return [block for block in found
            if not isinstance(block, Table) or block.rows]


def drawn(chapters: Sequence[Chapter], quick: bool, results: Results) -> Shown:
    """The blocks of all chapters."""
    return [(chapter, (filled if quick else list)(chapter.blocks(results)))
            for chapter in chapters]


def page(shown: Shown, quick: bool, results: Results,
         about: Mapping[str, str]) -> str:
    """The report, whole in one page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined)
    environment.filters["number"] = number
    filled = [{"name": chapter.name, "title": chapter.title,
               "blocks": [(KINDS[type(block)], block) for block in blocks],
               "steps": measured(chapter, quick, results)}
              for chapter, blocks in shown]
    return environment.get_template(TEMPLATE).render(
        chapters=filled, about=about, verdict=verdict(results))


def data(chapters: Sequence[Chapter], quick: bool, results: Results,
         about: Mapping[str, str]) -> str:
    """The same for programs, with every sample."""
    steps = {
        step.name: {
            "chapter": chapter.name,
            "command": str(step),
            "error": results.errors.get(step.name),
            "samples": [
                {name: asdict(figure) for name, figure in sample.items()}
                for sample in results.samples(step.name)],
        }
        for chapter in chapters for step in chapter.steps(quick)}
    return json.dumps({"about": dict(about), "steps": steps}, indent=1)


def tables(shown: Shown, about: Mapping[str, str]) -> str:
    """The tables alone, for documents."""
    parts = [f"`{about['command']}`, {about['date']}"]
    for chapter, blocks in shown:
        parts.append(f"## {chapter.title}")
        for block in blocks:
            if isinstance(block, Table):
                parts += [block.markdown(), block.caption]
    return "\n\n".join(part for part in parts if part) + "\n"


def write(directory: Path, chapters: Sequence[Chapter], quick: bool,
          results: Results, about: Mapping[str, str]) -> Path:
    """Write all files that docs/bench.md names; return report.html's path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "report.html"
    shown = drawn(chapters, quick, results)
    for name, text in (
            (path.name, page(shown, quick, results, about)),
            ("results.json", data(chapters, quick, results, about)),
            ("tables.md", tables(shown, about))):
        (directory / name).write_text(text, encoding="utf-8")
    for chapter, blocks in shown:
        plots = [block for block in blocks if isinstance(block, Plot)]
        for place, plot in enumerate(plots, 1):
            (directory / f"{chapter.name}-{place}.svg").write_text(
                plot.svg, encoding="utf-8")
    return path
