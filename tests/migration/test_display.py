# SPDX-License-Identifier: GPL-2.0-or-later
"""A frame buffer is watched for the display and the migration at once.

It may also move: then memory goes and comes while the migration goes on.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from .cases import HELD, assert_identical, assert_identical_in, matrix
from .guest import PAGE, Writer
from .migrate import migrate
from .vm import VM, Config, Mechanism, Qemu, pair
from .vnc import PIXEL, Screen

WIDTH, HEIGHT = 1024, 768
SIZE = WIDTH * HEIGHT * PIXEL
SETTLE = 30.0

MOVES = 4

# The guest also writes 16 MiB of ordinary memory, and paints after each pass.
PAINTER = {"mib": 16, "fb_pages": SIZE // PAGE}

PCI_ADDRESS, PCI_DATA = 0xCF8, 0xCFC
PCI_COMMAND, PCI_MEMORY = 4, 2


def display(vm: VM) -> dict[str, Any]:
    """Return what is told of the display."""
    for bus in vm.qmp("query-pci"):
        for device in bus["devices"]:
            if device["class_info"]["class"] == 0x0300:
                return dict(device)
    raise AssertionError("the machine has no display")


def frame_buffer(vm: VM) -> int:
    """Return the address of the display's memory."""
    return int(display(vm)["regions"][0]["address"])


def show_frame_buffer(vm: VM) -> None:
    """Turn the frame buffer on, in case the guest was stopped with it off."""
    command = (1 << 31) + (display(vm)["slot"] << 11) + PCI_COMMAND
    assert vm.hmp(f"o/w {PCI_ADDRESS} {command}") == ""
    assert vm.hmp(f"o/h {PCI_DATA} {PCI_MEMORY}") == ""


def wait_moves(vm: VM) -> None:
    """Wait until the frame buffer has moved MOVES times."""
    seen = [frame_buffer(vm)]
    deadline = time.monotonic() + SETTLE
    while len(seen) <= MOVES:
        now = frame_buffer(vm)
        if now != seen[-1]:
            seen.append(now)
        assert time.monotonic() < deadline, (
            f"the frame buffer was at {[hex(each) for each in seen]} only, "
            f"within {SETTLE:.0f} s")


def colours(pixels: bytes) -> bytes:
    """Blank the fourth byte of each pixel, which has no colour."""
    masked = bytearray(pixels)
    masked[3::PIXEL] = bytes(len(pixels) // PIXEL)
    return bytes(masked)


def assert_screen_follows(vm: VM, screen: Screen) -> None:
    """Fail unless the client receives what the stopped guest painted."""
    painted = colours(vm.read_memory(frame_buffer(vm), SIZE))
    assert any(painted), "the guest has painted nothing"
    deadline = time.monotonic() + SETTLE
    while True:
        shown = colours(screen.pixels())
        if shown == painted:
            return
        if time.monotonic() > deadline:
            stale = sum(shown[at:at + PAGE] != painted[at:at + PAGE]
                        for at in range(0, SIZE, PAGE))
            pytest.fail(f"{stale} pages of the frame buffer are stale on the "
                        f"screen after {SETTLE:.0f} s")
        time.sleep(0.2)


@matrix("display", **PAINTER)
def test_painting(ours: Qemu, mechanism: Mechanism, writer: Writer) -> None:
    """Neither the screen nor the migration overlooks a painted pixel."""
    config = Config(ours, ours.accel(mechanism), writer=writer,
                    extra=("-vga", "std", "-vnc", "unix:{dir}/vnc"))
    with pair(config) as (src, dst):
        src.wait_writing(passes=2)
        screen = Screen(src.dir / "vnc")
        try:
            migrate(src, dst, HELD)
            assert_screen_follows(src, screen)
        finally:
            screen.close()
        assert_identical(src, dst)
        assert_identical_in(src, dst, frame_buffer(src), SIZE)


@matrix("memory", fb_moves=1, **PAINTER)
def test_memory_comes_and_goes(ours: Qemu, mechanism: Mechanism,
                               writer: Writer) -> None:
    """The painting arrives, wherever the frame buffer was then."""
    config = Config(ours, ours.accel(mechanism), writer=writer,
                    extra=("-vga", "std"))
    with pair(config) as (src, dst):
        src.wait_writing(passes=2)
        wait_moves(src)
        migrate(src, dst, HELD)
        for vm in (src, dst):
            show_frame_buffer(vm)
        assert_identical(src, dst)
        assert frame_buffer(src) == frame_buffer(dst)
        assert_identical_in(src, dst, frame_buffer(src), SIZE)
