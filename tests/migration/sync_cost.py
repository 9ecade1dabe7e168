#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What set-up, a sync and the stop of a migration cost, by guest size.

usage: sync_cost.py [GIB...]     without sizes: 1 4 256 1024

Guests of that much memory, of which next to nothing was ever touched, are
migrated to nowhere by our QEMU and the distribution's in turn.  The times of
syncs are those between QEMU's own trace events.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Sequence

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# The package can be found only from here on.
# pylint: disable=wrong-import-position
from migration.guest import MIB, Writer  # noqa: E402
from migration.migrate import (  # noqa: E402
    Options, cancel, info, rounds, wait)
from migration.vm import (  # noqa: E402
    VM, Config, Mechanism, Qemu, kvm_usable, qemu)

SIZES = (1, 4, 256, 1024)
ATTEMPTS = 6
ROUNDS = 8
# 4,096 pages, written so slowly that no ring overflows where KVM emulates the
# guest and each write takes an entry: the distribution's QEMU empties rings
# once a second, and hangs the guest if it has to do so sooner.
RING = Mechanism(65536)
WRITER = Writer(mib=16, delay=40, report=0)
NOWHERE = "exec:cat > /dev/null"

OPTIONS = Options(bandwidth=64 * MIB, downtime_limit=1, timeout=600.0)
# A round of the writer's pages takes a second, in which all are written again.
SLOWLY = 16 * MIB
COMPLETE_MS = 2000

EVENT = re.compile(r"^\d+@(\d+\.\d+):(\w+)(?:[^\d\n]*(\d+))?", re.MULTILINE)


@dataclass
class Sync:
    """One sync, in microseconds.

    Held is what it had the BQL for, where QEMU tells, and log what KVM took
    before to start its log, if it did.
    """

    total: float
    pages: int
    held: float
    log: float


@dataclass
class Costs:
    """What one guest came to."""

    qemu: str
    gib: int
    setup_ms: list[int] = field(default_factory=list)
    first: list[Sync] = field(default_factory=list)
    idle: list[Sync] = field(default_factory=list)
    busy: list[Sync] = field(default_factory=list)
    downtime_ms: int = 0
    overflows: int = 0


def config(binary: Qemu, gib: int) -> Config:
    """Return a guest of GIB, with its syncs traced."""
    events = ["migration_bitmap_sync_*", "global_dirty_changed"]
    if binary.patched:
        events.append("kvm_dirty_sync_end")
    extra = ["-cpu", "qemu64,kvmclock=off,phys-bits=46",
             "-object", f"memory-backend-ram,id=ram,reserve=off,size={gib}G",
             "-machine", "memory-backend=ram",
             "-msg", "timestamp=on", "-D", "{dir}/trace"]
    for event in events:
        extra += ["-trace", event]
    return Config(binary, binary.accel(RING), mib=gib * 1024, writer=WRITER,
                  extra=tuple(extra))


def parse(text: str) -> list[Sync]:
    """Return the syncs in the trace of one migration.

    The pages that QEMU tells are those of a period, which ends with the first
    sync that comes a second after it began.
    """
    found: list[Sync] = []
    period = begun = held = changed = log = 0.0
    seen = 0
    for match in EVENT.finditer(text):
        now, event, number = float(match[1]), match[2], int(match[3] or 0)
        if event == "global_dirty_changed":
            changed = now
        elif event == "migration_bitmap_sync_start":
            log = now - changed if changed else 0.0
            begun, held, changed = now, 0.0, 0.0
            period = period or now
        elif event == "kvm_dirty_sync_end":
            held = number / 1000
        elif event == "migration_bitmap_sync_end":
            found.append(Sync((now - begun) * 1e6, number - seen, held,
                              log * 1e6))
            ended = now > period + 1
            seen, period = (0, now) if ended else (number, period)
    return found


def trace(vm: VM, begin_at: int = 0) -> str:
    """Return what VM has traced, but for the first BEGIN_AT characters."""
    return (vm.dir / "trace").read_text(encoding="utf-8")[begin_at:]


def begin(vm: VM) -> None:
    """Start to migrate VM to nowhere, and note how long that took."""
    vm.qmp("migrate-set-parameters", max_bandwidth=OPTIONS.bandwidth,
           downtime_limit=OPTIONS.downtime_limit)
    vm.qmp("migrate", uri=NOWHERE)
    wait(vm, None, OPTIONS.timeout, "start",
         lambda state: state.get("status") == "active")


def set_up(vm: VM, costs: Costs) -> None:
    """Begin and cancel migrations of a guest that is stopped."""
    vm.qmp("stop")
    for _ in range(ATTEMPTS):
        begin(vm)
        costs.setup_ms.append(int(info(vm)["setup-time"]))
        cancel(vm)
    syncs = parse(trace(vm))
    costs.first, costs.idle = syncs[:1], syncs[1:]
    vm.qmp("cont")


def migrate(vm: VM, costs: Costs) -> None:
    """Migrate a guest that writes, with some rounds, and let it complete."""
    before = len(trace(vm))
    begin(vm)
    wait(vm, None, OPTIONS.timeout, "begin a second round",
         lambda state: rounds(state) >= 2)
    vm.qmp("migrate-set-parameters", max_bandwidth=SLOWLY)
    wait(vm, None, OPTIONS.timeout, f"begin round {ROUNDS}",
         lambda state: rounds(state) >= ROUNDS)
    # The first is set-up's; the round after the second is short.
    costs.busy = parse(trace(vm, before))[3:]
    vm.qmp("migrate-set-parameters", downtime_limit=COMPLETE_MS)
    wait(vm, None, OPTIONS.timeout, "complete",
         lambda state: state.get("status") == "completed")
    costs.downtime_ms = int(info(vm)["downtime"])


def measure(binary: Qemu, gib: int) -> Costs:
    """Return what a guest of GIB costs with one of the binaries."""
    costs = Costs(binary.name, gib)
    with VM("src", config(binary, gib)) as vm:
        vm.wait_writing()
        set_up(vm, costs)
        migrate(vm, costs)
        if binary.patched:
            costs.overflows = vm.qmp("query-dirty-tracking")["overflows"]
    return costs


def median(of: Sequence[float]) -> float:
    """Return the median; there may be none."""
    return statistics.median(of) if of else 0.0


def cells(costs: Costs) -> list[str]:
    """Return the row of the table."""
    held = median([sync.held for sync in costs.busy])
    return [
        f"{costs.gib:,} GiB", costs.qemu,
        f"{costs.setup_ms[0]} ms", f"{costs.first[0].log / 1000:,.1f} ms",
        f"{median(costs.setup_ms[1:]):.0f} ms",
        *(f"{median([sync.total for sync in kind]):,.0f} µs"
          for kind in (costs.first, costs.idle, costs.busy)),
        f"{held:,.0f} µs" if held else "–",
        f"{median([sync.pages for sync in costs.busy]):,.0f}",
        f"{costs.downtime_ms} ms"]


HEADINGS = ("guest", "QEMU", "set-up", "of it KVM", "again", "first sync",
            "idle sync", "busy sync", "with the BQL", "pages", "downtime")


def main(arguments: Sequence[str]) -> int:
    """Measure all sizes and print the table."""
    if not kvm_usable():
        print("sync_cost: /dev/kvm cannot be used on this host",
              file=sys.stderr)
        return 1
    print("| " + " | ".join(HEADINGS) + " |")
    print("|--:|---" + "|--:" * (len(HEADINGS) - 2) + "|", flush=True)
    for gib in [int(word) for word in arguments] or SIZES:
        for name in ("stock", "ours"):
            costs = measure(qemu(name), gib)
            print("| " + " | ".join(cells(costs)) + " |", flush=True)
            if costs.overflows:
                print(f"sync_cost: {costs.overflows} overflows, which make "
                      "all memory dirty", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
