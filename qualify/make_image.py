# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes the image out of what has been built: see scripts/build-image.

usage: python qualify/make_image.py DIR [--commit TEXT]
           [--wait SECONDS] [--append WORDS]

DIR gets NAME.iso, for a stick or a CD, and for PXE what is in it: the kernels
patched and stock, and the initramfs files.zst.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "lab")]

from initramfs import files_below, make_initramfs, wanted  # noqa: E402
from tests.migration.guest import BUILD, BUILT, IMAGE, SOURCES  # noqa: E402

HERE = ROOT / "qualify"
NAME = "fast-dirty-tracking"
HOME = "opt/fdt"  # in the image: the project, as far as it is there
KERNELS = ("patched", "stock")
SELFTESTS = BUILT / "linux/selftests-patched"
ENGINE = BUILD / "meson/tests"
CRASH = BUILD / "crash"  # by scripts/get-packages
QEMU = BUILT / "qemu/qemu-system-x86_64"
STOCK_QEMU = "qemu-system-x86_64"
STOCK_MODULES = Path("/usr/lib/x86_64-linux-gnu/qemu")
# Of all programs that a shell wants, those that are installed.
PROGRAMS = (
    "blkid", "chmod", "cp", "cpio", "dmesg", "du", "find", "free", "kill",
    "less", "ln", "lscpu", "mkdir", "mount", "mv", "nproc", "paste", "ps", "rm",
    "sed", "setsid", "sort", "stty", "sync", "taskset", "tee", "tr", "umount",
    "vi", "wc",
)
RESCUERS = ("blkid", "dmesg", "mkdir", "mount", "setsid", "stty", "sync", "tee",
            "umount")
# Directories of Python's library.
NO_PYTHON = {"ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter"}
LABEL = "FDT-RESULT"
RESULTS_MIB = 32
FAT = "0x0c"  # the type of a partition that has FAT with LBA


def programs(names: Iterable[str]) -> Iterator[Path]:
    """Those of them that are installed."""
    for name in names:
        found = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
        if found:
            yield Path(found)


def python_files() -> Iterator[Path]:
    """Debian's Python and what is needed of its library."""
    yield Path("/usr/bin/python3").resolve()
    yield Path("/usr/bin/python3")
    for path in files_below(Path(sysconfig.get_path("stdlib"))):
        if not NO_PYTHON & set(path.parts) and path.suffix != ".a":
            yield path


def of_ours() -> Iterator[tuple[Path, str]]:
    """What the image has below HOME, and where."""
    for name in ("qualify", "lab/complaints.py", "tests/migration",
                 "tests/bench"):
        for path in files_below(ROOT / name):
            if "__pycache__" not in path.parts:
                yield path, str(path.relative_to(ROOT))
    for path in SOURCES:
        yield path, str(path.relative_to(ROOT))
    yield IMAGE, f"build/{IMAGE.relative_to(BUILD)}"
    yield QEMU, f"build/{QEMU.relative_to(BUILT)}"
    for path in files_below(SELFTESTS):
        if path.suffix not in (".o", ".d", ".h", ".a"):
            yield path, f"selftests/{path.relative_to(SELFTESTS)}"
    for path in sorted(ENGINE.glob("*/test_*")):
        if path.is_file():
            yield path, f"engine/{path.name}"
    for package in ("qemu", "segno"):
        directory = Path(sysconfig.get_path("purelib")) / package
        for path in files_below(directory):
            yield path, f"{package}/{path.relative_to(directory)}"


def place(path: Path, target: Path) -> None:
    """Copy a file; its time is kept, since Python looks at it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


def strip(directory: Path) -> None:
    """Take what only a debugger reads from all programs below it."""
    for path in files_below(directory):
        with path.open("rb") as file:
            is_program = file.read(4) == b"\x7fELF"
        if is_program:
            subprocess.run(["strip", "--strip-debug", path], check=True)


def begin_root(root: Path, commit: str) -> None:
    """The first process, and what starts a kernel after another."""
    init = root / "init"
    init.write_text((HERE / "init").read_text().replace("@COMMIT@", commit))
    init.chmod(0o755)
    for path in files_below(CRASH / "usr"):
        name = path.relative_to(CRASH)
        if name.parts[1] == "lib" or path.name in ("kexec", "vmcore-dmesg"):
            place(path, root / name)


def make_rescue(archive: Path, commit: str) -> None:
    """The initramfs of the kernel that starts when the first one panics."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        root = Path(name)
        begin_root(root, commit)
        for path, where in of_ours():
            if where.startswith(("lab/", "qemu/", "qualify/", "segno/", "tests/")):
                place(path, root / HOME / where)
        takes = [*python_files(), *programs(RESCUERS)]
        make_initramfs(archive, root, wanted("bash", takes), Path("/root"))


def make_files(archive: Path, kernel: Path, commit: str) -> None:
    """The initramfs: all that the host has."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        root = Path(name)
        begin_root(root, commit)
        place(kernel, root / "boot/patched")
        make_rescue(archive.with_name("rescue"), commit)
        compress(archive.with_name("rescue"), root / "boot/rescue")
        for path, where in of_ours():
            place(path, root / HOME / where)
        strip(root / HOME)
        takes = [*python_files(), *programs((*PROGRAMS, STOCK_QEMU)),
                 *STOCK_MODULES.glob("accel-*.so")]
        # Its libraries are the machine's.
        takes.append(QEMU)
        files = [path for path in wanted("bash", takes) if path != QEMU]
        make_initramfs(archive, root, files, Path("/root"))


def compress(path: Path, target: Path) -> None:
    subprocess.run(["zstd", "-q", "-10", "-T0", "-f", path, "-o", target],
                   check=True)


def make_partition(path: Path) -> None:
    """A file system for results, which any machine can read."""
    size = RESULTS_MIB << 10
    subprocess.run(
        ["mkfs.vfat", "-C", "-n", LABEL, path, str(size)],
        check=True, stdout=subprocess.DEVNULL,
    )


def menu(given: argparse.Namespace) -> str:
    """What GRUB reads."""
    text = (HERE / "grub.cfg").read_text()
    text = text.replace("@WORDS@", given.append)
    return text.replace("@TIMEOUT@", str(given.wait))


def make_image(target: Path, given: argparse.Namespace) -> None:
    """A file that a stick, or a CD, is started from, by BIOS or by UEFI."""
    with tempfile.TemporaryDirectory(dir=target) as name:
        top = Path(name)
        boot = top / "cd/boot"
        (boot / "grub").mkdir(parents=True)
        for kernel in KERNELS:
            place(BUILT / f"linux/{kernel}-image/bzImage", boot / kernel)
        make_files(top / "files", boot / "patched", given.commit)
        compress(top / "files", boot / "files.zst")
        (boot / "grub/grub.cfg").write_text(menu(given))
        make_partition(top / "results")
        subprocess.run(
            ["grub-mkrescue", "-o", top / "iso", top / "cd",
             "-append_partition", "3", FAT, top / "results"],
            check=True,
        )
        for file in (*KERNELS, "files.zst"):
            (boot / file).replace(target / file)
        (top / "iso").replace(target / f"{NAME}.iso")


def main(words: list[str]) -> None:
    parse = argparse.ArgumentParser(allow_abbrev=False)
    parse.add_argument("directory", type=Path)
    parse.add_argument("--commit", default="unknown")
    parse.add_argument("--wait", type=int, default=30, help="for how many seconds")
    parse.add_argument("--append", default="", help="words for the kernel")
    given = parse.parse_args(words)
    make_image(given.directory, given)


if __name__ == "__main__":
    main(sys.argv[1:])
