# SPDX-License-Identifier: GPL-2.0-or-later
"""The tests' own tools: the writer guest, and the comparison of memory."""

from __future__ import annotations

import pytest

from .compare import assert_none_differ, differing_pages
from .conftest import installed
from .guest import PAGE, PATTERNS, Writer
from .migrate import Options, migrate
from .vm import BOOT_TIMEOUT, VM, Config, VMError, pair


@pytest.mark.parametrize("machine,cpus,pattern", [
    ("pc", 1, "sequential"), ("pc", 4, "random"), ("q35", 2, "hot-spot")])
def test_writes_without_kvm(machine: str, cpus: int, pattern: str) -> None:
    """Every vCPU gets to write, and does so again after a reset."""
    stock = installed("stock")
    writer = Writer(mib=16, cpus=cpus, pattern=PATTERNS[pattern])
    with VM("guest", Config(stock, "tcg", machine=machine,
                            writer=writer)) as vm:
        vm.wait_writing()
        vm.qmp("system_reset")
        wait_starts(vm, 2)
        vm.wait_writing()


def test_writer_without_room() -> None:
    """A guest that writes where no memory is does not count as a writer."""
    config = Config(installed("stock"), "tcg", mib=32, writer=Writer(mib=17))
    with VM("guest", config) as vm:
        with pytest.raises(VMError, match="writes up to 33 MiB, and has 32"):
            vm.wait_writing()


def wait_starts(vm: VM, starts: int) -> None:
    """Wait until the guest has started STARTS times."""
    vm.wait(lambda: vm.serial().count("writer ready") >= starts,
            BOOT_TIMEOUT, "the guest did not start again")


def test_comparison_sees_one_byte() -> None:
    """A page that differs in its last byte is found, and no other."""
    stock = installed("stock")
    config = Config(stock, "tcg", writer=Writer(mib=16), shared_ram=True)
    with pair(config) as (src, dst):
        src.wait_writing()
        # This is no test of TCG, which may miss a write of the last moment.
        src.qmp("stop")
        migrate(src, dst, Options())
        assert_none_differ(differing_pages(src, dst))
        with open(dst.dir / "ram", "r+b") as ram:
            ram.seek(0x1234 * PAGE + PAGE - 1)
            ram.write(b"\x5a")
        assert differing_pages(src, dst) == [0x1234]
