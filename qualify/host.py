# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host is: its CPU, what that can do for KVM, its memory.

All of it is read from Linux; a kernel of ours is not needed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Container
from dataclasses import asdict, dataclass
from pathlib import Path


class Unfit(Exception):
    """A sentence: why nothing can be tried on this host."""


@dataclass(frozen=True)
class Cpu:
    """The first CPU; a host has CPUs of one kind."""

    vendor: str  # as CPUID has it: GenuineIntel, AuthenticAMD
    model: str
    family: int
    number: int  # /proc/cpuinfo has it as "model"
    stepping: int
    microcode: str  # as Linux prints it, or "none"


# Each with the vendor's name for it in /proc/cpuinfo: "vmx flags" of Intel's,
# "flags" of AMD's.  NPT always has dirty bits (AMD APM 15.25.5), and EPT has
# them if the CPU says so (Intel SDM 29.3.5).
INTEL_FEATURES = {
    "nested-paging": "ept",
    "dirty-bits": "ept_ad",
    "pml": "pml",
    "huge-1gib": "ept_1gb",
    "five-levels": "ept_5level",
}
AMD_FEATURES = {
    "nested-paging": "npt",
    "dirty-bits": "npt",
    "huge-1gib": "pdpe1gb",
    "five-levels": "la57",
}
# By the CPU's vendor: what it is called, and its bit of ECX in a leaf of CPUID
# (Intel SDM 24.6; AMD APM 15.4).  Linux does not show VT-x in /proc/cpuinfo if
# the firmware has switched it off; CPUID still has it then.
VIRTUALIZATION = {
    "GenuineIntel": ("VT-x", 0x1, 5),
    "AuthenticAMD": ("AMD-V", 0x80000001, 2),
    "HygonGenuine": ("AMD-V", 0x80000001, 2),
}
REGISTERS = struct.Struct("<4I")  # EAX, EBX, ECX, EDX
# Those parameters of KVM's modules that change what is tracked, and how.
PARAMETERS = {
    "kvm": ("dirty_tracking", "eager_page_split", "nx_huge_pages", "tdp_mmu"),
    "kvm_intel": ("ept", "eptad", "nested", "pml", "unrestricted_guest"),
    "kvm_amd": ("nested", "npt"),
}


@dataclass(frozen=True)
class Host:
    """A host that can run guests."""

    cpu: Cpu
    cpus: int
    memory: int  # MiB
    features: dict[str, bool]
    # PARAMETERS, as Linux prints them.
    parameters: dict[str, str]

    def as_json(self) -> dict[str, object]:
        """What a result has of it."""
        return asdict(self)


def entries(text: str) -> list[dict[str, str]]:
    """The CPUs of /proc/cpuinfo."""
    found = []
    for block in text.strip().split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        found.append({key.strip(): value.strip() for key, _, value in pairs})
    return found


def features_of(cpu: dict[str, str]) -> dict[str, bool]:
    """What a CPU can do for KVM, by our names."""
    flags = set(cpu.get("flags", "").split())
    if "vmx" in flags:
        names, flags = INTEL_FEATURES, set(cpu.get("vmx flags", "").split())
    else:
        names = AMD_FEATURES
    features = {name: flag in flags for name, flag in names.items()}
    features.setdefault("pml", False)
    return features


def memory_of(text: str) -> int:
    """MiB, of /proc/meminfo."""
    match = re.search(r"^MemTotal:\s+(\d+) kB$", text, re.M)
    if not match:
        raise Unfit("/proc/meminfo does not say how much memory there is")
    return int(match[1]) // 1024


def parameters_of(modules: Path, flags: Container[str]) -> dict[str, str]:
    """PARAMETERS of the modules that this CPU takes, below /sys/module."""
    found = {}
    for module in ("kvm", "kvm_intel" if "vmx" in flags else "kvm_amd"):
        for name in PARAMETERS[module]:
            path = modules / module / "parameters" / name
            if path.exists():
                found[f"{module}.{name}"] = path.read_text().strip()
    return found


def virtualization_of(vendor: str, cpuid: Path) -> str | None:
    """What the CPU has for it, by CPUID's device; None if it has nothing."""
    if vendor not in VIRTUALIZATION:
        return None
    name, leaf, bit = VIRTUALIZATION[vendor]
    try:
        with cpuid.open("rb", buffering=0) as file:
            file.seek(leaf)
            _, _, ecx, _ = REGISTERS.unpack(file.read(REGISTERS.size))
    except OSError as error:
        raise Unfit(f"{cpuid} cannot be read ({error.strerror}); it takes root "
                    "and a kernel with CONFIG_X86_CPUID") from None
    return name if ecx >> bit & 1 else None


def check_fit(can: str | None, has_kvm: bool, mib: int, least: int) -> None:
    """Raises: Unfit, if no guest can be run, or there are not LEAST MiB."""
    if can is None:
        raise Unfit(
            "this CPU has neither VT-x nor AMD-V, or a hypervisor hides it; "
            "a host needs one of them"
        )
    if not has_kvm:
        raise Unfit(
            f"the firmware has switched {can} off; it must be enabled in "
            "the firmware's setup"
        )
    if mib < least:
        raise Unfit(
            f"this host has {mib} MiB of memory; {least} MiB are needed"
        )


def read(least: int, root: Path = Path("/")) -> Host:
    """What this host is; its files are below ROOT.

    Raises: Unfit, if it cannot run guests or has less than LEAST MiB.
    """
    cpus = entries((root / "proc/cpuinfo").read_text())
    first = cpus[0]
    vendor = first.get("vendor_id", "unknown")
    mib = memory_of((root / "proc/meminfo").read_text())
    can = virtualization_of(vendor, root / "dev/cpu/0/cpuid")
    check_fit(can, (root / "dev/kvm").exists(), mib, least)
    return Host(
        Cpu(
            vendor,
            first.get("model name", "unknown"),
            int(first.get("cpu family", "0")),
            int(first.get("model", "0")),
            int(first.get("stepping", "0")),
            first.get("microcode", "none"),
        ),
        len(cpus),
        mib,
        features_of(first),
        parameters_of(root / "sys/module", first.get("flags", "").split()),
    )
