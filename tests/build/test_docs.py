# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents: a link leads somewhere, a figure of QMP's has its unit."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def anchors(document: Path) -> set[str]:
    """The names of its titles in links."""
    titles = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in titles
    }


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links(document: Path) -> None:
    """Each link names a file that exists, and a title that it has."""
    links = re.findall(r"\]\(([^)\s]+)\)", document.read_text())
    assert links
    for link in links:
        name, _, anchor = link.partition("#")
        if ":" in name:
            continue
        target = document.parent / name if name else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


# The directories of our files, and what may stand before a name.
OURS = (
    "accel|docs|host-kernel|include|lab-cpu|migration|patches|qapi|scripts"
    "|softmmu|tests"
)
NAMED = re.compile(
    rf"(?<![\w/.<\"-])((?:{OURS})/[\w./-]*\w\.(?:c|h|py|md|rst|json|patch))\b"
)


@pytest.mark.parametrize("kind", ["c", "h", "py", "S", "pml", "json", "sh"])
def test_files_that_the_source_names_exist(kind: str) -> None:
    """Comments count, too; the tests of scripts make up files of their own."""
    tracked = subprocess.check_output(
        ["git", "ls-files", f"*.{kind}"], cwd=ROOT, text=True
    )
    missing = [
        f"{source}: {name}"
        for source in tracked.splitlines()
        if not source.startswith("tests/build/")
        for name in NAMED.findall((ROOT / source).read_text())
        if not (ROOT / name).exists()
    ]
    assert tracked and not missing


# A member's type and the first words of its description, in QAPI.
FIGURE = re.compile(r"'\*?([\w-]+)': 'u?int\d*'")
UNIT = re.compile(
    "(?:the |estimated )?"
    "(?:nanoseconds|milliseconds|bytes|percentage|how often|number of )"
)


def test_units() -> None:
    """QAPI says what each figure counts, and in which unit."""
    text = (ROOT / "qapi/dirty-tracking.json").read_text()
    found = 0
    for comment, code in re.findall(
        r"^##\n((?:#.*\n)+?)##\n((?:[^#\n].*\n)+)", text, re.MULTILINE
    ):
        for name in FIGURE.findall(code):
            said = comment.partition(f"# @{name}: ")[2]
            assert UNIT.match(said), name
            found += 1
    assert found == len(FIGURE.findall(text))
