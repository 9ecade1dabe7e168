# SPDX-License-Identifier: GPL-2.0-or-later
"""The ways to migrate and the features that also watch dirty pages."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from .cases import (HELD, assert_identical, log_and_ring, matrix,
                    migrate_identical)
from .compare import assert_none_differ, differing_in_maps
from .disk import make_overlay
from .guest import MIB, Writer
from .migrate import Options, cancel, finish, start, wait_rounds
from .test_guest import wait_starts
from .vm import BOOT_TIMEOUT, VM, Config, Mechanism, Qemu, pair

TWO_CPUS = Writer(cpus=2)
RATE_TRIES = 90


@log_and_ring
@pytest.mark.parametrize("options", [
    dataclasses.replace(HELD, auto_converge=True),
    dataclasses.replace(HELD, capabilities=("xbzrle",)),
    Options()], ids=["auto-converge", "xbzrle", "unlimited"])
def test_options(ours: Qemu, mechanism: Mechanism, options: Options) -> None:
    """Memory is the same whichever way QEMU sends it."""
    config = Config(ours, ours.accel(mechanism), writer=TWO_CPUS)
    with pair(config) as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst, options)


@matrix("multifd")
def test_multifd(ours: Qemu, mechanism: Mechanism, writer: Writer) -> None:
    """Memory is the same when sent on four channels."""
    config = Config(ours, ours.accel(mechanism), writer=writer)
    with pair(config) as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst, dataclasses.replace(
            HELD, multifd=4, transport="tcp"))


def postcopy_identical(config: Config, options: Options) -> None:
    """Switch to postcopy after some rounds; fail unless all memory arrives."""
    with pair(config) as (src, dst):
        src.wait_writing()
        start(src, dst, options)
        wait_rounds(src, dst, 3, options)
        finish(src, dst, options)
        assert_identical(src, dst)


@matrix("postcopy")
def test_postcopy(ours: Qemu, mechanism: Mechanism, writer: Writer) -> None:
    """Pages that were still dirty at the switch are sent after it."""
    config = Config(ours, ours.accel(mechanism), writer=writer)
    options = dataclasses.replace(HELD, postcopy=True)
    postcopy_identical(config, options)


@log_and_ring
def test_preempt(ours: Qemu, mechanism: Mechanism) -> None:
    """Pages that a vCPU waits for have a channel of their own."""
    config = Config(ours, ours.accel(mechanism), writer=TWO_CPUS)
    options = dataclasses.replace(HELD, postcopy=True,
                                  capabilities=("postcopy-preempt",))
    postcopy_identical(config, options)


@matrix("cancel")
def test_cancel_and_retry(ours: Qemu, mechanism: Mechanism,
                          writer: Writer) -> None:
    """After a cancel nothing is logged any more, and a retry succeeds."""
    config = Config(ours, ours.accel(mechanism), writer=writer)
    with VM("src", config) as src:
        src.wait_writing()
        before = src.rates(1.0)
        with VM("dst", config, incoming=True) as dst:
            start(src, dst, HELD)
            wait_rounds(src, dst, 3, HELD)
            cancel(src)
        src.wait(lambda: not src.qmp("query-dirty-tracking")["logged-slots"],
                 BOOT_TIMEOUT, "memory stays logged")
        assert_pace(src, before)
        with VM("dst", config, incoming=True) as dst:
            migrate_identical(src, dst)


def assert_pace(vm: VM, before: list[float]) -> None:
    """Fail unless each vCPU comes to half of its rate BEFORE.

    Others may use the host at the same time, hence more than one try.
    """
    after: list[float] = []
    for _ in range(RATE_TRIES):
        after = vm.rates(1.0)
        if all(b > a / 2 for a, b in zip(before, after)):
            return
    pytest.fail(f"writes per second and vCPU fell from {before} to {after}")


@matrix("reset")
def test_reset_while_migrating(ours: Qemu, mechanism: Mechanism,
                               writer: Writer) -> None:
    """A guest that starts anew between two rounds arrives as it is."""
    config = Config(ours, ours.accel(mechanism), writer=writer)
    with pair(config) as (src, dst):
        src.wait_writing()

        def reset() -> None:
            src.qmp("system_reset")
            wait_starts(src, 2)
            src.wait_writing()

        migrate_identical(src, dst, held=reset)


@matrix("snapshot")
def test_snapshot(ours: Qemu, mechanism: Mechanism, writer: Writer,
                  tmp_path: Path) -> None:
    """loadvm brings back the memory that savevm saw; both still migrate."""
    config = Config(ours, ours.accel(mechanism), writer=writer,
                    disk=make_overlay(ours, tmp_path, writer))
    with VM("src", config) as src:
        src.wait_writing()
        assert src.hmp("savevm running") == ""
        src.rates(0.5)
        src.qmp("stop")
        saved = src.read_memory(0, config.mib * MIB)
        assert src.hmp("savevm stopped") == ""
        src.qmp("cont")
        src.rates(0.5)
        src.qmp("stop")
        assert src.hmp("loadvm stopped") == ""
        assert_none_differ(differing_in_maps(
            src.read_memory(0, config.mib * MIB), saved))
        assert src.hmp("loadvm running") == ""
        src.qmp("cont")
        assert all(rate > 0 for rate in src.rates(1.0))
        peer = dataclasses.replace(
            config, disk=make_overlay(ours, tmp_path, writer))
        with VM("dst", peer, incoming=True) as dst:
            migrate_identical(src, dst)
