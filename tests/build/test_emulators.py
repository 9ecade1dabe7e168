# SPDX-License-Identifier: GPL-2.0-or-later
"""The builds of the lab's emulators refuse bad input.

test_scripts.py tells how.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from test_scripts import ROOT, Sandbox, fake_qemu, hook
from test_scripts import one_sentence, write_series

from tests.releases import from_scripts

RELEASE = "12"  # the lab's CPU is a patch to its QEMU, on each machine
QEMU = f"{from_scripts('qemu_hooks_fit', RELEASE)}.22"
BOCHS = "build-bochs"
LAB_CPU = "build-lab-cpu"
TARBALL = "source/bochs_3.0+dfsg.orig.tar.xz"


@pytest.fixture(name="box")
def fixture_box(tmp_path: Path) -> Sandbox:
    box = Sandbox(tmp_path)
    box.env["RELEASE"] = RELEASE
    box.build = Path(box.run("lib/release-dir").stdout.strip())
    box.tree = box.build / "src/qemu-lab"
    box.env.pop("FDT_LAB_CPU_SERIES", None)
    return box


@pytest.mark.parametrize("script", [BOCHS, LAB_CPU])
def test_unknown_argument(box: Sandbox, script: str) -> None:
    done = box.run(script, "--loud")
    assert "'--loud'" in one_sentence(done, script)
    assert not box.build.exists()


@pytest.mark.parametrize("script", [BOCHS, LAB_CPU])
def test_number_of_jobs(box: Sandbox, script: str) -> None:
    done = box.run(script, JOBS="0")
    assert "JOBS=0 " in one_sentence(done, script)
    assert not box.build.exists()


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


def test_no_mirror(no_mirror: Sandbox) -> None:
    done = no_mirror.run(BOCHS)
    assert "no mirror" in one_sentence(done, BOCHS)


def test_damaged_source_is_not_used(no_mirror: Sandbox) -> None:
    """The script fetches it again, but there is no mirror here."""
    tarball = no_mirror.cache / TARBALL
    tarball.parent.mkdir(parents=True)
    tarball.write_bytes(b"not what it should be")
    done = no_mirror.run(BOCHS)
    assert "no mirror" in one_sentence(done, BOCHS)
    assert not (no_mirror.build / "src/bochs").exists()


@pytest.fixture(name="source")
def fixture_source(box: Sandbox) -> Path:
    return fake_qemu(box.top / "qemu", QEMU)


def test_series_directory_is_missing(box: Sandbox, source: Path) -> None:
    box.get(source)
    nowhere = box.top / "nowhere"
    done = box.run(LAB_CPU, QEMU_SRC=source, FDT_LAB_CPU_SERIES=nowhere)
    assert "FDT_LAB_CPU_SERIES" in one_sentence(done, LAB_CPU)
    assert not box.tree.exists()


def test_hook_that_does_not_fit(box: Sandbox, source: Path) -> None:
    box.get(source)
    series = write_series(box.top / "series", other=hook(old="int gone;"))
    done = box.run(LAB_CPU, QEMU_SRC=source, FDT_LAB_CPU_SERIES=series)
    sentence = one_sentence(done, LAB_CPU)
    assert f"other.patch does not fit QEMU {QEMU}" in sentence
    assert box.leftovers() == []
    assert not box.tree.exists()


def test_tree_has_the_cpu_and_nothing_else_of_ours(
    box: Sandbox, source: Path
) -> None:
    """A source that cannot be configured shows its log, and is not built."""
    box.get(source)
    series = write_series(box.top / "series", fits=hook())
    done = box.run(LAB_CPU, QEMU_SRC=source, FDT_LAB_CPU_SERIES=series)
    assert done.returncode == 1
    assert "configuring the lab's QEMU failed" in done.stderr
    assert not (box.top / "build/lab-cpu/.made-from").exists()
    assert "int ours;" in (box.tree / "softmmu/fake.c").read_text()
    own = {
        path.relative_to(ROOT / "lab-cpu")
        for path in (ROOT / "lab-cpu/target").rglob("*.[ch]")
    }
    assert own and all((box.tree / path).is_file() for path in own)
    assert not (box.tree / "accel").exists()
