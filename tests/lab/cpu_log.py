# SPDX-License-Identifier: GPL-2.0-or-later
"""Which mechanism QEMU takes on this host, and whether the CPU logs writes.

usage: python -m tests.lab.cpu_log ACCEL...

Runs the writer guest for each value of -accel, has QEMU log its writes for a
second, and prints one line of JSON.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.migration.guest import MIB, PAGE
from tests.migration.vm import VM, Config, qemu

TRACING = Path("/sys/kernel/tracing")
PML_FULL = TRACING / "events/kvm/kvm_pml_full/enable"
PML_PARAMETER = Path("/sys/module/kvm_intel/parameters/pml")
PML_ENTRIES = 512
LIMIT = 120.0


@dataclass(frozen=True)
class Seen:
    """The findings about one guest.

    pml says whether KVM may have this CPU log writes (PML).  pml_full counts
    how often the CPU's buffer was full, which KVM traces, in a second in which
    the guest wrote to rate MiB.
    """

    mechanism: str
    pml: bool
    pml_full: int
    rate: int

    @property
    def logged_by_cpu(self) -> str:
        """In the terms of the user guide: none, off or on."""
        if not self.pml:
            return "none"
        assert self.rate * MIB > 2 * PML_ENTRIES * PAGE, "too little to see it"
        return "on" if self.pml_full else "off"


def has_pml() -> bool:
    """KVM turns the parameter off where the CPU has no PML.

    It is there, and on, on AMD's CPUs as well.
    """
    cpus = Path("/proc/cpuinfo").read_text()
    return ("GenuineIntel" in cpus
            and PML_PARAMETER.read_text().strip() == "Y")


@contextmanager
def full_buffers_traced() -> Iterator[None]:
    """Trace KVM's event of a full buffer, and forget earlier ones."""
    (TRACING / "trace").write_text("")
    PML_FULL.write_text("1")
    try:
        yield
    finally:
        PML_FULL.write_text("0")


def log_for_a_second(vm: VM) -> int:
    """Have the dirty rate measured, which logs all memory, and return it."""
    rings = vm.qmp("query-dirty-tracking")["ring-size"]
    vm.qmp("calc-dirty-rate", calc_time=1,
           mode="dirty-ring" if rings else "dirty-bitmap")
    vm.wait(lambda: vm.qmp("query-dirty-rate")["status"] == "measured",
            LIMIT, "the dirty rate was not measured")
    return int(vm.qmp("query-dirty-rate")["dirty-rate"])


def observe(accel: str) -> Seen:
    """Run a guest with -accel ACCEL.

    Its memory is a file's, and so has no huge pages: when one is split, the
    first write to each of its pages is a fault, whatever the CPU logs.
    """
    config = Config(qemu("ours"), accel, shared_ram=True)
    with VM("guest", config) as vm:
        vm.wait_writing()
        mechanism = vm.qmp("query-dirty-tracking")["mechanism"]
        if not has_pml():
            return Seen(mechanism, False, 0, 0)
        with full_buffers_traced():
            rate = log_for_a_second(vm)
        trace = (TRACING / "trace").read_text()
        return Seen(mechanism, True,
                    len(re.findall(r"\bkvm_pml_full:", trace)), rate)


if __name__ == "__main__":
    for word in sys.argv[1:]:
        print(json.dumps(asdict(observe(word))), flush=True)
