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
import threading
import time
from pathlib import Path
from typing import Iterator

import pytest

from .cases import HELD, migrate_identical
from .disk import make_overlay
from .guest import MIB, Writer
from .migrate import (UNLIMITED, cancel, info, lift, set_capabilities, start,
                      wait_rounds)
from .qmp import QMPError
from .test_switch import refused
from .vm import VM, Config, Qemu, pair

END_TIMEOUT = 60.0
STUCK_LOOKS = 50  # over a second
ATTEMPTS = 20
NOTICE_SECONDS = 2.0
CHANNELS = 4  # each takes half a MiB before it waits
FULL = 128 << 10  # bytes
STOPPED_SECONDS = 1.0  # a vCPU that only waits for its CPU writes in less

# A write takes so long, and the stop of the guest waits for it.
SLOW_SECONDS = 12
SLOW_DISK = ("-drive", "if=none,id=slow,driver=null-co,"
             f"latency-ns={SLOW_SECONDS}000000000")


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


def drain(connection: socket.socket) -> None:
    """Read all that comes by CONNECTION, in the background."""
    def read() -> None:
        with contextlib.suppress(OSError):
            while connection.recv(MIB):
                pass

    threading.Thread(target=read, daemon=True).start()


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


def is_full(channel: socket.socket) -> bool:
    """Whether more than a message or two wait in CHANNEL."""
    return unread(channel) > FULL


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


def assert_refuses(vm: VM) -> None:
    """Fail unless VM takes nothing that a migration's thread cannot bear."""
    assert "migration" in refused(vm, "log")
    with pytest.raises(QMPError, match="in progress"):
        vm.qmp("migrate", uri=f"unix:{vm.dir / 'migrate'}")
    with pytest.raises(QMPError, match="in progress"):
        set_capabilities(vm, "xbzrle")
    assert "in progress" in vm.hmp("savevm snapshot")
    vm.qmp("object-add", qom_type="memory-backend-ram", id="more",
           size=16 * MIB)
    with pytest.raises(QMPError, match="not allowed while migrating"):
        vm.qmp("device_add", driver="pc-dimm", id="dimm", memdev="more")
    assert "not allowed" in vm.hmp("device_add pc-dimm,id=dimm,memdev=more")
    with pytest.raises(QMPError, match="not allowed while migrating"):
        vm.qmp("device_del", id="rng")


def wait_ended(vm: VM) -> None:
    """Wait until the thread of the migration of VM has ended."""
    vm.wait(lambda: accepted(vm, "set-dirty-tracking", mechanism="log"),
            END_TIMEOUT, "the migration did not end")


def test_while_a_failed_migration_ends(ours: Qemu, tmp_path: Path) -> None:
    """A migration that has failed goes on until its thread notices.

    Pages that are not zeros go to channels of their own, which then fail.
    The thread is stuck by that time: nobody reads its messages about the zero
    pages behind them, and these are too many for a socket.  Where the host is
    slow, QEMU 7.2 may wait for the channels first, and then notices at once:
    that is tried again.
    """
    writer = Writer(mib=1)
    config = Config(ours, "kvm", mib=256, writer=writer, extra=(
        "-m", "256M,slots=1,maxmem=1G", "-device", "virtio-rng-pci,id=rng",
        "-drive",
        f"if=none,format=qcow2,file={make_overlay(ours, tmp_path, writer)}"))
    with VM("src", config) as src:
        src.wait_writing()
        few_pages(src)
        for _ in range(ATTEMPTS):
            with connected(src, CHANNELS) as (main, *channels):
                wait_stuck(src, main)
                for channel in channels:
                    channel.close()
                wait_failed(src)
                time.sleep(NOTICE_SECONDS)
                if not accepted(src, "set-dirty-tracking", mechanism="log"):
                    assert_refuses(src)
                    src.qmp("migrate_cancel")
                    wait_ended(src)
                    return
            (src.dir / "migrate").unlink()
    pytest.fail("the thread was never stuck in what it says")


def number_of(channel: socket.socket) -> int:
    """Return which channel of multifd it is: its first message says so.

    MultiFDInit_t has the number after two words and a UUID.
    """
    return channel.recv(25, socket.MSG_PEEK)[24]


@pytest.mark.parametrize("how", ["cancel", "read", "cancel-active"])
def test_stuck_channel(ours: Qemu, how: str) -> None:
    """The thread waits for a channel that is stuck; another one may have failed.

    The guest has pages for two channels, and each waits for this test, since
    half a MiB is too much for its socket.  The thread waits for the first.
    """
    config = Config(ours, "kvm", mib=256, writer=Writer(mib=1))
    with VM("src", config) as src:
        src.wait_writing()
        few_pages(src)
        with connected(src, CHANNELS) as (main, *channels):
            drain(main)
            src.wait(lambda: sum(map(is_full, channels)) == 2, END_TIMEOUT,
                     "two channels are not stuck")
            first, second = sorted(filter(is_full, channels), key=number_of)
            wait_stuck(src, first)
            if how != "cancel-active":
                second.close()
                wait_failed(src)
            if how == "read":
                drain(first)
            else:
                src.qmp("migrate_cancel")
            wait_ended(src)
        assert how != "cancel-active" or "error-desc" not in info(src)


def runs(vm: VM) -> bool:
    """Whether the guest writes; this does not ask its QEMU, which may wait."""
    return vm.rates(STOPPED_SECONDS) != [0.0]


@pytest.mark.parametrize("pause", [False, True], ids=["stop", "pause"])
def test_channel_fails_at_the_switchover(ours: Qemu, pause: bool) -> None:
    """The guest goes on if a channel fails while it is being stopped, or then.

    One of two channels is read, and the other has pages in hand.
    """
    config = Config(ours, "kvm", mib=256, writer=Writer(mib=128),
                    shared_ram=True, extra=SLOW_DISK)
    with VM("src", config) as src:
        if int(src.qmp("query-version")["qemu"]["major"]) < 8:
            pytest.skip("QEMU waits for all channels before it stops a guest")
        src.wait_writing()
        src.qmp("migrate-set-parameters", max_bandwidth=20 * MIB,
                downtime_limit=1)
        if pause:
            set_capabilities(src, "pause-before-switchover")
        with connected(src, 2) as (main, read, stuck):
            drain(main)
            drain(read)
            wait_stuck(src, stuck)
            begun = time.monotonic()
            if not pause:
                assert not src.hmp('qemu-io slow "aio_write 0 4096"')
            lift(src)
            if pause:
                src.wait(lambda: info(src)["status"] == "pre-switchover",
                         END_TIMEOUT, "it did not come to the switchover")
            src.wait(lambda: not runs(src), END_TIMEOUT,
                     "the guest did not stop")
            stuck.close()
            assert pause or time.monotonic() - begun < SLOW_SECONDS
            wait_failed(src)
            src.wait(lambda: runs(src), END_TIMEOUT, "the guest stays stopped")
            # It was in the midst of a stop, which waits for the write.
            assert pause or time.monotonic() - begun >= SLOW_SECONDS


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


def test_cancelled_with_tls(ours: Qemu) -> None:
    """Nobody misses a farewell on connections that a cancel has shut down."""
    def with_tls(endpoint: str) -> Config:
        return Config(ours, "kvm", extra=(
            "-object", f"tls-creds-anon,id=tls,endpoint={endpoint}"))

    options = dataclasses.replace(HELD, multifd=CHANNELS)
    with VM("src", with_tls("client")) as src, \
            VM("dst", with_tls("server"), incoming=True) as dst:
        src.wait_writing()
        for vm in (src, dst):
            vm.qmp("migrate-set-parameters", tls_creds="tls")
        start(src, dst, options)
        wait_rounds(src, dst, 1, options)
        cancel(src)
        assert "terminate TLS" not in src.messages()
