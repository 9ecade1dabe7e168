# SPDX-License-Identifier: GPL-2.0-or-later
"""Live migration by virsh, and the check that most tests end with."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.migration.compare import assert_none_differ
from tests.migration.migrate import ANY_DOWNTIME

from .domain import Domain
from .host import COMMAND_SECONDS, Host, HostError

# Less than the writer writes, be the machine ever so busy, so that a migration
# goes on and on, also in the 100 ms whose share QEMU sends at once; and a limit
# that is not kept even if the writer stands still for a moment.
HOLD = ("--bandwidth", "20")
HOLD_MS = 1
DOWNTIME_MS = 300  # libvirt's default
WAIT_SECONDS = 120.0

# Where the guest writes more than the machine can send it is suspended in time.
ENDS = ("--timeout", "30", "--timeout-suspend")

Way = Callable[[Host], tuple[str, ...]]


def direct(target: Host) -> tuple[str, ...]:
    """QEMU to QEMU, and virsh leads both libvirtd."""
    return (target.tcp,)


def p2p(target: Host) -> tuple[str, ...]:
    """QEMU to QEMU, and the libvirtd of the source leads that of TARGET."""
    return target.tcp, "--p2p"


def tunnelled(target: Host) -> tuple[str, ...]:
    """All of it from libvirtd to libvirtd."""
    return target.tcp, "--p2p", "--tunnelled"


def unix(target: Host) -> tuple[str, ...]:
    """The same as p2p, through two UNIX sockets."""
    return (
        target.unix,
        "--p2p",
        "--migrateuri",
        f"unix://{target.dir / 'migration'}",
    )


def words(
    domain: Domain,
    source: Host,
    target: Host,
    *options: str,
    way: Way = direct,
    emulator: Path | None = None,
) -> tuple[str, ...]:
    """What tells virsh to migrate; at TARGET to EMULATOR, if there is one."""
    if emulator:
        options += "--xml", str(other_emulator(domain, source, emulator))
    return ("virsh", "migrate", "--live", domain.name, *way(target), *options)


def other_emulator(domain: Domain, source: Host, emulator: Path) -> Path:
    """The file with DOMAIN's XML, in which only EMULATOR is new."""
    xml = source.virsh("dumpxml", "--migratable", domain.name)
    old = re.compile(r"(?<=<emulator>).*(?=</emulator>)")
    assert len(old.findall(xml)) == 1, xml
    path = source.dir / "migrate.xml"
    path.write_text(old.sub(str(emulator), xml))
    return path


def migrate(
    domain: Domain,
    source: Host,
    target: Host,
    *options: str,
    way: Way = direct,
    emulator: Path | None = None,
    state: str = "running",
) -> None:
    """Migrate a running domain to TARGET, where it is in STATE then."""
    source.run(
        *words(domain, source, target, *options, way=way, emulator=emulator)
    )
    assert_only_at(domain, target, source, state)


def migrate_identical(
    domain: Domain,
    source: Host,
    target: Host,
    *options: str,
    way: Way = direct,
    emulator: Path | None = None,
) -> None:
    """Migrate, and fail unless each page arrived as it was left.

    The domain stays paused at the target until both are compared, and the
    source's file is held open, as libvirt removes it with QEMU.
    """
    left = domain.memory(source)
    migrate(
        domain,
        source,
        target,
        "--suspend",
        *ENDS,
        *options,
        way=way,
        emulator=emulator,
        state="paused",
    )
    assert_none_differ(left.differing_pages(domain.memory(target)))
    target.virsh("resume", domain.name)
    domain.wait_writing(target)


def leave_confined(domain: Domain, source: Host, target: Host) -> None:
    """Migrate from a host that confines domains to one that confines nobody.

    As both hosts have one kernel, only one of them can have its profile.
    """
    assert "enforce" in domain.label(source)
    xml = source.virsh("dumpxml", "--migratable", domain.name)
    path = source.dir / "unconfined.xml"
    path.write_text(re.sub(r"<seclabel .*/>", "", xml))
    migrate_identical(domain, source, target, "--xml", str(path), way=p2p)
    assert domain.label(target).startswith("unconfined")


def assert_only_at(
    domain: Domain, here: Host, there: Host, state: str = "running"
) -> None:
    """Fail unless DOMAIN is HERE in that state, and not THERE."""
    assert domain.state(there) == "absent"
    assert domain.state(here) == state


def job(domain: Domain, host: Host) -> dict[str, str]:
    """What domjobinfo says of a migration that goes on."""
    lines = host.virsh("domjobinfo", domain.name).splitlines()
    return {
        name: " ".join(value.split())
        for name, _, value in (line.partition(":") for line in lines)
    }


def number(figure: str) -> float:
    """A figure of domjobinfo without its unit."""
    return float(figure.split()[0])


def wait(what: str, done: Callable[[], bool]) -> None:
    """Poll until DONE."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not done():
        assert time.monotonic() < deadline, f"{what}: not in time"
        time.sleep(0.05)


@contextlib.contextmanager
def migrating(
    domain: Domain,
    source: Host,
    target: Host,
    *options: str,
    way: Way = p2p,
    hold: tuple[str, ...] = HOLD,
    least: int = 3,
) -> Iterator[subprocess.Popen[str]]:
    """A migration in round LEAST, which the writer does not let end."""
    source.virsh("migrate-setmaxdowntime", domain.name, str(HOLD_MS))
    process = subprocess.Popen(
        source.command(
            *words(domain, source, target, *hold, *options, way=way)
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait("round", lambda: in_round(least, process, domain, source))
        yield process
    finally:
        process.kill()
        process.communicate()
        if domain.state(source) == "running":
            allow_downtime(domain, source)


def in_round(
    least: int, process: subprocess.Popen[str], domain: Domain, source: Host
) -> bool:
    """Whether the migration has come to round LEAST; it must not be over."""
    try:
        return int(job(domain, source).get("Iteration", 0)) >= least
    except HostError:
        # It says what became of the migration, and that says more.
        status, said = ended(process)
        raise AssertionError(f"virsh ended with {status}: {said}") from None


def allow_downtime(domain: Domain, source: Host) -> None:
    """Let migrations end as usual."""
    source.virsh("migrate-setmaxdowntime", domain.name, str(DOWNTIME_MS))


def release(domain: Domain, source: Host) -> None:
    """Let a migration that migrating() holds end, however slowly it sends."""
    # In this order, as the limit may end it at once.
    source.virsh("migrate-setspeed", domain.name, "100000")
    source.virsh("migrate-setmaxdowntime", domain.name, str(ANY_DOWNTIME))


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for virsh to end, and return its status and what it said."""
    said, _ = process.communicate(timeout=COMMAND_SECONDS)
    return process.returncode, said
