# SPDX-License-Identifier: GPL-2.0-or-later
"""Which mechanism QEMU takes on this host, and why."""

from __future__ import annotations

from pathlib import Path

from tests.migration.qmp import QMPError
from tests.migration.vm import VM, Config, Qemu, VMError


class NoAnswer(Exception):
    """A sentence: why QEMU did not say."""


def ask(qemu: Path) -> tuple[str, str]:
    """Returns: the mechanism, and the reason that QEMU gives.

    Raises: NoAnswer.
    """
    config = Config(Qemu("ours", qemu, True), "kvm", machine="none", boot=False)
    try:
        with VM("probe", config) as vm:
            status = vm.qmp("query-dirty-tracking")
    except OSError as error:
        raise NoAnswer(f"{qemu} cannot be run: {error.strerror}") from None
    except (VMError, QMPError) as error:
        raise NoAnswer(f"QEMU could not tell: {error}") from None
    return status["mechanism"], status["reason"]
