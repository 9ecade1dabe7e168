# SPDX-License-Identifier: GPL-2.0-or-later
"""The chapter on guests that write more than their migration likes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.migration.vm import path_of

from .blocks import NONE, Block, Chapter, Table, Text, cell, ratio
from .releases import OUR_TITLES, PEER, VERSIONS
from .results import Results, Stat
from .step import COUNTED, PYTHON, Lab, Step

MACHINE = Lab(cpus=2, memory=3072)
PROGRAM = (*PYTHON, "tests.bench.guest_ends", "--mib", "128")


def named(titles: Mapping[str, str], *mechanisms: str) -> dict[str, str]:
    """Each of some QEMUs with each of its mechanisms, and their titles."""
    return {f"{name}:{mechanism}": f"{title}, {mechanism}"
            for name, title in titles.items() for mechanism in mechanisms}


PEERS = named(VERSIONS, "log", "ring")
SYSTEMS = {**PEERS, **named(OUR_TITLES, "log", "dirty-bits")}
BASE = f"{PEER}:log"
QUICK = (BASE, "ours:log", "ours:dirty-bits")


@dataclass(frozen=True)
class Case:
    """A guest; quick if a quick run has it, too.

    What counts instructions repeats, but for a few per cent, or for a round: where
    there are many rounds one run will do.  Several vCPUs take a machine of two
    CPUs, in real time.
    """

    name: str
    title: str
    words: str
    quick: bool = False
    machine: Lab = COUNTED
    runs: int = 3
    seconds: int = 60

    @property
    def given_up(self) -> int:
        """The seconds after which a migration that has not ended is."""
        return 20 if self.machine.icount else 40

    def step(self, systems: Sequence[str]) -> Step:
        """All systems in one machine, one after the other."""
        return Step(self.step_name,
                    (*PROGRAM, "--seconds", str(self.given_up),
                     *self.words.split(), *systems),
                    self.machine, runs=self.runs, seconds=self.seconds)

    @property
    def step_name(self) -> str:
        """The name of the step."""
        return f"ends/{self.name}"


# In the lab a guest with a delay of 20,000 would write 97 MiB a second.
CASES = (
    *(Case(f"hot-{times}", f"hot spot, {times}×",
           "--pattern hot-spot --written-mib 64 --delay 20000 "
           f"--times {times}", runs=runs, seconds=seconds)
      for times, runs, seconds in ((1, 3, 250), (2, 3, 320), (4, 1, 1300))),
    Case("uniform-half", "uniform, 0.5×",
         "--written-mib 64 --delay 40000 --times 0.5", seconds=300),
    Case("uniform-1", "uniform, 1×", "--written-mib 64 --delay 20000 --times 1",
         quick=True, seconds=350),
    Case("uniform-2", "uniform, 2×", "--written-mib 64 --delay 20000 --times 2",
         runs=1, seconds=1300),
    Case("cheap", "uniform, 1×, cheap faults",
         "--written-mib 16 --delay 80000 --times 1", seconds=400),
    Case("bursts", "bursts",
         "--written-mib 32 --delay 5000 --pause 150000000 --mib-per-second 60",
         seconds=400),
    Case("others", "1 writes, 3 compute",
         "--written-mib 64 --delay 20000 --times 1 --cpus 4 --writers 1",
         machine=MACHINE),
    Case("mix", "a mix",
         "--pattern hot-spot --written-mib 64 --delay 40000 --pause 50000000 "
         "--times 1 --cpus 4 --writers 3", machine=MACHINE, seconds=80))


def there(systems: Iterable[str]) -> Sequence[str]:
    """Those whose QEMU this machine has got."""
    return [system for system in systems
            if path_of(system.partition(":")[0]).exists()]


def steps(quick: bool) -> Sequence[Step]:
    """A quick run has one guest."""
    if quick:
        return [replace(case, runs=1).step(QUICK) for case in CASES if case.quick]
    return [case.step(there(SYSTEMS)) for case in CASES]


def figure(name: str, system: str) -> str:
    """The name of a figure of a system."""
    return f"{name}.{system.replace(':', '-')}"


def share(stat: Stat | None) -> str:
    """In how many of its runs a system did something."""
    return f"{sum(stat.values):.0f} of {len(stat.values)}" if stat else NONE


def best_peer(results: Results, step: str) -> str:
    """The peer that ended each time, and soonest; the first one if none did."""
    def rank(system: str) -> tuple[float, float]:
        ended = results.stat(step, figure("ended", system))
        total = results.stat(step, figure("total", system))
        return (-sum(ended.values) if ended else 0,
                total.median if total else 0)
    return min(PEERS, key=rank)


COLUMNS = (("total", "total, ms"), ("downtime", "downtime, ms"),
           ("sent", "sent, MiB"), ("writers", "writers kept, %"),
           ("others", "others kept, %"))


def rows(results: Results, case: Case) -> list[list[str]]:
    """A row for each system."""
    step = case.step_name
    base = results.stat(step, figure("total", best_peer(results, step)))
    return [[SYSTEMS[system],
             share(results.stat(step, figure("ended", system))),
             *(cell(results.stat(step, figure(name, system)))
               for name, _ in COLUMNS),
             ratio(base, results.stat(step, figure("total", system)))]
            for system in SYSTEMS]


def table(results: Results, case: Case) -> Table:
    """One guest, with its bandwidth."""
    bandwidth = results.stat(case.step_name, figure("bandwidth", BASE))
    return Table(("QEMU, mechanism", "ended", *(name for _, name in COLUMNS),
                  "best peer's total to it"),
                 rows(results, case),
                 f"{case.title}, at {cell(bandwidth)} MiB/s").filled()


WHY = Text(
    "Each guest writes without end, several times as much as is sent or a "
    "part of it, and the operator asks for what each QEMU has: auto-converge "
    "with a log, and with rings a dirty limit of half of the bandwidth, by "
    "set-vcpu-dirty-limit (7.2) or the capability dirty-limit (later). The "
    "limit of the downtime is 100 ms. All of it is in the lab and on our "
    "kernel. A guest of one vCPU has a machine of one CPU, which has both "
    "QEMUs, too, and whose time counts instructions; there a migration that "
    "has not ended after 20 s has no total. Guests of four vCPUs are measured "
    "on two CPUs in real time, as medians with their spread, for 40 s at most. With cheap faults the guest writes a quarter "
    "of what that of once the bandwidth writes, to a quarter of the memory, at"
    " a quarter of the bandwidth, so that faults cost it a quarter as much. "
    "A ratio below 1 is a loss.")


def blocks(results: Results) -> Sequence[Block]:
    """A table for each guest."""
    return [*(table(results, case) for case in CASES), WHY]


CHAPTER = Chapter("ends", "Guests whose migration is hard to end", steps,
                  blocks)
