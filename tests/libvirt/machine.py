# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts with a Debian of their own, in which packages are tested."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.migration.vm import scratch

from .host import MACHINE_QEMU_CONF, NAMES, Host, join

INIT = Path(__file__).with_name("machine-init.sh")

# What changes while a machine runs, or has to with each package.
PASSING = (
    "/var/lib/dpkg",
    "/var/lib/apt",
    "/var/lib/libvirt",
    "/var/cache",
    "/var/log",
    "/var/backups",
    "/etc/libvirt/qemu",
    "/etc/apparmor.d/libvirt",
    "/tmp",
)


class Machine(Host):
    """A host that has all its files in a copy of DEBIAN, which stays as it is.

    AppArmor confines the domains of a CONFINED one.
    """

    qemu_conf = MACHINE_QEMU_CONF  # with the user that Debian's QEMU has

    def __init__(
        self, name: str, top: Path, number: int, debian: Path, confined: bool
    ) -> None:
        super().__init__(name, top, number)
        self.debian = debian
        self.confined = confined

    @property
    def init(self) -> list[str | Path]:
        confined = "yes" if self.confined else "no"
        return [INIT, self.name, self.dir, self.debian, confined]

    def files(self) -> dict[str, str]:
        """All its files: what can be told without reading them.

        Those in /etc by their content, too.
        """
        pruned = " -o ".join(f"-path {path}" for path in PASSING)
        kept = rf"-xdev \( {pruned} \) -prune -o"
        found = self.run(
            "sh",
            "-c",
            rf"find / {kept} -type d -printf '%p\t%m %u %g\n' "
            r"-o -printf '%p\t%y %m %u %g %s %l\n'; "
            rf"find /etc {kept} -type f -exec sha256sum {{}} + | "
            r"sed 's/\(\S*\)  \(.*\)/content of \2\t\1/'",
        ).stdout
        pairs = (line.split("\t", 1) for line in found.splitlines())
        return {path: rest for path, rest in pairs}


@contextlib.contextmanager
def two_machines(debian: Path) -> Iterator[tuple[Machine, Machine]]:
    """Start two machines, and remove all of them in the end.

    They have one kernel, so AppArmor can confine only the domains of the first.
    """
    top = scratch()
    top.chmod(0o755)
    try:
        one = Machine(NAMES[0], top, 1, debian, confined=True)
        other = Machine(NAMES[1], top, 2, debian, confined=False)
        with one, other:
            join(one, other)
            yield one, other
    finally:
        shutil.rmtree(top, ignore_errors=True)
