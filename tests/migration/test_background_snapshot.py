# SPDX-License-Identifier: GPL-2.0-or-later
"""Background snapshots: of one moment, and harmless however they end.

QEMU write-protects the memory of the guest, which then waits at each first
write until the page is saved.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from .cases import HELD, PATCHED, to_be_cancelled
from .guest import BUILD, MIB, PAGE, RANDOM, SEQUENTIAL, Writer
from .migrate import UNLIMITED, arrive, cancel, finish, info, set_capabilities
from .qmp import QMPError
from .test_channels import accepted
from .test_hotplug import (BIG_DIMM_SIZE, DIMM_START, blocks,
                           eject_in_mid_migration, with_big_dimm)
from .test_loop import KIB, ODD, assert_one_moment
from .vm import LOG, VM, Config, Mechanism, Qemu

END_TIMEOUT = 60.0
SOME = 1 << 20  # bytes of a snapshot, and not all of it
DIMM_MIB = 16
PASS_PAGES = Writer().mib * MIB // PAGE


@pytest.fixture(name="protected", scope="module", autouse=True)
def fixture_protected(stock: Qemu) -> None:
    """Skip where the host kernel lets no QEMU write-protect memory."""
    with VM("probe", Config(stock, "kvm")) as vm:
        try:
            set_capabilities(vm, "background-snapshot")
        except QMPError as error:
            assert "not supported by host kernel" in str(error)
            pytest.skip(str(error))


def ask_for_snapshot(vm: VM) -> None:
    """The next migration is a background snapshot, and as fast as it can be."""
    set_capabilities(vm, "background-snapshot")
    vm.qmp("migrate-set-parameters", max_bandwidth=UNLIMITED)


def assert_goes_on(vm: VM, status: str) -> None:
    """Fail unless the snapshot ends with STATUS, and the guest writes then."""
    vm.wait(lambda: info(vm)["status"] == status, END_TIMEOUT,
            f"the snapshot was not {status}")
    before = vm.counters()[0]
    # What was protected is written, too.
    vm.wait(lambda: vm.counters()[0] > before + PASS_PAGES,
            END_TIMEOUT, "the guest did not go on after its snapshot")


def slowly(path: Path) -> str:
    """Return a URI that takes 9 MiB so slowly that a DIMM can be ejected."""
    return ("exec:(for i in $(seq 60); do head -c 65536; sleep 0.05; done; "
            f"cat) > {path}")


def test_snapshot_has_no_rounds(ours: Qemu) -> None:
    """It does not show those of a migration that was cancelled before."""
    figures = {"dirty-tracking-rounds", "hot-pages"}
    writer = Writer(pattern=RANDOM)
    with VM("src", Config(ours, ours.accel(LOG), writer=writer)) as src:
        src.wait_writing()
        with to_be_cancelled(src, rounds=3):
            assert figures <= info(src).keys()
        ask_for_snapshot(src)
        src.qmp("migrate", uri="exec:cat > /dev/null")
        src.wait(lambda: info(src)["status"] == "completed", 60,
                 "there is no snapshot")
        assert not figures & info(src).keys()


@pytest.mark.parametrize("mechanism", (LOG, *PATCHED), ids=str)
@pytest.mark.parametrize("odd", [False, True], ids=["even", "odd"])
def test_background_snapshot(ours: Qemu, mechanism: Mechanism, tmp_path: Path,
                             odd: bool) -> None:
    """A snapshot of a guest that goes on writing is of one moment."""
    size = ODD if odd else 64 * MIB
    config = Config(ours, ours.accel(mechanism),
                    writer=Writer(base=size - 32 * MIB, pattern=SEQUENTIAL),
                    extra=("-m", f"{size // KIB}K"))
    image = tmp_path / "image"
    options = dataclasses.replace(HELD, timeout=60.0)
    with VM("src", config) as src:
        src.wait_writing(passes=2)
        ask_for_snapshot(src)
        src.qmp("migrate", uri=f"exec:cat > {image}")
        finish(src, None, options)
    with VM("dst", config, incoming=True) as dst:
        dst.qmp("migrate-incoming", uri=f"exec:cat {image}")
        arrive(dst, options)
        assert_one_moment(dst)


def test_it_breaks_off(ours: Qemu) -> None:
    """The guest goes on after a snapshot that could not be saved."""
    with VM("src", Config(ours, "kvm")) as src:
        src.wait_writing()
        ask_for_snapshot(src)
        src.qmp("migrate", uri=f"exec:head -c {SOME} > /dev/null")
        assert_goes_on(src, "failed")


def test_guest_that_has_ended(ours: Qemu) -> None:
    """A guest that has shut down is saved, and stays shut down."""
    config = Config(ours, "kvm", extra=(
        "-action", "reboot=shutdown,shutdown=pause"))
    with VM("src", config) as src:
        src.wait_writing()
        src.qmp("system_reset")
        src.wait(lambda: src.qmp("query-status")["status"] == "shutdown",
                 END_TIMEOUT, "the guest did not shut down")
        ask_for_snapshot(src)
        src.qmp("migrate", uri="exec:cat > /dev/null")
        src.wait(lambda: info(src)["status"] == "completed", END_TIMEOUT,
                 "there is no snapshot")
        assert src.qmp("query-status")["status"] == "shutdown"


def test_it_is_cancelled(ours: Qemu, tmp_path: Path) -> None:
    """The guest goes on after a snapshot that was cancelled."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as server, \
            VM("src", Config(ours, "kvm")) as src:
        server.bind(str(path))
        server.listen()
        server.settimeout(END_TIMEOUT)
        src.wait_writing()
        ask_for_snapshot(src)
        src.qmp("migrate", uri=f"unix:{path}")
        with server.accept()[0] as stream:
            assert stream.recv(SOME, socket.MSG_WAITALL)
            cancel(src)
            assert_goes_on(src, "cancelled")


def test_it_cannot_begin(ours: Qemu) -> None:
    """The guest goes on where a part of its memory cannot be protected."""
    if subprocess.run(["stat", "-f", "-c", "%T", BUILD], check=True, text=True,
                      stdout=subprocess.PIPE).stdout == "tmpfs\n":
        pytest.skip("a file of tmpfs can be protected, as other memory")
    config = Config(ours, "kvm", extra=("-m", "64M,slots=1,maxmem=1G"))
    with tempfile.NamedTemporaryFile(dir=BUILD) as file, \
            VM("src", config) as src:
        src.wait_writing()
        ask_for_snapshot(src)
        # After QEMU has looked whether all memory can be.
        src.qmp("object-add", qom_type="memory-backend-file", id="file",
                size=DIMM_MIB * MIB, mem_path=file.name, share=True)
        src.qmp("device_add", driver="pc-dimm", id="dimm", memdev="file")
        src.qmp("migrate", uri="exec:cat > /dev/null")
        assert_goes_on(src, "failed")


def test_paused_guest_stays_paused(ours: Qemu) -> None:
    """A snapshot does not start a guest that its user has paused."""
    with VM("src", Config(ours, "kvm")) as src:
        src.wait_writing()
        src.qmp("stop")
        ask_for_snapshot(src)
        src.qmp("migrate", uri="exec:cat > /dev/null")
        src.wait(lambda: info(src)["status"] == "completed", END_TIMEOUT,
                 "there is no snapshot")
        assert src.qmp("query-status")["status"] == "paused"


def test_dimm_goes_meanwhile(ours: Qemu, tmp_path: Path) -> None:
    """A guest ejects a DIMM that is write-protected, and not all saved yet.

    All of it is saved, and nothing is left of it at the end.
    """
    last, page = DIMM_START + BIG_DIMM_SIZE - PAGE, tmp_path / "page"
    page.write_bytes(os.urandom(PAGE))
    config, image = with_big_dimm(ours), tmp_path / "image"
    loaded = f"loader,file={page},addr={last},force-raw=on"
    filled = dataclasses.replace(
        config, extra=(*config.extra, "-device", loaded))
    with VM("src", filled) as src:
        before = blocks(src)
        src.wait_writing()
        assert src.read_memory(last, PAGE) == page.read_bytes()
        src.qmp("device_del", id="dimm")
        ask_for_snapshot(src)
        src.qmp("migrate", uri=slowly(image))
        eject_in_mid_migration(src, END_TIMEOUT)
        assert_goes_on(src, "completed")
        src.wait(lambda: accepted(src, "object-del", id="more"), END_TIMEOUT,
                 "the DIMM's memory is not let go of")
        src.wait(lambda: blocks(src) == before - 1, END_TIMEOUT,
                 "the memory of the DIMM is still there")
    with VM("dst", config, incoming=True) as dst:
        dst.qmp("migrate-incoming", uri=f"exec:cat {image}")
        arrive(dst, HELD)
        assert dst.read_memory(last, PAGE) == page.read_bytes()
