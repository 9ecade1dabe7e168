# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains: their XML, their memory, and what they do on a host."""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from xml.etree import ElementTree

from tests.migration.compare import differing_in_maps
from tests.migration.guest import (
    COUNTERS,
    CPU_PAGES,
    MIB,
    PAGE,
    PARAMS_OFFSET,
    Writer,
    unpack_counters,
)
from tests.migration.vm import STOCK, qemu

from .host import Host, HostError

TEMPLATE = Path(__file__).with_name("domain.xml")
OURS = qemu("ours").path.absolute()
RUN_SECONDS = 90.0

# In the writer's parameter block.
DELAY = 0x7C00 + PARAMS_OFFSET + 5 * 4
LOOPS = 3

# On a vCPU's own page, and at the start of each page it writes.
STAMP = struct.Struct("<I")


@dataclass(frozen=True)
class Config:
    """A domain's XML: a usual one, but that the writer is its firmware.

    With SEABIOS it is what that finds on the disk.
    The memory of a SHARED one is a file, which is how a test gets at it: it
    opens the file, and can read it after libvirt has ended QEMU.  That of a
    RESERVED one is there, all of it, before QEMU starts.
    """

    emulator: Path = OURS
    machine: str = "pc"
    ring: int = 0
    shared: bool = True
    reserved: bool = False
    mib: int = 128
    writer: Writer = Writer()
    seabios: bool = False
    persistent: bool = False
    graphics: str = "vnc"
    video: str = "vga"
    name: str = "guest"

    def image(self) -> bytes:
        """What the disk has, or the firmware."""
        writer = self.writer
        return writer.image() if self.seabios else writer.firmware()

    def xml(self, image: Path) -> str:
        """The whole XML, for `virsh create`, with IMAGE as the disk."""
        domain = ElementTree.parse(TEMPLATE).getroot()
        for path, text in (
            ("name", self.name),
            ("memory", str(self.mib)),
            ("vcpu", str(self.writer.cpus)),
            ("devices/emulator", str(self.emulator)),
        ):
            find(domain, path).text = text
        find(domain, "os/type").set("machine", self.machine)
        find(domain, "devices/disk/source").set("file", str(image))
        find(domain, "devices/graphics").set("type", self.graphics)
        find(domain, "devices/video/model").set("type", self.video)
        if not self.seabios:
            loader = ElementTree.SubElement(
                find(domain, "os"), "loader", readonly="yes", type="rom"
            )
            loader.text = str(image)
        if self.ring:
            kvm = ElementTree.SubElement(find(domain, "features"), "kvm")
            ElementTree.SubElement(
                kvm, "dirty-ring", state="on", size=str(self.ring)
            )
        if self.shared:
            backing = ElementTree.SubElement(domain, "memoryBacking")
            ElementTree.SubElement(backing, "source", type="file")
            ElementTree.SubElement(backing, "access", mode="shared")
            if self.reserved:
                ElementTree.SubElement(backing, "allocation", mode="immediate")
        return ElementTree.tostring(domain, encoding="unicode")


def find(element: ElementTree.Element, path: str) -> ElementTree.Element:
    """The element at PATH, which has to be there."""
    found = element.find(path)
    assert found is not None, path
    return found


class Memory:
    """The memory of a domain, which stays readable when QEMU has ended."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb+") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def __getitem__(self, part: slice) -> bytes:
        return self._map[part]

    def write(self, address: int, data: bytes) -> None:
        """Change the memory behind the guest's back."""
        self._map[address:address + len(data)] = data

    def differing_pages(self, other: Memory) -> list[int]:
        """The numbers of the pages that are not the same in OTHER."""
        return differing_in_maps(self._map, other._map)


class Domain:
    """A domain, wherever it runs; leaving the context ends it."""

    def __init__(self, config: Config, *hosts: Host) -> None:
        self.config = config
        self.name = config.name
        self.hosts = hosts

    def __enter__(self) -> Domain:
        top = self.hosts[0].dir.parent
        image, xml = top / f"{self.name}.img", top / f"{self.name}.xml"
        image.write_bytes(self.config.image())
        xml.write_text(self.config.xml(image))
        if self.config.persistent:
            self.hosts[0].virsh("define", xml)
            self.hosts[0].virsh("start", self.name)
        else:
            self.hosts[0].virsh("create", xml)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for host in self.hosts:
            host.run("virsh", "destroy", self.name, check=False)

    def state(self, host: Host) -> str:
        """As in virsh, but "absent" if HOST does not have it."""
        if self.name not in host.domains():
            return "absent"
        return host.virsh("domstate", self.name)

    def qmp(self, host: Host, command: str, **arguments: Any) -> Any:
        """Run a QMP command as an operator does, through libvirt."""
        text = json.dumps({"execute": command, "arguments": arguments})
        said = host.virsh("qemu-monitor-command", self.name, text)
        answer = json.loads(said)
        if "error" in answer:
            raise HostError(f"{command}: {answer['error']['desc']}")
        return answer["return"]

    def mechanism(self, host: Host) -> str:
        """How its QEMU on HOST tracks dirty pages."""
        return str(self.qmp(host, "query-dirty-tracking")["mechanism"])

    def pid(self, host: Host) -> int:
        """Its QEMU, as the host knows it."""
        path = host.root / "run/libvirt/qemu" / f"{self.name}.pid"
        return int(path.read_text())

    def emulator(self, host: Host) -> Path:
        """The binary that its QEMU was started from."""
        exe = os.readlink(host.root / f"proc/{self.pid(host)}/exe")
        return Path(exe.removesuffix(" (deleted)"))

    def label(self, host: Host) -> str:
        """What confines its QEMU."""
        return (host.root / f"proc/{self.pid(host)}/attr/current").read_text()

    def kill(self, host: Host) -> None:
        """End its QEMU as the host's kernel does when memory is short."""
        host.run("sh", "-c", f"kill -KILL {self.pid(host)}")

    def memory(self, host: Host) -> Memory:
        """Its memory on HOST, of a shared one."""
        below = host.root / "var/lib/libvirt/qemu/ram"
        (path,) = below.glob(f"*-{self.name}/pc.ram")
        return Memory(path)

    def printed(self, host: Host, size: int) -> str:
        """The next SIZE characters on its serial line."""
        tty = host.virsh("ttyconsole", self.name)
        limit = str(int(RUN_SECONDS))
        return host.run("timeout", limit, "head", "-c", str(size), tty).stdout

    def wait_writing(self, host: Host) -> None:
        """Wait until it has written all its working set once more."""
        memory = self.memory(host)
        writer = self.config.writer
        share = writer.mib * MIB // PAGE // writer.cpus
        begun = counters(memory, writer.cpus)
        deadline = time.monotonic() + RUN_SECONDS
        while True:
            now = counters(memory, writer.cpus)
            if all(new - old >= share for old, new in zip(begun, now)):
                return
            assert time.monotonic() < deadline, f"it does not write: {now}"
            time.sleep(0.02)

    def slow_down(self, host: Host, seconds: float) -> None:
        """Have it take about SECONDS for its working set, from now on."""
        memory, writer = self.memory(host), self.config.writer
        begun, start = counters(memory, writer.cpus), time.monotonic()
        time.sleep(0.5)
        now, end = counters(memory, writer.cpus), time.monotonic()
        # The guest needs about as long for a write as for a few idle loops.
        rate = LOOPS * (max(now) - max(begun)) / (end - start)
        share = writer.mib * MIB // PAGE // writer.cpus
        memory.write(DELAY, struct.pack("<I", int(rate * seconds / share)))

    def stale_pages(self, host: Host) -> list[int]:
        """The pages that are not as the sequential writer left them.

        A vCPU stamps its pages one after the other with the number of its
        pass, and counts both; the page it is at may have either stamp.
        """
        memory, writer = self.memory(host), self.config.writer
        stale: list[int] = []
        for cpu in range(writer.cpus):
            own = range(
                writer.base + cpu * PAGE,
                writer.base + writer.mib * MIB,
                writer.cpus * PAGE,
            )
            at = CPU_PAGES + cpu * PAGE
            count, _, passes = COUNTERS.unpack(
                memory[at:at + COUNTERS.size]
            )
            done = count - passes * len(own)
            for place, page in enumerate(own):
                (stamp,) = STAMP.unpack(memory[page:page + STAMP.size])
                if place != done and stamp != passes + (place < done):
                    stale.append(page // PAGE)
        return stale


def counters(memory: Memory, cpus: int) -> list[int]:
    """How many pages each vCPU has written."""
    return unpack_counters(memory[CPU_PAGES:CPU_PAGES + cpus * PAGE], cpus)
