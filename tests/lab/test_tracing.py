# SPDX-License-Identifier: GPL-2.0-or-later
"""All of KVM's trace events, on while vCPUs write and are write-protected."""

from __future__ import annotations

import re

import pytest

from .lab import ROOT, lab, selftests

# First all events at once, then ours alone, of which the buffer keeps the first:
# each has to be met.
RACES = """
    cd /sys/kernel/tracing
    tdp=$1
    shift
    on() {
        echo 0 >events/enable
        echo >trace
        for group; do
            echo 1 >events/$group/enable || exit 1
        done
    }
    race() {
        "$0" -t "$1" && { [ $tdp = 0 ] || "$0" -t "$1" -m bits -x rearm,zap; }
    }
    on kvm kvmmmu kvm_dirty kvm_dirty_tracking
    race 5 && grep -q fast_page_fault trace || exit 1
    echo 0 >options/overwrite
    on kvm_dirty kvm_dirty_tracking
    race 2 || exit 1
    for event; do
        grep -q " $event: " trace || { echo "$event was not met"; exit 1; }
    done
"""
HEADERS = (
    "arch/x86/kvm/mmu/write_protect_trace.h",
    "include/trace/events/kvm_dirty_tracking.h",
)


def events(tdp_mmu: int) -> list[str]:
    """Our own, without what the shadow MMU cannot have."""
    found: list[str] = []
    for name in HEADERS:
        text = (ROOT / "host-kernel" / name).read_text()
        found += re.findall(r"^TRACE_EVENT\((\w+),", text, re.MULTILINE)
    assert found
    return [name for name in found if tdp_mmu or "dirty_bits" not in name]


@pytest.mark.parametrize("tdp_mmu", [0, 1], ids=["shadow", "tdp"])
def test_all_events(tdp_mmu: int) -> None:
    """The host survives that it is traced: an event may follow a pointer."""
    ended = lab(
        "bash",
        "-c",
        RACES,
        selftests("patched") / "x86_64/write_protect_race_test",
        str(tdp_mmu),
        *events(tdp_mmu),
        kernel="patched",
        options=["--cpus", "2", "--append", f"kvm.tdp_mmu={tdp_mmu}"],
    )
    assert ended.status == 0, ended
