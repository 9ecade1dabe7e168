# SPDX-License-Identifier: GPL-2.0-or-later
"""What build-bochs does with bad input, as test_scripts.py has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from test_scripts import Sandbox, one_sentence

SCRIPT = "build-bochs"
TARBALL = "source/bochs_3.0+dfsg.orig.tar.xz"


@pytest.fixture(name="box")
def fixture_box(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


@pytest.fixture(name="no_mirror")
def fixture_no_mirror(box: Sandbox) -> Sandbox:
    """A machine whose apt knows of no Debian."""
    config = box.top / "apt.conf"
    config.write_text(
        'Dir::Etc::sourcelist "/dev/null";\n'
        'Dir::Etc::sourceparts "/dev/null";\n'
    )
    box.env["APT_CONFIG"] = str(config)
    return box


def test_unknown_argument(box: Sandbox) -> None:
    done = box.run(SCRIPT, "--loud")
    assert "'--loud'" in one_sentence(done, SCRIPT)
    assert not box.build.exists()


def test_number_of_jobs(box: Sandbox) -> None:
    done = box.run(SCRIPT, JOBS="0")
    assert "JOBS=0 " in one_sentence(done, SCRIPT)
    assert not box.build.exists()


def test_no_mirror(no_mirror: Sandbox) -> None:
    done = no_mirror.run(SCRIPT)
    assert "no mirror" in one_sentence(done, SCRIPT)


def test_damaged_source_is_not_used(no_mirror: Sandbox) -> None:
    """It is fetched again, for which there is no mirror here."""
    tarball = no_mirror.cache / TARBALL
    tarball.parent.mkdir(parents=True)
    tarball.write_bytes(b"not what it should be")
    done = no_mirror.run(SCRIPT)
    assert "no mirror" in one_sentence(done, SCRIPT)
    assert not (no_mirror.build / "src/bochs").exists()
