# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts whose KVM lacks something, or does not do what it should.

What was named and is missing is refused, auto works; and of a ring that
overflowed the monitor is told.
"""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.migration.compare import differing_pages
from tests.migration.cases import HELD, migrate_identical
from tests.migration.migrate import Options, migrate
from tests.migration.vm import VM, Config, Mechanism, best, pair, qemu

KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2 = 168
KVM_CAP_DIRTY_LOG_RING = 192

pytestmark = pytest.mark.skipif(
    not os.access("/dev/kvm", os.R_OK | os.W_OK),
    reason="there is no /dev/kvm to hide capabilities of")


def start_and_fail(accel: str) -> str:
    """Run QEMU, which has to refuse; return its one line."""
    done = subprocess.run(
        [str(qemu("ours").path), "-accel", accel, "-display", "none", "-S"],
        capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    line, end = done.stderr.strip().splitlines()
    assert "failed to initialize kvm: Operation not supported" in end
    return line


@pytest.mark.parametrize("accel", [
    "kvm,dirty-tracking=ring", "kvm,dirty-tracking=ring,dirty-ring-size=4096"])
def test_ring_is_refused_without_rings(
        hide: None, monkeypatch: pytest.MonkeyPatch, accel: str) -> None:
    monkeypatch.setenv("HIDE_CAPS", str(KVM_CAP_DIRTY_LOG_RING))
    assert "KVM_CAP_DIRTY_LOG_RING" in start_and_fail(accel)


def test_ring_size_alone_warns_without_rings(
        hide: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIDE_CAPS", str(KVM_CAP_DIRTY_LOG_RING))
    config = Config(qemu("ours"), accel="kvm,dirty-ring-size=4096")
    with VM("guest", config) as vm:
        vm.wait_writing()
        found = vm.qmp("query-dirty-tracking")
        assert found["mechanism"] == best().name
        assert found["ring-size"] == 0
        assert "ring" in [each["mechanism"] for each in found["passed-over"]]
        (warning,) = (line for line in vm.messages().splitlines()
                      if "ring" in line)
        assert "warning: dirty-ring-size=4096" in warning
        assert "KVM_CAP_DIRTY_LOG_RING" in warning


@pytest.mark.parametrize("hidden", [
    (KVM_CAP_DIRTY_LOG_RING,),
    (KVM_CAP_DIRTY_LOG_RING, KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2)],
    ids=["without rings", "without manual protect"])
def test_auto_migrates_on_lesser_hosts(
        hide: None, monkeypatch: pytest.MonkeyPatch,
        hidden: tuple[int, ...]) -> None:
    monkeypatch.setenv("HIDE_CAPS", ",".join(map(str, hidden)))
    config = Config(qemu("ours"), accel="kvm")
    with VM("source", config) as src, \
            VM("destination", config, incoming=True) as dst:
        src.wait_writing()
        migrate(src, dst, Options())
        assert src.qmp("query-dirty-tracking")["mechanism"] == "log"
        assert not differing_pages(src, dst)


SHORT_RESETS = 20
EVENT_TIMEOUT = 60.0
EVENT = "DIRTY_TRACKING_OVERFLOW"


def test_overflow_is_told(hide: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event has the overflows, no more often than once a second."""
    monkeypatch.setenv("SHORT_RESETS", str(SHORT_RESETS))
    ours = qemu("ours")
    config = Config(ours, ours.accel(Mechanism(4096)),
                    extra=("-trace", "monitor_protocol_event_queue"))
    counts: list[int] = []
    with pair(config) as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst, HELD)
        total = src.qmp("query-dirty-tracking")["overflows"]
        assert total > 0

        def told() -> bool:
            counts.extend(event["overflows"]
                          for event in src.monitor.events(EVENT))
            return counts[-1:] == [total]

        src.wait(told, EVENT_TIMEOUT, f"{EVENT} did not tell of {total}")
        assert counts == sorted(set(counts)) and counts[0] > 0
        assert "rate=1000000000" in src.messages()
