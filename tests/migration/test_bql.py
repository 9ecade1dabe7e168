# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest keeps writing while QEMU's main loop is stuck with the BQL.

pmemsave into a FIFO that nobody reads blocks the main loop for as long as the
test wants; the write counters are read from outside QEMU meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Iterator

import pytest

from .cases import HELD, assert_identical, assert_writes
from .guest import MIB, Writer
from .migrate import crawl, finish, release, start, wait_rounds
from .vm import VM, Config, Mechanism, Qemu, pair

RINGS_FILLED = 8
BLOCK_TIMEOUT = 60.0

# A round begins with a sync, for which vCPUs leave KVM.  A vCPU that needs the
# BQL just when the test has it taken would rightly wait.
SYNC_SECONDS = 1.0

# A 'B' on the serial port would wait for the BQL and stop the vCPU.
QUIET = Writer(cpus=2, report=0)


def opens_a_file(vm: VM) -> bool:
    """Whether the main thread of VM waits in openat(2), of x86-64."""
    call = Path(f"/proc/{vm.pid}/task/{vm.pid}/syscall").read_text()
    return call.split()[0] == "257"


@contextlib.contextmanager
def blocked(vm: VM) -> Iterator[None]:
    """Keep the main loop of VM blocked, and prove at the end that it was."""
    fifo = vm.dir / "fifo"
    os.mkfifo(fifo)
    stuck = vm.monitor.start("pmemsave", val=0, size=MIB, filename=str(fifo))
    vm.wait(lambda: opens_a_file(vm), BLOCK_TIMEOUT,
            "the main loop was not blocked")
    probe = vm.monitor.start("query-status")
    try:
        yield
        assert not stuck.done() and not probe.done(), (
            "the main loop was not blocked")
    finally:
        reader = threading.Thread(target=fifo.read_bytes, daemon=True)
        reader.start()
        vm.monitor.finish(stuck, "pmemsave")
        vm.monitor.finish(probe, "query-status")
        reader.join()


@pytest.mark.parametrize("mechanism", [Mechanism(1024), Mechanism(4096)],
                         ids=str)
def test_writes_go_on(ours: Qemu, mechanism: Mechanism) -> None:
    """QEMU empties rings without the BQL, so full ones do not stop a vCPU."""
    assert mechanism.ring
    config = Config(ours, ours.accel(mechanism), writer=QUIET,
                    shared_ram=True)
    with pair(config) as (src, dst):
        src.wait_writing()
        start(src, dst, HELD)
        wait_rounds(src, dst, 2, HELD)
        crawl(src)
        time.sleep(SYNC_SECONDS)
        with blocked(src):
            assert_writes(src, RINGS_FILLED * mechanism.ring)
        release(src, HELD)
        finish(src, dst, HELD)
        assert_identical(src, dst)
