# SPDX-License-Identifier: GPL-2.0-or-later
"""Which mechanism QEMU takes on this host, and why."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SECONDS = 60.0
COMMANDS = ("qmp_capabilities", "query-dirty-tracking", "quit")


class NoAnswer(Exception):
    """A sentence: why QEMU did not say."""


def answers(text: str) -> list[dict[str, Any]]:
    """What QEMU returned, without its greeting and its events."""
    lines = map(json.loads, text.splitlines())
    return [line for line in lines if "return" in line or "error" in line]


def ask(qemu: Path, options: Sequence[str] = ()) -> tuple[str, str]:
    """Returns: the mechanism, and the reason that QEMU gives.

    Raises: NoAnswer.
    """
    command = [str(qemu), "-accel", "kvm", "-machine", "none", "-nodefaults",
               "-display", "none", "-qmp", "stdio", *options]
    script = "".join(json.dumps({"execute": name}) for name in COMMANDS)
    try:
        done = subprocess.run(
            command, input=script, capture_output=True, text=True,
            timeout=SECONDS, check=False,
        )
        _, status, _ = answers(done.stdout)
        return status["return"]["mechanism"], status["return"]["reason"]
    except OSError as error:
        raise NoAnswer(f"{qemu} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"QEMU did not answer within {SECONDS:.0f} s") from None
    except (KeyError, ValueError):
        said = done.stderr.strip() or done.stdout.strip() or "nothing"
        raise NoAnswer(f"QEMU could not tell: {said}") from None
