# SPDX-License-Identifier: GPL-2.0-or-later
"""The scripts answer bad input with one sentence, and do nothing by halves."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.releases import from_scripts

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"

OWN = ""  # the release of the machine itself

# What the hooks fit, and the fakes are.
FITS = from_scripts("qemu_hooks_fit", OWN)
QEMU = f"{FITS}.22"

# Root reads everything; without these capabilities file modes hold for it.
OBEY_MODES = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


class Sandbox:
    """A build directory and a cache of the test's own."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.build = top / "build"
        self.stock = self.build / "src/qemu-stock"
        self.tree = self.build / "src/qemu"
        self.cache = top / "cache"
        self.env = {
            **os.environ,
            "FDT_BUILD": str(self.build),
            "FDT_CACHE": str(self.cache),
        }
        for name in (
            "QEMU_SRC", "FDT_SERIES", "PREFIX", "DESTDIR", "JOBS", "RELEASE",
        ):
            self.env.pop(name, None)

    def run(
        self,
        script: str,
        *arguments: str,
        wrapper: Sequence[str] = (),
        **env: str | Path,
    ) -> subprocess.CompletedProcess[str]:
        extra = {name: str(value) for name, value in env.items()}
        return subprocess.run(
            [*wrapper, str(SCRIPTS / script), *arguments],
            env={**self.env, **extra},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def get(self, source: Path) -> None:
        done = self.run("get-qemu", QEMU_SRC=source)
        assert done.returncode == 0, done.stderr

    def assemble(self, series: Path) -> None:
        done = self.run("assemble-qemu", FDT_SERIES=series)
        assert done.returncode == 0, done.stderr

    def leftovers(self) -> list[str]:
        """Temporary files that a script forgot below build/src."""
        source = self.build / "src"
        if not source.exists():
            return []
        return [
            path.name for path in source.iterdir() if path.name.startswith(".")
        ]


@pytest.fixture
def box(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


def run_on(
    version: str, command: str, tmp_path: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a shell's COMMAND as on a system of this VERSION_ID, or skip."""
    apart = ["unshare", "--mount", "--map-root-user"]
    if subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces here")
    file = tmp_path / "os-release"
    file.write_text(f"VERSION_ID={version}\n")
    return subprocess.run(
        [*apart, "bash", "-c",
         f"mount --bind {file} /etc/os-release && {command}"],
        capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], **variables},
    )


def one_sentence(done: subprocess.CompletedProcess[str], script: str) -> str:
    """Assert that one line names the error and the allowed values."""
    assert done.returncode != 0
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert re.match(rf"{script}: .+; .+", lines[0])
    return lines[0]


def fake_qemu(top: Path, version: str = QEMU) -> Path:
    """The smallest tree that passes for QEMU's source."""
    files = {
        "VERSION": f"{version}\n",
        "configure": "#!/bin/sh\nexit 1\n",
        "include/qemu/osdep.h": "/* osdep */\n",
        "softmmu/fake.c": "".join(f"int line_{n};\n" for n in range(1, 21)),
    }
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return top


def hook(
    old: str = "int line_10;",
    context: str = "int line_9;",
    added: str = "int ours;",
) -> str:
    """A patch of softmmu/fake.c that adds a line before line_10."""
    return (
        "--- a/softmmu/fake.c\n+++ b/softmmu/fake.c\n"
        f"@@ -9,2 +9,3 @@\n {context}\n+{added}\n {old}\n"
    )


COVER = "Subject: A cover\n\nWhat it is for.\n"
COVER_NAME = "0000-cover-letter.patch"


def write_series(directory: Path, **patches: str) -> Path:
    """A quilt series of the named patches, with a cover."""
    directory.mkdir(exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    names = [f"{name}.patch" for name in patches]
    for name, text in zip(names, patches.values()):
        (directory / name).write_text(text)
    (directory / "series").write_text(
        "# ours\n" + "".join(f"{n}\n" for n in names)
    )
    (directory / "cover").write_text(COVER)
    return directory


class TestGet:
    def test_missing_source(self, box: Sandbox) -> None:
        done = box.run("get-qemu", QEMU_SRC=box.top / "nowhere")
        assert "cannot be read" in one_sentence(done, "get-qemu")
        assert not box.build.exists()

    def test_source_is_a_file(self, box: Sandbox) -> None:
        (box.top / "file").touch()
        done = box.run("get-qemu", QEMU_SRC=box.top / "file")
        assert "cannot be read" in one_sentence(done, "get-qemu")

    def test_unreadable_directory(self, box: Sandbox) -> None:
        source = fake_qemu(box.top / "qemu")
        source.chmod(0)
        try:
            done = box.run("get-qemu", wrapper=OBEY_MODES, QEMU_SRC=source)
        finally:
            source.chmod(0o755)
        assert "cannot be read" in one_sentence(done, "get-qemu")
        assert not box.build.exists()

    def test_unreadable_file_keeps_the_previous_tree(
        self, box: Sandbox
    ) -> None:
        box.get(fake_qemu(box.top / "good"))
        source = fake_qemu(box.top / "bad", f"{FITS}.23")
        (source / "softmmu/fake.c").chmod(0)
        done = box.run("get-qemu", wrapper=OBEY_MODES, QEMU_SRC=source)
        assert "fake.c" in one_sentence(done, "get-qemu")
        assert (box.stock / "VERSION").read_text() == f"{QEMU}\n"
        assert box.leftovers() == []

    def test_not_qemu(self, box: Sandbox) -> None:
        source = box.top / "other"
        source.mkdir()
        (source / "VERSION").write_text(f"{FITS}.0\n")
        done = box.run("get-qemu", QEMU_SRC=source)
        assert "is not a QEMU source tree" in one_sentence(done, "get-qemu")
        assert not box.build.exists()

    @pytest.mark.parametrize("version", ["8.0.0", "7.1.50", f"{FITS}0.0", ""])
    def test_other_version(self, box: Sandbox, version: str) -> None:
        source = fake_qemu(box.top / "qemu", version)
        done = box.run("get-qemu", QEMU_SRC=source)
        sentence = one_sentence(done, "get-qemu")
        assert f"is QEMU {version};" in sentence
        assert FITS in sentence
        assert not box.build.exists()

    def test_copy_follows_the_source_and_leaves_it_alone(
        self, box: Sandbox
    ) -> None:
        source = fake_qemu(box.top / "qemu")
        for name in (".git/config", "build/config.log", ".pc/x"):
            (source / name).parent.mkdir()
            (source / name).touch()
        box.get(source)
        assert sorted(p.name for p in box.stock.iterdir()) == [
            "VERSION",
            "configure",
            "include",
            "softmmu",
        ]
        (source / "softmmu/fake.c").write_text("changed\n")
        box.get(source)
        assert (box.stock / "softmmu/fake.c").read_text() == "changed\n"
        assert (source / ".git/config").exists()
        assert box.leftovers() == []

    def test_unknown_argument(self, box: Sandbox) -> None:
        done = box.run("get-qemu", "--upgrade")
        assert "'--upgrade'" in one_sentence(done, "get-qemu")

    def test_build_directory_cannot_be_made(self, box: Sandbox) -> None:
        (box.top / "build").touch()
        done = box.run("get-qemu", QEMU_SRC=fake_qemu(box.top / "qemu"))
        sentence = one_sentence(done, "get-qemu")
        assert f"cannot create the directory {box.build}" in sentence
        assert "FDT_BUILD" not in sentence

    @pytest.mark.parametrize("name", ["a build", "a:build"])
    def test_build_directory_that_qemu_refuses(
        self, box: Sandbox, name: str
    ) -> None:
        done = box.run("get-qemu", FDT_BUILD=box.top / name)
        sentence = one_sentence(done, "get-qemu")
        assert "below a path with spaces or colons" in sentence
        assert not (box.top / name).exists()

    @pytest.mark.parametrize("locked_before", [True, False])
    def test_build_directory_of_another_user(
        self, box: Sandbox, locked_before: bool
    ) -> None:
        lock = box.build / "lock/source"
        lock.parent.mkdir(parents=True)
        if locked_before:
            lock.touch()
            lock.chmod(0o444)
        lock.parent.chmod(0o555)
        source = fake_qemu(box.top / "qemu")
        done = box.run("get-qemu", wrapper=OBEY_MODES, QEMU_SRC=source)
        sentence = one_sentence(done, "get-qemu")
        assert f"{lock} cannot be written; it belongs to " in sentence
        assert f"or remove {box.build}" in sentence


class TestGetFromDebian:
    """The box has a machine-wide apt configuration of the test's own."""

    @staticmethod
    def apt(box: Sandbox, sources: str) -> None:
        (box.top / "sources.list").write_text(sources)
        config = box.top / "apt.conf"
        config.write_text(
            f'Dir::Etc::sourcelist "{box.top}/sources.list";\n'
            'Dir::Etc::sourceparts "/dev/null";\n'
        )
        box.env["APT_CONFIG"] = str(config)

    @staticmethod
    def package(box: Sandbox, where: Path, version: str, qemu: str) -> None:
        """Make Debian's source package `qemu` of a fake QEMU there."""
        tree = fake_qemu(box.top / f"qemu-{version}", qemu)
        (tree / "debian/source").mkdir(parents=True)
        (tree / "debian/source/format").write_text("3.0 (native)\n")
        (tree / "debian/control").write_text(
            "Source: qemu\nMaintainer: Test <test@localhost>\n\n"
            "Package: qemu-system-x86\nArchitecture: all\nDescription: test\n"
        )
        (tree / "debian/changelog").write_text(
            f"qemu ({version}) bookworm; urgency=low\n\n  * Test.\n\n"
            " -- Test <test@localhost>  Mon, 01 Jan 2024 00:00:00 +0000\n"
        )
        where.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["dpkg-source", "-b", tree],
            cwd=where,
            check=True,
            capture_output=True,
        )

    def cached_package(self, box: Sandbox) -> Path:
        """The package in the cache, as an earlier run left it."""
        cache = box.cache / "source"
        self.package(box, cache, f"{FITS}+test", QEMU)
        return cache

    @staticmethod
    def publish(mirror: Path) -> None:
        """Write the indices of what is in the mirror's pool; nobody signs it."""
        name = from_scripts("qemu_suites", OWN).split()[0]
        suite = mirror / "dists" / name
        (suite / "main/source").mkdir(parents=True, exist_ok=True)
        index = subprocess.run(
            ["dpkg-scansources", "pool"],
            cwd=mirror,
            check=True,
            capture_output=True,
        ).stdout
        (suite / "main/source/Sources").write_bytes(index)
        (suite / "Release").write_text(
            f"Suite: {name}\nCodename: {name}\nComponents: main\n"
            "Architectures: amd64\nSHA256:\n"
            f" {hashlib.sha256(index).hexdigest()} {len(index)}"
            " main/source/Sources\n"
        )

    def trusting_apt(self, box: Sandbox, mirror: Path) -> None:
        """Have apt take what is in the mirror, though nobody has signed it."""
        self.apt(box, f"deb file:{mirror} bookworm main\n")
        with open(box.top / "apt.conf", "a", encoding="utf-8") as config:
            config.write(
                'Acquire::AllowInsecureRepositories "true";\n'
                'APT::Get::AllowUnauthenticated "true";\n'
                'APT::Default-Release "elsewhere";\n'
            )

    def test_update_takes_what_is_newer(self, box: Sandbox) -> None:
        mirror = box.top / "mirror"

        def published(version: str, qemu: str) -> None:
            self.package(box, mirror / "pool", version, qemu)
            self.publish(mirror)

        def has(*arguments: str) -> tuple[str, str]:
            done = box.run("get-qemu", *arguments)
            assert done.returncode == 0, done.stderr
            stamp = box.stock.with_name("qemu-stock.stamp").read_text()
            return stamp.strip(), (box.stock / "VERSION").read_text().strip()

        published(f"{FITS}+test9", f"{FITS}.9")
        self.trusting_apt(box, mirror)
        first = (f"Debian {FITS}+test9", f"{FITS}.9")
        newer = (f"Debian {FITS}+test10", f"{FITS}.10")
        assert has() == first
        assert has("--update") == first
        published(f"{FITS}+test10", f"{FITS}.10")
        assert has() == first
        assert has("--update") == newer
        assert box.leftovers() == []

    def test_mirror_without_sources(self, box: Sandbox) -> None:
        """It says so by a Release that has indices of binary packages only."""
        mirror = box.top / "mirror"
        (mirror / "pool").mkdir(parents=True)
        self.publish(mirror)
        for release in mirror.rglob("Release"):
            text = release.read_text()
            release.write_text(
                text.replace("source/Sources", "binary-amd64/Packages")
            )
        for index in mirror.rglob("Sources"):
            index.unlink()
        self.trusting_apt(box, mirror)
        done = box.run("get-qemu")
        sentence = one_sentence(done, "get-qemu")
        assert "has no source package qemu of" in sentence
        assert not box.stock.exists()
        assert box.leftovers() == []

    def test_no_mirror_named(self, box: Sandbox) -> None:
        self.apt(box, "deb file:/nowhere sid main\n")
        done = box.run("get-qemu")
        release = from_scripts("RELEASE", OWN)
        sentence = one_sentence(done, "get-qemu")
        assert f"no mirror of Debian {release}" in sentence
        assert not box.stock.exists()

    def test_mirror_out_of_reach_and_nothing_cached(
        self, box: Sandbox
    ) -> None:
        self.apt(box, "deb file:/nowhere bookworm main\n")
        done = box.run("get-qemu")
        assert "no Debian mirror can be reached" in one_sentence(
            done, "get-qemu"
        )
        assert not box.stock.exists()
        assert box.leftovers() == []

    def test_update_without_a_mirror(self, box: Sandbox) -> None:
        """Who asks for what is newer is not told that this is the newest."""
        self.cached_package(box)
        self.apt(box, "deb file:/nowhere bookworm main\n")
        assert box.run("get-qemu").returncode == 0
        done = box.run("get-qemu", "--update")
        assert "nobody knows" in one_sentence(done, "get-qemu")
        assert (box.stock / "VERSION").read_text() == f"{QEMU}\n"

    def test_older_one_is_not_an_update(self, box: Sandbox) -> None:
        mirror = box.top / "mirror"
        self.package(box, mirror / "pool", f"{FITS}+test10", f"{FITS}.10")
        self.publish(mirror)
        self.trusting_apt(box, mirror)
        assert box.run("get-qemu").returncode == 0
        for file in (mirror / "pool").iterdir():
            file.unlink()
        self.package(box, mirror / "pool", f"{FITS}+test9", f"{FITS}.9")
        self.publish(mirror)
        done = box.run("get-qemu", "--update")
        assert "older than" in one_sentence(done, "get-qemu")
        assert (box.stock / "VERSION").read_text() == f"{FITS}.10\n"

    def test_source_of_another_release(self, box: Sandbox) -> None:
        """The machine had another Debian when it was unpacked."""
        self.cached_package(box)
        self.apt(box, "deb file:/nowhere bookworm main\n")
        fake_qemu(box.stock, "5.2.0")
        box.stock.with_name("qemu-stock.stamp").write_text("Debian 1:5.2\n")
        done = box.run("get-qemu")
        assert done.returncode in (0, 1), done.stderr
        assert (box.stock / "VERSION").read_text() == f"{QEMU}\n"

    def test_named_source_is_not_for_the_other_release(
        self, box: Sandbox
    ) -> None:
        self.apt(box, "deb file:/nowhere sid main\n")
        done = subprocess.run(
            [ROOT / "tests/run-pytest", "--other-release", "get-qemu", "--"],
            env={**box.env, "QEMU_SRC": str(fake_qemu(box.top / "qemu"))},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "no mirror of Debian" in done.stderr

    def test_other_repositories_are_no_mirrors(
        self, box: Sandbox, tmp_path: Path
    ) -> None:
        """They may have a suite of the same name, as Docker's do."""
        lists = tmp_path / "lists"
        (lists / "partial").mkdir(parents=True)
        self.apt(
            box,
            "deb [trusted=yes] http://deb.invalid/debian oldstable main\n"
            "deb [trusted=yes] http://other.invalid/linux bookworm stable\n",
        )
        with open(box.top / "apt.conf", "a", encoding="utf-8") as config:
            config.write(f'Dir::State::lists "{lists}";\n')
        for where, suite, origin, component in (
            ("deb.invalid_debian", "oldstable", "Debian", "main"),
            ("other.invalid_linux", "bookworm", "Docker", "stable"),
        ):
            name = f"{where}_dists_{suite}"
            (lists / f"{name}_{component}_binary-amd64_Packages").touch()
            (lists / f"{name}_Release").write_text(
                f"Origin: {origin}\nSuite: {suite}\nCodename: bookworm\n"
                f"Components: {component}\nArchitectures: amd64\nSHA256:\n"
                f" {'0' * 64} 1 {component}/binary-amd64/Packages\n"
            )
        script = ". scripts/lib/common.sh; . scripts/lib/apt.sh; mirrors"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=ROOT,
            env=box.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "http://deb.invalid/debian/ bookworm\n", done.stderr

    def test_mirror_out_of_reach_uses_the_cache(self, box: Sandbox) -> None:
        self.cached_package(box)
        self.apt(box, "deb file:/nowhere bookworm main\n")
        done = box.run("get-qemu")
        assert done.returncode == 0, done.stderr
        assert (box.stock / "VERSION").read_text() == f"{QEMU}\n"

    def test_damaged_cache_is_not_used(self, box: Sandbox) -> None:
        tarball = next(self.cached_package(box).glob("*.tar.xz"))
        tarball.write_bytes(tarball.read_bytes()[:-1] + b"x")
        self.apt(box, "deb file:/nowhere bookworm main\n")
        done = box.run("get-qemu")
        assert "is damaged" in one_sentence(done, "get-qemu")
        assert not box.stock.exists()
        assert box.leftovers() == []


class TestAssemble:
    @pytest.fixture
    def series(self, box: Sandbox) -> Path:
        """A series that applies to the tree."""
        box.get(fake_qemu(box.top / "qemu"))
        return write_series(box.top / "series", fits=hook())

    def refused(self, box: Sandbox, series: Path) -> str:
        """Return the sentence; the old tree must still be there."""
        before = {path: path.read_text() for path in self.files(box)}
        done = box.run("assemble-qemu", FDT_SERIES=series)
        sentence = one_sentence(done, "assemble-qemu")
        assert {path: path.read_text() for path in self.files(box)} == before
        assert box.leftovers() == []
        return sentence

    @staticmethod
    def files(box: Sandbox) -> list[Path]:
        return [path for path in box.tree.rglob("*") if path.is_file()]

    def test_without_a_source_tree(self, box: Sandbox) -> None:
        done = box.run("assemble-qemu")
        assert "scripts/get-qemu" in one_sentence(done, "assemble-qemu")
        assert not box.tree.exists()

    def test_series_directory_is_missing(
        self, box: Sandbox, series: Path
    ) -> None:
        assert "is not a directory" in self.refused(box, series / "nowhere")
        assert not box.tree.exists()

    def test_empty_series_is_a_plain_copy(
        self, box: Sandbox, series: Path
    ) -> None:
        (series / "series").unlink()
        box.assemble(series)
        assert (box.tree / "softmmu/fake.c").read_text() == (
            box.stock / "softmmu/fake.c"
        ).read_text()
        own = [
            path.relative_to(ROOT) for path in (ROOT / "accel").rglob("*.c")
        ]
        assert own and all((box.tree / path).is_file() for path in own)

    def test_hook_that_does_not_fit(self, box: Sandbox, series: Path) -> None:
        box.assemble(series)
        write_series(series, fits=hook(), other=hook(old="int moved_away;"))
        assert f"other.patch does not fit QEMU {QEMU}" in self.refused(
            box, series
        )

    def test_first_hook_that_does_not_fit(
        self, box: Sandbox, series: Path
    ) -> None:
        write_series(series, other=hook(old="int moved_away;"))
        assert "other.patch does not fit" in self.refused(box, series)
        assert not box.tree.exists()

    def test_fuzz_is_refused(self, box: Sandbox, series: Path) -> None:
        wide = (
            "--- a/softmmu/fake.c\n+++ b/softmmu/fake.c\n@@ -7,6 +7,7 @@\n"
            " int changed;\n int line_8;\n int line_9;\n+int ours;\n"
            " int line_10;\n int line_11;\n int line_12;\n"
        )
        write_series(series, fuzzy=wide)
        assert "fuzzy.patch does not fit" in self.refused(box, series)

    def test_hook_for_a_missing_file(self, box: Sandbox, series: Path) -> None:
        write_series(series, lost=hook().replace("fake.c", "gone.c"))
        assert "lost.patch does not fit" in self.refused(box, series)

    def test_series_names_a_missing_patch(
        self, box: Sandbox, series: Path
    ) -> None:
        (series / "fits.patch").unlink()
        assert "fits.patch" in self.refused(box, series)

    def test_replaced_code_is_stripped(
        self, box: Sandbox, series: Path
    ) -> None:
        opening = hook(added="#ifdef KVM_DIRTY_REPLACES")
        closing = (
            "--- a/softmmu/fake.c\n+++ b/softmmu/fake.c\n"
            "@@ -13,2 +13,4 @@\n int line_12;\n"
            "+#endif\n+int ours;\n int line_13;\n"
        )
        write_series(series, replaces=opening, closes=closing)
        box.assemble(series)
        text = (box.tree / "softmmu/fake.c").read_text()
        assert "int line_9;\nint ours;\nint line_13;\n" in text
        assert "KVM_DIRTY_REPLACES" not in text

    def test_marker_without_end(self, box: Sandbox, series: Path) -> None:
        box.assemble(series)
        write_series(series, opens=hook(added="#ifdef KVM_DIRTY_REPLACES"))
        assert "softmmu/fake.c" in self.refused(box, series)

    def test_marker_in_another_form(self, box: Sandbox, series: Path) -> None:
        write_series(series, talks=hook(added="/* KVM_DIRTY_REPLACES */"))
        assert "is left in softmmu/fake.c" in self.refused(box, series)

    def test_own_file_may_not_hide_one_of_qemus(
        self, box: Sandbox, series: Path
    ) -> None:
        own = next((ROOT / "softmmu").glob("*.c")).relative_to(ROOT)
        (box.stock / own).write_text("QEMU's\n")
        assert f"{own} is one of QEMU's own files" in self.refused(box, series)

    def test_unchanged_files_keep_their_time(
        self, box: Sandbox, series: Path
    ) -> None:
        box.assemble(series)
        past = 1_000_000_000
        for path in self.files(box):
            os.utime(path, (past, past))
        write_series(series, fits=hook(added="int other;"))
        box.assemble(series)
        stamped = [
            path for path in self.files(box) if path.stat().st_mtime != past
        ]
        assert stamped == [box.tree / "softmmu/fake.c"]

    def test_hook_taken_back_is_a_change(
        self, box: Sandbox, series: Path
    ) -> None:
        box.assemble(series)
        built = box.tree.stat().st_ctime
        write_series(series)
        box.assemble(series)
        reverted = box.tree / "softmmu/fake.c"
        assert "ours" not in reverted.read_text()
        assert reverted.stat().st_mtime >= built

    def test_edits_in_the_tree_do_not_reach_stock(
        self, box: Sandbox, series: Path
    ) -> None:
        box.assemble(series)
        with (box.tree / "configure").open("a") as file:
            file.write("# edited\n")
        assert "edited" not in (box.stock / "configure").read_text()
        box.assemble(series)
        assert "edited" not in (box.tree / "configure").read_text()

    def test_killed_between_its_renames(
        self, box: Sandbox, series: Path
    ) -> None:
        box.assemble(series)
        box.tree.rename(box.tree.with_name(".qemu.old"))
        box.assemble(series)
        assert "ours" in (box.tree / "softmmu/fake.c").read_text()
        assert box.leftovers() == []


def git(box: Sandbox, *arguments: str | Path, cwd: Path) -> str:
    """Run git as somebody."""
    for who in ("AUTHOR", "COMMITTER"):
        box.env[f"GIT_{who}_NAME"] = "Test"
        box.env[f"GIT_{who}_EMAIL"] = "test@localhost"
    return subprocess.run(
        ["git", *arguments],
        cwd=cwd,
        env=box.env,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def copies_of_stock(box: Sandbox) -> tuple[Path, Path]:
    """Two copies of the stock tree, the first of which is a git repository."""
    repository, package = box.top / "repository", box.top / "package"
    shutil.copytree(box.stock, repository)
    shutil.copytree(box.stock, package)
    git(box, "init", "-q", cwd=repository)
    git(box, "add", "-A", cwd=repository)
    git(box, "commit", "-qm", "stock", cwd=repository)
    return repository, package


def exported(out: Path) -> list[Path]:
    """The patches, without the cover letter that is there."""
    cover, *patches = sorted(out.iterdir())
    assert cover.name == COVER_NAME
    return patches


def patches_make_the_assembled_tree(
    box: Sandbox, patches: Sequence[Path]
) -> Path:
    """Apply them with git and quilt; return the git repository."""
    repository, package = copies_of_stock(box)
    git(box, "am", "-q", *patches, cwd=repository)
    directory = package / "debian/patches"
    directory.mkdir(parents=True)
    for patch in patches:
        shutil.copy(patch, directory)
    names = "".join(f"{patch.name}\n" for patch in patches)
    (directory / "series").write_text(names)
    subprocess.run(
        ["quilt", "--quiltrc=-", "push", "-a", "--fuzz=0"],
        cwd=package,
        env={**box.env, "QUILT_PATCHES": "debian/patches"},
        check=True,
        capture_output=True,
    )
    for tree in (repository, package):
        ours = ["--exclude=.git", "--exclude=.pc", "--exclude=debian"]
        subprocess.run(["diff", "-r", *ours, tree, box.tree], check=True)
    return repository


class TestExport:
    @pytest.fixture
    def series(self, box: Sandbox) -> Path:
        source = fake_qemu(box.top / "qemu")
        box.get(source)
        box.env["QEMU_SRC"] = str(source)
        text = (
            "Subject: softmmu: Add a line\n\nFor the test.\n---\n"
            "Not for the reader.\n" + hook()
        )
        return write_series(box.top / "series", fits=text)

    @staticmethod
    def export(
        box: Sandbox, series: Path
    ) -> tuple[subprocess.CompletedProcess[str], Path]:
        git(box, "version", cwd=box.top)
        out = box.top / "out"
        return box.run(
            "export-series", "qemu", str(out), FDT_SERIES=series
        ), out

    def test_patches_make_the_assembled_tree(
        self, box: Sandbox, series: Path
    ) -> None:
        box.assemble(series)
        done, out = self.export(box, series)
        assert done.returncode == 0, done.stderr
        patches = exported(out)
        assert [path.name for path in patches] == [
            "0001-accel-kvm-Add-fast-dirty-tracking-s-own-files.patch",
            "0002-softmmu-Add-a-line.patch",
        ]
        repository = patches_make_the_assembled_tree(box, patches)
        message = git(box, "log", "-1", "--format=%an%n%B", cwd=repository)
        assert message.strip() == (
            "Test\nsoftmmu: Add a line\n\nFor the test.\n\n"
            "Signed-off-by: Test <test@localhost>"
        )

    def test_cover_letter(self, box: Sandbox, series: Path) -> None:
        done, out = self.export(box, series)
        assert done.returncode == 0, done.stderr
        head, _, text = (out / COVER_NAME).read_text().partition("\n\n")
        assert "From: Test <test@localhost>" in head
        assert head.endswith("Subject: [PATCH 0/2] A cover")
        assert text.startswith("What it is for.\n")
        assert "\n  softmmu: Add a line\n" in text
        assert re.search(r"^ softmmu/fake.c +\| +1\b", text, re.M)
        assert re.search(r"^ accel/kvm/dirty/", text, re.M)

    def test_git_am_drops_the_cover_letter(
        self, box: Sandbox, series: Path
    ) -> None:
        done, out = self.export(box, series)
        assert done.returncode == 0, done.stderr
        repository, _ = copies_of_stock(box)
        patches = sorted(out.iterdir())
        git(box, "am", "-q", "--empty=drop", *patches, cwd=repository)
        subjects = git(box, "log", "--format=%s", cwd=repository)
        assert subjects.splitlines() == [
            "softmmu: Add a line",
            "accel/kvm: Add fast dirty tracking's own files",
            "stock",
        ]

    def test_series_without_a_cover(self, box: Sandbox, series: Path) -> None:
        (series / "cover").unlink()
        done, out = self.export(box, series)
        assert "cover is missing" in one_sentence(done, "export-series")
        assert not out.exists()
        assert box.leftovers() == []

    def test_paths_have_one_level_more(
        self, box: Sandbox, series: Path
    ) -> None:
        done, out = self.export(box, series)
        assert done.returncode == 0, done.stderr
        heads = re.compile(
            r"(diff --git a/(\S+) b/\2|--- a/\S+|\+\+\+ b/\S+|--- /dev/null)"
        )
        for patch in exported(out):
            for line in patch.read_text().splitlines():
                if line.startswith(("diff --git ", "--- ", "+++ ")):
                    assert heads.fullmatch(line), line

    def test_the_source_that_is_named_is_taken(
        self, box: Sandbox, series: Path
    ) -> None:
        shutil.rmtree(box.stock)
        done, out = self.export(box, series)
        assert done.returncode == 0, done.stderr
        assert len(exported(out)) == 2

    def test_source_that_is_none(self, box: Sandbox, series: Path) -> None:
        box.env["QEMU_SRC"] = str(series)
        done, out = self.export(box, series)
        assert "is not a QEMU source tree" in one_sentence(done, "get-qemu")
        assert not out.exists()

    def test_directory_exists(self, box: Sandbox) -> None:
        done = box.run("export-series", "qemu", str(box.top))
        assert "exists" in one_sentence(done, "export-series")
        assert not box.build.exists()

    @pytest.mark.parametrize("words", [[], ["qemu"], ["qemu", "a", "b"]])
    def test_number_of_arguments(
        self, box: Sandbox, words: list[str]
    ) -> None:
        done = box.run("export-series", *words)
        assert "two are needed" in one_sentence(done, "export-series")
        assert not box.build.exists()

    def test_unknown_tree(self, box: Sandbox) -> None:
        done = box.run("export-series", "kvm", str(box.top / "out"))
        assert "'kvm'; allowed are qemu and linux" in one_sentence(
            done, "export-series"
        )
        assert not box.build.exists()

    def test_hook_that_does_not_fit(self, box: Sandbox, series: Path) -> None:
        write_series(series, other=hook(old="int moved_away;"))
        done, out = self.export(box, series)
        assert "other.patch does not fit" in one_sentence(
            done, "export-series"
        )
        assert not out.exists()
        assert box.leftovers() == []


class TestDeps:
    @staticmethod
    def plain_user_path(box: Sandbox) -> str:
        """A PATH without sudo, whose id says that this is not root."""
        farm = box.top / "bin"
        farm.mkdir()
        for tool in (
            "bash",
            "cat",
            "cmp",
            "comm",
            "dirname",
            "dpkg",
            "dpkg-query",
            "flock",
            "mkdir",
            "realpath",
            "rm",
            "sed",
            "sort",
        ):
            found = shutil.which(tool)
            assert found is not None
            (farm / tool).symlink_to(found)
        (farm / "id").write_text("#!/bin/sh\necho 65534\n")
        (farm / "id").chmod(0o755)
        return str(farm)

    @staticmethod
    def nothing_installed(box: Sandbox) -> Path:
        """A dpkg database in which no package is installed."""
        database = box.top / "dpkg"
        for name in ("info", "updates"):
            (database / name).mkdir(parents=True)
        (database / "status").touch()
        return database

    def test_neither_root_nor_sudo(self, box: Sandbox) -> None:
        done = box.run(
            "deps",
            PATH=self.plain_user_path(box),
            DPKG_ADMINDIR=self.nothing_installed(box),
        )
        sentence = one_sentence(done, "deps")
        assert "takes root, and there is no sudo" in sentence
        assert "quilt" in sentence
        assert done.returncode == 1
        assert not box.build.exists()

    def test_check_names_one_package_and_the_remedy(
        self, box: Sandbox
    ) -> None:
        done = box.run(
            "deps", "--check", DPKG_ADMINDIR=self.nothing_installed(box)
        )
        sentence = one_sentence(done, "deps")
        assert " bc " in sentence
        assert "scripts/deps" in sentence
        assert not box.build.exists()

    def test_not_debian(self, box: Sandbox) -> None:
        path = self.plain_user_path(box)
        (Path(path) / "dpkg-query").unlink()
        done = box.run("deps", PATH=path)
        assert "not a Debian system" in one_sentence(done, "deps")

    def test_another_system(self, box: Sandbox, tmp_path: Path) -> None:
        """It is not taken for the oldest Debian that is supported."""
        done = run_on(
            "24.04", f"{ROOT}/scripts/deps --check", tmp_path,
            FDT_BUILD=str(box.build),
        )
        assert "the version '24.04';" in one_sentence(done, "deps")
        assert not box.build.exists()

    @pytest.mark.parametrize("words", [[], ["--check"]])
    def test_not_amd64(self, box: Sandbox, words: list[str]) -> None:
        path = self.plain_user_path(box)
        dpkg = Path(path) / "dpkg"
        dpkg.unlink()
        dpkg.write_text(
            '#!/bin/sh\n[ "$*" = --print-architecture ] && echo arm64\n'
        )
        dpkg.chmod(0o755)
        done = box.run(
            "deps",
            *words,
            PATH=path,
            DPKG_ADMINDIR=self.nothing_installed(box),
        )
        sentence = one_sentence(done, "deps")
        assert "is arm64; only" in sentence and "amd64" in sentence
        assert not box.build.exists()

    def test_unknown_argument(self, box: Sandbox) -> None:
        done = box.run("deps", "--force")
        assert "'--force'" in one_sentence(done, "deps")


@pytest.mark.parametrize(
    ("script", "argument"),
    [
        ("build-qemu", "--everything"),
        ("build-qemu", "debug"),
        ("build-engine", "msan"),
        ("install-qemu", "x"),
        ("get-qemu", "x"),
        ("get-packages", "x"),
        ("build-image", "x"),
        ("assemble-qemu", "x"),
    ],
)
def test_unknown_argument(box: Sandbox, script: str, argument: str) -> None:
    done = box.run(script, argument)
    assert f"'{argument}'" in one_sentence(done, script)
    assert not box.build.exists()


@pytest.mark.parametrize("jobs", ["0", "-1", "two", "1 2"])
def test_number_of_jobs(box: Sandbox, jobs: str) -> None:
    done = box.run("build-qemu", JOBS=jobs)
    assert f"JOBS={jobs} " in one_sentence(done, "build-qemu")


@pytest.mark.parametrize("script", ["build-qemu", "install-qemu"])
def test_relative_prefix(box: Sandbox, script: str) -> None:
    done = box.run(script, PREFIX="usr/local")
    assert "absolute" in one_sentence(done, script)


def test_two_qemus_at_once(box: Sandbox) -> None:
    done = box.run("build-qemu", "stock", "patched")
    assert "stock and patched" in one_sentence(done, "build-qemu")
    assert not box.build.exists()


def test_install_without_a_build(box: Sandbox) -> None:
    done = box.run("install-qemu")
    assert "make builds it" in one_sentence(done, "install-qemu")


class TestInstall:
    """What meson would install is a file of 64 KiB."""

    PROGRAM = b"new" * (1 << 14)

    @pytest.fixture(name="prefix")
    def fixture_prefix(self, box: Sandbox) -> Path:
        """Where an old QEMU is, and a build that is configured for it."""
        prefix = box.top / "prefix"
        (prefix / "bin").mkdir(parents=True)
        (prefix / "bin/qemu-system-x86_64").write_bytes(b"old")
        (box.top / "program").write_bytes(self.PROGRAM)
        meson = box.top / "meson"
        meson.write_text(
            f"#!/bin/sh\nmkdir -p $DESTDIR{prefix}/bin && ln {box.top}/program"
            f" $DESTDIR{prefix}/bin/qemu-system-x86_64\n"
        )
        meson.chmod(0o755)
        qemu = box.build / "qemu"
        qemu.mkdir(parents=True)
        (qemu / "build.ninja").touch()
        (qemu / "config-host.mak").write_text(f"MESON={meson}\n")
        (qemu / ".configured-with").write_text(f"--prefix={prefix}\n")
        return prefix

    def test_others_can_run_it(self, box: Sandbox, prefix: Path) -> None:
        shutil.rmtree(prefix)
        done = box.run(
            "install-qemu", PREFIX=prefix,
            wrapper=["bash", "-c", 'umask 077; exec "$@"', "bash"],
        )
        assert done.returncode == 0, done.stderr
        file = prefix / "bin/qemu-system-x86_64"
        assert file.read_bytes() == self.PROGRAM
        for path in (prefix, prefix / "bin", file):
            assert path.stat().st_mode & 0o777 == 0o755

    def test_without_room_the_old_one_stays(
        self, box: Sandbox, prefix: Path
    ) -> None:
        full = 'trap "" XFSZ; ulimit -f 9; exec "$@"'
        done = box.run(
            "install-qemu", PREFIX=prefix, wrapper=["bash", "-c", full, "bash"]
        )
        assert "left as it was" in one_sentence(done, "install-qemu")
        (file,) = (prefix / "bin").iterdir()
        assert file.read_bytes() == b"old"

    def test_other_prefix(self, box: Sandbox, prefix: Path) -> None:
        other = box.top / "other"
        done = box.run("install-qemu", PREFIX=other)
        assert f"another PREFIX than {other};" in one_sentence(
            done, "install-qemu"
        )
        assert prefix.exists() and not other.exists()

    def test_file_of_a_package(self, box: Sandbox, prefix: Path) -> None:
        """apt would put its own back."""
        file = prefix / "bin/qemu-system-x86_64"
        (box.top / "dpkg/info").mkdir(parents=True)
        (box.top / "dpkg/info/format").write_text("1\n")
        (box.top / "dpkg/info/theirs.list").write_text(f"{file}\n")
        (box.top / "dpkg/status").write_text(
            "Package: theirs\nStatus: install ok installed\nVersion: 1\n"
            "Architecture: all\nMaintainer: nobody\nDescription: none\n")
        done = box.run("install-qemu", PREFIX=prefix,
                       DPKG_ADMINDIR=box.top / "dpkg")
        assert "belongs to the package theirs;" in one_sentence(
            done, "install-qemu"
        )
        assert file.read_bytes() == b"old"


def test_cdpath(box: Sandbox) -> None:
    """cd prints where it goes if CDPATH took it there."""
    done = subprocess.run(
        ["scripts/lib/release-dir"],
        cwd=ROOT,
        env={**box.env, "FDT_BUILD": "", "CDPATH": f".:{ROOT.parent}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{ROOT}/build\n"


@pytest.mark.parametrize("on_term", ["sleep 1; exit", ""])
def test_nothing_goes_on_when_a_build_is_ended(
    box: Sandbox, on_term: str
) -> None:
    """Another build would get the lock, and run beside it.

    One process takes a second for its end, another one ignores the signal.
    """
    log = box.top / "log"
    child = f"trap '{on_term}' TERM; echo $$; while :; do sleep 0.1; done"
    script = (
        f'. {SCRIPTS}/lib/common.sh; slow() {{ bash -c "$CHILD" & wait; }}; '
        f"run_logged slow {log} slow"
    )
    with subprocess.Popen(
        ["bash", "-c", script], env={**box.env, "CHILD": child}
    ) as process:
        while not log.exists() or not log.read_text():
            time.sleep(0.05)
        status = Path("/proc") / log.read_text().strip() / "status"
        assert status.exists()
        process.terminate()
        assert process.wait(20) == 130
    assert not status.exists() or "\tZ" in status.read_text()


@pytest.mark.parametrize("kind", ["stock", "patched"])
def test_configure_that_fails_shows_its_log(box: Sandbox, kind: str) -> None:
    python = box.build / "venv/bin/python3"  # QEMU 10.0's configure takes it
    python.parent.mkdir(parents=True)
    python.symlink_to("/bin/true")
    done = box.run(
        "build-qemu",
        kind,
        QEMU_SRC=fake_qemu(box.top / "qemu"),
        FDT_SERIES=write_series(box.top / "series"),
    )
    assert done.returncode == 1
    ours = "accel/kvm/dirty/engine.c"
    assert (box.tree / ours).exists() == (kind == "patched")
    assert (box.build / "stock/src/qemu").exists() == (kind == "stock")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "build-qemu: configuring QEMU failed; the whole log is "
    )
    assert Path(last.rpartition(" ")[2]).exists()


class TestRelease:
    @pytest.mark.parametrize(
        "script",
        ["get-qemu", "get-linux", "assemble-qemu", "assemble-linux",
         "build-qemu", "build-kernel", "lib/release-dir"],
    )
    @pytest.mark.parametrize("release", ["11", "1", "13 ", "trixie", "1."])
    def test_there_is_none(
        self, box: Sandbox, script: str, release: str
    ) -> None:
        done = box.run(script, RELEASE=release)
        sentence = one_sentence(done, Path(script).name)
        assert f"RELEASE={release}; allowed are 12, 13" in sentence
        assert not box.build.exists()

    def test_make_asks_first(self) -> None:
        """Nothing is installed for a release that there is nothing for."""
        def make(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ["make", "-C", str(ROOT), "-s", "RELEASE=11", *arguments],
                capture_output=True, text=True,
            )

        refused = make("release")
        assert refused.returncode != 0
        assert "RELEASE=11; allowed are 12, 13" in refused.stderr
        ask = "scripts/lib/release-dir"
        targets = "all get deps demo check kernel soak bench install deb image"
        for target in (*targets.split(), "export-series", "deb-kernel"):
            commands = [
                line for line in make("-n", target).stdout.splitlines()
                if line.startswith("scripts/")
            ]
            assert commands[0].startswith(ask), target

    @pytest.mark.parametrize(("own", "release", "suites"), [
        ("12", "12", "bookworm"), ("13", "13", "trixie"),
        ("12", "13", "trixie bookworm-backports"), ("13", "12", "bookworm"),
    ])
    def test_suites(
        self, tmp_path: Path, own: str, release: str, suites: str
    ) -> None:
        """A Debian takes no source that is older than its own."""
        done = run_on(
            own, f". {ROOT}/scripts/lib/common.sh && echo $qemu_suites",
            tmp_path, RELEASE=release,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{suites}\n"

    @pytest.mark.parametrize("release", ["12", "13"])
    def test_each_has_a_directory(self, box: Sandbox, release: str) -> None:
        own = box.run("lib/release-dir").stdout
        named = box.run("lib/release-dir", RELEASE=release).stdout
        assert own == f"{box.build}\n"
        assert named in (own, f"{box.build}/debian-{release}\n")
        assert len({
            box.run("lib/release-dir", RELEASE=name).stdout
            for name in ("12", "13")
        }) == 2

    @pytest.mark.parametrize(
        ("release", "fits", "other"),
        [("12", "7.2.22", "10.0.2"), ("13", "10.0.2", "7.2.22")],
    )
    def test_a_release_takes_its_own_qemu(
        self, box: Sandbox, release: str, fits: str, other: str
    ) -> None:
        done = box.run(
            "get-qemu", RELEASE=release,
            QEMU_SRC=fake_qemu(box.top / "other", other),
        )
        assert f"is QEMU {other};" in one_sentence(done, "get-qemu")
        done = box.run(
            "get-qemu", RELEASE=release,
            QEMU_SRC=fake_qemu(box.top / "fits", fits),
        )
        assert done.returncode == 0, done.stderr
        directory = box.run("lib/release-dir", RELEASE=release).stdout.strip()
        stock = Path(directory) / "src/qemu-stock"
        assert (stock / "VERSION").read_text() == f"{fits}\n"
