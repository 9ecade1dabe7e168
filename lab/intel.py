# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's machine with an Intel CPU: Bochs, started from a CD.

Bochs knows nothing of the file system it runs on, so that the machine gets a
copy of what COMMAND needs: an initramfs, on the CD beside the kernel.  Its
four serial lines are the kernel's log and COMMAND's stdout, stderr and status.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

BIOS = Path("/usr/share/bochs/BIOS-bochs-latest")
VGABIOS = Path("/usr/share/vgabios/vgabios.bin")
ISOLINUX = Path("/usr/lib/ISOLINUX/isolinux.bin")
LDLINUX = Path("/usr/lib/syslinux/modules/bios/ldlinux.c32")
# EPT with accessed and dirty bits, PML, unrestricted guest, VPID, VMCS shadowing,
# posted interrupts, and the scaling of the TSC.
MODEL = "corei7_skylake_x"
# With AVX-512, Bochs' sizes of what XSAVE saves are not what Linux makes of the
# features, and it warns of that.
EXCLUDED = ("avx512", "avx512dq", "avx512bw", "avx512cd")
MAX_CPUS = 8
MAX_MEMORY = 2048  # MiB
# Instructions in a second of the machine's time, which takes about a second
# where nothing else runs.  The TSC counts them; CPUID says that it is faster.
IPS = 100_000_000
CLOCK = f"tsc_early_khz={IPS // 1000}"
# Bochs enters no guest with posted interrupts unless their descriptor is at the
# start of a page; the architecture, and Linux, have it at any 64 bytes.
INTERRUPTS = "kvm_intel.enable_apicv=0"
# As fast as init.c has the other lines.  With 5,000 instructions for a character
# Bochs' lines stood still for seconds; these have 8,700.
CONSOLE = "console=ttyS0,115200"
# In the order of the machine's serial lines.
LINES = ("log", "out", "err", "status")
# What is in the machine whatever COMMAND is.
PROGRAMS = ("bash", "cat", "dmesg", "env", "false", "grep", "head", "ls", "sh",
            "sleep", "tail", "timeout", "true", "uname")
# Debian's merged /usr.
LINKS = ("bin", "lib", "lib64", "sbin")
ELF = b"\x7fELF"


class Missing(Exception):
    """A sentence about what the machine cannot be made without."""


def check_installed() -> None:
    """Raises: Missing, if a package is not there."""
    needed = {
        BIOS: "bochsbios",
        VGABIOS: "vgabios",
        ISOLINUX: "isolinux",
        LDLINUX: "syslinux-common",
    }
    for path, package in needed.items():
        if not path.exists():
            raise Missing(
                f"there is no {path}, of the package {package}; scripts/deps "
                "installs it"
            )


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
            check=True,
        )


def make_cd(image: Path, content: Path, append: str) -> None:
    """Write a CD that starts content/kernel with content/files."""
    shutil.copy(ISOLINUX, content / "isolinux.bin")
    shutil.copy(LDLINUX, content / "ldlinux.c32")
    (content / "isolinux.cfg").write_text(
        "default lab\nprompt 0\nlabel lab\n  kernel kernel\n"
        f"  initrd files\n  append {append}\n"
    )
    subprocess.run(
        ["xorriso", "-as", "mkisofs", "-quiet", "-o", image,
         "-b", "isolinux.bin", "-no-emul-boot", "-boot-load-size", "4",
         "-boot-info-table", content],
        capture_output=True,
        check=True,
    )


def configuration(
    cd: Path, log: Path, cpus: int, memory: int, pipes: dict[str, int]
) -> str:
    """Bochs' own file: what the machine is; memory is in MiB."""
    lines = [
        "display_library: nogui",
        f"romimage: file={BIOS}",
        f"vgaromimage: file={VGABIOS}",
        # Cores of one package: with packages of one core each, Linux warns that
        # its driver of the package's counters is lost.
        f"cpu: model={MODEL}, count=1:{cpus}:1, ips={IPS}, "
        "reset_on_triple_fault=0, ignore_bad_msrs=1, "
        f'exclude_features="{",".join(EXCLUDED)}"',
        f"memory: guest={memory}, host={memory}",
        "pci: enabled=1, chipset=i440fx",
        # Time counts instructions: figures repeat.
        "clock: sync=none, time0=1704067200",
        "ata0: enabled=1",
        f'ata0-master: type=cdrom, path="{cd}", status=inserted',
        "boot: cdrom",
        f"log: {log}",
        "panic: action=fatal",
        "error: action=ignore",
        "info: action=ignore",
        "debug: action=ignore",
    ]
    for number, name in enumerate(LINES, 1):
        lines.append(
            f"com{number}: enabled=1, mode=file, dev=/dev/fd/{pipes[name]}"
        )
    return "\n".join(lines) + "\n"
