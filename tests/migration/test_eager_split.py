# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU splits huge pages ahead of the guest's writes, if it writes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .cases import HELD, assert_identical, migrate_identical, watch
from .guest import MIB, Writer
from .migrate import cancel, crawl, finish, release, start, wait_rounds
from .test_bad_input import refuse
from .test_bad_input import start as empty_machine
from .vm import (KVM_CAP_EAGER_PAGE_SPLIT, LOG, VM, Config, Qemu, kvm_offers,
                 pair)

OFFERED = kvm_offers(KVM_CAP_EAGER_PAGE_SPLIT)
offered = pytest.mark.skipif(
    not OFFERED, reason="the host's KVM lacks KVM_CAP_EAGER_PAGE_SPLIT")

PATIENCE = 60.0

# The guest touches all of this once, and goes on writing to a part of it.
WRITES_ALL = Writer(mib=96, cpus=1)
# A BIOS leaves the guest huge pages that nobody writes to any more.
IDLE = Writer(mib=1, cpus=1)


def split(vm: VM) -> dict[str, Any]:
    """Return what query-dirty-tracking says about splitting."""
    answer: dict[str, Any] = vm.qmp("query-dirty-tracking")["eager-split"]
    return answer


def statistic(vm: VM, name: str) -> int:
    """Return one of KVM's statistics of VM."""
    (answer,) = vm.qmp("query-stats", target="vm",
                       providers=[{"provider": "kvm", "names": [name]}])
    return int(answer["stats"][0]["value"])


def config(qemu: Qemu, mode: str, writer: Writer) -> Config:
    """A guest with or without splitting, 2 MiB at a time."""
    return Config(qemu, f"kvm,dirty-eager-split={mode},"
                  "dirty-eager-split-chunk=2M",
                  mib=128, writer=writer, seabios=writer == IDLE)


def wait_done(vm: VM) -> None:
    """Wait until there is no more to split."""
    vm.wait(lambda: not split(vm)["active"], PATIENCE, "not all was split")


def huge_pages(vm: VM) -> int:
    """Return how many huge pages KVM has mapped."""
    return statistic(vm, "pages_2m") + statistic(vm, "pages_1g")


@offered
@pytest.mark.parametrize("mode", ["on", "off"])
def test_all_or_none(ours: Qemu, mode: str) -> None:
    """The first round splits all huge pages in chunks; or none."""
    with pair(config(ours, mode, WRITES_ALL)) as (src, dst):
        src.wait_writing()
        src.qmp("stop")
        assert huge_pages(src) > 0
        src.qmp("cont")
        assert split(src) == {"mode": mode, "active": False, "done": 0,
                              "total": 0, "time": 0}
        start(src, dst, HELD)
        crawl(src)
        wait_rounds(src, dst, 1, HELD)
        wait_done(src)
        told = split(src)
        assert told["done"] == told["total"]
        assert (told["total"] >= src.config.mib * MIB) == (mode == "on")
        assert (told["time"] > 0) == (mode == "on")
        assert (statistic(src, "split_huge_pages") > 0) == (mode == "on")
        release(src, HELD)
        finish(src, dst, HELD)
        assert_identical(src, dst)


@offered
def test_logged_already(ours: Qemu) -> None:
    """Splitting begins with the migration, even if logging does not."""
    with pair(config(ours, "on", WRITES_ALL)) as (src, dst):
        src.wait_writing()
        watch(src, LOG)
        start(src, dst, HELD)
        crawl(src)
        wait_rounds(src, dst, 1, HELD)
        wait_done(src)
        assert split(src)["total"] >= src.config.mib * MIB
        release(src, HELD)
        finish(src, dst, HELD)
        assert_identical(src, dst)


@offered
def test_auto(ours: Qemu) -> None:
    """An idle guest keeps its huge pages; splitting overtakes a busy one."""
    with pair(config(ours, "auto", WRITES_ALL)) as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst)
        assert statistic(src, "split_huge_pages") > 0
    with pair(config(ours, "auto", IDLE)) as (src, dst):
        src.wait_writing()
        start(src, dst, HELD)
        crawl(src)
        wait_rounds(src, dst, 1, HELD)
        time.sleep(1.0)
        assert split(src)["done"] < split(src)["total"]
        assert huge_pages(src) > 0
        release(src, HELD)
        finish(src, dst, HELD)
        assert_identical(src, dst)


@offered
def test_cancel(ours: Qemu) -> None:
    """After the migration was cancelled, no more pages are split."""
    with VM("src", config(ours, "auto", IDLE)) as src:
        src.wait_writing()
        with VM("dst", src.config, incoming=True) as dst:
            start(src, dst, HELD)
            crawl(src)
            wait_rounds(src, dst, 1, HELD)
            assert split(src)["total"] > 0
            cancel(src)
            assert not split(src)["active"]
        with VM("dst", src.config, incoming=True) as dst:
            migrate_identical(src, dst)


@pytest.mark.skipif(OFFERED, reason="the host's KVM can split ahead")
@pytest.mark.parametrize("mode", ["on", "off"])
def test_not_offered(ours: Qemu, mode: str) -> None:
    """On a host that cannot split, on and off are errors, and auto is off."""
    (line,) = refuse(empty_machine(ours, f"kvm,dirty-eager-split={mode}"))
    assert f"dirty-eager-split={mode}" in line
    assert "KVM_CAP_EAGER_PAGE_SPLIT" in line
    with VM("guest", Config(ours, "kvm,dirty-eager-split=auto")) as vm:
        assert split(vm)["mode"] == "off"


@pytest.mark.parametrize("option", [
    "dirty-eager-split=maybe", "dirty-eager-split-chunk=0",
    "dirty-eager-split-chunk=1M", "dirty-eager-split-chunk=3M",
    "dirty-eager-split-chunk=x", "eager-split-size=2M"])
def test_bad_option(ours: Qemu, option: str) -> None:
    """QEMU refuses a value that is not allowed, and names the option.

    eager-split-size is upstream's, since 8.2, and means something else.
    """
    lines = refuse(empty_machine(ours, f"kvm,{option}"))
    assert option.split("=")[0] in lines[0]
