# SPDX-License-Identifier: GPL-2.0-or-later
"""The measurements so far, kept in files, so that a run can go on."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .step import Figure, Sample, Step


@dataclass(frozen=True)
class Stat:
    """One number, by all runs.

    The spread is the distance from the least to the greatest.
    """

    values: tuple[float, ...]
    unit: str

    @property
    def median(self) -> float:
        """The one in the middle."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The least."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The greatest."""
        return max(self.values)

    def noise(self, other: Stat) -> bool:
        """Whether the spread is wider than the distance between the two."""
        return self.low <= other.high and other.low <= self.high


@dataclass
class Results:
    """The samples of each step, in DIRECTORY, of the VERSIONS measured.

    Measurements of other versions, or by another command, do not count; nor do
    those of another HOST, but for the lab's.
    """

    directory: Path
    versions: dict[str, str]
    host: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    _known: dict[str, list[Sample]] = field(default_factory=dict)

    def _path(self, step: Step) -> Path:
        return self.directory / f"{step.name.replace('/', '.')}.json"

    def _key(self, step: Step) -> dict[str, Any]:
        return {"command": str(step), "versions": self.versions,
                "host": {} if step.lab else self.host}

    def load(self, step: Step) -> int:
        """Take in an earlier run's samples, and return their number."""
        try:
            kept = json.loads(self._path(step).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0
        if kept["key"] != self._key(step):
            return 0
        samples = [
            {name: Figure(tuple(figure["values"]), figure["unit"])
             for name, figure in sample.items()}
            for sample in kept["samples"]]
        self._known[step.name] = samples[:step.runs]
        return len(self._known[step.name])

    def add(self, step: Step, sample: Sample) -> None:
        """Keep the sample of one run."""
        samples = self._known.setdefault(step.name, [])
        samples.append(sample)
        self.directory.mkdir(parents=True, exist_ok=True)
        whole = {"key": self._key(step), "samples": [
            {name: asdict(figure) for name, figure in sample.items()}
            for sample in samples]}
        path = self._path(step)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(whole, indent=1), encoding="utf-8")
        new.replace(path)

    def samples(self, step: str) -> list[Sample]:
        """The samples of a step, one for each run."""
        return self._known.get(step, [])

    def stat(self, step: str, name: str) -> Stat | None:
        """The figure NAME of a step; None if there is none."""
        found = [sample[name] for sample in self.samples(step)
                 if name in sample]
        if not found:
            return None
        return Stat(tuple(figure.values[0] for figure in found),
                    found[0].unit)

    def series(self, step: str, name: str) -> tuple[float, ...]:
        """A figure of many numbers, of the first run; empty if there is none."""
        for sample in self.samples(step)[:1]:
            if name in sample:
                return sample[name].values
        return ()
