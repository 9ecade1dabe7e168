# SPDX-License-Identifier: GPL-2.0-or-later
"""The scripts for Linux refuse bad input; test_scripts.py tells how."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from test_scripts import OBEY_MODES, OWN, ROOT, Sandbox, exported
from test_scripts import fake_qemu, git, hook, one_sentence
from test_scripts import patches_make_the_assembled_tree
from test_scripts import write_series as write_qemu_series

from tests.releases import from_scripts

# What the hooks fit, and the fakes are.
FITS = from_scripts("linux_hooks_fit", OWN)
LINUX = f"{FITS}.192"


def fake_linux(top: Path, version: str = LINUX) -> Path:
    """The smallest tree that passes for Linux's source."""
    numbers = (version.split(".") + ["", ""])[:3]
    makefile = "".join(
        f"{name} = {number}\n"
        for name, number in zip(("VERSION", "PATCHLEVEL", "SUBLEVEL"), numbers)
    )
    files = {
        "Makefile": f"# SPDX-License-Identifier: GPL-2.0\n{makefile}",
        "Kbuild": "# Kbuild\n",
        "include/linux/kvm_host.h": "/* kvm_host */\n",
        "virt/kvm/fake.c": "".join(f"int line_{n};\n" for n in range(1, 21)),
    }
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return top


def linux_hook(old: str = "int line_10;", added: str = "int ours;") -> str:
    """A patch of virt/kvm/fake.c that adds a line before line_10."""
    return hook(old, added=added).replace("softmmu/fake.c", "virt/kvm/fake.c")


class LinuxBox(Sandbox):
    """A build directory with no source but the test's own."""

    def __init__(self, top: Path) -> None:
        super().__init__(top)
        self.stock = self.build / "src/linux-stock"
        self.tree = self.build / "src/linux"
        for name in ("LINUX_SRC", "FDT_LINUX_SERIES"):
            self.env.pop(name, None)

    def get(self, source: Path) -> None:
        done = self.run("get-linux", LINUX_SRC=source)
        assert done.returncode == 0, done.stderr

    def assemble(self, series: Path) -> None:
        done = self.run("assemble-linux", FDT_LINUX_SERIES=series)
        assert done.returncode == 0, done.stderr


@pytest.fixture(name="box")
def fixture_box(tmp_path: Path) -> LinuxBox:
    return LinuxBox(tmp_path)


class TestGet:
    def test_missing_source(self, box: LinuxBox) -> None:
        done = box.run("get-linux", LINUX_SRC=box.top / "nowhere")
        assert "cannot be read" in one_sentence(done, "get-linux")
        assert not box.build.exists()

    @pytest.mark.parametrize("name", ["Makefile", "README"])
    def test_not_linux(self, box: LinuxBox, name: str) -> None:
        source = box.top / "other"
        source.mkdir()
        (source / name).write_text("all:\n")
        done = box.run("get-linux", LINUX_SRC=source)
        assert "is not a Linux source tree" in one_sentence(done, "get-linux")
        assert not box.build.exists()

    @pytest.mark.parametrize("version", ["6.6.1", "5.10.200", f"{FITS}0.1", FITS])
    def test_other_version(self, box: LinuxBox, version: str) -> None:
        source = fake_linux(box.top / "linux", version)
        done = box.run("get-linux", LINUX_SRC=source)
        sentence = one_sentence(done, "get-linux")
        assert f"is Linux {version};" in sentence or version == FITS
        assert FITS in sentence
        assert not box.build.exists()

    @pytest.mark.parametrize("release", ["12", "13"])
    def test_release(self, box: LinuxBox, release: str) -> None:
        fits = from_scripts("linux_hooks_fit", release)
        source = fake_linux(box.top / "linux", f"{fits}.95")
        done = box.run("get-linux", LINUX_SRC=source, RELEASE=release)
        assert done.returncode == 0, done.stderr
        directory = box.run("lib/release-dir", RELEASE=release).stdout.strip()
        makefile = Path(directory) / "src/linux-stock/Makefile"
        assert "SUBLEVEL = 95" in makefile.read_text()

    def test_tree_that_was_built_in(self, box: LinuxBox) -> None:
        source = fake_linux(box.top / "linux")
        (source / ".config").touch()
        done = box.run("get-linux", LINUX_SRC=source)
        assert "make mrproper" in one_sentence(done, "get-linux")

    def test_unreadable_file_keeps_the_previous_tree(
        self, box: LinuxBox
    ) -> None:
        box.get(fake_linux(box.top / "good"))
        source = fake_linux(box.top / "bad", f"{FITS}.193")
        (source / "virt/kvm/fake.c").chmod(0)
        done = box.run("get-linux", wrapper=OBEY_MODES, LINUX_SRC=source)
        assert "fake.c" in one_sentence(done, "get-linux")
        assert "SUBLEVEL = 192" in (box.stock / "Makefile").read_text()
        assert box.leftovers() == []

    def test_unchanged_source_is_left_alone(self, box: LinuxBox) -> None:
        source = fake_linux(box.top / "linux")
        box.get(source)
        inode = box.stock.stat().st_ino
        box.get(source)
        assert box.stock.stat().st_ino == inode
        (source / "virt/kvm/fake.c").write_text("changed\n")
        box.get(source)
        assert (box.stock / "virt/kvm/fake.c").read_text() == "changed\n"
        assert box.leftovers() == []

    def test_edits_in_stock_do_not_reach_the_source(
        self, box: LinuxBox
    ) -> None:
        source = fake_linux(box.top / "linux")
        box.get(source)
        with (box.stock / "Kbuild").open("a") as file:
            file.write("# edited\n")
        assert "edited" not in (source / "Kbuild").read_text()

    def test_package_is_missing(self, box: LinuxBox) -> None:
        admin = box.top / "dpkg"
        admin.mkdir()
        (admin / "status").touch()
        done = box.run("get-linux", DPKG_ADMINDIR=admin)
        sentence = one_sentence(done, "get-linux")
        assert f"linux-source-{FITS} is missing" in sentence
        assert "scripts/deps" in sentence
        assert box.leftovers() == []


class TestAssemble:
    @pytest.fixture(name="series")
    def fixture_series(self, box: LinuxBox) -> Path:
        """A series that applies to the tree."""
        box.get(fake_linux(box.top / "linux"))
        return write_qemu_series(box.top / "series", fits=linux_hook())

    @staticmethod
    def text(box: LinuxBox, tree: Path | None = None) -> str:
        return ((tree or box.tree) / "virt/kvm/fake.c").read_text()

    def test_without_a_source_tree(self, box: LinuxBox) -> None:
        done = box.run("assemble-linux")
        assert "scripts/get-linux" in one_sentence(done, "assemble-linux")

    def test_series_and_own_files(self, box: LinuxBox, series: Path) -> None:
        box.assemble(series)
        assert "int ours;\nint line_10;" in self.text(box)
        own = [
            path.relative_to(ROOT / "host-kernel")
            for path in (ROOT / "host-kernel").rglob("*.[ch]")
        ]
        assert all((box.tree / path).is_file() for path in own)
        assert not (box.tree / "patches").exists()

    def test_hook_that_does_not_fit(
        self, box: LinuxBox, series: Path
    ) -> None:
        box.assemble(series)
        write_qemu_series(series, moved=linux_hook(old="int moved_away;"))
        done = box.run("assemble-linux", FDT_LINUX_SERIES=series)
        assert f"moved.patch does not fit Linux {LINUX}" in one_sentence(
            done, "assemble-linux"
        )
        assert "int ours;" in self.text(box)
        assert box.leftovers() == []

    def test_series_directory_is_missing(
        self, box: LinuxBox, series: Path
    ) -> None:
        done = box.run("assemble-linux", FDT_LINUX_SERIES=series / "nowhere")
        assert "FDT_LINUX_SERIES" in one_sentence(done, "assemble-linux")

    def test_qemus_series_is_not_meant(
        self, box: LinuxBox, series: Path
    ) -> None:
        done = box.run(
            "assemble-linux", FDT_SERIES="/nowhere", FDT_LINUX_SERIES=series
        )
        assert done.returncode == 0, done.stderr

    def test_own_file_may_not_hide_one_of_linuxs(
        self, box: LinuxBox, series: Path
    ) -> None:
        own = next((ROOT / "host-kernel/virt").rglob("*.c"))
        name = own.relative_to(ROOT / "host-kernel")
        (box.stock / name).write_text("Linux's\n")
        done = box.run("assemble-linux", FDT_LINUX_SERIES=series)
        assert f"{name} is one of Linux's own files" in one_sentence(
            done, "assemble-linux"
        )

    @pytest.mark.parametrize("made", [".config", "include/config/auto.conf"])
    def test_tree_that_was_built_in(
        self, box: LinuxBox, series: Path, made: str
    ) -> None:
        box.assemble(series)
        path = box.tree / made
        path.parent.mkdir(exist_ok=True)
        path.write_text("CONFIG_KVM=y\n")
        write_qemu_series(series)
        done = box.run("assemble-linux", FDT_LINUX_SERIES=series)
        sentence = one_sentence(done, "assemble-linux")
        assert "make mrproper" in sentence and "make O=DIR" in sentence
        assert path.exists()
        assert "int ours;" in self.text(box)
        assert box.leftovers() == []

    def test_with_one_patch_more(self, box: LinuxBox, series: Path) -> None:
        box.assemble(series)
        past = 1_000_000_000
        for path in box.tree.rglob("*"):
            os.utime(path, (past, past))
        patch = box.top / "mutant.patch"
        patch.write_text(linux_hook("int ours;", "int mutant;"))
        other = box.top / "mutant"
        done = box.run("assemble-linux", "--with", str(patch), str(other))
        assert done.returncode == 0, done.stderr
        assert "int mutant;\nint ours;" in self.text(box, other)
        assert "mutant" not in self.text(box)
        changed = [
            path
            for path in other.rglob("*")
            if path.is_file() and path.stat().st_mtime != past
        ]
        assert changed == [other / "virt/kvm/fake.c"]
        assert box.leftovers() == []

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (linux_hook("int moved_away;"), "does not fit"),
            ("", "changes no file"),
            ("no patch at all\n", "does not fit"),
        ],
    )
    def test_bad_patch_more(
        self, box: LinuxBox, series: Path, text: str, said: str
    ) -> None:
        box.assemble(series)
        patch = box.top / "mutant.patch"
        patch.write_text(text)
        other = box.top / "mutant"
        done = box.run("assemble-linux", "--with", str(patch), str(other))
        assert said in one_sentence(done, "assemble-linux")
        assert not other.exists()
        assert box.leftovers() == []

    def test_with_into_what_exists(self, box: LinuxBox, series: Path) -> None:
        box.assemble(series)
        patch = series / "fits.patch"
        done = box.run("assemble-linux", "--with", str(patch), str(box.tree))
        assert "exists" in one_sentence(done, "assemble-linux")
        done = box.run("assemble-linux", "--with", str(patch))
        assert "two arguments" in one_sentence(done, "assemble-linux")


class TestExport:
    @pytest.fixture(name="series")
    def fixture_series(self, box: LinuxBox) -> Path:
        """A series that applies, with the code it replaces, and its tree."""
        source = fake_linux(box.top / "linux")
        box.get(source)
        box.env["LINUX_SRC"] = str(source)
        text = (
            "SPDX-License-Identifier: GPL-2.0-only\n"
            "Subject: KVM: Replace a line\n\nFor the test.\n---\n"
            "--- a/virt/kvm/fake.c\n+++ b/virt/kvm/fake.c\n"
            "@@ -9,3 +9,6 @@\n int line_9;\n+#ifdef KVM_DIRTY_REPLACES\n"
            " int line_10;\n+#endif\n+int ours;\n int line_11;\n"
        )
        git(box, "version", cwd=box.top)
        return write_qemu_series(box.top / "series", replaces=text)

    def test_patches_make_the_assembled_tree(
        self, box: LinuxBox, series: Path
    ) -> None:
        box.assemble(series)
        assert "int line_10" not in (box.tree / "virt/kvm/fake.c").read_text()
        out = box.top / "out"
        done = box.run(
            "export-series", "linux", str(out), FDT_LINUX_SERIES=series
        )
        assert done.returncode == 0, done.stderr
        patches = exported(out)
        assert [path.name for path in patches] == [
            "0001-KVM-x86-Add-fast-dirty-tracking-s-own-files.patch",
            "0002-KVM-Replace-a-line.patch",
        ]
        assert "KVM_DIRTY_REPLACES" not in patches[1].read_text()
        repository = patches_make_the_assembled_tree(box, patches)
        message = git(box, "log", "-1", "--format=%B", cwd=repository)
        assert message.strip() == (
            "KVM: Replace a line\n\nFor the test.\n\n"
            "Signed-off-by: Test <test@localhost>"
        )

    def test_make(self, box: LinuxBox, series: Path) -> None:
        """It writes both, in the place of an older one."""
        qemu = fake_qemu(box.top / "qemu")
        hooks = write_qemu_series(
            box.top / "hooks",
            fits="Subject: softmmu: Add a line\n\nFor the test.\n---\n" + hook(),
        )
        old = box.build / "series/old"
        old.mkdir(parents=True)

        def make(**env: str) -> int:
            return subprocess.run(
                ["make", "-C", ROOT, "-s", "export-series"],
                env={**box.env, "QEMU_SRC": str(qemu), "FDT_SERIES": str(hooks),
                     "FDT_LINUX_SERIES": str(series), **env},
                capture_output=True, check=False,
            ).returncode

        (series / "cover").rename(series / "moved")
        assert make() != 0
        assert old.is_dir()
        (series / "moved").rename(series / "cover")
        assert make() == 0
        assert not old.exists()
        for kind in ("qemu", "linux"):
            assert len(exported(box.build / "series" / kind)) == 2

    def test_source_that_is_none(self, box: LinuxBox, series: Path) -> None:
        out = box.top / "out"
        done = box.run("export-series", "linux", str(out), LINUX_SRC=series)
        assert "is not a Linux source tree" in one_sentence(done, "get-linux")
        assert not out.exists()


@pytest.mark.parametrize(
    ("script", "words", "said"),
    [
        ("get-linux", ["--updates"], "the only one is --update"),
        ("get-linux", ["--update", "now"], "'--update now'"),
        ("get-linux", ["--update"], "apt-get install --only-upgrade"),
        ("assemble-linux", ["--without"], "'--without'"),
        ("build-kernel", ["vanilla"], "'vanilla'"),
        ("build-kernel", ["stock", "debug"], "stock and debug"),
        ("build-kernel", ["--mutant"], "--mutant needs an argument"),
        ("build-kernel", ["--mutant", "/none.patch"], "/none.patch"),
        ("build-kernel", ["--mutant", "/etc/hostname"], "hostname is not"),
        ("build-kernel", ["stock", "--mutant", "/x.patch"], "leave stock"),
        ("build-selftests", ["debug"], "'debug'"),
    ],
)
def test_bad_arguments(
    box: LinuxBox, script: str, words: list[str], said: str
) -> None:
    done = box.run(script, *words)
    assert said in one_sentence(done, script)
    assert not box.build.exists()


@pytest.mark.parametrize("script", ["build-kernel", "build-selftests"])
def test_number_of_jobs(box: LinuxBox, script: str) -> None:
    done = box.run(script, "stock", JOBS="many")
    assert "JOBS=many " in one_sentence(done, script)


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        ("CONFIG_A=y", "# CONFIG_A is not set"),
        ("CONFIG_A=y", "CONFIG_A=m"),
        ("CONFIG_A=y", "CONFIG_AB=y"),
        ("# CONFIG_A is not set", "CONFIG_A=y"),
        ("CONFIG_A=64", "CONFIG_A=8"),
    ],
)
def test_option_that_kconfig_does_not_take(
    box: LinuxBox, wanted: str, got: str
) -> None:
    done = check_config(box, [wanted], got)
    assert f"does not take '{wanted}'" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("fragments", "got"),
    [
        (["CONFIG_A=y"], "CONFIG_A=y"),
        (["# CONFIG_A is not set"], "CONFIG_B=y"),
        (["CONFIG_A=y", "# CONFIG_A is not set"], "# CONFIG_A is not set"),
        (["# CONFIG_A is not set", "CONFIG_A=y"], "CONFIG_A=y"),
        (["# a comment on CONFIG_A=y"], "CONFIG_B=y"),
    ],
)
def test_option_that_kconfig_takes(
    box: LinuxBox, fragments: list[str], got: str
) -> None:
    done = check_config(box, fragments, got)
    assert done.returncode == 0, done.stderr


def check_config(
    box: LinuxBox, fragments: list[str], got: str
) -> subprocess.CompletedProcess[str]:
    """Call the function of build-kernel alone."""
    paths = []
    for number, text in enumerate(fragments):
        path = box.top / f"{number}.config"
        path.write_text(f"{text}\n")
        paths.append(str(path))
    config = box.top / ".config"
    config.write_text(f"{got}\n")
    function = (
        f". {ROOT}/scripts/lib/common.sh; "
        f"eval \"$(sed -n '/^check_config()/,/^}}/p' "
        f'{ROOT}/scripts/build-kernel)"; check_config "$@"'
    )
    return subprocess.run(
        ["bash", "-c", function, "build-kernel", config, *paths],
        env=box.env,
        capture_output=True,
        text=True,
        check=False,
    )


def build_step(
    box: LinuxBox, function: str, stubs: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Call a function of build-kernel, with others in place of what it calls."""
    script = (
        f". {ROOT}/scripts/lib/common.sh; . {ROOT}/scripts/lib/kbuild.sh; "
        f"eval \"$(sed -n '/^{function}()/,/^}}/p' "
        f'{ROOT}/scripts/build-kernel)"; {stubs} {function} "$@"'
    )
    return subprocess.run(
        ["bash", "-c", script, "build-kernel", *arguments],
        env=box.env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("kind", "stays"), [("stock", False), ("debug", True)])
def test_objects_of_an_older_stock_kernel_go(
    box: LinuxBox, kind: str, stays: bool
) -> None:
    """Debian's newer files may be older than these."""
    old = box.build / "linux" / kind / "tree/obj/old.o"
    old.parent.mkdir(parents=True)
    old.touch()
    steps = "assemble_source link_tree configure run_logged install_kernel finished"
    stubs = "source=; wanted=; " + " ".join(
        f"{step}() {{ :; }};" for step in steps.split()
    )
    done = build_step(box, "build_kind", stubs, kind)
    assert done.returncode == 0, done.stderr
    assert old.exists() == stays


def test_objects_that_are_half_taken_over_are_not_there(
    box: LinuxBox
) -> None:
    """A vmlinux there is taken for that of this kernel."""
    objects = box.build / "linux/stock/tree/obj"
    objects.mkdir(parents=True)
    (objects / "vmlinux").touch()
    stubs = "kind_is_built() { :; }; move_tools() { exit 9; };"
    tree = box.build / "linux/patched/tree"
    done = build_step(box, "begin_with_stock", stubs, "patched", str(tree))
    assert done.returncode == 9
    assert not (tree / "obj").exists()
