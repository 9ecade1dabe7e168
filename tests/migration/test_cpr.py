# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that goes on in another QEMU, which takes over its RAM as it is."""

from __future__ import annotations

import dataclasses
import json
import operator
import threading
from pathlib import Path
from typing import Any

import pytest

from .cases import HELD, assert_identical, log_and_ring
from .guest import RANDOM, Writer
from .migrate import arrive, finish, release, start, wait_rounds
from .vm import BOOT_TIMEOUT, VM, Config, Mechanism, Qemu

WRITER = Writer(cpus=2, pattern=RANDOM)


def shared(ours: Qemu, mechanism: Mechanism) -> Config:
    """Return a guest of whose memory all can be taken over."""
    config = Config(ours, ours.accel(mechanism), writer=WRITER)
    memory = f"memory-backend-memfd,id=ram,size={config.mib}M,share=on"
    return dataclasses.replace(config, extra=(
        "-object", memory, "-machine", "memory-backend=ram,aux-ram-share=on"))


def channel(kind: str, path: Path) -> dict[str, Any]:
    """Return one of the two channels, as QMP has it."""
    return {"channel-type": kind, "addr": {
        "transport": "socket", "type": "unix", "path": str(path)}}


def hand_over(src: VM, cpr: Path, main: Path) -> None:
    """Have the guest go on in the QEMU that waits at CPR for its memory."""
    src.wait(cpr.exists, BOOT_TIMEOUT, "nobody waits for the memory")
    src.qmp("migrate", channels=[channel("main", main), channel("cpr", cpr)])


@log_and_ring
def test_transfer(ours: Qemu, mechanism: Mechanism, tmp_path: Path) -> None:
    """What the guest has then can be migrated, as if it had been always there.

    The new QEMU has no monitor before it has the memory.
    """
    config = shared(ours, mechanism)
    cpr, main = tmp_path / "cpr", tmp_path / "main"
    takes = dataclasses.replace(config, extra=(
        *config.extra, "-incoming", json.dumps(channel("cpr", cpr))))
    with VM("probe", Config(ours, "tcg", machine="none", boot=False)) as vm:
        if "mode" not in vm.qmp("query-migrate-parameters"):
            pytest.skip("QEMU has cpr-transfer since 10.0")
    with VM("old", config) as old:
        old.wait_writing()
        old.qmp("migrate-set-parameters", mode="cpr-transfer")
        thread = threading.Thread(target=hand_over, args=(old, cpr, main))
        thread.start()
        with VM("new", takes, incoming=True) as new:
            thread.join()
            new.qmp("migrate-incoming", uri=f"unix:{main}")
            arrive(new, HELD)
            counted = old.counters()
            assert_identical(old, new)
            new.qmp("cont")
            new.wait(lambda: all(map(operator.gt, new.counters(), counted)),
                     BOOT_TIMEOUT, "the guest does not go on")
            with VM("dst", config, incoming=True) as dst:
                new.qmp("migrate-set-parameters", mode="normal")
                start(new, dst, HELD)
                wait_rounds(new, dst, 4, HELD)
                release(new, HELD)
                finish(new, dst, HELD)
                assert_identical(new, dst)
