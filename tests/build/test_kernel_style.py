# SPDX-License-Identifier: GPL-2.0-or-later
"""Linux's own checkpatch.pl on all that is meant to become a part of Linux."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOST_KERNEL = ROOT / "host-kernel"
PATCHES = sorted((HOST_KERNEL / "patches").rglob("*.patch"))
OWN_FILES = sorted(
    path
    for path in HOST_KERNEL.rglob("*")
    if path.suffix in (".c", ".h", ".S", ".rst")
)

# What checkpatch says and is not listened to, and why.
IGNORED = {
    "MISSING_SIGN_OFF": "whoever posts a patch signs it off",
    "FILE_PATH_CHANGES": "our files are not in MAINTAINERS yet",
}
IGNORED_IN_SELFTESTS = {
    "VOLATILE": "a guest writes what the test reads, without a lock",
}
COMPLAINT = re.compile(r"(?:ERROR|WARNING):(\w+): ")


@pytest.fixture(name="linux", scope="session")
def fixture_linux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree whose rules count."""
    done = subprocess.run(
        [ROOT / "scripts/get-linux"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shell = f". {ROOT}/scripts/lib/common.sh; echo $linux_stock"
    stock = subprocess.check_output(["bash", "-c", shell], text=True)
    return Path(stock.strip())


def complaints(linux: Path, words: list[str], text: str) -> list[str]:
    """What checkpatch has against it, but for what is ignored."""
    done = subprocess.run(
        [linux / "scripts/checkpatch.pl", f"--root={linux}"]
        + ["--strict", "--terse", "--show-types", "--no-summary", *words],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    ignored = dict(IGNORED)
    if any("tools/testing" in word for word in words):
        ignored.update(IGNORED_IN_SELFTESTS)
    return [
        line
        for line in done.stdout.splitlines()
        if (match := COMPLAINT.search(line)) and match[1] not in ignored
    ]


@pytest.mark.parametrize(
    "path", OWN_FILES, ids=[str(p.relative_to(HOST_KERNEL)) for p in OWN_FILES]
)
def test_own_file(linux: Path, path: Path) -> None:
    assert complaints(linux, ["-f", str(path)], "") == []


# By its standard input: a file that git knows would not be taken as a patch.
@pytest.mark.parametrize("path", PATCHES, ids=[p.name for p in PATCHES])
def test_patch(linux: Path, path: Path) -> None:
    assert complaints(linux, ["-"], path.read_text()) == []


def test_bad_style_is_seen(linux: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.c"
    bad.write_text("int f(void) {\n  return (0) ;\n}\n")
    assert complaints(linux, ["-f", str(bad)], "") != []
