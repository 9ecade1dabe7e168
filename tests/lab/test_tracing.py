# SPDX-License-Identifier: GPL-2.0-or-later
"""All of KVM's trace events, on while vCPUs write and are write-protected."""

from __future__ import annotations

import pytest

from .lab import lab, selftests

EVENTS = "/sys/kernel/tracing/events"
RACE = f"""
    for group in kvm kvmmmu kvm_dirty_tracking; do
        echo 1 >{EVENTS}/$group/enable || exit 1
    done
    "$0" -t 5 && grep -q fast_page_fault /sys/kernel/tracing/trace
"""


@pytest.mark.parametrize("tdp_mmu", [0, 1], ids=["shadow", "tdp"])
def test_all_events(tdp_mmu: int) -> None:
    """The host survives that it is traced: an event may follow a pointer."""
    ended = lab(
        "bash",
        "-c",
        RACE,
        selftests("patched") / "x86_64/write_protect_race_test",
        kernel="patched",
        options=["--cpus", "2", "--append", f"kvm.tdp_mmu={tdp_mmu}"],
    )
    assert ended.status == 0, ended
