# SPDX-License-Identifier: GPL-2.0-or-later
"""The channels of multifd: they fail, and somebody asks for another number.

Where they fail, the destination is but this test.
"""

from __future__ import annotations

import array
import contextlib
import dataclasses
import fcntl
import socket
import termios
from pathlib import Path
from typing import Iterator

import pytest

from .cases import HELD, migrate_identical
from .disk import make_overlay
from .guest import MIB, Writer
from .migrate import UNLIMITED, info, set_capabilities
from .qmp import QMPError
from .test_switch import refused
from .vm import VM, Config, Qemu, pair

END_TIMEOUT = 60.0
STUCK_LOOKS = 50  # over a second
CHANNELS = 4  # each takes half a MiB before it waits


@contextlib.contextmanager
def connected(src: VM, channels: int) -> Iterator[list[socket.socket]]:
    """Begin to migrate SRC; yields the main connection and the channels."""
    path = src.dir / "migrate"
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen()
        set_capabilities(src, "multifd")
        src.qmp("migrate-set-parameters", multifd_channels=channels)
        src.qmp("migrate", uri=f"unix:{path}")
        yield [stack.enter_context(listener.accept()[0])
               for _ in range(1 + channels)]


def unread(connection: socket.socket) -> int:
    """Return how many bytes have come by CONNECTION."""
    count = array.array("i", [0])
    fcntl.ioctl(connection, termios.FIONREAD, count)
    return count[0]


def wait_stuck(vm: VM, connection: socket.socket) -> None:
    """Wait until VM has filled CONNECTION, and so has to wait itself."""
    seen: list[int] = []

    def stuck() -> bool:
        seen.append(unread(connection))
        return seen[-1] > 0 and seen[-STUCK_LOOKS:] == [
            seen[-1]] * STUCK_LOOKS

    vm.wait(stuck, END_TIMEOUT, "the migration did not get stuck")


def few_pages(vm: VM) -> None:
    """Send zero pages by the main connection, as QEMU before 9.0 does."""
    vm.qmp("migrate-set-parameters", max_bandwidth=UNLIMITED)
    if "zero-page-detection" in vm.qmp("query-migrate-parameters"):
        vm.qmp("migrate-set-parameters", zero_page_detection="legacy")


def wait_failed(vm: VM) -> None:
    """Wait until the migration of VM has failed."""
    vm.wait(lambda: info(vm)["status"] == "failed", END_TIMEOUT,
            "the migration did not fail")


def accepted(vm: VM, command: str, **arguments: object) -> bool:
    """Whether VM does what COMMAND asks for."""
    try:
        vm.qmp(command, **arguments)
    except QMPError:
        return False
    return True


def test_while_a_failed_migration_ends(ours: Qemu, tmp_path: Path) -> None:
    """A migration that has failed goes on until its thread notices.

    Pages that are not zeros go to channels of their own, which then fail.
    The thread is stuck by that time: nobody reads its messages about the zero
    pages behind them, and these are too many for a socket.
    """
    writer = Writer(mib=1)
    config = Config(ours, "kvm", mib=256, writer=writer, extra=(
        "-m", "256M,slots=1,maxmem=1G", "-drive",
        f"if=none,format=qcow2,file={make_overlay(ours, tmp_path, writer)}"))
    with VM("src", config) as src:
        src.wait_writing()
        few_pages(src)
        with connected(src, CHANNELS) as (main, *channels):
            wait_stuck(src, main)
            for channel in channels:
                channel.close()
            wait_failed(src)
            assert "migration" in refused(src, "log")
            with pytest.raises(QMPError, match="in progress"):
                src.qmp("migrate", uri=f"unix:{src.dir / 'migrate'}")
            with pytest.raises(QMPError, match="in progress"):
                set_capabilities(src, "xbzrle")
            assert "in progress" in src.hmp("savevm snapshot")
            src.qmp("object-add", qom_type="memory-backend-ram", id="more",
                    size=16 * MIB)
            with pytest.raises(QMPError,
                               match="not allowed while migrating"):
                src.qmp("device_add", driver="pc-dimm", id="dimm",
                        memdev="more")
            assert "not allowed" in src.hmp(
                "device_add pc-dimm,id=dimm,memdev=more")
            src.qmp("migrate_cancel")
            src.wait(lambda: accepted(src, "set-dirty-tracking",
                                      mechanism="log"),
                     END_TIMEOUT, "the migration did not end")


def stays(vm: VM, name: str, number: int) -> None:
    """Fail unless NAME is a parameter that stays at NUMBER, and may be so."""
    for other in (1, 16):
        with pytest.raises(QMPError, match=f"{name} stays at {number} "):
            vm.qmp("migrate-set-parameters", **{name: other})
    vm.qmp("migrate-set-parameters", **{name: number})


def test_number_of_channels(ours: Qemu) -> None:
    """It stays while they are used, on both sides."""
    config = Config(ours, "kvm", writer=Writer(cpus=2))
    with pair(config) as (src, dst):
        src.wait_writing()

        def ask_for_others() -> None:
            for vm in (src, dst):
                stays(vm, "multifd-channels", 2)

        migrate_identical(src, dst, dataclasses.replace(HELD, multifd=2),
                          held=ask_for_others)
        for vm in (src, dst):
            vm.wait(lambda vm=vm: accepted(  # type: ignore[misc]
                vm, "migrate-set-parameters", multifd_channels=3),
                END_TIMEOUT, "the number of channels stays for ever")


def test_number_of_compressing_threads(ours: Qemu) -> None:
    """It stays while they have pages in hand."""
    config = Config(ours, "kvm", writer=Writer(cpus=2))
    with pair(config) as (src, dst):
        if "compress-threads" not in src.qmp("query-migrate-parameters"):
            pytest.skip("this QEMU has no threads that compress")
        src.wait_writing()
        for vm in (src, dst):
            vm.qmp("migrate-set-parameters", compress_threads=8,
                   decompress_threads=2)

        def ask_for_others() -> None:
            stays(src, "compress-threads", 8)
            stays(dst, "decompress-threads", 2)

        migrate_identical(
            src, dst, dataclasses.replace(HELD, capabilities=("compress",)),
            held=ask_for_others)
