# SPDX-License-Identifier: GPL-2.0-or-later
"""An initramfs of copies of this machine's files.

A machine that cannot see this one's file system gets what a command needs: the
program, what else the caller names, and the libraries and interpreters of all
that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

# What is in the machine whatever COMMAND is.
PROGRAMS = ("bash", "cat", "dmesg", "env", "false", "grep", "head", "ls", "sh",
            "sleep", "tail", "timeout", "true", "uname")
# Debian's merged /usr.
LINKS = ("bin", "lib", "lib64", "sbin")
ELF = b"\x7fELF"


def files_below(path: Path) -> Iterator[Path]:
    """The path itself, or all files of the directory."""
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names))


def libraries(programs: Sequence[Path]) -> set[Path]:
    """The shared libraries, and the loader, that these are linked to."""
    if not programs:
        return set()
    # It ends with 1 if one of them is static.
    listed = subprocess.run(
        ["ldd", *programs], capture_output=True, text=True, check=False
    )
    return {
        Path(name)
        for name in re.findall(r"(/\S+) \(0x[0-9a-f]+\)$", listed.stdout, re.M)
    }


def head_of(path: Path) -> bytes:
    """The first bytes of a file, or nothing if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(256)
    except OSError:
        return b""


def interpreter(head: bytes) -> set[Path]:
    """What #! names, if it is there: not every file is run as a program."""
    words = head.partition(b"\n")[0][2:].split() if head[:2] == b"#!" else []
    return {Path(os.fsdecode(word)) for word in words[:1]
            if os.path.exists(word)}


def wanted(command: str, takes: Iterable[Path]) -> list[Path]:
    """All files of the machine.

    command is COMMAND's first word; takes are what else the caller named.
    """
    found = {Path(path) for path in map(shutil.which, PROGRAMS) if path}
    program = shutil.which(command)
    if program:
        found.add(Path(os.path.abspath(program)))
    for path in takes:
        found.update(files_below(path))
    heads = {path: head_of(path) for path in found}
    for head in list(heads.values()):
        for path in interpreter(head):
            found.add(path)
            heads[path] = head_of(path)
    found |= libraries([path for path in heads if heads[path][:4] == ELF])
    return sorted(found)


def copy(path: Path, root: Path) -> None:
    """Put a file below root, at the place where it really is.

    It keeps its time: Python compares that with what it has compiled.
    """
    place = root / os.path.realpath(path.parent)[1:] / path.name
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        shutil.copy2(path, place)


def make_initramfs(
    archive: Path, root: Path, files: Iterable[Path], directory: Path
) -> None:
    """Write the files, and an empty directory to run in, as an archive.

    root is an empty directory, with what is to be in the machine already.
    """
    for name in LINKS:
        if Path("/", name).is_symlink():
            (root / "usr" / name).mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(f"usr/{name}")
    for path in files:
        copy(path, root)
    (root / os.path.realpath(directory)[1:]).mkdir(parents=True, exist_ok=True)
    names = sorted(
        os.path.relpath(os.path.join(folder, name), root)
        for folder, folders, files_ in os.walk(root)
        for name in (*folders, *files_)
    )
    with archive.open("wb") as file:
        subprocess.run(
            ["cpio", "--quiet", "-0", "-o", "-H", "newc", "-R", "0:0"],
            cwd=root,
            input=b"".join(os.fsencode(name) + b"\0" for name in names),
            stdout=file,
            stderr=subprocess.PIPE,
            check=True,
        )
