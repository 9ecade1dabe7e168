# SPDX-License-Identifier: GPL-2.0-or-later
"""A frame buffer is watched for the display and the migration at once."""

from __future__ import annotations

import time

import pytest

from .cases import HELD, assert_identical, log_and_ring
from .compare import differing_in
from .guest import PAGE, Writer
from .migrate import migrate
from .vm import VM, Config, Mechanism, Qemu, pair
from .vnc import PIXEL, Screen

WIDTH, HEIGHT = 1024, 768
SIZE = WIDTH * HEIGHT * PIXEL
SETTLE = 30.0

# The guest also writes 16 MiB of ordinary memory, and paints after each pass.
PAINTER = Writer(mib=16, fb_pages=SIZE // PAGE)


def frame_buffer(vm: VM) -> int:
    """Return the address of the display's memory."""
    for bus in vm.qmp("query-pci"):
        for device in bus["devices"]:
            if device["class_info"]["class"] == 0x0300:
                return int(device["regions"][0]["address"])
    raise AssertionError("the machine has no display")


def colours(pixels: bytes) -> bytes:
    """Blank the fourth byte of each pixel, which has no colour."""
    masked = bytearray(pixels)
    masked[3::PIXEL] = bytes(len(pixels) // PIXEL)
    return bytes(masked)


def assert_screen_follows(vm: VM, screen: Screen) -> None:
    """Fail unless the client comes to see what the stopped guest painted."""
    painted = colours(vm.read_memory(frame_buffer(vm), SIZE))
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


@log_and_ring
def test_painting(ours: Qemu, mechanism: Mechanism) -> None:
    """Neither the screen nor the migration overlooks what is painted."""
    config = Config(ours, ours.accel(mechanism), writer=PAINTER, seabios=True,
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
        assert not differing_in(src, dst, frame_buffer(src), SIZE)
