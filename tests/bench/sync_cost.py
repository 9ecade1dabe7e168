# SPDX-License-Identifier: GPL-2.0-or-later
"""The cost of a migration's set-up, syncs and stop, by the guest's size.

usage: python -m tests.bench.sync_cost --qemu ours --mechanism ring --gib 1024

The guest has touched next to nothing of its memory; it is migrated to nowhere.
The times of syncs are those between trace events: QEMU's own, and that with which
ours begins to harvest for a sync before it takes the BQL.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.migration.guest import MIB, PAGE, Writer
from tests.migration.migrate import Options, cancel, info, rounds, wait
from tests.migration.vm import (DIRTY_BITS, LOG, SHARED, VM, Config,
                                Mechanism, Qemu, kvm_usable, qemu)

from .binaries import BINARIES

ATTEMPTS = 6
STILL = 2
ROUNDS = 8
# 4,096 pages, written so slowly that no ring overflows where KVM emulates the
# guest and each write takes an entry: the distribution's QEMU empties rings
# once a second, and hangs the guest if it has to do so sooner.
RING = Mechanism(65536)
MECHANISMS = {"log": LOG, "ring": RING, "shared": SHARED,
              "dirty-bits": DIRTY_BITS}
WRITER = Writer(mib=16, delay=40, report=0)
NOWHERE = "exec:cat > /dev/null"

OPTIONS = Options(bandwidth=64 * MIB, downtime_limit=1, timeout=600.0)
# The migration is sent at this part of the writer's rate.  So the writer writes
# all of its pages again in a round, though each write takes an entry then.
SLOWER = 0.4
RATE_SECONDS = 0.5
# All of the first round would take long at that rate; what is left of it then
# takes long enough for some pages to be written.
LAST_BYTES = 1 << 30
COMPLETE_MS = 2000

EVENT = re.compile(r"^\d+@(\d+\.\d+):(\w+)(?:[^\d\n]*(\d+))?", re.MULTILINE)


@dataclass
class Sync:
    """One sync, in microseconds.

    Total begins with the harvest ahead of it, if there is one, and has the wait
    for the BQL in it then; without, QEMU has the BQL when it begins.  Held is
    the time with the BQL, where QEMU tells it; log is the time that KVM took
    before that to start its log, if it did.
    """

    total: float
    pages: int
    held: float
    log: float


@dataclass
class Costs:
    """The results of one guest."""

    setup_ms: list[int] = field(default_factory=list)
    first: list[Sync] = field(default_factory=list)
    again: list[Sync] = field(default_factory=list)
    idle: list[Sync] = field(default_factory=list)
    busy: list[Sync] = field(default_factory=list)
    downtime_ms: int = 0
    overflows: int = 0


def config(binary: Qemu, gib: int, mechanism: Mechanism = RING) -> Config:
    """Return a guest of GIB, with its syncs traced."""
    events = ["migration_bitmap_sync_*", "global_dirty_changed"]
    if binary.patched:
        events.append("kvm_dirty_sync_*")
    extra = ["-cpu", "qemu64,kvmclock=off,phys-bits=46",
             "-object", f"memory-backend-ram,id=ram,reserve=off,size={gib}G",
             "-machine", "memory-backend=ram",
             "-msg", "timestamp=on", "-D", "{dir}/trace"]
    for event in events:
        extra += ["-trace", event]
    return Config(binary, binary.accel(mechanism), mib=gib * 1024, writer=WRITER,
                  extra=tuple(extra))


def parse(text: str) -> list[Sync]:
    """Return the syncs in the trace of one migration.

    The pages that QEMU tells are those of a period, which ends with the first
    sync that comes a second after it began.
    """
    found: list[Sync] = []
    period = ahead = begun = held = changed = log = 0.0
    seen = 0
    for match in EVENT.finditer(text):
        now, event, number = float(match[1]), match[2], int(match[3] or 0)
        if event == "global_dirty_changed":
            changed = now
        elif event == "kvm_dirty_sync_ahead":
            ahead = now
        elif event == "migration_bitmap_sync_start":
            log = now - changed if changed else 0.0
            begun, held, changed, ahead = ahead or now, 0.0, 0.0, 0.0
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
    """Return the trace of VM from the character BEGIN_AT on."""
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
    costs.first, costs.again = syncs[:1], syncs[1:]
    vm.qmp("cont")


def stand_still(vm: VM, costs: Costs) -> None:
    """Migrate a guest that is stopped, so that its rounds find nothing."""
    for _ in range(STILL):
        before = len(trace(vm))
        vm.qmp("stop")
        begin(vm)
        wait(vm, None, OPTIONS.timeout, "complete",
             lambda state: state.get("status") == "completed")
        vm.wait(lambda: vm.qmp("query-status")["status"] == "postmigrate",
                OPTIONS.timeout, "the migration was not ended")
        # The first is set-up's, and before the last one QEMU stops the guest.
        costs.idle += parse(trace(vm, before))[1:-1]
        vm.qmp("cont")


def migrate(vm: VM, costs: Costs) -> None:
    """Migrate a guest that writes, with some rounds, and let it complete."""
    before = len(trace(vm))
    slowly = int(sum(vm.rates(RATE_SECONDS)) * PAGE * SLOWER)
    begin(vm)
    wait(vm, None, OPTIONS.timeout, "come to the end of the first round",
         lambda state: rounds(state) >= 2
         or state["ram"]["remaining"] <= LAST_BYTES)
    vm.qmp("migrate-set-parameters", max_bandwidth=slowly)
    wait(vm, None, OPTIONS.timeout, f"begin round {ROUNDS}",
         lambda state: rounds(state) >= ROUNDS)
    # The first is set-up's; the rounds after it are short.
    costs.busy = parse(trace(vm, before))[3:]
    vm.qmp("migrate-set-parameters", downtime_limit=COMPLETE_MS)
    wait(vm, None, OPTIONS.timeout, "complete",
         lambda state: state.get("status") == "completed")
    costs.downtime_ms = int(info(vm)["downtime"])


def measure(binary: Qemu, gib: int, mechanism: Mechanism,
            only_set_up: bool) -> Costs:
    """Return the costs of a guest of GIB."""
    costs = Costs()
    with VM("src", config(binary, gib, mechanism)) as vm:
        vm.wait_writing()
        set_up(vm, costs)
        if not only_set_up:
            stand_still(vm, costs)
            migrate(vm, costs)
        if binary.patched:
            costs.overflows = vm.qmp("query-dirty-tracking")["overflows"]
    return costs


def figures(costs: Costs) -> dict[str, tuple[float, str]]:
    """Return each figure with its unit; medians, where there are several.

    A stock QEMU does not tell how long it had the BQL.
    """
    found = {
        "set-up": (float(costs.setup_ms[0]), "ms"),
        "set-up.kvm": (costs.first[0].log / 1000, "ms"),
        "set-up.again": (statistics.median(costs.setup_ms[1:]), "ms"),
        "overflows": (float(costs.overflows), "rings"),
    }
    for name in ("first", "again", "idle", "busy"):
        totals = [sync.total for sync in getattr(costs, name)]
        if totals:
            found[f"sync.{name}"] = (statistics.median(totals), "us")
    if costs.busy:
        held = statistics.median(sync.held for sync in costs.busy)
        found["pages"] = (statistics.median(sync.pages for sync in costs.busy),
                          "pages")
        found["downtime"] = (float(costs.downtime_ms), "ms")
        if held:
            found["sync.busy.bql"] = (held, "us")
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Measure one guest."""
    parser = argparse.ArgumentParser(
        prog="sync_cost", description="What a sync costs, by guest size.")
    parser.add_argument("--qemu", choices=BINARIES, default="ours")
    parser.add_argument("--mechanism", choices=MECHANISMS, default="ring")
    parser.add_argument("--gib", type=int, default=1)
    parser.add_argument("--only-set-up", action="store_true",
                        help="no rounds, in which all memory is searched for "
                             "what is not zero")
    args = parser.parse_args(words)
    if not kvm_usable():
        print("sync_cost: /dev/kvm cannot be used on this host",
              file=sys.stderr)
        return 1
    costs = measure(qemu(args.qemu), args.gib, MECHANISMS[args.mechanism],
                    args.only_set_up)
    for name, (value, unit) in figures(costs).items():
        print(f"{name} {value:.3f} {unit}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
