# SPDX-License-Identifier: GPL-2.0-or-later
"""Which lines of a kernel's log are a complaint; nothing is booted."""

from __future__ import annotations

import sys

import pytest

from .lab import ROOT

sys.path.append(str(ROOT / "lab"))

from complaints import first_report  # noqa: E402

CALM = (
    "[    0.000000] Linux version 6.1.192",
    "[    0.104819] [Firmware Bug]: TSC_DEADLINE disabled due to Errata",
    "[    1.546328] MDS: Vulnerable: Clear CPU buffers attempted, no microcode",
    "[    2.000000] mce: CPU0: Thermal monitoring enabled (TM1)",
    "[    3.000000] python3[71]: segfault at 0 ip 0000 error 4",
    "a program says WARNING: CPU",
)


@pytest.mark.parametrize("line", [
    "[    9.000000] WARNING: CPU: 0 PID: 1 at arch/x86/kvm/mmu/mmu.c:1 f+0x1/0x2",
    "[    9.000000] BUG: kernel NULL pointer dereference, address: 0000000000000000",
    "[    9.000000] watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [bash:71]",
    "[    9.000000] INFO: task kvm:71 blocked for more than 120 seconds.",
    "[    9.000000] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
    "[    9.000000] BUG kmalloc-64 (Not tainted): Poison overwritten",
    "[    9.000000] NMI watchdog: Watchdog detected hard LOCKUP on cpu 1",
    "[    9.000000] watchdog: Watchdog detected hard LOCKUP on cpu 1",
    "[    9.000000] Out of memory: Killed process 71 (dirty_log_test) total-vm:1kB",
    "[    9.000000] Kernel panic - not syncing: dumptest",
    "[    9.000000] Oops: 0000 [#1] PREEMPT SMP NOPTI",
    "[    9.000000] unchecked MSR access error: RDMSR from 0x1",
    "[12345.000000] mce: [Hardware Error]: Machine check events logged",
])
def test_complaint(line: str) -> None:
    log = "\n".join((*CALM, line, "[   10.000000] and what follows"))
    assert first_report(log)[0] == line


def test_calm() -> None:
    assert first_report("\n".join(CALM)) == []


def test_report_has_an_end() -> None:
    """From the rule above the first complaint to its end mark."""
    rule = "[    9.000000] ------------[ cut here ]------------"
    report = [rule, "[    9.000000] WARNING: CPU: 0", "[    9.100000] trace",
              "[    9.200000] ---[ end trace 0000000000000000 ]---"]
    log = [*CALM, *report, "[   10.000000] Kernel panic - not syncing: x"]
    assert first_report("\n".join(log)) == report
