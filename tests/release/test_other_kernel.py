# SPDX-License-Identifier: GPL-2.0-or-later
"""Our selftests on the kernel of the release that the machine has not.

They have a file of their own, so that they run beside the migrations.
"""

from __future__ import annotations

import pytest

from tests.lab import test_selftests
from tests.lab.lab import Record
from tests.lab.selftest_table import MODEL, OURS
from tests.lab.test_selftests import Case

pytestmark = pytest.mark.usefixtures("release")
SELFTESTS = tuple(test for test in OURS if not test.soak)


@pytest.mark.parametrize("test", SELFTESTS, ids=lambda test: test.name)
def test_selftest(test: test_selftests.Selftest, record_property: Record
                  ) -> None:
    case = Case("patched", "tdp", test)
    test_selftests.judge(case, SELFTESTS, record_property)


def test_no_program_is_forgotten() -> None:
    test_selftests.test_no_program_is_forgotten()


def test_no_complaint() -> None:
    """All programs may pass while the kernel warns: the lab tells then."""
    ended = test_selftests.boot("patched", "tdp", SELFTESTS).ended
    assert ended.status == 0, ended.stderr


def test_shadow_mmu(record_property: Record) -> None:
    """There 6.12 maps pages in advance by code that 6.1 has not."""
    test = test_selftests.Selftest(f"{MODEL} -t pre-fault")
    test_selftests.judge(
        Case("patched", "shadow", test), (test,), record_property
    )
    ended = test_selftests.boot("patched", "shadow", (test,)).ended
    assert ended.status == 0, ended.stderr
