# SPDX-License-Identifier: GPL-2.0-or-later
"""The release of Debian that the machine has not: its QEMU, and its kernel.

All tests run with the machine's own release.  Of the other one, which RELEASE
chooses, both are built, our selftests run, and each mechanism migrates once.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.migration.guest import ROOT

pytestmark = pytest.mark.soak
SECONDS = 1800


def other_release() -> str:
    """The one that is not built by default."""
    with open("/etc/os-release", encoding="utf-8") as file:
        return "12" if 'VERSION_ID="13"' in file.read() else "13"


ENVIRONMENT = {**os.environ, "RELEASE": other_release()}
OURS = "dirty_bitmap_fd or eager_page or dirty_bits_test or write_protect"
CHOSEN = {
    "selftests": ("tests/lab/test_selftests.py",
                  f"patched-tdp and ({OURS}) and not race or late-vcpu"),
    "races": ("tests/lab/test_selftests.py",
              "patched-tdp and race and (bits or ring) and not age and not -n"),
    "migrations": ("tests/lab/test_migration.py",
                   "tdp and (test_identical or test_it_ends)"),
}


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """Build QEMU; the tests have the lab's kernels built."""
    subprocess.run([ROOT / "scripts/build-qemu"], env=ENVIRONMENT, check=True)


@pytest.mark.parametrize("chosen", CHOSEN)
def test_other_release(chosen: str) -> None:
    """What is chosen passes, and nothing of it is skipped."""
    file, names = CHOSEN[chosen]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         file, "-k", names],
        cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True,
        timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b[1-9]\d* passed", done.stdout), done.stdout
    assert "skipped" not in done.stdout, done.stdout
