# SPDX-License-Identifier: GPL-2.0-or-later
"""Every case of migration-test with our binary."""

from __future__ import annotations

from typing import Callable

import pytest

from .program import OURS, STOCK, judged


@pytest.mark.parametrize("case", OURS.cases())
def test_case(
    case: str, record_property: Callable[[str, object], None]
) -> None:
    """What stock fails in the same way on this host is left out."""
    result = judged(case, OURS, STOCK)
    if result.kind == "skip":
        pytest.skip(result.reason)
    if result.kind == "again":
        record_property("rerun", result.reason)
    elif result.kind != "ok":
        pytest.fail(result.reason, pytrace=False)
