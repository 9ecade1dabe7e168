# SPDX-License-Identifier: GPL-2.0-or-later
"""libvirt on the patched host kernel, by the tests of tests/libvirt.

One of them runs there in make check.  In make soak, all others that need the
patched kernel run in one boot of the lab; one more has a kernel with AppArmor.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pytest

from .lab import COMPLAINED, ROOT, TIMED_OUT, Ended, lab, must
from .test_migration import OPTIONS, PYTEST

TESTS = "tests/libvirt"
SCRIPTS = ROOT / "scripts"
SECONDS = 900  # for one of them, on a busy machine
CONFINING = "patched-apparmor"

# auto is dirty-bits there.
NEEDED = (
    "test_mechanism.py::test_plain[dirty-bits]",
    "test_domain.py::test_usual_domain[build-q35]",
    "test_mechanism.py::test_switch",
    "test_migration.py::test_ways[p2p]",
    "test_migration.py::test_ways[tunnelled]",
    "test_migration.py::test_to_stock[auto]",
    "test_migration.py::test_from_stock[pc]",
    "test_migration.py::test_postcopy[auto]",
)


@lru_cache(maxsize=None)
def boot(
    *names: str, kernel: str = "patched", seconds: int = SECONDS
) -> Ended:
    """Run tests in the lab, for SECONDS each at most."""
    return lab(
        *PYTEST,
        *(f"{TESTS}/{name}" for name in names),
        kernel=kernel,
        seconds=seconds * len(names),
        options=OPTIONS,
        cwd=ROOT,
    )


def assert_passed(name: str, ended: Ended) -> None:
    """Fail unless the test passed, to its end; no test may skip there.

    pytest says ERROR after PASSED if it cannot end what a test has begun, or
    nothing more.
    """
    assert ended.status != COMPLAINED, ended.sentence
    line = rf"^{re.escape(TESTS)}/(\S.*?) (PASSED|FAILED|ERROR|SKIPPED)\b"
    said = re.findall(line, ended.stdout, re.MULTILINE)
    assert [how for test, how in said if test == name] == ["PASSED"], (
        ended.stdout + ended.stderr)
    _, _, after = ended.stdout.partition(f"{TESTS}/{name} PASSED")
    assert ended.status != TIMED_OUT or f"\n{TESTS}/" in after, ended.sentence


@pytest.mark.soak
@pytest.mark.parametrize("name", NEEDED)
def test_libvirt(name: str) -> None:
    """Those that need the patched kernel; tests/release has one in each check."""
    assert_passed(name, boot(*NEEDED))


@pytest.mark.soak
def test_apparmor() -> None:
    """Where AppArmor confines domains, as on Debian, it allows our QEMU."""
    must([SCRIPTS / "get-packages", "apparmor"])
    name = "test_apparmor.py::test_confined"
    assert_passed(name, boot(name, kernel=CONFINING))
