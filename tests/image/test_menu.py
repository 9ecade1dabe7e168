# SPDX-License-Identifier: GPL-2.0-or-later
"""The menu, the first process and the page about them say the same."""

from __future__ import annotations

import re
import subprocess

import pytest

from qualify import host
from qualify.__main__ import STEPS
from tests.migration.guest import ROOT

INIT = (ROOT / "qualify/init").read_text()
MENU = (ROOT / "qualify/grub.cfg").read_text()
PAGE = (ROOT / "docs/hardware.md").read_text()
CODE = "".join(path.read_text() for path in (ROOT / "qualify").glob("*.py")) + INIT


def test_init_is_a_script() -> None:
    done = subprocess.run(["bash", "-n"], input=INIT, capture_output=True,
                          text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_modes() -> None:
    """Each of the menu is known to init, and told in the page."""
    modes = set(re.findall(r"qualify\.mode=(\w+)", MENU))
    assert modes == {*STEPS, "measure"}
    for mode in modes:
        assert re.search(rf"^    [\w |]*\b{mode}\b[\w |]*\)", INIT, re.M), mode
        assert f"\n| {mode} |" in PAGE
    entries = re.findall(r"--id (\w+)", MENU)
    assert {*modes, "shell", "stock"} == set(entries)


def test_words() -> None:
    """The page has those that init looks for, and no others."""
    looked = set(re.findall(r"word (qualify\.\w+)", INIT))
    told = set(re.findall(r"^\| `(qualify\.\w+)=", PAGE, re.M))
    assert looked == told


def test_crash_kernel_has_no_menu() -> None:
    """Init knows the mode that the waiting kernel is started with."""
    modes = set(re.findall(r"qualify\.mode=(\w+)", INIT))
    assert "after" in modes and re.search(r"^after\(\)", INIT, re.M)


@pytest.mark.parametrize("sentence", [
    line.split("|")[1].strip()
    for line in PAGE.partition("| it says |")[2].partition("\n\n")[0].splitlines()
    if line.startswith("| ") and "---" not in line
])
def test_sentences(sentence: str) -> None:
    """What the page quotes is said, but for numbers and names."""
    words = re.sub(r"\(AMD-V\) ", "", sentence)
    parts = [part for part in re.split(r"\d+|VT-x|AMD-V|FDT-RESULT|\"raec\"", words)
             if len(part) > 3]
    said = re.sub(r'"\s*\n\s*f?"', "", CODE)
    for part in parts:
        assert part.strip() in said, part


def test_every_feature_has_a_vendor() -> None:
    assert set(host.AMD_FEATURES) <= set(host.INTEL_FEATURES)
