# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's own KVM selftests, and ours, on the patched kernel.

They run on three CPUs: the usual one and the hostile with both MMUs, and
Intel's with the TDP MMU.
All programs of one kernel and MMU run in one boot of the lab; each of them is a
test case here.  With -m soak, all programs run, much longer, and on the other
kernels too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest

from tests.releases import LINUX

from .lab import BUILT, COMPLAINED, Ended, Record, lab, selftests
from .selftest_table import (
    CPU_MAY_SKIP,
    DIRTY_LOG,
    DIRTY_RING,
    FAILURES_OF,
    HOSTILE_FAILURES_OF,
    HOSTILE_OURS,
    HOSTILE_STOCK,
    INTEL_MAY_SKIP,
    INTEL_NO_PML,
    INTEL_OURS,
    INTEL_PML,
    INTEL_UPSTREAM,
    KNOWN_FAILURES,
    LATER,
    MAY_SKIP,
    MUST_FAIL,
    NOT_RUN,
    OURS,
    SHADOW_MAY_SKIP,
    TOO_SLOW,
    UNNESTED_LACKS,
    UNNESTED_MAY_SKIP,
    UPSTREAM,
    Selftest,
)

DRIVER = Path(__file__).with_name("run_selftests.sh")
SKIPPED = 4
KILLED = {124, 137}  # by timeout(1)
OPTIONS = ["--cpus", "4", "--memory", "4G"]
# Pages of 1 GiB have to be reserved at boot.
OPTIONS += ["--append", "hugepagesz=1G hugepages=1"]
TDP = ("--append", "kvm.tdp_mmu=1")
SHADOW = ("--append", "kvm.tdp_mmu=0")
# The CPU knows nothing of guest-physical addresses.
NPT0 = ("--append", "kvm_amd.npt=0")
HOSTILE = ("--cpu", "hostile")
INTEL = ("--cpu", "intel")
MMUS = {
    "tdp": TDP,
    "shadow": SHADOW,
    "npt0": NPT0,
    "hostile-tdp": (*TDP, *HOSTILE),
    "hostile-shadow": (*SHADOW, *HOSTILE),
    "hostile-npt0": (*NPT0, *HOSTILE),
    "intel-tdp": (*TDP, *INTEL),
    "intel-shadow": (*SHADOW, *INTEL),
    "intel-pml0-tdp": ("--append", "kvm_intel.pml=0", *TDP, *INTEL),
    "intel-pml0-shadow": ("--append", "kvm_intel.pml=0", *SHADOW, *INTEL),
    # Tables have no dirty bits: there is neither KVM_CAP_DIRTY_BITS nor PML.
    "intel-eptad0": ("--append", "kvm_intel.eptad=0", *INTEL),
    "intel-eptad0-shadow": ("--append", "kvm_intel.eptad=0", *SHADOW, *INTEL),
    "intel-ept0": ("--append", "kvm_intel.ept=0", *INTEL),
}

# How the names of those end where the CPU knows nothing of guest-physical
# addresses.
UNNESTED = ("npt0", "ept0")

# The MMUs of the usual CPU: all of our tests run on them.
KIND = ("tdp", "shadow", "npt0")

# The programs for each kernel and MMU, in make check and in a soak.
CHECKED = {
    ("patched", "tdp"): UPSTREAM + OURS,
    ("patched", "shadow"): UPSTREAM + OURS,
    ("patched", "hostile-tdp"): DIRTY_RING + HOSTILE_OURS,
    ("patched", "hostile-shadow"): HOSTILE_OURS,
    ("patched", "intel-tdp"): INTEL_UPSTREAM + INTEL_OURS + INTEL_PML,
}
SOAKED = CHECKED | {
    ("patched", "npt0"): OURS,
    ("patched", "hostile-tdp"): DIRTY_LOG + OURS,
    ("patched", "hostile-shadow"): OURS,
    ("patched", "hostile-npt0"): OURS,
    ("debug", "hostile-tdp"): OURS,
    ("stock", "hostile-tdp"): HOSTILE_STOCK,
    ("stock", "hostile-shadow"): HOSTILE_STOCK,
    ("patched", "intel-shadow"): INTEL_UPSTREAM + INTEL_OURS + INTEL_PML,
    **{
        ("patched", mmu): INTEL_UPSTREAM + INTEL_OURS + INTEL_NO_PML
        for mmu in MMUS
        if re.match("intel-(pml|eptad|ept)0", mmu)
    },
    ("debug", "intel-tdp"): INTEL_OURS + INTEL_PML,
    ("stock", "intel-tdp"): INTEL_UPSTREAM,
    ("debug", "tdp"): OURS,
    ("debug", "shadow"): OURS,
    ("stock", "tdp"): UPSTREAM,
    ("stock", "shadow"): UPSTREAM,
}
SLOWER = {"debug": 4}

# Ours that other tests run, and that measure.
ELSEWHERE = {
    f"x86_64/{name}_test"
    for name in ("dirty_tracking_fuzz", "dirty_tracking_perf", "nested_boot")
}


@dataclass(frozen=True)
class Result:
    """How one program ended."""

    status: int
    seconds: float
    output: str


@dataclass(frozen=True)
class Boot:
    """How the programs of one boot ended; none after a crash has a result."""

    ended: Ended
    results: dict[str, Result]


@dataclass(frozen=True)
class Case:
    """A program on a kernel."""

    kernel: str
    mmu: str
    test: Selftest

    def __str__(self) -> str:
        return f"{self.kernel}-{self.mmu}-{self.test.name}"


def parse(output: str, programs: tuple[Selftest, ...]) -> dict[str, Result]:
    """The results in the driver's frames."""
    pattern = re.compile(
        r"^@@ begin (\d+)\n(.*?)^@@ end \1 (\d+) (\d+)$",
        re.MULTILINE | re.DOTALL,
    )
    return {
        programs[int(match[1])].name: Result(
            int(match[3]), int(match[4]) / 1000, match[2]
        )
        for match in pattern.finditer(output)
    }


@lru_cache(maxsize=None)
def boot(
    kernel: str, mmu: str, programs: tuple[Selftest, ...], attempt: int = 1
) -> Boot:
    """Run programs of the patched kernel's tree.

    That has upstream's, too, which are the same for both kernels.  Another
    attempt is another boot.
    """
    del attempt
    limits = [limit_of(kernel, test) for test in programs]
    ended = lab(
        DRIVER,
        selftests("patched"),
        *(f"{n} {test.command}" for n, test in zip(limits, programs)),
        kernel=kernel,
        seconds=sum(limits) // 2 + 120,
        options=options(mmu),
    )
    return Boot(ended, parse(ended.stdout, programs))


def selected(kernel: str, mmu: str, soak: bool) -> tuple[Selftest, ...]:
    """The programs that run there, in every make check or in a soak."""
    tests = SOAKED[kernel, mmu] if soak else CHECKED[kernel, mmu]
    return tuple(
        test
        for test in tests
        if not (test.tdp and not mmu.endswith("tdp"))
        and test.only in ("", LINUX)
        and (
            soak
            or not (test.soak or (test.once and not mmu.endswith("tdp")))
        )
    )


def cases(soak: bool) -> list[Case]:
    """The cases of test_selftest or test_soak."""
    return [
        Case(kernel, mmu, test)
        for kernel, mmu in (SOAKED if soak else CHECKED)
        for test in selected(kernel, mmu, soak)
    ]


def options(mmu: str) -> list[str]:
    """The lab's options; Intel's machine has only files that it is given."""
    if not mmu.startswith("intel"):
        return [*OPTIONS, *MMUS[mmu]]
    return [
        *MMUS[mmu],
        "--take",
        str(selftests("patched")),
        "--take",
        str(DRIVER),
    ]


@lru_cache(maxsize=None)
def kvm_headers() -> str:
    """What the programs include of KVM's."""
    include = selftests("patched") / "headers" / "usr" / "include"
    return "".join(
        (include / name).read_text() for name in ("linux/kvm.h", "asm/kvm.h")
    )


def is_later(said: str) -> bool:
    """Whether SAID names what a later Linux than this has."""
    return any(
        name in said and symbol not in kvm_headers()
        for name, symbol in LATER.items()
    )


def needs_nesting(case: Case, said: str) -> bool:
    """Whether SAID names what CASE's host lacks, having no nested paging."""
    return case.mmu.endswith(UNNESTED) and any(
        name in said for name in UNNESTED_LACKS
    )


def parts_left_out(result: Result) -> list[str]:
    """The parts that print_skip() names; the program then goes on."""
    return re.findall(r"^\s*(.+), skipping test$", result.output, re.M)


def may_skip(mmu: str) -> set[str]:
    """The parts that may be left out there on any kernel."""
    parts = set(CPU_MAY_SKIP)
    if mmu.startswith("intel"):
        parts |= INTEL_MAY_SKIP
    if not mmu.endswith("tdp"):
        parts |= SHADOW_MAY_SKIP
    if mmu.endswith(UNNESTED):
        parts |= UNNESTED_MAY_SKIP
    return parts


def limit_of(kernel: str, test: Selftest) -> int:
    """The seconds that the program may take there."""
    return test.limit * SLOWER.get(kernel, 1)


def took_too_long(case: Case, result: Result) -> bool:
    """Anything may on a busy machine; but so does a fault without end.

    Who is killed before its time was short of memory.
    """
    says = TOO_SLOW.get(case.test.command.split()[0])
    ended = result.seconds >= limit_of(case.kernel, case.test)
    return (result.status in KILLED and ended) or (
        result.status != 0
        and says is not None
        and re.search(says, result.output) is not None
    )


def again(case: Case, failed: Result) -> Result:
    """Run the program once more, in a boot of its own."""
    print(f"{failed.output}\n{case.test.command} took too long; once more")
    once_more = boot(case.kernel, case.mmu, (case.test,), attempt=2)
    if once_more.ended.status == COMPLAINED:
        pytest.fail(f"the kernel complained:\n{once_more.ended.stderr}")
    return once_more.results.get(case.test.name, failed)


def skip_if_slow_on_stock(case: Case) -> None:
    """Giving up twice proves nothing if the program does so on stock, now."""
    if case.test not in UPSTREAM:
        return
    if case.kernel == "stock":
        pytest.skip("it takes too long, and this is the stock kernel")
    stock = boot("stock", case.mmu, (case.test,))
    result = stock.results.get(case.test.name)
    if result is not None and took_too_long(case, result):
        pytest.skip("it takes too long on the stock kernel, too")


def is_known(output: str, says: str) -> bool:
    """Whether a program failed as SAYS has it.

    If that has a value and the iteration of then, they have to be two apart: what
    is older was lost.
    """
    found = re.search(says, output)
    if found is None or "value" not in found.re.groupindex:
        return found is not None
    return int(found["iteration"]) - int(found["value"]) == 2


def judge(
    case: Case, programs: tuple[Selftest, ...], record: Record
) -> None:
    """Pass, skip or fail as the program did; record that it ran again."""
    run = boot(case.kernel, case.mmu, programs)
    result = run.results.get(case.test.name)
    if result is None:
        pytest.fail(
            f"{case.test.command} did not end; the lab ended with "
            f"status {run.ended.status} and says:\n"
            f"{run.ended.stderr}\n{run.ended.stdout[-2000:]}"
        )
    if took_too_long(case, result):
        record("rerun", f"it took too long ({result.seconds} s)")
        result = again(case, result)
    print(result.output)
    print(f"{case.test.command}: status {result.status}, {result.seconds} s")
    if result.status == 0:
        if case.test not in UPSTREAM:
            unexpected = [
                part
                for part in parts_left_out(result)
                if (case.kernel, part) not in MAY_SKIP
                and part not in may_skip(case.mmu)
                and not is_later(part)
            ]
            assert not unexpected, f"{case.test.command} left parts out"
        return
    program = case.test.command.split()[0]
    # Our programs lack nothing on our kernel, if there is nested paging, but for
    # what later kernels have; nor do those of upstream's that make check has.
    said = re.search(r"SKIP - (.*)", result.output)
    if result.status == SKIPPED and (
        (case.test in UPSTREAM + INTEL_UPSTREAM and case.test.soak)
        or (said and (is_later(said[1]) or needs_nesting(case, said[1])))
    ):
        pytest.skip(said[1] if said else "it says that it cannot run here")
    failures = KNOWN_FAILURES | FAILURES_OF.get(LINUX, {})
    if case.mmu.startswith("hostile"):
        failures |= HOSTILE_FAILURES_OF.get(LINUX, {})
    says, why = failures.get(program, (None, ""))
    if says is not None and is_known(result.output, says):
        pytest.skip(f"fails on Debian's kernel, too: {why}")
    if program in TOO_SLOW and took_too_long(case, result):
        skip_if_slow_on_stock(case)
    late = " (it took too long)" if took_too_long(case, result) else ""
    pytest.fail(
        f"{case.test.command} ended with status {result.status}{late}:\n"
        f"{result.output[-4000:]}"
    )


@pytest.mark.parametrize("case", cases(soak=False), ids=str)
def test_selftest(case: Case, record_property: Record) -> None:
    judge(case, selected(case.kernel, case.mmu, soak=False), record_property)


@pytest.mark.soak
@pytest.mark.parametrize("case", cases(soak=True), ids=str)
def test_soak(case: Case, record_property: Record) -> None:
    judge(case, selected(case.kernel, case.mmu, soak=True), record_property)


def test_no_program_is_forgotten() -> None:
    """Each that the kernel has is in a table, and nothing else is."""
    selftests("patched")
    tests = BUILT / "src/linux/tools/testing/selftests/kvm"
    programs = set(
        re.findall(
            r"^TEST_(?:GEN_)?PROGS_x86_64 \+?= (\S+)",
            (tests / "Makefile").read_text(),
            re.M,
        )
    )
    run = {
        case.test.command.split()[0]
        for soak in (False, True)
        for case in cases(soak)
    }
    assert run <= programs
    assert programs - run == set(NOT_RUN) | ELSEWHERE


@pytest.mark.parametrize("test", MUST_FAIL, ids=lambda test: test.name)
def test_wrong_order_is_noticed(test: Selftest) -> None:
    result = boot("patched", "tdp", MUST_FAIL).results[test.name]
    assert re.search(r"page \d+ is lost", result.output), result.output


def test_no_complaint_of_wrong_orders() -> None:
    ended = boot("patched", "tdp", MUST_FAIL).ended
    assert ended.status == 0, ended.stderr


def judge_parts(
    kernel: str, mmu: str, programs: tuple[Selftest, ...]
) -> None:
    """Fail unless ours left out just the parts that MAY_SKIP has for kernel.

    If an excused part does run, its excuse may hide something else later.
    """
    results = boot(kernel, mmu, programs).results
    ours = [test for test in programs if test in OURS]
    without = [test.name for test in ours if test.name not in results]
    assert not without, "these did not end"
    left_out: set[str] = set()
    for test in ours:
        result = results[test.name]
        case = Case(kernel, mmu, test)
        if took_too_long(case, result):
            result = again(case, result)
        left_out.update(parts_left_out(result))
    left_out -= may_skip(mmu)
    left_out -= {part for part in left_out if is_later(part)}
    assert left_out == {part for where, part in MAY_SKIP if where == kernel}
    if left_out:
        pytest.skip(f"left out, on the debug kernel only: {sorted(left_out)}")


@pytest.mark.parametrize(
    ("kernel", "mmu"), [where for where in CHECKED if where[1] in KIND]
)
def test_all_parts_ran(kernel: str, mmu: str) -> None:
    """Only parts that may be left out were; the skip names them."""
    judge_parts(kernel, mmu, selected(kernel, mmu, soak=False))


@pytest.mark.parametrize(("kernel", "mmu"), CHECKED)
def test_no_complaint(kernel: str, mmu: str) -> None:
    """All programs may pass while the kernel warns: the lab tells then."""
    ended = boot(kernel, mmu, selected(kernel, mmu, soak=False)).ended
    assert ended.status == 0, ended.stderr


@pytest.mark.soak
@pytest.mark.parametrize(("kernel", "mmu"), SOAKED)
def test_no_complaint_in_soak(kernel: str, mmu: str) -> None:
    ended = boot(kernel, mmu, selected(kernel, mmu, soak=True)).ended
    assert ended.status == 0, ended.stderr
