# SPDX-License-Identifier: GPL-2.0-or-later
"""Which commands a host of a size gets, and several of them at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from qualify import steps
from qualify.steps import Tools, check, races, soak
from tests.migration.guest import ROOT

TOOLS = Tools(Path("/selftests"), Path("/engine"))


@pytest.mark.parametrize(("cpus", "vcpus", "copies"), [
    (1, 1, 1), (2, 1, 1), (4, 3, 1), (8, 7, 1), (9, 7, 2), (16, 7, 2),
    (224, 7, 28),
])
def test_races_take_all_cpus(cpus: int, vcpus: int, copies: int) -> None:
    for step in races(TOOLS, cpus, 20):
        words = list(step.command)
        if copies > 1:
            assert words[2:5] == ["-m", "qualify.together", str(copies)]
        assert words[words.index("-v") + 1] == str(vcpus)
        assert step.limit > 20
        assert cpus == 1 or copies * (vcpus + 1) >= cpus


def test_names_differ() -> None:
    names = [step.name for step in check(TOOLS, 64)]
    assert len(names) == len(set(names))


def test_soak_goes_on_with_another_seed() -> None:
    for number in (1, 2, 30):
        fuzz, = [step for step in soak(TOOLS, 4, number)
                 if step.name.startswith("dirty_tracking_fuzz")]
        assert fuzz.command[2] == str(number)


def test_programs_of_check_exist() -> None:
    """Of ours, the sources do; the kernel's are looked for by test_boot.py."""
    ours = ROOT / "host-kernel/tools/testing/selftests/kvm"
    for line in (*steps.OURS, steps.FUZZ, steps.RACE):
        assert (ours / f"{line.split()[0]}.c").exists(), line
    for name in steps.ENGINE:
        assert list((ROOT / "tests").glob(f"*/{name}.c")), name


# Ours that no check runs: one is about the lab's CPU, and `measure` has one.
NOT_ON_A_HOST = {"x86_64/guest_flush_test", "x86_64/dirty_tracking_perf_test"}


def test_no_program_of_ours_is_forgotten() -> None:
    """Each has to run on a host before anybody trusts it there."""
    ours = ROOT / "host-kernel/tools/testing/selftests/kvm"
    there = {str(path.relative_to(ours).with_suffix(""))
             for path in ours.rglob("*_test.c")}
    runs = {line.split()[0] for line in (*steps.OURS, steps.FUZZ, steps.RACE)}
    assert there == runs | NOT_ON_A_HOST


def together(count: int, script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", "-m", "qualify.together", str(count),
               "sh", "-c", script]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True,
                          timeout=60, check=False)


def test_all_of_them_run(tmp_path: Path) -> None:
    done = together(3, f"echo x >>{tmp_path}/ran")
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "ran").read_text() == "x\n" * 3


@pytest.mark.parametrize(("end", "status"), [
    ("exit 254", 254), ("exit 4", 4), ("kill -SEGV $$", 139),
])
def test_one_that_fails(tmp_path: Path, end: str, status: int) -> None:
    """The others are ended; what it said is said."""
    script = (f"if mkdir {tmp_path}/first 2>/dev/null; then echo lost; {end}; "
              f"fi; exec sleep 600")
    done = together(2, script)
    assert (done.returncode, done.stdout) == (status, "lost\n")
