# SPDX-License-Identifier: GPL-2.0-or-later
"""The binaries and the machine of a run: part of each figure."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import struct
import subprocess
from pathlib import Path

from tests.migration.guest import BUILT, ROOT
from tests.migration.vm import OURS, STOCK, kvm_usable, path_of

from .releases import OTHERS, PEER, VERSIONS

FROM = {"stock": "the machine's QEMU",
        "backports": "QEMU of bookworm-backports",
        "next": "QEMU of trixie-backports"}
BINARIES = {
    "our QEMU": OURS,
    **{f"our QEMU {version}": path_of(name)
       for name, version in OTHERS.items()},
    "stock QEMU": path_of(PEER),
    **{FROM[name]: path_of(name) for name in VERSIONS if name != PEER},
    "patched kernel": BUILT / "linux/patched/bzImage",
    "stock kernel": BUILT / "linux/stock/bzImage",
    "patched kernel with static keys": BUILT / "linux/patched-keys/bzImage",
    "stock kernel with static keys": BUILT / "linux/stock-keys/bzImage",
}
# migrate-perf and engine-loops have sources in tests/kvm and tests/unit.
PROGRAMS = ("tests/bench", "tests/guests", "tests/kvm", "tests/migration",
            "tests/unit", "host-kernel/tools")
SOURCES = (".S", ".c", ".h", ".py", ".sh")
ONLY_SHOW = ("chapter_", "report", "test_")  # a name begins so
DIGITS = 12  # of a digest


def output(*command: str | Path) -> str:
    """The first line that a command prints, or nothing."""
    try:
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return (done.stdout.splitlines() or [""])[0]


def digest(path: Path) -> str:
    """A digest that tells one binary from another."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:DIGITS]
    except OSError:
        return "missing"


def kernel(path: Path) -> str:
    """The version in a bzImage, at the place that the x86 boot protocol names."""
    try:
        image = path.read_bytes()
        (offset,) = struct.unpack_from("<H", image, 0x20E)
        words = image[offset + 0x200:].partition(b"\0")[0].decode().split()
    except (OSError, struct.error, UnicodeDecodeError):
        return ""
    return words[0] if words else ""


def said(path: Path) -> str:
    """The version that a binary has for itself."""
    return kernel(path) if path.name == "bzImage" else output(path, "--version")


def programs(root: Path = ROOT) -> str:
    """A digest of the sources of the measuring programs."""
    files = (path for part in PROGRAMS for path in (root / part).rglob("*")
             if path.suffix in SOURCES and not path.name.startswith(ONLY_SHOW))
    whole = hashlib.sha256()
    for path in sorted(files):
        whole.update(f"{path.relative_to(root)} {digest(path)}\n".encode())
    return whole.hexdigest()[:DIGITS]


def measured() -> dict[str, str]:
    """The versions measured and used; all figures depend on each."""
    return {**{name: f"{said(path)} (sha256 {digest(path)})".strip()
               for name, path in BINARIES.items()},
            "measuring programs": f"sha256 {programs()}"}


def booted() -> dict[str, str]:
    """What a measurement outside of the lab depends on, too."""
    found = {"processor": cpu(),
             "kernel": f"{platform.release()} {platform.version()}"}
    for path in sorted(Path("/sys/module").glob("kvm*/parameters/*")):
        with contextlib.suppress(OSError):
            found[f"{path.parts[3]}.{path.name}"] = path.read_text().strip()
    return found


def cpu() -> str:
    """The processor's name for itself."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def host() -> dict[str, str]:
    """The machine that a run has."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": f"{cpu()}, {os.cpu_count()} CPUs",
        "memory": f"{memory / 2 ** 30:.0f} GiB",
        "kernel": platform.release(),
        "/dev/kvm": "usable" if kvm_usable() else "not there",
        "the lab's emulator": said(STOCK),
        "commit": output("git", "describe", "--always", "--dirty"),
    }
