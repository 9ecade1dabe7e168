# SPDX-License-Identifier: GPL-2.0-or-later
"""A migration that fails or is cancelled late leaves a whole guest.

The guest goes on, its disks are its own again, or it is paused as before.
"""

from __future__ import annotations

import dataclasses
import socket
import time

import pytest

from .cases import HELD, assert_identical, migrate_identical
from .guest import MOST_LOOPS, Writer
from .migrate import (CRAWL, UNLIMITED, cancel, finish, info, lift,
                      set_capabilities, start, wait)
from .qmp import QMPError
from .test_channels import (SLOW_DISK, connected, drain, number_of, runs,
                            wait_ended, wait_failed)
from .test_saved import UNFLUSHED
from .vm import VM, Config, Qemu, pair

END_TIMEOUT = 60.0
MOMENT = 0.5  # seconds, in which QEMU notices that its peer has ended
# It writes its pages, and is idle for a second or for hours.
IDLE = Writer(mib=1, pause=MOST_LOOPS)
DISK = ("-drive", "if=none,id=disk,driver=null-co")


def wait_switchover(vm: VM) -> None:
    """Wait until VM is stopped, and its migration waits to go on."""
    vm.wait(lambda: info(vm)["status"] == "pre-switchover", END_TIMEOUT,
            "it did not come to the switchover")


def assert_has_disk(vm: VM) -> None:
    """Fail unless the guest runs, and its disk can be written."""
    vm.wait(lambda: bool(vm.qmp("query-status")["running"]), END_TIMEOUT,
            "the guest did not go on")
    vm.hmp('qemu-io disk "write 0 512"')


@pytest.mark.parametrize("channels", [1, 3])
def test_last_channel_fails(ours: Qemu, channels: int) -> None:
    """The last channel fails when it is told of the end, with no page to send.

    Nobody answers for the destination here, as without a return path.
    """
    config = Config(ours, "kvm", writer=IDLE, shared_ram=True, extra=DISK)
    with VM("src", config) as src:
        src.wait_writing()
        set_capabilities(src, "pause-before-switchover")
        # It is stopped when all has been sent.
        src.qmp("migrate-set-parameters", max_bandwidth=UNLIMITED,
                downtime_limit=0)
        with connected(src, channels) as (main, *others):
            last = max(others, key=number_of)
            for connection in (main, *others):
                drain(connection)
            wait_switchover(src)
            last.shutdown(socket.SHUT_RDWR)
            src.qmp("migrate-continue", state="pre-switchover")
            wait_failed(src)
            assert_has_disk(src)


def begin(src: VM, dst: VM, postcopy: bool) -> None:
    """Begin a migration, which waits at its switchover."""
    capabilities = ("pause-before-switchover",)
    if postcopy:
        capabilities += ("postcopy-ram",)
    # Precopy must not come to its end before the switch to postcopy.
    start(src, dst, dataclasses.replace(
        HELD, capabilities=capabilities,
        bandwidth=CRAWL if postcopy else HELD.bandwidth))
    if postcopy:
        src.qmp("migrate-start-postcopy")
    else:
        lift(src)
    wait_switchover(src)


def migrate_again(src: VM) -> None:
    """Migrate SRC without capabilities."""
    set_capabilities(src, "pause-before-switchover", "postcopy-ram",
                     state=False)
    with VM("dst", src.config, incoming=True) as dst:
        migrate_identical(src, dst)


precopy_and_postcopy = pytest.mark.parametrize(
    "postcopy", [False, True], ids=["precopy", "postcopy"])


@precopy_and_postcopy
def test_cancelled_at_the_switchover(ours: Qemu, postcopy: bool) -> None:
    """A guest that is stopped already goes on, and can be migrated later."""
    config = Config(ours, "kvm", shared_ram=True, extra=DISK)
    with VM("src", config) as src:
        src.wait_writing()
        with VM("dst", config, incoming=True) as dst:
            begin(src, dst, postcopy)
            stopped = src.counters()[0]
            cancel(src)
        assert_has_disk(src)
        src.wait(lambda: src.counters()[0] > stopped, END_TIMEOUT,
                 "the guest did not write")
        migrate_again(src)


@precopy_and_postcopy
def test_paused_guest_stays_paused(ours: Qemu, postcopy: bool) -> None:
    """It can be migrated again, as none that a migration has paused can."""
    with VM("src", Config(ours, "kvm", shared_ram=True)) as src:
        src.wait_writing()
        src.qmp("stop")
        with VM("dst", src.config, incoming=True) as dst:
            begin(src, dst, postcopy)
            cancel(src)
        assert src.qmp("query-status")["status"] == "paused"
        migrate_again(src)


def test_postcopy_is_not_cancelled(ours: Qemu) -> None:
    """Neither side would have all of the guest, and nobody could go on."""
    with pair(Config(ours, "kvm")) as (src, dst):
        src.wait_writing()
        src.qmp("migrate-set-parameters", max_postcopy_bandwidth=CRAWL)
        options = dataclasses.replace(
            HELD, bandwidth=CRAWL, capabilities=("postcopy-ram",))
        start(src, dst, options)
        src.qmp("migrate-start-postcopy")
        wait(src, dst, END_TIMEOUT, "switch",
             lambda state: state["status"] == "postcopy-active")
        with pytest.raises(QMPError, match="in progress, cannot cancel"):
            src.qmp("migrate_cancel")
        # The human monitor of QEMU 10.0 does not cancel either, but is silent.
        told = src.hmp("migrate_cancel")
        if int(src.qmp("query-version")["qemu"]["major"]) < 8:
            assert "cannot cancel" in told
        src.qmp("migrate-set-parameters", max_postcopy_bandwidth=0)
        finish(src, dst, options)
        assert_identical(src, dst)


def test_return_path_waits_for_nobody(ours: Qemu) -> None:
    """The destination ends at a switch to postcopy, before it has the guest.

    The guest does not stop as it should, so that it stays at the source.  There
    the thread of the return path expected that somebody recovers the postcopy.
    """
    config = Config(ours, "kvm", shared_ram=True,
                    extra=(*SLOW_DISK, *UNFLUSHED))
    with VM("src", config) as src:
        src.wait_writing()
        src.hmp('qemu-io disk "write 0 512"')
        with VM("dst", config, incoming=True) as dst:
            start(src, dst, dataclasses.replace(
                HELD, capabilities=("postcopy-ram",)))
            src.hmp('qemu-io slow "aio_write 0 512"')
            src.qmp("migrate-start-postcopy")
            src.wait(lambda: not runs(src), END_TIMEOUT,
                     "the guest did not stop")
        wait_failed(src)
        wait_ended(src)
        migrate_again(src)


def test_return_path_ends(ours: Qemu) -> None:
    """The peer of a migration that failed ends during the next one."""
    with VM("src", Config(ours, "kvm")) as src:
        src.wait_writing()
        set_capabilities(src, "return-path")
        with connected(src, 1) as (main, channel):
            drain(main)
            channel.close()
            wait_failed(src)
            wait_ended(src)
            set_capabilities(src, "return-path", "multifd", state=False)
            src.qmp("migrate-set-parameters", max_bandwidth=CRAWL)
            src.qmp("migrate", uri="exec:cat > /dev/null")
            src.wait(lambda: info(src).get("ram", {}).get("normal", 0) > 0,
                     END_TIMEOUT, "the second migration sent nothing")
            main.shutdown(socket.SHUT_RDWR)
            time.sleep(MOMENT)
            assert info(src)["status"] == "active"
        cancel(src)
