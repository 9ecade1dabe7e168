# SPDX-License-Identifier: GPL-2.0-or-later
"""What qualify/host.py makes of a host's /proc, /sys and /dev."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from qualify.host import Host, Unfit, read

INTEL = """\
processor	: {number}
vendor_id	: GenuineIntel
cpu family	: 6
model		: 85
model name	: Intel(R) Core(TM) i7-7800X CPU @ 3.50GHz
stepping	: 4
microcode	: 0x2006e05
flags		: fpu vme pdpe1gb lm vmx la57
vmx flags	: vnmi preemption_timer invvpid {vmx}
bugs		: spectre_v1
"""
AMD = """\
processor	: {number}
vendor_id	: AuthenticAMD
cpu family	: 25
model		: 1
model name	: AMD EPYC 7713 64-Core Processor
stepping	: 1
microcode	: 0xa0011d5
flags		: fpu vme pdpe1gb lm svm {svm}
bugs		: sysret_ss_attrs
"""
NONE = """\
processor	: {number}
vendor_id	: AuthenticAMD
flags		: fpu vme pdpe1gb lm
"""


class Machine:
    """Files that say what a machine is."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.kvm = top / "dev/kvm"
        (top / "proc").mkdir()
        (top / "dev/cpu/0").mkdir(parents=True)
        self.kvm.touch()
        self.cpus(AMD.format(number="{number}", svm="npt"))
        self.cpuid(0x80000001, 1 << 2)
        (top / "proc/meminfo").write_text("MemTotal:        8388608 kB\n")

    def cpus(self, text: str, count: int = 2) -> None:
        blocks = (text.format(number=number) for number in range(count))
        (self.top / "proc/cpuinfo").write_text("\n".join(blocks))

    def cpuid(self, leaf: int, ecx: int) -> None:
        """As the device: a leaf's registers are where its number says."""
        with (self.top / "dev/cpu/0/cpuid").open("wb") as file:
            file.seek(leaf)
            file.write(struct.pack("<4I", 0xFFFFFFFF, 0xFFFFFFFF, ecx, 0))

    def parameter(self, module: str, name: str, value: str) -> None:
        path = self.top / "sys/module" / module / "parameters" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    def read(self, least: int = 1024) -> Host:
        return read(least, self.top)


@pytest.fixture(name="machine")
def fixture_machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(("flags", "has"), [
    ("ept ept_ad pml ept_1gb", {"nested-paging", "dirty-bits", "pml", "huge-1gib"}),
    ("ept ept_ad ept_5level", {"nested-paging", "dirty-bits", "five-levels"}),
    ("ept", {"nested-paging"}),
    ("", set()),
])
def test_intel(machine: Machine, flags: str, has: set[str]) -> None:
    """EPT's own features count, not those of the CPU's own page tables."""
    machine.cpus(INTEL.format(number="{number}", vmx=flags), 3)
    machine.cpuid(1, 1 << 5)
    host = machine.read()
    assert host.cpus == 3
    assert (host.cpu.vendor, host.cpu.number) == ("GenuineIntel", 85)
    assert host.cpu.microcode == "0x2006e05"
    assert {name for name, on in host.features.items() if on} == has


@pytest.mark.parametrize(("flags", "has"), [
    ("npt la57", {"nested-paging", "dirty-bits", "huge-1gib", "five-levels"}),
    ("npt", {"nested-paging", "dirty-bits", "huge-1gib"}),
    ("nrip_save", {"huge-1gib"}),
])
def test_amd(machine: Machine, flags: str, has: set[str]) -> None:
    machine.cpus(AMD.format(number="{number}", svm=flags))
    host = machine.read()
    assert host.memory == 8192
    assert {name for name, on in host.features.items() if on} == has


def test_parameters(machine: Machine) -> None:
    machine.parameter("kvm", "tdp_mmu", "Y")
    machine.parameter("kvm_amd", "nested", "1")
    machine.parameter("kvm_amd", "avic", "0")
    machine.parameter("kvm_intel", "ept", "Y")
    assert machine.read().parameters == {
        "kvm.tdp_mmu": "Y", "kvm_amd.nested": "1",
    }


def test_no_virtualization(machine: Machine) -> None:
    machine.cpus(NONE)
    machine.cpuid(0x80000001, ~(1 << 2) & 0xFFFFFFFF)
    machine.kvm.unlink()
    with pytest.raises(Unfit, match="neither VT-x nor AMD-V"):
        machine.read()


def test_unknown_vendor(machine: Machine) -> None:
    machine.cpus(NONE.replace("AuthenticAMD", "Sparrow"))
    with pytest.raises(Unfit, match="neither VT-x nor AMD-V"):
        machine.read()


@pytest.mark.parametrize(("text", "leaf", "ecx", "name"), [
    (INTEL.replace(" vmx", ""), 1, 1 << 5, "VT-x"),
    (AMD, 0x80000001, 1 << 2, "AMD-V"),
])
def test_switched_off(
    machine: Machine, text: str, leaf: int, ecx: int, name: str
) -> None:
    """Linux takes VT-x from the flags then, CPUID keeps it."""
    machine.cpus(text.format(number="{number}", vmx="ept", svm="npt"))
    machine.cpuid(leaf, ecx)
    machine.kvm.unlink()
    with pytest.raises(Unfit, match=f"has switched {name} off; it must be"):
        machine.read()


def test_no_cpuid(machine: Machine) -> None:
    (machine.top / "dev/cpu/0/cpuid").unlink()
    with pytest.raises(Unfit, match="cpuid cannot be read .* takes root"):
        machine.read()


def test_too_little_memory(machine: Machine) -> None:
    assert machine.read(8192).memory == 8192
    with pytest.raises(Unfit, match="has 8192 MiB of memory; 8193 MiB are"):
        machine.read(8193)
