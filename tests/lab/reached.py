# SPDX-License-Identifier: GPL-2.0-or-later
"""Which lines of our kernel code the fuzzer reaches.

    build/venv/bin/python -m tests.lab.reached SECONDS [SEED]

fuzzes the patched kernel for so long with each MMU, and prints for each of
our files how many of its lines were run, and which were not.  Only lines that
the compiler has made code of count.  The kernel needs no KCOV for it: the
emulator lists the code that it translates, and it only translates code that is
about to run.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.migration.guest import BUILD, BUILT, ROOT

from .lab import BUILD_KERNEL, lab, must, selftests
from .shrink import FUZZER

VMLINUX = BUILT / "linux/patched/vmlinux"
# The two MMUs; the second with page tables of 5 levels.
MACHINES = {
    "tdp": ["--append", "kvm.tdp_mmu=1"],
    "shadow": ["--append", "kvm.tdp_mmu=0", "--cpu-model", "max"],
}

# A place in the source: file, line and function.
Place = tuple[str, int, str]


def own_files() -> list[str]:
    """Ours, at the paths that they have in a Linux tree."""
    top = ROOT / "host-kernel"
    return [
        str(path.relative_to(top))
        for directory in ("arch", "virt", "include/linux")
        for path in (top / directory).rglob("*.[ch]")
    ]


def said(*words: str | Path, given: str = "") -> str:
    """The output of a program."""
    return subprocess.run(
        [str(word) for word in words],
        input=given,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def begins(vmlinux: Path) -> list[int]:
    """The addresses where the code of a line begins.

    scripts/lib/kbuild.sh has the compiler note lines in the objects that our code
    is in, and in no others.
    """
    rows = said("objdump", "--dwarf=decodedline", vmlinux)
    found = re.findall(r"^\S+ +\d+ +(0xffffffff8[0-9a-f]{7})\b", rows, re.M)
    return sorted({int(address, 16) for address in found})


def ours(frames: list[Place], files: list[str]) -> Place | None:
    """The first of ours among a function and those that it is inlined in."""
    for path, line, function in frames:
        for name in files:
            if path.endswith(f"/{name}"):
                return name, line, function
    return None


def places(vmlinux: Path, addresses: Iterable[int]) -> dict[int, Place]:
    """Where the addresses are in our files; no others are in it."""
    files = own_files()
    answers = said(
        *("addr2line", "-a", "-i", "-f", "-e", vmlinux),
        given="".join(f"{address:#x}\n" for address in addresses),
    )
    found = {}
    for answer in re.split(r"^(?=0x)", answers, flags=re.MULTILINE)[1:]:
        address, *frames = answer.splitlines()
        chain = []
        for function, where in zip(frames[::2], frames[1::2]):
            match = re.match(r"(.+):(\d+)", where)
            if match:
                chain.append((match[1], int(match[2]), function))
        place = ours(chain, files)
        if place:
            found[int(address, 16)] = place
    return found


def fuzz(machine: str, seconds: int, seed: int, at: list[int]) -> set[int]:
    """The addresses of the instructions that a run in the lab has run."""
    with tempfile.TemporaryDirectory(dir=BUILD) as directory:
        ran = Path(directory) / "ran"
        ended = lab(
            selftests("patched") / FUZZER,
            *("-s", str(seed), "-t", str(seconds)),
            kernel="patched",
            seconds=seconds + 400,
            options=[
                *MACHINES[machine],
                *("--ran", f"{min(at):#x}..{max(at):#x}={ran}"),
            ],
        )
        if ended.status:
            raise RuntimeError(ended.stdout + ended.stderr)
        lines = re.findall(r"^(0x[0-9a-f]{16}): ", ran.read_text(), re.M)
        return {int(line, 16) for line in lines}


def report(
    known: dict[int, Place], reached: set[int]
) -> tuple[list[str], list[Place]]:
    """A sentence for each file, and the lines that were not reached."""
    every: dict[str, set[Place]] = defaultdict(set)
    hit: dict[str, set[Place]] = defaultdict(set)
    for address, place in known.items():
        every[place[0]].add(place)
        if address in reached:
            hit[place[0]].add(place)
    sentences = [
        f"{name}: {len(hit[name])} of {len(every[name])} lines"
        for name in sorted(every)
    ]
    missed = [place for name in every for place in every[name] - hit[name]]
    return sentences, sorted(missed)


def main(words: list[str]) -> int:
    if not 1 <= len(words) <= 2 or not all(word.isdigit() for word in words):
        print(
            "reached: give how many SECONDS to fuzz with each MMU, and a SEED "
            "if you like; both are whole numbers",
            file=sys.stderr,
        )
        return 1
    seconds, seed = int(words[0]), int([*words, "1"][1])
    must([BUILD_KERNEL, "--quiet", "patched"])
    known = places(VMLINUX, begins(VMLINUX))
    reached: set[int] = set()
    for machine in MACHINES:
        reached |= fuzz(machine, seconds, seed, sorted(known))
    sentences, missed = report(known, reached)
    print("\n".join(sentences))
    for name, line, function in missed:
        print(f"not reached: {name}:{line} {function}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
