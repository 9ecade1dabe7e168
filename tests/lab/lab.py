# SPDX-License-Identifier: GPL-2.0-or-later
"""How a test runs a command in the lab."""

from __future__ import annotations

import difflib
import logging
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tests.migration.guest import BUILD, BUILT, ROOT

LAB = ROOT / "scripts/lab"
BUILD_KERNEL = ROOT / "scripts/build-kernel"
BUILD_SELFTESTS = ROOT / "scripts/build-selftests"

# The lab's own exit statuses, as `scripts/lab --help` has them.
COMPLAINED = 123
TIMED_OUT = 124
LAB_FAILED = 125

BOOT_LIMIT = 120  # seconds more than COMMAND's, for a boot on a busy machine
BUILD_LIMIT = 3600

LOG = logging.getLogger(__name__)

# pytest's record_property, which tells scripts/check a name and a value.
Record = Callable[[str, object], None]


@dataclass(frozen=True)
class Ended:
    """How a run of the lab ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def sentence(self) -> str:
        """The lab's last word."""
        lines = self.stderr.splitlines()
        return lines[-1] if lines else ""

    @property
    def log(self) -> str:
        """The kernel's log, which the lab's last sentence names."""
        match = re.search(r"the whole log is (.+)$", self.sentence)
        assert match, self.stderr
        return Path(match[1]).read_text(errors="replace")


def arguments(
    command: Sequence[str | Path],
    kernel: str | Path,
    seconds: int,
    options: Sequence[str],
) -> list[str]:
    """The command line of scripts/lab."""
    words = [LAB, "--kernel", kernel, "--timeout", seconds, *options]
    return [str(word) for word in (*words, "--", *command)]


def lab(
    *command: str | Path,
    kernel: str | Path = "stock",
    seconds: int = 120,
    options: Sequence[str] = (),
    cwd: Path = ROOT,
) -> Ended:
    """Run a command in the lab and wait for its end.

    kernel is stock, patched, debug or a bzImage; options are the lab's.  The
    output of the command is logged as it comes: a soak takes long.
    """
    process = subprocess.Popen(
        arguments(command, kernel, seconds, options),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stdout and process.stderr
    errors: list[str] = []
    reader = threading.Thread(target=errors.extend, args=(process.stderr,))
    watchdog = threading.Timer(
        seconds + BOOT_LIMIT + BUILD_LIMIT, process.kill
    )
    lines = []
    with process:
        reader.start()
        watchdog.start()
        try:
            for line in process.stdout:
                LOG.info("%s", line.rstrip())
                lines.append(line)
        except BaseException:
            process.kill()
            raise
        finally:
            watchdog.cancel()
        reader.join()
    return Ended(process.returncode, "".join(lines), "".join(errors))


@contextmanager
def running(
    *command: str | Path,
    kernel: str | Path = "stock",
    seconds: int = 120,
    options: Sequence[str] = (),
    fds: Sequence[int] = (),
) -> Iterator[subprocess.Popen[str]]:
    """The lab while it runs; it is killed if the test leaves it running.

    fds are what it has open besides, as --wire wants it.
    """
    process = subprocess.Popen(
        arguments(command, kernel, seconds, options),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=fds,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def must(
    command: Sequence[str | Path], limit: int = BUILD_LIMIT, **env: str
) -> str:
    """Run a script that has to succeed, and show its output if it fails.

    limit is in seconds; env is what its environment has more than ours.
    Returns: what it has said.
    """
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def mutation(name: str, file: str, old: str, new: str, where: Path) -> Path:
    """Write where/name.patch, which has new for old in the assembled Linux.

    old must be in the file once.
    """
    text = (BUILT / "src/linux" / file).read_text()
    assert text.count(old) == 1, f"{text.count(old)} times in {file}: {old}"
    lines = difflib.unified_diff(
        text.splitlines(keepends=True),
        text.replace(old, new).splitlines(keepends=True),
        f"a/{file}",
        f"b/{file}",
    )
    patch = where / f"{name}.patch"
    patch.write_text("".join(lines))
    return patch


def mutant(patch: Path) -> Path:
    """Build the patched kernel with one patch more; returns its bzImage."""
    must([BUILD_KERNEL, "--quiet", "--mutant", patch])
    return BUILT / "linux" / f"mutant-{patch.stem}" / "bzImage"


@lru_cache(maxsize=None)
def selftests(kind: str) -> Path:
    """Build the KVM selftests of a kernel, once; returns where they are."""
    must([BUILD_SELFTESTS, "--quiet", kind])
    return BUILT / "linux" / f"selftests-{kind}"
