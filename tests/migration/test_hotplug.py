# SPDX-License-Identifier: GPL-2.0-or-later
"""vCPUs and DIMMs that come and go while dirty pages are being watched.

calc-dirty-rate watches them: QEMU refuses to plug while it migrates.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Iterator

import pytest

from .cases import (MACHINES, MECHANISMS, assert_identical,
                    assert_identical_in, each_mechanism, log_and_ring, matrix,
                    migrate_identical, watch)
from .guest import HOTPLUG_PORT, MIB, PAGE, Writer
from .migrate import CRAWL, Options, cancel, finish, info, release, start
from .qmp import QMPError
from .vm import BOOT_TIMEOUT, VM, Config, Mechanism, Qemu, pair

DRIVER = "qemu64-x86_64-cpu"
GUEST_TIMEOUT = 180.0
ROUNDS = 5

# The first DIMM of a guest with little memory is here on both machines.
DIMM_START = 4 << 30
DIMM_SIZE = 16 * MIB

# More than QEMU 10.0 has room for slots at first, 16, so that it moves them.
MANY_DIMMS = 20
DIMM_GAP = 128 * MIB

# Of this one, which the guest does not know, most remains to be sent.
BIG_DIMM_SIZE = 4096 * MIB
DIMM_OPTIONS = Options(bandwidth=CRAWL, downtime_limit=300)

# What a guest writes that ejects a DIMM: which one, and that it is to go.
# See "ACPI memory hotplug" in docs/specs of QEMU.
EJECT = ("o /w 0xa00 0", "o /b 0xa14 8")

# The guest never starts this one: recent kernels do not let QEMU 7.2 plug a
# vCPU again that has run.
IDLE_CORE = 3


def plug(vm: VM, core: int) -> None:
    """Add the vCPU with this number; the guest starts it."""
    vm.qmp("device_add", **device(core))


def device(core: int) -> dict[str, object]:
    """Return the arguments of device_add for the vCPU."""
    return {"driver": DRIVER, "id": f"core{core}", "socket_id": 0,
            "core_id": core, "thread_id": 0}


def option(arguments: dict[str, object]) -> list[str]:
    """Return the option that has QEMU add what device_add would."""
    words = ",".join(f"{name.replace('_', '-')}={value}"
                     for name, value in arguments.items())
    return ["-device", words.replace("driver=", "")]


def with_cores(config: Config, *cores: int) -> Config:
    """Return CONFIG with these vCPUs present from the start."""
    extra: list[str] = []
    for core in cores:
        extra += option(device(core))
    return dataclasses.replace(config, extra=tuple(extra))


def unplug(vm: VM, core: int) -> None:
    """Remove the vCPU with this number, to which the guest has to agree."""
    vm.qmp("device_del", id=f"core{core}")
    vm.wait(lambda: not any(cpu["qom-path"].endswith(f"core{core}")
                            for cpu in vm.qmp("query-cpus-fast")),
            GUEST_TIMEOUT, "the vCPU was not unplugged")


def plug_dimm(vm: VM) -> None:
    """Add a DIMM, and wait until the guest has written its last page."""
    vm.qmp("object-add", qom_type="memory-backend-ram", id="more",
           size=DIMM_SIZE)
    vm.qmp("device_add", driver="pc-dimm", id="dimm", memdev="more")
    last = DIMM_START + (vm.config.writer.dimm_pages - 1) * PAGE
    vm.wait(lambda: bool(struct.unpack("<I", vm.read_memory(last, 4))[0]),
            GUEST_TIMEOUT, "the DIMM was not written")


def unplug_dimm(vm: VM) -> None:
    """Remove the DIMM, to which the guest has to agree."""
    vm.qmp("device_del", id="dimm")
    vm.wait(lambda: not vm.qmp("query-memory-devices"),
            GUEST_TIMEOUT, "the DIMM was not unplugged")
    vm.qmp("object-del", id="more")


def with_dimm(config: Config, size: int = DIMM_SIZE) -> Config:
    """Return CONFIG with the DIMM present from the start."""
    return dataclasses.replace(config, extra=(
        *config.extra, "-object", f"memory-backend-ram,id=more,size={size}",
        "-device", "pc-dimm,id=dimm,memdev=more"))


def assert_all_write(vm: VM, cores: tuple[int, ...]) -> None:
    """Fail unless each of these vCPUs comes to write."""
    def write() -> bool:
        rates = vm.rates(1.0)
        return all(rates[core] > 0 for core in cores)

    vm.wait(write, GUEST_TIMEOUT, f"the vCPUs {cores} did not all write")


def machine_for(mechanism: Mechanism) -> str:
    """Return one of both machines, by turns."""
    return MACHINES[MECHANISMS.index(mechanism) % len(MACHINES)]


@matrix("vcpus", cpus=(3,))
def test_plug_and_unplug(ours: Qemu, mechanism: Mechanism,
                         writer: Writer) -> None:
    """vCPUs come and go, and the guest still arrives as it was."""
    machine = machine_for(mechanism)
    config = Config(ours, ours.accel(mechanism), machine=machine,
                    writer=dataclasses.replace(
                        writer, hotplug=HOTPLUG_PORT[machine]),
                    smp="1,maxcpus=4,sockets=1,cores=4")
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


@pytest.mark.parametrize("mechanism", [Mechanism(65536)], ids=str)
def test_plug_while_measured(ours: Qemu, mechanism: Mechanism) -> None:
    """The numbers of the vCPUs that are measured have a gap."""
    machine = machine_for(mechanism)
    config = Config(ours, ours.accel(mechanism), machine=machine,
                    writer=Writer(hotplug=HOTPLUG_PORT[machine]),
                    smp="1,maxcpus=4,sockets=1,cores=4")
    with VM("src", config) as src:
        src.wait_writing()
        src.qmp("calc-dirty-rate", calc_time=6, mode="dirty-ring")
        assert all(src.rates(0.5))
        plug(src, IDLE_CORE)
        src.wait(lambda: src.qmp("query-dirty-rate")["status"] == "measured",
                 GUEST_TIMEOUT, "the dirty rate was not measured")
        rates = src.qmp("query-dirty-rate")["vcpu-dirty-rate"]
        assert [rate["id"] for rate in rates] == [0, IDLE_CORE]
        assert rates[0]["dirty-rate"] > 0


@pytest.fixture(name="paging", scope="module")
def fixture_paging(stock: Qemu) -> None:
    """Skip where KVM cannot run a guest with page tables, as DIMMs need.

    Some KVMs that run without hardware for it reset such a guest, which stops
    this one, with the QEMU of the distribution, too.
    """
    config = Config(stock, "kvm", writer=Writer(dimm_pages=1, mib=1),
                    extra=("-action", "reboot=shutdown,shutdown=pause"))
    with VM("probe", config) as vm:
        def stopped() -> bool:
            return not vm.qmp("query-status")["running"]

        vm.wait(lambda: stopped() or vm.counters()[0] >= MIB // PAGE,
                BOOT_TIMEOUT, "the guest did not get going")
        if stopped():
            pytest.skip("this host's KVM runs no guest with page tables")


@each_mechanism
@pytest.mark.usefixtures("paging")
def test_dimm(ours: Qemu, mechanism: Mechanism) -> None:
    """A DIMM that came, went and came again arrives, too."""
    config = Config(ours, ours.accel(mechanism),
                    machine=machine_for(mechanism),
                    writer=Writer(dimm_pages=1024, mib=16),
                    extra=("-m", "64M,slots=1,maxmem=1G"))
    with pair(config, with_dimm(config)) as (src, dst):
        src.wait_writing()
        watch(src, mechanism)
        for _ in range(ROUNDS):
            plug_dimm(src)
            unplug_dimm(src)
        plug_dimm(src)
        migrate_identical(src, dst)
        assert_identical_in(src, dst, DIMM_START, DIMM_SIZE)


def other_dimms() -> Iterator[dict[str, object]]:
    """The arguments of device_add for DIMMs that the guest does not know.

    It finds the other by its slot, the first.
    """
    for number in range(1, MANY_DIMMS + 1):
        yield {"driver": "pc-dimm", "id": f"dimm{number}",
               "memdev": f"more{number}", "slot": number,
               "addr": DIMM_START + number * DIMM_GAP}


def plug_others(vm: VM) -> None:
    """Add many DIMMs behind the first, which is not there yet."""
    for dimm in other_dimms():
        vm.qmp("object-add", qom_type="memory-backend-ram",
               id=dimm["memdev"], size=DIMM_SIZE)
        vm.qmp("device_add", **dimm)


def with_others(config: Config) -> Config:
    """Return CONFIG with these DIMMs present from the start."""
    extra: list[str] = []
    for dimm in other_dimms():
        extra += ["-object", f"memory-backend-ram,id={dimm['memdev']},"
                  f"size={DIMM_SIZE}", *option(dimm)]
    return dataclasses.replace(config, extra=(*config.extra, *extra))


@log_and_ring
@pytest.mark.usefixtures("paging")
def test_many_slots(ours: Qemu, mechanism: Mechanism) -> None:
    """QEMU makes room for more slots while pages are being watched.

    QEMU 7.2 has room for all of KVM's from the start.
    """
    config = Config(ours, ours.accel(mechanism),
                    writer=Writer(dimm_pages=1024, mib=16),
                    extra=("-m", "64M,slots=32,maxmem=8G"))
    with pair(config, with_dimm(with_others(config))) as (src, dst):
        src.wait_writing()
        watch(src, mechanism)
        plug_others(src)
        plug_dimm(src)
        migrate_identical(src, dst)
        assert_identical_in(src, dst, DIMM_START, DIMM_SIZE)


def eject_in_mid_migration(src: VM, timeout: float) -> None:
    """The guest of SRC ejects its DIMM once something of it is sent."""
    src.wait(lambda: info(src).get("ram", {}).get("duplicate", 0) > 0,
             timeout, "nothing was sent")
    for line in EJECT:
        assert not src.hmp(line)
    assert not src.qmp("query-memory-devices")
    with pytest.raises(QMPError, match="in use"):
        src.qmp("object-del", id="more")


def dimm_goes(src: VM, dst: VM, options: Options) -> None:
    """SRC begins to migrate to DST, and its guest ejects a DIMM meanwhile."""
    src.wait_writing()
    src.qmp("device_del", id="dimm")
    start(src, dst, options)
    eject_in_mid_migration(src, options.timeout)
    release(src, options)


def with_big_dimm(ours: Qemu) -> Config:
    """A guest that knows nothing of its DIMM."""
    return with_dimm(
        Config(ours, ours.accel(Mechanism()), writer=Writer(mib=16),
               extra=("-m", "64M,slots=1,maxmem=8G")), BIG_DIMM_SIZE)


@pytest.mark.parametrize("channels", [0, 4], ids=["alone", "multifd"])
def test_dimm_goes_meanwhile(ours: Qemu, channels: int) -> None:
    """A guest ejects a DIMM in mid-migration: nothing of it is waited for."""
    options = dataclasses.replace(DIMM_OPTIONS, multifd=channels)
    with pair(with_big_dimm(ours)) as (src, dst):
        dimm_goes(src, dst, options)
        result = finish(src, dst, options)
        assert result.pages < BIG_DIMM_SIZE // PAGE
        assert_identical(src, dst)


def blocks(vm: VM) -> int:
    """The number of blocks of RAM that VM has."""
    return len(vm.hmp("info ramblock").splitlines()) - 1


def test_dimm_comes_back(ours: Qemu) -> None:
    """A DIMM that was ejected in mid-migration is like another one later."""
    config = with_big_dimm(ours)
    with VM("src", config) as src:
        before = blocks(src)
        with VM("dst", config, incoming=True) as dst:
            dimm_goes(src, dst, DIMM_OPTIONS)
            cancel(src)
        src.qmp("device_add", driver="pc-dimm", id="dimm", memdev="more")
        with VM("dst", config, incoming=True) as dst:
            result = migrate_identical(src, dst)
            assert result.pages > BIG_DIMM_SIZE // PAGE
        assert blocks(src) == before


def test_dimm_goes_for_good(ours: Qemu) -> None:
    """Nothing is left of a DIMM that was ejected in mid-migration."""
    config = with_big_dimm(ours)
    with VM("src", config) as src, VM("dst", config, incoming=True) as dst:
        before = blocks(src)
        dimm_goes(src, dst, DIMM_OPTIONS)
        cancel(src)
        src.qmp("object-del", id="more")
        src.wait(lambda: blocks(src) == before - 1, GUEST_TIMEOUT,
                 "the memory of the DIMM is still there")
