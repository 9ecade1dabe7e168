# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine on our own KVM, on the usual CPU and an Intel one.

All mechanisms are available there.  tests/kvm runs the engine on the machine's
KVM, and skips what that lacks.  With -m soak, the tests that can run there run
here, too, and again with the shadow MMU, which has no dirty bits.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from .lab import BUILD, BUILD_KERNEL, ROOT, lab, must

PROGRAM = BUILD / "meson/tests/kvm/test_kvm"
KIND = ("--cpus", "4", "--memory", "2G")
INTEL = ("--cpu", "intel")
MMUS = {
    "tdp": (*KIND, "--append", "kvm.tdp_mmu=1"),
    "shadow": (*KIND, "--append", "kvm.tdp_mmu=0"),
    "intel-tdp": (*INTEL, "--append", "kvm.tdp_mmu=1"),
    "intel-shadow": (*INTEL, "--append", "kvm.tdp_mmu=0"),
}
# The mechanisms of our own KVM, and rings, which make use of it.  A user
# program of the guest has tables with dirty bits of their own.  Signals, and
# logging that is turned on and off, meet rings and "log" on the machine's KVM.
OURS = re.compile(
    "/kvm/(((slots|mixed|ahead)-)?(wrprot|shared|ring-1024-reaper)|"
    "slots-ring-1024|switched-shared|"
    "((signals|slots|toggle|mixed|ahead|switched|user|user-mixed)-)?"
    "dirty-bits)$"
)
# One of each mechanism.
EACH = re.compile("/kvm/(log|ring-1024-reaper|wrprot|shared|dirty-bits)$")
CHECKED = {"tdp": OURS, "intel-tdp": EACH}
LIMIT = 1800  # seconds; a tenth of it with nothing else to do
SOAK_LIMIT = 3600


@pytest.fixture(scope="module", autouse=True)
def fixture_engine_and_kernel() -> None:
    """Built before the first test, so that no test's time is a build's."""
    must([ROOT / "scripts/build-engine"])
    must([BUILD_KERNEL, "--quiet", "patched"])


def names(mmu: str) -> list[str]:
    """All tests of the program; dirty bits take the TDP MMU."""
    listed = subprocess.run(
        [PROGRAM, "-l"], capture_output=True, text=True, check=True
    )
    # GLib 2.84 lists them as comments.
    found = re.findall(r"^(?:# )?(/\S+)$", listed.stdout, re.MULTILINE)
    return [
        name
        for name in found
        if mmu.endswith("tdp") or "dirty-bits" not in name
    ]


def run(mmu: str, wanted: list[str], limit: int) -> None:
    """No page is lost, nothing is skipped, and the kernel has no complaint."""
    assert wanted
    ended = lab(
        PROGRAM,
        *(word for name in wanted for word in ("-p", name)),
        kernel="patched",
        seconds=limit,
        options=MMUS[mmu],
    )
    print(ended.stdout)
    assert ended.status == 0, ended.stderr
    passed = re.findall(r"^ok \d+ (\S+)$", ended.stdout, re.MULTILINE)
    assert sorted(passed) == sorted(wanted)


@pytest.mark.parametrize("mmu", CHECKED)
def test_engine(mmu: str) -> None:
    wanted = [name for name in names(mmu) if CHECKED[mmu].search(name)]
    run(mmu, wanted, LIMIT)


@pytest.mark.soak
@pytest.mark.parametrize("mmu", MMUS)
def test_engine_soak(mmu: str) -> None:
    run(mmu, names(mmu), SOAK_LIMIT)
