# SPDX-License-Identifier: GPL-2.0-or-later
"""Our binary as libvirt starts it: unwrapped, with all that a domain has."""

from __future__ import annotations

import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.migration.vm import STOCK

from .domain import OURS, Config, Domain
from .host import Host

Hosts = tuple[Host, Host]

GREETING = "writer ready"  # of the guest, on its serial line

# What libvirt finds in Debian's binary only: desktop windows and GPUs of the
# host, smart cards, persistent memory, and in Debian 13's libblkio.
LACKING = {
    "ccid-emulated",
    "ccid-passthru",
    "display-dbus",
    "egl-headless",
    "egl-headless.rendernode",
    "memory-backend-file.pmem",
    "sdl",
    "spice-gl",
    "spice-rendernode",
    "virtio-blk-vhost-vdpa",
    "virtio-gpu-gl-pci",
    "virtio-vga-gl",
}


def probed(host: Host, emulator: Path) -> set[str]:
    """The flags that libvirt gave EMULATOR when it probed it."""
    host.virsh("domcapabilities", "--emulatorbin", emulator)
    for file in (host.root / "var/cache/libvirt/qemu/capabilities").iterdir():
        tree = ElementTree.parse(file)
        if tree.findtext("emulator") == str(emulator):
            return {flag.attrib["name"] for flag in tree.iter("flag")}
    raise AssertionError(f"libvirt has no capabilities of {emulator}")


def lacking(host: Host) -> set[str]:
    """What libvirt finds in that host's QEMU of Debian only, not in ours."""
    return probed(host, STOCK) - probed(host, OURS)


def release(emulator: Path) -> str:
    """What QEMU calls itself: its version's first two numbers."""
    said = subprocess.check_output([emulator, "--version"], text=True)
    return ".".join(said.split()[3].split(".")[:2])


def test_capabilities(hosts: Hosts) -> None:
    """libvirt finds all in our binary that it finds in Debian's."""
    if release(STOCK) != release(OURS):
        pytest.skip("Debian's QEMU of this host is of another release")
    assert lacking(hosts[0]) <= LACKING


@pytest.mark.parametrize("machine", ("pc", "q35"))
@pytest.mark.parametrize("place", ("build", "prefix"))
def test_usual_domain(
    hosts: Hosts, request: pytest.FixtureRequest, place: str, machine: str
) -> None:
    """It starts and boots from its disk, with a serial line and VNC.

    Nothing is installed if it need not be: in the lab that takes minutes.
    """
    host = hosts[0]
    emulator = OURS
    if place == "prefix":
        emulator = request.getfixturevalue("installed")
    config = Config(
        emulator=emulator, machine=machine, shared=False, seabios=True
    )
    with Domain(config, host) as domain:
        assert domain.printed(host, len(GREETING)) == GREETING
        assert host.virsh("vncdisplay", domain.name) == "127.0.0.1:0"
        read_vnc = "head -c 3 </dev/tcp/127.0.0.1/5900"
        assert host.run("bash", "-c", read_vnc).stdout == "RFB"
        assert domain.qmp(host, "query-dirty-tracking")["pages"] == 0


def test_spice(hosts: Hosts) -> None:
    """So does one with what virt-manager gives a domain."""
    config = Config(graphics="spice", video="qxl")
    with Domain(config, hosts[0]) as domain:
        domain.wait_writing(hosts[0])
