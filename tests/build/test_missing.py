# SPDX-License-Identifier: GPL-2.0-or-later
"""The tests in a checkout without builds, on a host that lacks everything.

Tests that need missing files have to fail.  A skip looks as if the host could
not do better, and nobody would notice what it left untested.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Only some hosts have these, and only some users may use them.
OF_THE_HOST = ("/dev/kvm", "only root")


@pytest.fixture(name="checkout", scope="module")
def fixture_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tests alone."""
    path = tmp_path_factory.mktemp("checkout")
    shutil.copytree(
        ROOT / "tests", path / "tests",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    return path


@pytest.mark.parametrize(
    "test",
    [
        "bench/test_engine_loops.py",
        "bench/test_migrate_perf.py",
        "libvirt/test_mechanism.py",
        "migration/test_bad_input.py",
        "migration/test_qtest.py",
        "model/test_model.py",
    ],
)
def test_missing(checkout: Path, test: str) -> None:
    """No test passes, and none is skipped except for what the host lacks."""
    report = checkout / "report.xml"
    report.unlink(missing_ok=True)
    empty = {"PATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FDT_", "QEMU"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", f"tests/{test}", "-p",
         "no:cacheprovider", "-q", "--maxfail=2", f"--junitxml={report}"],
        cwd=checkout, env={**env, **empty}, capture_output=True, text=True,
        timeout=600, check=False,
    )
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    assert cases, done.stdout
    skips = [
        skipped.get("message", "")
        for case in cases
        for skipped in case.findall("skipped")
    ]
    excused = [any(word in skip for word in OF_THE_HOST) for skip in skips]
    assert all(excused), skips
    failed = [
        case for case in cases if case.find("failure") is not None
        or case.find("error") is not None
    ]
    assert len(failed) + len(skips) == len(cases), done.stdout
