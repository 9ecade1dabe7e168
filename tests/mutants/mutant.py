# SPDX-License-Identifier: GPL-2.0-or-later
"""A mutant: a patch that breaks one thing, and what has to notice it.

README.md describes the format of the patches.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

CPUS = len(os.sched_getaffinity(0))

FIELD = re.compile(r"([A-Z][\w-]*): (.+)")


class Failure(Exception):
    """What had to succeed did not, so that nothing is known of a mutant."""


@dataclass(frozen=True)
class Patch:
    """A file: its header's fields in their order, a text, and the diff."""

    name: str
    fields: tuple[tuple[str, str], ...]
    text: str
    diff: str


@dataclass(frozen=True)
class Mutant:
    """A patch, and one of the fields Killed-by with what belongs to it."""

    patch: Patch
    invariant: str
    killed_by: str
    says: str = ""  # a regular expression; "" is the family's own
    options: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """What it is called: the name of its file, without .patch."""
        return self.patch.name

    def option(self, field: str) -> str:
        """A field that only its family knows, or ""."""
        return dict(self.options).get(field, "")


def read_patch(path: Path) -> Patch:
    """Read one file; it begins with its licence."""
    head, start, diff = path.read_text(encoding="utf-8").partition("\n--- a/")
    licence, *lines = head.splitlines() or [""]
    if not start or not licence.startswith("SPDX-License-Identifier: "):
        raise Failure(f"{path} is no patch with a header")
    fields = []
    while lines and (field := FIELD.fullmatch(lines[0])):
        fields.append((field[1], field[2]))
        del lines[0]
    text = "\n".join(lines).strip()
    return Patch(path.stem, tuple(fields), text, f"--- a/{diff}")


def mutants_of(patch: Patch, known: Collection[str] = ()) -> list[Mutant]:
    """One for each Killed-by; known are the fields of the family's own."""
    invariant, *others = patch.fields or [("", "")]
    if invariant[0] != "Invariant" or not others or not patch.text:
        raise Failure(f"{patch.name}: no Invariant, no Killed-by or no text")
    blocks: list[dict[str, str]] = []
    for field, value in others:
        if field == "Killed-by":
            blocks.append({})
        if not blocks or field not in {"Killed-by", "Says", *known}:
            raise Failure(f"{patch.name}: {field} has no place there")
        if field in blocks[-1]:
            raise Failure(f"{patch.name}: {field} is there twice")
        blocks[-1][field] = value
    return [
        Mutant(
            patch,
            invariant[1],
            block.pop("Killed-by"),
            block.pop("Says", ""),
            tuple(block.items()),
        )
        for block in blocks
    ]


def read_all(family: str) -> list[Mutant]:
    """All mutants of a family, in the order of their names."""
    return [
        mutant
        for path in sorted((HERE / family).glob("*.patch"))
        for mutant in mutants_of(read_patch(path))
    ]


def hunks(diff: str) -> Iterator[tuple[str, str, str]]:
    """For each hunk, the file, what is there and what shall be."""
    for part in re.split(r"^--- a/", diff, flags=re.MULTILINE)[1:]:
        names, *bodies = re.split(r"^@@ .*\n", part, flags=re.MULTILINE)
        path = names.split(maxsplit=1)[0]
        for body in bodies:
            lines = body.splitlines(keepends=True)
            yield (
                path,
                "".join(line[1:] for line in lines if line[0] in " -"),
                "".join(line[1:] for line in lines if line[0] in " +"),
            )


def apply(diff: str, read: Callable[[str], str]) -> dict[str, str]:
    """The texts of the files that a diff changes.

    read has a file's text by its path.  It is what a hunk quotes that says
    where it belongs: that must be in the file once, on whichever lines.
    """
    texts: dict[str, str] = {}
    for path, old, new in hunks(diff):
        text = texts[path] if path in texts else read(path)
        # At the beginning of a line, and each even if two overlap.
        places = re.finditer(f"^(?={re.escape(old)})", text, re.MULTILINE)
        starts = [place.start() for place in places]
        if len(starts) != 1:
            raise Failure(
                f"what it changes is {len(starts)} times in {path}:\n{old}"
            )
        start = starts[0]
        texts[path] = text[:start] + new + text[start + len(old) :]
    return texts


def is_noticed(status: int, output: str, says: Sequence[str]) -> bool:
    """Judge a mutant by how its test ended.

    A test that passes has not noticed it.  One that fails has if its output
    has each of says; else it has failed for another reason, as one that
    crashes or does not start, and has not seen what the mutant does.
    """
    if status == 0:
        return False
    for pattern in says:
        if not re.search(pattern, output, re.MULTILINE):
            raise Failure(
                f"it ended with status {status}, and did not say"
                f" '{pattern}':\n{output[-1000:].strip()}"
            )
    return True
