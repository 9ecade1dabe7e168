# SPDX-License-Identifier: GPL-2.0-or-later
"""The hostile CPU does its task, and can be told not to.

test_selftests.py, test_mutants.py and test_migration.py run programs on it.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from .lab import LAB, LAB_FAILED, ROOT, Ended, lab, must, selftests
from .selftest_table import RACE

BITS = (RACE, *"-v 3 -t 4 -m bits".split())
MIX = (RACE, *"-v 3 -t 4".split())
# A guest that changes its own page tables, and flushes or does not.
FLUSHES = ("x86_64/guest_flush_test",)
# In few of the rounds does memory change under what a CPU holds: in these,
# entries are closed, and pages taken away.  A CPU reads what it has read
# before only if the guest has few pages that it touches.
ALL_OF_IT = (
    FLUSHES,
    (RACE, *"-v 1 -t 6 -m bits -P dense".split()),
    (RACE, *"-v 2 -t 6 -m get -P hot -x zap,slot,thp".split()),
)
SEEDS = 4
# A race, and whether it takes the TDP MMU: only that has dirty bits.
SOAKED = tuple(
    ((RACE, *arguments.split()), tdp_mmu)
    for arguments in (
        "-v 1 -t 60 -m bits",
        "-v 3 -t 60 -m bits -x rearm,zap",
        "-v 3 -t 60 -m bits -n",
        "-v 3 -t 60 -m shared -w all",
        "-v 3 -t 60 -m mix -n",
        "-v 3 -t 60 -m ring",
    )
    for tdp_mmu in (1, 0)
    if tdp_mmu or "bits" not in arguments
)
SOAKED_SEEDS = range(2, 10)
NPT0 = ("--append", "kvm_amd.npt=0")
SOURCE = ROOT / "lab-cpu/target/i386/tcg/sysemu/hostile.c"
DOCS = ROOT / "docs/lab.md"
# KVM asks for it when a guest without nested paging uses INVLPG.
ONLY_WITHOUT_NPT = {"flushed-page"}
# That takes one CPU to have read a page before another wrote to it, and to write
# itself while a collect wrprots it: the soak has a race for it.
RARE = {"dirty-read-only"}


@pytest.fixture(name="programs", scope="module")
def fixture_programs() -> Path:
    """Built before the first test, so that no test's time is a build's."""
    must([ROOT / "scripts/build-lab-cpu", "--quiet"])
    return selftests("patched")


def counted(log: Path) -> dict[str, int]:
    """The message of the CPU at its end."""
    found = re.findall(r"^hostile: ([a-z-]+) (\d+)$", log.read_text(), re.M)
    return {name: int(number) for name, number in found}


def run(
    programs: Path,
    log: Path,
    test: tuple[str, ...],
    *options: str,
    cpu: str = "hostile=7",
    through: tuple[str, ...] = (),
) -> tuple[Ended, dict[str, int]]:
    """One of the selftests on the patched kernel; THROUGH is to run it."""
    program, *arguments = test
    options = ("--cpus", "4", "--cpu", cpu, "--log", str(log), *options)
    ended = lab(
        *through,
        programs / program,
        *arguments,
        kernel="patched",
        seconds=180,
        options=options,
    )
    return ended, counted(log)


def test_all_of_it_happens(programs: Path, tmp_path: Path) -> None:
    """Some seed shows it, and no page is lost with any."""
    total: Counter[str] = Counter()
    missing: set[str] = set()
    for seed in range(1, SEEDS + 1):
        for test in ALL_OF_IT:
            cpu = f"hostile={seed}"
            ended, counters = run(programs, tmp_path / "log", test, cpu=cpu)
            assert ended.status == 0, ended
            assert counters.pop("seed") == seed
            total.update(counters)
        missing = {name for name in total if not total[name]}
        missing -= ONLY_WITHOUT_NPT | RARE
        if not missing:
            break
    print(total)
    assert total and not missing


def test_without_nested_paging(programs: Path, tmp_path: Path) -> None:
    """The CPU caches the shadow page tables then."""
    ended, counters = run(programs, tmp_path / "log", MIX, *NPT0)
    print(counters)
    assert ended.status == 0, ended
    for name in "upper-raw", "leaf", "leaf-write", "flushed-asid":
        assert counters[name], name
    ended, counters = run(programs, tmp_path / "log", FLUSHES, *NPT0)
    assert ended.status == 0, ended
    assert counters["flushed-page"]


def kept(ended: Ended) -> dict[str, list[int]]:
    """How often a guest saw an old state: of pages, global pages, tables."""
    found = re.findall(
        r"^(\w+): of \d+, (\d+) pages .*, (\d+) .*, (\d+) tables$",
        ended.stdout,
        re.MULTILINE,
    )
    return {name: [int(number) for number in rest] for name, *rest in found}


def test_guest_sees_old_entries_until_it_flushes(
    programs: Path, tmp_path: Path
) -> None:
    """The program asserts that the guest does not see them afterwards."""
    ended, _ = run(programs, tmp_path / "log", FLUSHES)
    assert ended.status == 0, ended
    seen = kept(ended)
    assert all(seen["none"]), seen
    assert seen["cr3"][1], seen


@pytest.mark.soak
def test_page_is_made_dirty_while_it_is_wrprot(
    programs: Path, tmp_path: Path
) -> None:
    """Some seed shows it, and no page is lost with any."""
    test = (RACE, *"-v 4 -t 30 -m bits -W -P dense".split())
    shown = 0
    for seed in range(1, SEEDS + 1):
        cpu = f"hostile={seed}"
        ended, counters = run(programs, tmp_path / "log", test, cpu=cpu)
        assert ended.status == 0, ended
        shown += counters["dirty-read-only"]
    print(shown)
    assert shown


def test_five_levels(programs: Path, tmp_path: Path) -> None:
    cpu = "hostile=7,la57=on,phys-bits=52"
    through = ("sh", "-c", 'grep -qw la57 /proc/cpuinfo && exec "$@"', "sh")
    ended, counters = run(
        programs, tmp_path / "log", BITS, cpu=cpu, through=through
    )
    assert ended.status == 0, ended
    assert counters["upper-raw"] and counters["guest-upper-raw"]


@pytest.mark.parametrize(("bits", "test"), [
    (52, ("x86_64/dirty_bits_test", "beyond")),
    # With 52 there is no reserved bit, and KVM emulates all that has no slot.
    (50, ("x86_64/write_protect_all_test", "-t", "beyond")),
])
def test_more_addresses_than_a_root_covers(
    programs: Path, tmp_path: Path, bits: int, test: tuple[str, ...]
) -> None:
    """Above 48 bits, with page tables of four levels: a slot, and nothing."""
    cpu = f"hostile=7,phys-bits={bits}"
    ended, _ = run(programs, tmp_path / "log", test, cpu=cpu)
    assert ended.status == 0, ended
    assert "skipping" not in ended.stdout


@pytest.mark.parametrize(
    ("off", "none", "some"),
    [
        (
            ("leaves", "raw-upper", "asid-flush", "late-interrupts"),
            (
                *("leaf", "leaf-write", "upper-raw", "flushed-asid"),
                "dirty-by-leaf",
                *("guest-leaf", "guest-leaf-half", "guest-upper-raw"),
                "interrupt-late",
            ),
            (
                *("upper-combined", "dirty-by-cache", "prefetched"),
                *("guest-upper-combined", "flushed-all"),
            ),
        ),
        (
            ("combined-upper", "prefetch", "guest-walks", "dirty-by-leaf"),
            (
                "dirty-by-leaf",
                *("upper-combined", "prefetched", "prefetched-upper"),
                *("guest-leaf", "guest-leaf-half", "guest-upper-raw"),
                "guest-upper-combined",
            ),
            ("leaf", "leaf-write", "upper-raw", "flushed-asid"),
        ),
    ],
    ids="+".join,
)
def test_properties(
    programs: Path,
    tmp_path: Path,
    off: tuple[str, ...],
    none: tuple[str, ...],
    some: tuple[str, ...],
) -> None:
    cpu = "hostile=1," + ",".join(f"{name}=off" for name in off)
    ended, counters = run(programs, tmp_path / "log", BITS, cpu=cpu)
    assert ended.status == 0, ended
    assert not any(counters[name] for name in none), counters
    assert all(counters[name] for name in some), counters


def test_first_stage_off(programs: Path, tmp_path: Path) -> None:
    cpu = "hostile=1,first-stage=off"
    ended, counters = run(programs, tmp_path / "log", MIX, *NPT0, cpu=cpu)
    assert ended.status == 0, ended
    assert not counters["leaf"] and not counters["upper-raw"]


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAKED_SEEDS)
@pytest.mark.parametrize(
    ("test", "tdp_mmu"),
    SOAKED,
    ids=[f"{'_'.join(test[1:])}-{tdp_mmu}" for test, tdp_mmu in SOAKED],
)
def test_other_seeds(
    programs: Path,
    tmp_path: Path,
    test: tuple[str, ...],
    tdp_mmu: int,
    seed: int,
) -> None:
    """No seed loses a page; every other one has Intel's upper entries."""
    cpu = f"hostile={seed},raw-upper={'on' if seed % 2 else 'off'}"
    options = ("--append", f"kvm.tdp_mmu={tdp_mmu}")
    ended, _ = run(programs, tmp_path / "log", test, *options, cpu=cpu)
    assert ended.status == 0, ended


def test_cpu_0_is_a_cpu_like_the_others() -> None:
    """COMMAND has CPU 0, and the machine has no CPU that COMMAND lacks."""
    program = (
        "import os\n"
        "print(sorted(os.sched_getaffinity(0)), os.cpu_count())\n"
    )
    ended = lab("python3", "-c", program, options=["--cpu", "hostile"])
    assert ended.stdout.split() == ["[0,", "1]", "2"], ended


RESTORE = r"""
#include <stdint.h>

int main(void)
{
    static uint8_t state[512] __attribute__((aligned(16)));

    __builtin_ia32_fxsave(state);
    for (;;) {
        __builtin_ia32_fxrstor(state);
    }
}
"""


def test_restoring_an_fpu_harms_no_cpu(
    programs: Path, tmp_path: Path
) -> None:
    """KVM is on CPU 0, and CPU 1 restores its FPU without a pause."""
    source = tmp_path / "restore.c"
    source.write_text(RESTORE)
    must(["gcc", "-O2", "-mfxsr", "-o", tmp_path / "restore", source])
    script = 'taskset -c 1 ./restore & taskset -c 0 "$@" && kill -0 $!'
    race = (RACE, *"-v 1 -t 10 -m get -w none".split())
    ended = lab(
        *("sh", "-c", script, "sh", programs / race[0], *race[1:]),
        kernel="stock",
        options=["--cpu", "hostile"],
        cwd=tmp_path,
    )
    assert ended.status == 0, ended


def test_docs_have_all_properties_and_counters() -> None:
    docs, source = DOCS.read_text(), SOURCE.read_text()
    section = docs.partition("## The hostile CPU")[2].partition("\n## ")[0]
    told = set(re.findall(r"`([a-z-]+)`", section))
    names = set(re.findall(r'COUNTER\(\w+, "([a-z-]+)"\)', source))
    properties = set(re.findall(r'DEFINE_PROP_BOOL\("([a-z-]+)"', source))
    assert names and properties
    # The table has the stale ones in one row.
    stale = {name for name in names if name.endswith("-stale")}
    assert not (names | properties) - stale - told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cpu", "rude"], "--cpu rude"),
        (["--cpu", "kind=1"], "--cpu kind=1"),
        (["--cpu", "hostile="], "--cpu hostile="),
        (["--cpu", "hostile=x"], "--cpu hostile=x"),
        (["--cpu", "hostile=1,leaves"], "--cpu hostile=1,leaves"),
        (["--cpu", "hostile", "--cpu-model", "max"], "--cpu-model max"),
    ],
)
def test_bad_option(words: list[str], said: str) -> None:
    done = subprocess.run(
        [LAB, *words, "--", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == LAB_FAILED
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("lab: ") and ";" in lines[0]
    assert said in lines[0]


def test_property_that_is_none() -> None:
    ended = lab("true", options=["--cpu", "hostile=1,niceness=on"])
    assert ended.status == LAB_FAILED
    assert "niceness" in ended.sentence
