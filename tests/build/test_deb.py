# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's packages of ours: their versions, and what they do to AppArmor's rules."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.migration.vm import STOCKS
from tests.releases import OWN

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
PACKAGING = ROOT / "packaging/qemu"
NAME = "qemu-system-x86-fdt"

RULE = "/usr/bin/qemu-system-x86_64-fdt rmix, # by the package qemu-system-x86-fdt\n"
OLD = "  #include <local/abstractions/libvirt-qemu>\n"
NEW = "  include if exists <abstractions/libvirt-qemu.d>\n"


def version(debian: str, time: int) -> str:
    """That of a package of ours from Debian's source."""
    script = f"""
        . {SCRIPTS}/lib/common.sh
        . {SCRIPTS}/lib/deb.sh
        deb_version 'Debian {debian}' {time}
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True,
                          text=True, check=True)
    return done.stdout.strip()


def is_newer(one: str, other: str) -> bool:
    done = subprocess.run(["dpkg", "--compare-versions", one, "gt", other],
                          check=False)
    return done.returncode == 0


@pytest.mark.parametrize(("debian", "update"), [
    ("1:7.2+dfsg-7+deb12u18", "1:7.2+dfsg-7+deb12u19"),
    ("1:10.0.2+ds-2+deb13u1~bpo12+1", "1:10.0.2+ds-2+deb13u1"),
    ("6.1.119-1", "6.1.123-1"),
])
def test_version(debian: str, update: str) -> None:
    """Newer than Debian's, older than its update and than our next one."""
    ours = version(debian, 1764072000)
    assert ours == f"{debian}+fdt202511251200"
    assert is_newer(ours, debian)
    assert is_newer(update, ours)
    assert is_newer(version(update, 0), ours)
    assert is_newer(version(debian, 1764072060), ours)


def time_of_ours(top: Path, *options: str, **env: str) -> int:
    """What the version has of the checkout TOP."""
    script = f"""
        . {SCRIPTS}/lib/common.sh
        . {SCRIPTS}/lib/deb.sh
        root={top}
        time_of_ours {" ".join(options)}
    """
    done = subprocess.run(["bash", "-c", script], env={**os.environ, **env},
                          capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_time_in_a_version(tmp_path: Path) -> None:
    """Of what is built, if that is a commit's and no more: then it is its own."""
    ours = ["git", "-C", str(tmp_path), "-c", "user.name=x",
            "-c", "user.email=x@y"]
    date = "2001-09-09T01:46:40Z"
    subprocess.run([*ours, "init", "-q"], check=True)
    subprocess.run(
        [*ours, "commit", "-q", "--allow-empty", "-m", "x"], check=True,
        env={**os.environ, "GIT_COMMITTER_DATE": date, "GIT_AUTHOR_DATE": date},
    )
    commit, options = 1_000_000_000, ("ONE", "OTHER")
    if os.geteuid() == 0:  # git does not trust somebody else's.
        os.chown(tmp_path, 65534, 65534)
        os.chown(tmp_path / ".git", 65534, 65534)
    assert time_of_ours(tmp_path, *options) == commit
    assert time_of_ours(tmp_path, *options, OTHER="", MORE="x") == commit
    assert time_of_ours(tmp_path, *options, OTHER="x") > commit
    config = tmp_path / ".git/config"
    for time in (commit - 1, commit + 1):
        os.utime(config, (time, time))
        assert time_of_ours(tmp_path, *options, OTHER=str(config)) == max(
            time, commit)
    (tmp_path / "new").write_text("")
    assert time_of_ours(tmp_path, *options) > commit


def test_other_release(tmp_path: Path) -> None:
    """A package has to be made on the Debian whose libraries it needs."""
    other = next(release for release in STOCKS if release != OWN)

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, cwd=SCRIPTS.parent,
            env=os.environ | {"RELEASE": other, "FDT_BUILD": str(tmp_path)},
            check=False,
        )

    ask = ("scripts/build-deb-qemu", "--check")
    for command in (ask, ask[:1]):
        done = run(*command)
        assert done.returncode != 0
        assert f"not those of Debian {other}; " in done.stderr
        assert not list(tmp_path.iterdir())
    assert run("env", f"RELEASE={OWN}", *ask).returncode == 0
    # make asks before it installs anything.
    commands = run("make", "-n", "deb").stdout.splitlines()
    assert commands.index(" ".join(ask)) < commands.index("scripts/deps --deb")


@pytest.mark.parametrize(
    ("script", "name"),
    [("build-deb-qemu", "QEMU_SRC"), ("build-deb-kernel", "LINUX_SRC")],
)
def test_source_without_version(
    tmp_path: Path, script: str, name: str
) -> None:
    """Of a source that is not Debian's there is no package; nothing is built."""
    done = subprocess.run(
        [SCRIPTS / script], capture_output=True, text=True, check=False,
        env={**os.environ, "RELEASE": OWN, name: str(tmp_path),
             "FDT_BUILD": str(tmp_path / "build")},
    )
    assert done.returncode != 0
    assert done.stderr.endswith(
        f"no version of Debian's; unset {name} to make a package\n")
    assert not list(tmp_path.iterdir())


class Etc:
    """An /etc with what libvirt and the package have of AppArmor's rules."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.rules = top / "apparmor.d/abstractions/libvirt-qemu"
        self.local = top / "apparmor.d/local/abstractions/libvirt-qemu"
        self.ours = self.rules.with_name("libvirt-qemu.d") / NAME
        self.ours.parent.mkdir(parents=True)
        self.ours.write_text((PACKAGING / "apparmor").read_text())

    def call(self, script: str, *arguments: str) -> None:
        """Have dpkg's shell run one of the package's scripts."""
        mount = f"mount --bind {self.top} /etc && exec sh \"$@\""
        subprocess.run(
            ["unshare", "--mount", "--map-root-user", "sh", "-c", mount, "sh",
             PACKAGING / f"{NAME}.{script}", *arguments],
            check=True,
        )


@pytest.fixture(name="etc")
def fixture_etc(tmp_path: Path) -> Etc:
    probe = ["unshare", "--mount", "--map-root-user", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no namespaces here")
    return Etc(tmp_path)


@pytest.mark.parametrize("text", [
    "", "/mine rw,\n", "/mine rw,\n# no newline",
])
def test_rule_comes_once_and_goes(etc: Etc, text: str) -> None:
    """Where libvirt reads no directory, its local file gets our line."""
    etc.rules.write_text(OLD)
    etc.local.parent.mkdir(parents=True)
    etc.local.write_text(text)
    whole = text if text[-1:] in ("", "\n") else f"{text}\n"
    files = []
    for call in (["configure", ""], ["configure", "1"], ["triggered", "x"]):
        etc.call("postinst", *call)
        assert etc.local.read_text() == whole + RULE
        files.append(etc.local.stat().st_ino)
    # A domain that starts meanwhile finds the line there: sed makes a new file.
    assert len(set(files)) == 1
    etc.call("prerm", "upgrade", "2")
    assert etc.local.read_text() == whole + RULE
    etc.call("prerm", "remove")
    assert etc.local.read_text() == whole
    etc.call("postinst", "abort-remove")
    assert etc.local.read_text() == whole + RULE


def test_rule_without_libvirt(etc: Etc) -> None:
    """libvirt may come after the package, which a trigger then tells."""
    etc.call("postinst", "configure", "")
    etc.call("prerm", "remove")
    assert not etc.local.exists()
    etc.rules.write_text(OLD)
    etc.call("postinst", "triggered", str(etc.rules))
    assert etc.local.read_text() == RULE


def test_rule_that_was_removed(etc: Etc) -> None:
    """dpkg respects that the administrator wants none; our line goes, too."""
    etc.rules.write_text(OLD)
    etc.ours.unlink()
    etc.call("postinst", "configure", "1")
    assert not etc.local.exists()
    etc.local.parent.mkdir(parents=True)
    etc.local.write_text(RULE)
    etc.call("postinst", "triggered", str(etc.rules))
    assert etc.local.read_text() == ""


def test_rule_after_update_of_libvirt(etc: Etc) -> None:
    """A libvirt that reads the directory needs no line."""
    etc.rules.write_text(OLD)
    etc.call("postinst", "configure", "")
    assert etc.local.read_text() == RULE
    etc.rules.write_text(NEW)
    etc.call("postinst", "triggered", str(etc.rules))
    assert etc.local.read_text() == ""
