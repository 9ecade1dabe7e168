# SPDX-License-Identifier: GPL-2.0-or-later
"""The image on emulated servers: what it starts, finds, and says.

To make it takes two kernels, and a whole check takes ten minutes: `make soak`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from qualify.codes import unpacked
from qualify.result import Result, parse, row
from tests.bench.versions import output
from tests.lab.lab import must
from tests.migration.guest import BUILD, ROOT
from tests.mutants.kernel import build

from . import bochs
from .server import (FILES, IMAGES, Server, Stick, build_image, direct,
                     uefi)

pytestmark = pytest.mark.soak

PATCHED, STOCK = IMAGES / "patched", IMAGES / "stock"
SHORT = "qualify.mode=check qualify.only=migration qualify.then=off"
NO_STICK = "qualify.stick=0"
PASSED = "\nPASS: 8 passed; the kernel has no complaint\n"
CLUSTER = 2048  # bytes of the partition
DONE = "qualify: done"
TOLD = "there is no stick with a partition FDT-RESULT"


@pytest.fixture(scope="module", autouse=True)
def fixture_image() -> None:
    build_image()


def lines(said: str) -> list[str]:
    """What the image itself has said."""
    return [line for line in said.splitlines() if line.startswith("qualify: ")]


def later(result: Result) -> set[str]:
    """The tests that this kernel is too old for."""
    version = tuple(map(int, result.kernel.split(".")[:2]))
    return {"private_memory_test"} if version < (6, 8) else set()


@pytest.mark.parametrize("firmware", ["bios", "uefi"])
def test_check(tmp_path: Path, firmware: str) -> None:
    """From a stick, by its menu: all passes, and the stick has the result."""
    stick = Stick(tmp_path)
    firm = uefi(tmp_path) if firmware == "uefi" else []
    with Server(tmp_path, [*firm, *stick.options]) as server:
        said = server.wait(DONE)
    result = stick.result
    print(row(result))
    assert "\nPASS: " in said and result.page() in said
    assert unpacked(re.findall(r"^FDT1/.*$", said, re.M)) == result
    assert stick.text("result.txt") == result.page()
    assert result.passed and result.mechanism == "dirty-bits"
    assert {test.outcome for test in result.tests} == {"pass", "skip"}
    assert len(result.tests) > 30
    skipped = {test.name for test in result.tests if test.outcome == "skip"}
    assert skipped == {"pml_test", "vmx_dirty_log_test"} | later(result)
    assert "no kernel waits" not in said


@pytest.mark.parametrize("cpus", [1, 2])
def test_check_on_intel(tmp_path: Path, cpus: int) -> None:
    """From a CD, by its menu; with PML and VMX's own tests."""
    must([BUILD / "venv/bin/python", "-B", ROOT / "qualify/make_image.py",
          tmp_path, "--commit", output("git", "describe", "--always", "--dirty"),
          "--wait", "0", "--append",
          f"{bochs.WORDS} qualify.then=off {NO_STICK}"])
    cd = tmp_path / "fast-dirty-tracking.iso"
    said = bochs.run(tmp_path, cd, cpus)
    assert TOLD in said
    result = unpacked(re.findall(r"^FDT1/.*$", said, re.M))
    print(row(result))
    assert result.host["cpus"] == cpus
    assert result.passed and result.mechanism == "dirty-bits"
    assert {test.name for test in result.tests if test.outcome != "pass"} == (
        later(result))
    assert len(result.tests) > 30
    assert all(result.host["features"][name]
               for name in ("nested-paging", "dirty-bits", "pml"))


def test_two_cpus(tmp_path: Path) -> None:
    words = f"qualify.mode=check qualify.then=off {NO_STICK}"
    with Server(tmp_path, direct(PATCHED, words), cpus=2) as server:
        said = server.wait_off()
    result = unpacked(re.findall(r"^FDT1/.*$", said, re.M))
    print(row(result))
    assert result.host["cpus"] == 2
    assert result.passed and len(result.tests) > 30


def test_cd(tmp_path: Path) -> None:
    """A medium that nothing can be written to."""
    cd = ["-cdrom", str(IMAGES / "fast-dirty-tracking.iso")]
    with Server(tmp_path, cd) as server:
        said = server.wait("qualify: migration log: pass")
    assert TOLD in said


def test_pxe(tmp_path: Path) -> None:
    """And one test only, of a name that looks like an option."""
    words = f"{SHORT} qualify.only=--multifd {NO_STICK}"
    with Server(tmp_path, direct(PATCHED, words)) as server:
        said = server.wait_off()
    assert TOLD in said
    assert "\nPASS: 2 passed; the kernel has no complaint\n" in said


@pytest.mark.parametrize(("cpu", "memory", "words", "sentence"), [
    ("max,la57=off,svm=off", "4G", "",
     "this CPU has neither VT-x nor AMD-V, or a hypervisor hides it; a host "
     "needs one of them"),
    # As Linux finds it when VM_CR.SVMDIS is set: there is no KVM.
    ("max,la57=off", "4G", "initcall_blacklist=svm_init",
     "the firmware has switched AMD-V off; it must be enabled in the "
     "firmware's setup"),
    ("max,la57=off", "1536M", "", "1900 MiB are needed"),
])
def test_unfit(
    tmp_path: Path, cpu: str, memory: str, words: str, sentence: str
) -> None:
    """One sentence on the screen, and on the stick."""
    stick = Stick(tmp_path)
    options = [*direct(PATCHED, f"{SHORT} {words}"), *stick.options]
    with Server(tmp_path, options, memory, cpu) as server:
        said = server.wait_off()
    problem, = [line for line in lines(said) if sentence in line]
    assert stick.text("result.txt") == f"FAIL: {problem.removeprefix('qualify: ')}\n"


def test_unknown_mode(tmp_path: Path) -> None:
    words = f"qualify.mode=win qualify.then=off {NO_STICK}"
    with Server(tmp_path, direct(PATCHED, words)) as server:
        said = server.wait_off()
    assert ("qualify: there is no qualify.mode=win; allowed are check, soak, "
            "measure and shell") in said


def test_stick_that_is_pulled(tmp_path: Path) -> None:
    """One sentence; the check goes on."""
    stick = Stick(tmp_path)
    with Server(tmp_path, [*direct(PATCHED, SHORT), *stick.options]) as server:
        server.wait("qualify: migration ring ...")
        server.pull()
        said = server.wait_off()
    assert said.count("/stick takes no results any more (") == 1
    assert PASSED in said


def test_partition_that_is_full(tmp_path: Path) -> None:
    """What was written when there was room is whole."""
    stick = Stick(tmp_path)
    stick.fill(tmp_path, 2 * CLUSTER)  # a first page, and a result
    with Server(tmp_path, [*direct(PATCHED, SHORT), *stick.options]) as server:
        said = server.wait_off()
    assert said.count(
        "/stick takes no results any more (No space left on device)") == 1
    assert PASSED in said
    assert stick.result.tests[-1].name == "migration log"


# What lkdtm has a kernel do, a pattern of its words, and whether it goes on.
DEATHS = {
    "PANIC": ("Kernel panic - not syncing: dumptest", False),
    "EXCEPTION": ("BUG: kernel NULL pointer dereference", False),
    # RCU may notice before the watchdog.
    "SOFTLOCKUP": ("watchdog: BUG: soft lockup - CPU#0 stuck for"
                   "|rcu: INFO: rcu_sched detected stalls on CPUs", False),
    "WARNING": ("WARNING: CPU: 0 PID: ", True),
}


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize("with_stick", [True, False], ids=["stick", "no-stick"])
def test_kernel_that_dies(tmp_path: Path, death: str, with_stick: bool) -> None:
    """The test's name and the kernel's words are on screen and stick."""
    words, goes_on = DEATHS[death]
    stick = Stick(tmp_path)
    more = stick.options if with_stick else []
    seconds = "" if with_stick else NO_STICK
    options = [*direct(PATCHED, f"qualify.mode=shell {seconds}"), *more]
    check = "python3 -B -m qualify check --mark /dev/kmsg --store /results"
    if with_stick:
        check += " --store /stick"
    with Server(tmp_path, options) as server:
        server.type(
            "mount -t vfat -o sync LABEL=FDT-RESULT /stick; cd /opt/fdt; "
            "(until dmesg | grep -q 'migration ring ...'; do sleep 1; done; "
            f"echo {death} >/sys/kernel/debug/provoke-crash/DIRECT) & {check}"
        )
        said = server.wait("\nFAIL: ")
        said = server.wait(words if goes_on else DONE)
    page = " ".join(said[said.rindex("\nFAIL: "):].split())
    if not goes_on:
        assert "the host went down" in page
        assert "during migration ring " in page
    assert re.search(words, page)
    if with_stick:
        result = stick.result
        assert any(re.search(words, line) for line in result.report)
        assert result.tests[-1].name == "migration ring"
        assert re.search(words, stick.text("result.txt"))


def test_second_host(tmp_path: Path) -> None:
    """The first one's result is not taken for its own."""
    stick = Stick(tmp_path)
    for cpu, said in (("max,la57=off", "PASS: "), ("max,la57=off,svm=off", "FAIL: ")):
        options = [*direct(PATCHED, SHORT), *stick.options]
        with Server(tmp_path, options, cpu=cpu) as server:
            server.wait_off()
        assert stick.text("result.txt").startswith(said)
    assert stick.mtools("mtype", "::result.json").returncode != 0
    assert parse(stick.text("result-1.json")).passed


def test_measure(tmp_path: Path) -> None:
    """The stock kernel, and by itself ours: the page has both's figures."""
    stick = Stick(tmp_path)
    words = "qualify.mode=measure qualify.then=off"
    with Server(tmp_path, [*direct(STOCK, words), *stick.options]) as server:
        said = server.wait_off()
    assert "qualify: starting our kernel" in said and said.count("\nPASS: ") == 1
    result = stick.result
    print(result.page())
    assert result.passed and len(result.figures) >= 8
    assert stick.mtools("mtype", "::result-1.json").returncode != 0
    assert all(one.stock > 0 and one.ours > 0 for one in result.figures
               if "exits" not in one.name)


def test_measure_without_our_kernel(tmp_path: Path) -> None:
    """What the stock kernel leaves is no result."""
    stick = Stick(tmp_path)
    options = [*direct(STOCK, "qualify.mode=measure"), *stick.options]
    with Server(tmp_path, options) as server:
        server.wait("qualify: starting our kernel")
    result = stick.result
    assert not result.passed and result.tests[-1].outcome == "died"
    assert "during start of our kernel" in " ".join(result.page().split())


def test_broken_kernel(tmp_path: Path) -> None:
    """The race finds that pages are lost, and the page says so."""
    # It is the lab's: without drivers of sticks, or a decompressor of the files.
    bad = build()
    files = tmp_path / "files"
    subprocess.run(["zstd", "-q", "-d", FILES, "-o", files], check=True)
    words = f"qualify.mode=check qualify.only=race qualify.then=off {NO_STICK} kvm.mutant=no-children"
    with Server(tmp_path, direct(bad, words, files)) as server:
        said = server.wait_off()
    page = said[said.rindex("\nFAIL: "):]
    print(page)
    assert "FAIL: write_protect_race_test -m " in page
    assert "lost" in page
