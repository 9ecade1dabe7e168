# SPDX-License-Identifier: GPL-2.0-or-later
"""The migration loop's bitmaps, where their sizes and users are unusual."""

from __future__ import annotations

import dataclasses
import re
import struct
import time
from collections import Counter
from pathlib import Path

import pytest

from .cases import (HELD, assert_identical, assert_identical_in,
                    each_mechanism, log_and_ring, migrate_identical,
                    to_be_cancelled)
from .compare import HIGH_START
from .conftest import installed
from .guest import MIB, PAGE, RANDOM, SEQUENTIAL, Writer
from .migrate import (Options, Result, crawl, finish, info, migrate, release,
                      rounds, start, wait_rounds)
from .qmp import QMPError
from .vm import LOG, VM, Config, Mechanism, Qemu, pair

KIB = 1 << 10

# The last group of 512 pages has 26 of them, and the last word of 64 too.
ODD = 64 * MIB + 104 * KIB
TO_THE_END = Writer(base=ODD - 32 * MIB, cpus=2, pattern=RANDOM)

# No part of it is plugged, so no part of it may be sent.
UNPLUGGED_GIB = 16
PLUGGED_PAGES = 96 * MIB // PAGE  # 64 MiB, and what displays and ROMs have


def assert_one_moment(vm: VM) -> None:
    """Fail unless the memory of VM is that of one moment.

    Its one vCPU writes page after page, with the number of the pass.
    """
    writer = vm.config.writer
    memory = vm.read_memory(writer.base, writer.mib * MIB)
    passes = [struct.unpack_from("<I", memory, at)[0]
              for at in range(0, len(memory), PAGE)]
    assert passes[0] > 1, Counter(passes)
    border = passes.index(passes[0] - 1) if passes[-1] != passes[0] else None
    assert set(passes[:border]) == {passes[0]}
    if border is not None:
        assert set(passes[border:]) == {passes[0] - 1}


def collected(trace: str) -> tuple[int, int]:
    """Return how many pages came off rings ahead of syncs, and in them."""
    pages = {False: 0, True: 0}
    in_sync = False
    for line in trace.splitlines():
        found = re.search(r"kvm_dirty_collected .* pages (\d+)", line)
        if found:
            pages[in_sync] += int(found[1])
        elif "migration_bitmap_sync_" in line:
            in_sync = "migration_bitmap_sync_start" in line
    return pages[False], pages[True]


def test_rings_are_emptied_ahead(ours: Qemu) -> None:
    """Most is found before a sync, which takes the BQL.

    Next to nothing is left for the sync if the host is not busy.
    The guest writes 4,096 pages, so slowly that the reaper has nothing to do.
    """
    extra = ["-D", "{dir}/trace"]
    for event in ("kvm_dirty_collected", "migration_bitmap_sync_*"):
        extra += ["-trace", event]
    config = Config(ours, ours.accel(Mechanism(65536)),
                    writer=Writer(mib=16, delay=40, report=0),
                    extra=tuple(extra))
    with pair(config) as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst)
        ahead, in_sync = collected((src.dir / "trace").read_text())
        assert ahead > in_sync, (ahead, in_sync)


@each_mechanism
def test_odd_size(ours: Qemu, mechanism: Mechanism) -> None:
    """The last pages arrive where memory ends within a group and a word."""
    config = Config(ours, ours.accel(mechanism), writer=TO_THE_END,
                    extra=("-m", f"{ODD // KIB}K"))
    with pair(config) as (src, dst):
        src.wait_writing()
        migrate(src, dst, HELD)
        assert_identical(src, dst)
        assert_identical_in(src, dst, HIGH_START, ODD - HIGH_START)


def test_tcg() -> None:
    """Nor does a guest under TCG, which has to notice writes, lose pages."""
    config = Config(installed("ours"), "tcg,thread=multi",
                    writer=Writer(cpus=2, mib=16, pattern=RANDOM))
    with pair(config) as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst)


@log_and_ring
def test_memory_comes_meanwhile(ours: Qemu, mechanism: Mechanism) -> None:
    """Memory that is added while the guest migrates does not disturb that."""
    config = Config(ours, ours.accel(mechanism), writer=Writer(cpus=2),
                    extra=("-m", "128M,slots=2,maxmem=16G"))
    with pair(config) as (src, dst):
        src.wait_writing()

        def plug() -> None:
            src.qmp("object-add", qom_type="memory-backend-ram", id="more",
                    size=9 << 30, reserve=False)
            with pytest.raises(QMPError, match="migrat"):
                src.qmp("device_add", driver="pc-dimm", id="dimm",
                        memdev="more")

        migrate_identical(src, dst, held=plug)


def test_xbzrle_when_memory_comes(ours: Qemu) -> None:
    """Each page is compared with what was sent last, in that pass as well.

    Most of round 3 is yet to come when it begins anew.  A byte of the random
    stamps is what it was two writes before in one of 256.
    """
    config = Config(ours, ours.accel(LOG),
                    writer=Writer(cpus=2, pattern=RANDOM))
    options = dataclasses.replace(HELD, capabilities=("xbzrle",))
    with pair(config) as (src, dst):
        src.wait_writing()
        start(src, dst, options)
        deadline = time.monotonic() + options.timeout
        while rounds(info(src)) < 3:  # It is sent within tens of ms.
            assert time.monotonic() < deadline
        crawl(src)
        src.qmp("object-add", qom_type="memory-backend-ram", id="more",
                size=16 * MIB)
        release(src, options)
        assert finish(src, dst, options).info["xbzrle-cache"]["pages"] > 0
        assert_identical(src, dst)


def with_unplugged(config: Config) -> Config:
    """Return CONFIG with memory that could be plugged, and is not."""
    return dataclasses.replace(config, extra=(
        "-m", f"{config.mib}M,maxmem=64G", "-object",
        f"memory-backend-ram,id=vmem,reserve=off,size={UNPLUGGED_GIB}G",
        "-device", "virtio-mem-pci,memdev=vmem,requested-size=0"))


def assert_unplugged_stays(result: Result) -> None:
    """Fail if more was sent than all other memory, twice in each round.

    A look may find a page again that was sent in the round.
    """
    assert result.pages < 2 * result.rounds * PLUGGED_PAGES < UNPLUGGED_GIB << 18


@pytest.mark.parametrize("mechanism", [LOG, Mechanism(65536),
                                       Mechanism(1024)], ids=str)
def test_unplugged_memory_is_not_sent(ours: Qemu,
                                      mechanism: Mechanism) -> None:
    """QEMU respects virtio-mem's discards, whole groups of them.

    It does so even after a ring overflowed, which makes all memory dirty:
    KVM's emulator overfills small rings, where it has to run the guest.
    """
    config = Config(ours, ours.accel(mechanism), writer=Writer(cpus=2))
    with pair(with_unplugged(config)) as (src, dst):
        src.wait_writing()
        assert_unplugged_stays(migrate_identical(src, dst))


def test_nothing_is_left_in_rings(ours: Qemu) -> None:
    """A migration does not find what was written before it began.

    Memory that was discarded meanwhile would come back.
    """
    config = Config(ours, ours.accel(Mechanism(65536)), writer=Writer(mib=16))
    with VM("src", config) as src:
        src.wait_writing()
        with to_be_cancelled(src):
            assert all(src.rates(0.3))
        src.qmp("stop")
        release(src, HELD)
        src.qmp("migrate", uri="exec:cat >/dev/null")
        result = finish(src, None, HELD)
        # So each page is sent once.
        assert result.pages == result.info["ram"]["total"] // PAGE


def resident(vm: VM) -> int:
    """Return how many KiB of guest memory the host has pages for."""
    maps = Path(f"/proc/{vm.pid}/smaps").read_text()
    size = vm.config.mib * MIB // KIB
    found = re.findall(rf"^Size: +{size} kB\n(?:.*\n)*?Rss: +(\d+) kB$",
                       maps, re.MULTILINE)
    return sum(map(int, found))


@each_mechanism
def test_postcopy_release(ours: Qemu, mechanism: Mechanism) -> None:
    """The source gives up the pages that were sent, and no others."""
    config = Config(ours, ours.accel(mechanism),
                    writer=Writer(pattern=SEQUENTIAL))
    options = dataclasses.replace(HELD, postcopy=True,
                                  capabilities=("release-ram",))
    with pair(config) as (src, dst):
        src.wait_writing(passes=2)
        start(src, dst, options)
        wait_rounds(src, dst, 3, options)
        before = resident(src)
        finish(src, dst, options)
        assert resident(src) < before
        assert_one_moment(dst)


def test_xbzrle_odd(ours: Qemu) -> None:
    """All pages arrive when compressed against the cache."""
    config = Config(ours, ours.accel(Mechanism(4096)), writer=TO_THE_END,
                    extra=("-m", f"{ODD // KIB}K"))
    options = dataclasses.replace(HELD, capabilities=("xbzrle",), multifd=0)
    with pair(config) as (src, dst):
        src.wait_writing()
        migrate(src, dst, options)
        assert_identical_in(src, dst, HIGH_START, ODD - HIGH_START)


def test_multifd_odd(ours: Qemu) -> None:
    """All pages arrive when sent on four channels."""
    config = Config(ours, ours.accel(Mechanism(4096)), writer=TO_THE_END,
                    extra=("-m", f"{ODD // KIB}K"))
    options: Options = dataclasses.replace(HELD, multifd=4, transport="tcp")
    with pair(config) as (src, dst):
        src.wait_writing()
        migrate(src, dst, options)
        assert_identical_in(src, dst, HIGH_START, ODD - HIGH_START)
