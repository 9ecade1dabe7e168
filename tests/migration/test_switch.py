# SPDX-License-Identifier: GPL-2.0-or-later
"""set-dirty-tracking, while a guest runs."""

from __future__ import annotations

import pytest

from .cases import (BY_FAULTS, COLLECTED, WATCH_TIMEOUT, migrate_identical,
                    to_be_cancelled, wait_watched, watch)
from .guest import Writer
from .qmp import QMPError
from .test_dirty_rate import LIMIT_MB, measure
from .vm import (
    DIRTY_BITS, LOG, SHARED, VM, WRPROT, Config, Mechanism, Qemu, pair)

TWO_CPUS = Writer(cpus=2)
CHOICE = ("mechanism", "chosen-by", "reason", "passed-over")


def mechanism(vm: VM) -> str:
    """Return the mechanism that VM has in use."""
    return str(vm.qmp("query-dirty-tracking")["mechanism"])


def refused(vm: VM, name: str) -> str:
    """Ask VM for the mechanism NAME in vain, and return why."""
    before = vm.qmp("query-dirty-tracking")
    with pytest.raises(QMPError) as error:
        vm.qmp("set-dirty-tracking", mechanism=name)
    after = vm.qmp("query-dirty-tracking")
    assert [after[item] for item in CHOICE] == \
        [before[item] for item in CHOICE]
    return str(error.value)


def families(ours: Qemu) -> dict[str, list[str]]:
    """Return the mechanisms that a guest can change among, by its -accel."""
    found = {"kvm": [*map(str, COLLECTED or BY_FAULTS), LOG.name]}
    if COLLECTED:
        found[ours.accel(SHARED)] = [*map(str, BY_FAULTS), LOG.name]
    return found


@pytest.mark.parametrize("name", [LOG.name, "auto",
                                  *map(str, (*BY_FAULTS, *COLLECTED))])
def test_switch(ours: Qemu, name: str) -> None:
    """A guest takes the mechanism that is named, and migrates with it."""
    accel = next((accel for accel, names in families(ours).items()
                  if name in names), "kvm")
    config = Config(ours, accel, writer=TWO_CPUS)
    with pair(config) as (src, dst):
        src.wait_writing()
        best = mechanism(src)
        src.qmp("set-dirty-tracking", mechanism="log")
        assert mechanism(src) == "log"
        src.qmp("set-dirty-tracking", mechanism=name)
        assert mechanism(src) == (best if name == "auto" else name)
        answer = src.qmp("query-dirty-tracking")
        assert name in answer["reason"]
        assert answer["chosen-by"] == ("auto" if name == "auto" else "command")
        migrate_identical(src, dst)


@pytest.mark.parametrize("family", ["auto", "shared"] if COLLECTED
                         else ["auto"])
def test_between_two_migrations(ours: Qemu, family: str) -> None:
    """A migration is cancelled with one mechanism; the next has another."""
    accel = ours.accel(SHARED) if family == "shared" else "kvm"
    names = families(ours)[accel]
    config = Config(ours, accel, writer=TWO_CPUS)
    with VM("src", config) as src:
        src.wait_writing()
        for name in names:
            src.qmp("set-dirty-tracking", mechanism=name)
            with to_be_cancelled(src, rounds=3):
                assert "migration" in refused(src, "auto")
        with VM("dst", config, incoming=True) as dst:
            migrate_identical(src, dst)


def test_paused_since_a_migration(ours: Qemu) -> None:
    """Logging that waits for the guest to go on belongs to no migration."""
    config = Config(ours, "kvm", writer=TWO_CPUS)
    with VM("src", config) as src:
        src.wait_writing()
        with to_be_cancelled(src):
            src.qmp("stop")
        src.qmp("set-dirty-tracking", mechanism="log")
        src.qmp("cont")
        with VM("dst", config, incoming=True) as dst:
            migrate_identical(src, dst)


def test_while_measured(ours: Qemu) -> None:
    """A switch works after a measurement of the rate, but not during one."""
    with VM("guest", Config(ours, "kvm", writer=TWO_CPUS)) as vm:
        vm.wait_writing()
        measure(vm, "dirty-bitmap")
        vm.qmp("set-dirty-tracking", mechanism="log")
        watch(vm, LOG)
        assert "is measured" in refused(vm, "auto")
        assert "is measured" in refused(vm, "log")


def test_paused_since_a_measurement(ours: Qemu) -> None:
    """QEMU's logging waits for the guest to go on; nobody else has to."""
    with VM("guest", Config(ours, "kvm", writer=TWO_CPUS)) as vm:
        vm.wait_writing()
        vm.qmp("stop")
        measure(vm, "dirty-bitmap")
        assert vm.qmp("query-dirty-tracking")["logged-slots"]
        vm.qmp("set-dirty-tracking", mechanism="log")
        vm.qmp("cont")
        vm.wait(lambda: not vm.qmp("query-dirty-tracking")["logged-slots"],
                WATCH_TIMEOUT, "memory was watched without end")


def test_while_limited(ours: Qemu) -> None:
    """The limit is the first reason to refuse; then that rings stay."""
    config = Config(ours, ours.accel(Mechanism(4096)), writer=TWO_CPUS)
    with VM("guest", config) as vm:
        vm.wait_writing()
        vm.qmp("set-vcpu-dirty-limit", dirty_rate=LIMIT_MB)
        wait_watched(vm)
        assert "limited" in refused(vm, "log")
        vm.qmp("cancel-vcpu-dirty-limit")
        assert "dirty rings" in refused(vm, "log")


def test_rings_stay(ours: Qemu) -> None:
    """KVM has rings from the start on, or never."""
    with VM("guest", Config(ours, "kvm,dirty-ring-size=4096")) as vm:
        assert "ring" in refused(vm, "log")
        assert "ring" in refused(vm, "auto")
    with VM("guest", Config(ours, "kvm")) as vm:
        assert "ring" in refused(vm, "ring")


@pytest.mark.parametrize("name", ["wrprot", "shared", "dirty-bits"])
def test_started_without(ours: Qemu, name: str) -> None:
    """A mechanism that must be chosen at the start is not available later."""
    with VM("guest", Config(ours, ours.accel(LOG))) as vm:
        vm.wait_writing()
        assert "KVM_CAP_WRITE_PROTECT_ALL_MEM" in refused(vm, name)
        vm.qmp("set-dirty-tracking", mechanism="auto")
        passed_over = vm.qmp("query-dirty-tracking")["passed-over"]
        assert {over["obstacle"] for over in passed_over} == {
            "started" if WRPROT.offered else "missing"}


@pytest.mark.skipif(not COLLECTED, reason="KVM has no dirty bits to collect")
def test_dirty_bits_stay(ours: Qemu) -> None:
    """A VM has either dirty bits or mechanisms that wait for faults."""
    for accel in ("kvm", ours.accel(DIRTY_BITS)):
        with VM("guest", Config(ours, accel)) as vm:
            assert mechanism(vm) == DIRTY_BITS.name
            for other in (WRPROT, SHARED):
                assert "KVM_CAP_DIRTY_BITS" in refused(vm, other.name)
            vm.qmp("set-dirty-tracking", mechanism=LOG.name)
            assert "KVM_CAP_DIRTY_BITS" in refused(vm, SHARED.name)
    with VM("guest", Config(ours, ours.accel(SHARED))) as vm:
        vm.wait_writing()
        assert "KVM_CAP_DIRTY_BITS" in refused(vm, DIRTY_BITS.name)


def test_without_kvm(ours: Qemu) -> None:
    """There is nothing to switch without KVM."""
    with VM("guest", Config(ours, "tcg")) as vm:
        with pytest.raises(QMPError, match="KVM"):
            vm.qmp("set-dirty-tracking", mechanism="auto")


def test_no_mechanism(ours: Qemu) -> None:
    """There is no such mechanism."""
    with VM("guest", Config(ours, "kvm")) as vm:
        with pytest.raises(QMPError, match="mechanism"):
            vm.qmp("set-dirty-tracking", mechanism="foo")
