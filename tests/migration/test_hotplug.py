# SPDX-License-Identifier: GPL-2.0-or-later
"""vCPUs that come and go while dirty pages are being watched."""

from __future__ import annotations

import dataclasses
import time
from itertools import cycle

import pytest

from .cases import MECHANISMS, migrate_identical
from .guest import HOTPLUG_PORT, Writer
from .vm import VM, Config, Mechanism, Qemu, pair

DRIVER = "qemu64-x86_64-cpu"
WATCH_SECONDS = 60
UNPLUG_TIMEOUT = 60.0
ROUNDS = 5

# The guest never starts this one: recent kernels do not let QEMU 7.2 plug a
# vCPU again that has run.
IDLE_CORE = 3


def watch(vm: VM, mechanism: Mechanism) -> None:
    """Have all memory watched, for longer than the test takes."""
    vm.qmp("calc-dirty-rate", calc_time=WATCH_SECONDS,
           mode="dirty-ring" if mechanism.ring else "dirty-bitmap")


def plug(vm: VM, core: int) -> None:
    """Add the vCPU with this number; the guest starts it."""
    vm.qmp("device_add", **device(core))


def device(core: int) -> dict[str, object]:
    """Return what describes the vCPU to device_add."""
    return {"driver": DRIVER, "id": f"core{core}", "socket_id": 0,
            "core_id": core, "thread_id": 0}


def with_cores(config: Config, *cores: int) -> Config:
    """Return CONFIG with these vCPUs present from the start."""
    extra: list[str] = []
    for core in cores:
        words = ",".join(f"{name.replace('_', '-')}={value}"
                         for name, value in device(core).items())
        extra += ["-device", words.replace("driver=", "")]
    return dataclasses.replace(config, extra=tuple(extra))


def unplug(vm: VM, core: int) -> None:
    """Remove the vCPU with this number, for which the guest has to agree."""
    vm.qmp("device_del", id=f"core{core}")
    deadline = time.monotonic() + UNPLUG_TIMEOUT
    while any(cpu["qom-path"].endswith(f"core{core}")
              for cpu in vm.qmp("query-cpus-fast")):
        vm.check()
        assert time.monotonic() < deadline, (
            f"the vCPU was not unplugged within {UNPLUG_TIMEOUT:.0f} s")
        time.sleep(0.05)


def assert_all_write(vm: VM, cores: tuple[int, ...]) -> None:
    """Fail unless each of these vCPUs comes to write."""
    deadline = time.monotonic() + UNPLUG_TIMEOUT
    while True:
        rates = vm.rates(1.0)
        if all(rates[core] > 0 for core in cores):
            return
        if time.monotonic() > deadline:
            pytest.fail(f"of the vCPUs {cores} not all write: {rates}")


@pytest.mark.parametrize("mechanism,machine",
                         list(zip(MECHANISMS, cycle(("pc", "q35")))),
                         ids=str)
def test_plug_and_unplug(ours: Qemu, mechanism: Mechanism,
                         machine: str) -> None:
    """vCPUs come and go, and the guest still arrives as it was."""
    writer = Writer(cpus=3, hotplug=HOTPLUG_PORT[machine])
    config = Config(ours, ours.accel(mechanism), machine=machine,
                    writer=writer, smp="1,maxcpus=4,sockets=1,cores=4")
    with pair(config, with_cores(config, 2, IDLE_CORE)) as (src, dst):
        src.wait_writing(cpus=[0])
        watch(src, mechanism)
        for core in (1, 2, IDLE_CORE):
            plug(src, core)
        assert_all_write(src, (0, 1, 2))
        unplug(src, 1)
        for _ in range(ROUNDS):
            unplug(src, IDLE_CORE)
            plug(src, IDLE_CORE)
        assert_all_write(src, (0, 2))
        migrate_identical(src, dst)
