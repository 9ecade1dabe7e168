# SPDX-License-Identifier: GPL-2.0-or-later
"""Our QEMU on other machines, as Debian's package and as one file."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.libvirt.test_package import (
    DEBIANS,
    IN_PLACE,
    PACKAGE,
    PROGRAM,
    ROOTS,
    newest,
)
from tests.releases import CHOSEN, OWN

from .lab import BUILD, BUILT, ROOT, must
from .test_libvirt import CONFINING, SCRIPTS, assert_passed, boot

SECONDS = 1200
SOURCES = "apt-root/sources.list"  # by scripts/get-root
# It shows the machine's files to the new one, which has none.
HOOKS = "/usr/share/mmdebstrap/hooks/file-mirror-automount"

# What QEMU looks for in other packages: firmware, and ROMs of devices.
START = """
    echo quit | timeout 60 {program} -accel tcg -m 64 -display none \\
        -device VGA -device e1000 -device virtio-net-pci -monitor stdio
"""
ONE_FILE = "/usr/local/bin/qemu-system-x86_64"
# docs/packaging.md has Debian 12's names; apt does not know these any more.
RENAMED = {"13": {"libaio1": "libaio1t64"}}

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="only root can make other machines"
    ),
]


def get_roots() -> None:
    """Make the Debians that have the libvirts."""
    must([SCRIPTS / "deps", "--deb"])
    must([SCRIPTS / "get-root"])
    if ROOTS[1] in DEBIANS.values():
        must([SCRIPTS / "get-root", "backports"])


@pytest.fixture(name="package", scope="module")
def fixture_package() -> Path:
    """The package beside Debian's, which needs this machine's libraries."""
    if CHOSEN != OWN:
        pytest.skip(f"QEMU of Debian {CHOSEN} has to be packaged on one, and "
                    f"this is Debian {OWN}")
    get_roots()
    must([SCRIPTS / "build-deb-qemu"], DEBEMAIL="test@debian.org")
    return newest(PACKAGE)


def debian_suite(build: Path = BUILT) -> tuple[str, Path]:
    """Its name, and the list of its sources and its updates'."""
    sources = build / SOURCES
    suites = (line.split()[-2] for line in sources.read_text().splitlines())
    return min(suites, key=len), sources


def assert_lintian_passes(what: Path) -> None:
    """Fail if Debian's lintian finds an error in a package."""
    subprocess.run(
        ["lintian", "--fail-on=error", "--allow-root", what], check=True
    )


def test_debian_finds_no_errors(package: Path) -> None:
    assert_lintian_passes(package.with_suffix(".changes"))


def make_machine(machine: Path, packages: str) -> None:
    """Make a Debian with these packages and what they depend on, no more.

    It is of the machine's release, with whose libraries QEMU is built.
    """
    suite, sources = debian_suite(BUILD)
    # What it mounts there is gone with it, however it ends.
    subprocess.run(
        ["unshare", "--mount", "mmdebstrap", "--mode=root"]
        + ["--variant=minbase", f"--hook-dir={HOOKS}", f"--include={packages}"]
        + [suite, machine, sources],
        check=True,
    )


def start(machine: Path, program: str) -> None:
    command = START.format(program=program)
    subprocess.run(["chroot", machine, "sh", "-c", command], check=True)


def test_alone(package: Path, tmp_path: Path) -> None:
    """On a machine with what it depends on and nothing else, it starts."""
    machine = tmp_path / "machine"
    make_machine(machine, str(package))
    start(machine, PROGRAM)


def packages_of_one_file() -> str:
    """The packages that docs/packaging.md installs before the file."""
    said = (ROOT / "docs/packaging.md").read_text(encoding="utf-8")
    install = re.search(
        r"    apt-get install ((?:.*\\\n)*.*)\n    tar -C / ", said
    )
    assert install
    names = install[1].replace("\\\n", " ").split()
    renamed = RENAMED.get(OWN, {})
    return ",".join(renamed.get(name, name) for name in names)


def test_one_file(tmp_path: Path) -> None:
    """Where Debian's QEMU has never been, the file starts as well."""
    must([SCRIPTS / "deps", "--deb"])
    must([SCRIPTS / "get-root"], RELEASE=OWN)
    machine = tmp_path / "machine"
    make_machine(machine, packages_of_one_file())
    assert not list(machine.glob("usr/bin/qemu-system-*"))
    must([SCRIPTS / "build-qemu"])
    must([SCRIPTS / "install-qemu"], DESTDIR=str(machine))
    start(machine, ONE_FILE)


@pytest.mark.parametrize("libvirt", DEBIANS)
def test_life(package: Path, libvirt: str) -> None:
    """With libvirt and AppArmor, from its installation to its end."""
    name = f"test_package.py::test_life[{libvirt}]"
    assert_passed(name, boot(name, kernel=CONFINING, seconds=SECONDS))


@pytest.mark.parametrize("libvirt", DEBIANS)
def test_in_place_of_debians(libvirt: str) -> None:
    """The packages that docs/packaging.md tells how to build, in hours."""
    for name in IN_PLACE:
        if not list((BUILT / "deb").glob(f"{name}_*.deb")):
            pytest.skip(f"{BUILT / 'deb'} has no {name}_*.deb")
    get_roots()
    name = f"test_package.py::test_in_place_of_debians[{libvirt}]"
    assert_passed(name, boot(name, kernel=CONFINING, seconds=SECONDS))
