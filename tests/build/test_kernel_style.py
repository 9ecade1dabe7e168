# SPDX-License-Identifier: GPL-2.0-or-later
"""Linux's own checkpatch.pl on all files that are to become part of Linux."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.releases import from_scripts

ROOT = Path(__file__).resolve().parents[2]
HOST_KERNEL = ROOT / "host-kernel"
PATCHES = sorted((HOST_KERNEL / "patches").rglob("*.patch"))
OWN_FILES = sorted(
    path
    for path in HOST_KERNEL.rglob("*")
    if path.suffix in (".c", ".h", ".S", ".rst")
)

# The complaints of checkpatch that are ignored, and why.
IGNORED = {
    "MISSING_SIGN_OFF": "scripts/export-series signs a patch off",
    "FILE_PATH_CHANGES": "our files are not in MAINTAINERS yet",
}
IGNORED_IN_SELFTESTS = {
    "VOLATILE": "a guest writes what the test reads, without a lock",
}
IGNORED_IN_TRACE_EVENTS = {
    "OPEN_ENDED_LINE": "TRACE_EVENT() is written so in all of Linux",
    "PARENTHESIS_ALIGNMENT": "the same",
}
IGNORED_IN_UAPI = {
    "BIT_MACRO": "userspace has no BIT()",
}
IGNORED_IN_RELEASE = {
    "LINUX_VERSION_CODE": "this is the one place that asks for it",
    "CONSTANT_COMPARISON": "KERNEL_VERSION() is taken for a name",
    "MACRO_ARG_UNUSED": "what one release needs to know, another does not",
}
COMPLAINT = re.compile(r"(\S+?):\d+: (ERROR|WARNING|CHECK):(\w+): ")


@pytest.fixture(name="linux", scope="session")
def fixture_linux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source tree whose rules count."""
    done = subprocess.run(
        [ROOT / "scripts/get-linux"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(from_scripts("linux_stock"))


def is_listened_to(line: str, ignored: dict[str, str]) -> bool:
    """Whether a line of checkpatch's output is a complaint that counts."""
    match = COMPLAINT.match(line)
    if match is None:
        return False
    path, level, kind = match.groups()
    if path.endswith("_release.h") and kind in IGNORED_IN_RELEASE:
        return False
    if "tools/testing" in path:
        return level != "CHECK" and kind not in {
            **ignored,
            **IGNORED_IN_SELFTESTS,
        }
    if re.search(r"/trace/events/|_trace\.h$", path):
        return kind not in {**ignored, **IGNORED_IN_TRACE_EVENTS}
    if "/uapi/" in path:
        return kind not in {**ignored, **IGNORED_IN_UAPI}
    return kind not in ignored


def complaints(
    linux: Path,
    words: list[str],
    text: str,
    ignored: dict[str, str] | None = None,
) -> list[str]:
    """The complaints of checkpatch that are not ignored."""
    done = subprocess.run(
        [linux / "scripts/checkpatch.pl", f"--root={linux}", "--strict"]
        + ["--terse", "--showfile", "--show-types", "--no-summary", *words],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return [
        line
        for line in done.stdout.splitlines()
        if is_listened_to(line, IGNORED if ignored is None else ignored)
    ]


@pytest.mark.parametrize(
    "path", OWN_FILES, ids=[str(p.relative_to(HOST_KERNEL)) for p in OWN_FILES]
)
def test_own_file(linux: Path, path: Path) -> None:
    assert complaints(linux, ["-f", str(path)], "") == []


# By standard input: checkpatch takes no file that git knows for a patch.
@pytest.mark.parametrize(
    "path", PATCHES, ids=[f"{p.parent.name}-{p.name}" for p in PATCHES]
)
def test_patch(linux: Path, path: Path) -> None:
    assert complaints(linux, ["-"], path.read_text()) == []


def first_hunk(patch: str) -> str:
    """The message, and the first change.

    The others are looked at by test_own_file() and test_patch().
    """
    hunks = re.split(r"(?m)^(?=@@ |diff --git )", patch)
    return "".join(hunks[:3])


def test_exported_series(linux: Path, tmp_path: Path) -> None:
    """The messages of the exported patches pass, and they are signed off."""
    out = tmp_path / "out"
    env = {
        **os.environ,
        "GIT_AUTHOR_NAME": "A Name",
        "GIT_AUTHOR_EMAIL": "name@localhost",
    }
    subprocess.run(
        [ROOT / "scripts/export-series", "linux", out],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    cover, *patches = sorted(out.iterdir())
    assert cover.name == "0000-cover-letter.patch"
    series = HOST_KERNEL / f"patches/linux-{from_scripts('linux_hooks_fit')}"
    assert len(patches) == len(list(series.glob("*.patch"))) + 1
    ignored = {
        kind: why
        for kind, why in IGNORED.items()
        if kind != "MISSING_SIGN_OFF"
    }
    for patch in patches:
        text = first_hunk(patch.read_text())
        assert complaints(linux, ["-"], text, ignored) == [], patch.name


def test_bad_style_is_seen(linux: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.c"
    bad.write_text("int f(void) {\n  return (0) ;\n}\n")
    assert complaints(linux, ["-f", str(bad)], "") != []
