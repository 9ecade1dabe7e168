# SPDX-License-Identifier: GPL-2.0-or-later
"""Two hosts with libvirtd: namespaces of this machine, joined by a veth."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from tests.migration.vm import scratch

INIT = Path(__file__).with_name("host-init.sh")
NAMESPACES = ("--mount", "--uts", "--ipc", "--pid", "--net")
NAMES = ("alpha", "beta")
LINK = "link0"
BOOT_SECONDS = 120.0
COMMAND_SECONDS = 300.0

LOG_LINES = 40  # shown of a host's log

# A peer that says nothing for KEEPALIVE seconds, three times, is gone.
KEEPALIVE = 1

LIBVIRTD_CONF = """\
host_uuid = "{uuid}"
auth_unix_rw = "none"
auth_tcp = "none"
listen_tls = 0
listen_tcp = 1
keepalive_interval = {keepalive}
keepalive_count = 3
"""

# Nothing here has systemd and its cgroups.
MACHINE_QEMU_CONF = """\
stdio_handler = "file"
security_driver = "{security_driver}"
cgroup_controllers = []
keepalive_interval = {keepalive}
keepalive_count = 3
"""
QEMU_CONF = f'user = "root"\ngroup = "root"\n{MACHINE_QEMU_CONF}'


class HostError(Exception):
    """A host that did not start, or a command that failed on it."""


class Host:
    """A machine of its own as far as libvirt can tell.

    All that it runs ends with its first process, and that ends with us.  With
    USR it has the programs there, and the machine's where USR has none.  With
    PROFILES, AppArmor's, it confines libvirt and the domains by a copy of them.
    """

    qemu_conf = QEMU_CONF

    def __init__(
        self,
        name: str,
        top: Path,
        number: int,
        usr: Path | None = None,
        profiles: Path | None = None,
    ) -> None:
        self.name = name
        self.dir = top / name
        self.address = f"10.77.0.{number}"
        self.socket = self.dir / "run" / "libvirt-sock"
        self.usr = usr
        self.profiles = profiles
        self.confined = profiles is not None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def tcp(self) -> str:
        """Its URI over the network."""
        return f"qemu+tcp://{self.name}/system"

    @property
    def unix(self) -> str:
        """Its URI for whoever shares its file system."""
        return f"qemu+unix:///system?socket={self.socket}"

    @property
    def init(self) -> list[str | Path]:
        """What its first process runs."""
        usr = [self.usr] if self.usr else []
        return [INIT, self.name, self.dir, *usr]

    def __enter__(self) -> Host:
        try:
            self._configure()
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _configure(self) -> None:
        (self.dir / "run").mkdir(parents=True, exist_ok=True)
        (self.dir / "etc" / "libvirt").mkdir(parents=True, exist_ok=True)
        for name, text in (
            ("libvirt/libvirtd.conf", LIBVIRTD_CONF),
            ("libvirt/qemu.conf", self.qemu_conf),
            ("hosts", "127.0.0.1 localhost\n" + hosts_file()),
        ):
            (self.dir / "etc" / name).write_text(
                text.format(
                    uuid=uuid.uuid4(),
                    keepalive=KEEPALIVE,
                    security_driver="apparmor" if self.confined else "none",
                )
            )
        if self.profiles:
            copy_profiles(self.profiles, self.dir / "apparmor.d")

    def start(self) -> None:
        """Switch it on, and wait for libvirtd."""
        for left in (self.socket, self.dir / "pid"):
            left.unlink(missing_ok=True)
        with open(self.dir / "log", "ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", *NAMESPACES]
                + ["--fork", "--kill-child", *self.init],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + BOOT_SECONDS
        while not self._answers():
            if self._process.poll() is not None:
                raise HostError(f"{self.name} ended: {self.log()}")
            if time.monotonic() > deadline:
                raise HostError(f"{self.name} did not start: {self.log()}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        return (
            self.socket.exists()
            and self.run("virsh", "uri", check=False).returncode == 0
        )

    def log(self) -> str:
        """What its first process and libvirtd said."""
        return (self.dir / "log").read_text(errors="replace")

    def state(self) -> str:
        """What it runs, and the end of what it said."""
        shown = [["virsh", "list", "--all"], ["ps", "-eo", "pid,stat,wchan,args"]]
        done = [self.run(*words, check=False) for words in shown]
        logs = [self.log()]
        for path in sorted((self.root / "var/log/libvirt/qemu").glob("*.log")):
            logs.append(path.read_text(errors="replace"))
        return "\n".join(
            [*(one.stdout + one.stderr for one in done)]
            + ["\n".join(log.splitlines()[-LOG_LINES:]) for log in logs]
        )

    @property
    def pid(self) -> int:
        """Its first process."""
        return int((self.dir / "pid").read_text())

    @property
    def root(self) -> Path:
        """Its file system as it sees it."""
        return Path(f"/proc/{self.pid}/root")

    def command(self, *words: str | Path) -> list[str]:
        """The command line that runs WORDS on the host.

        nsenter has to fork, and what it runs has to end with it.
        """
        enter = ["nsenter", "--target", self.pid, *NAMESPACES, "--"]
        tie = ["setpriv", "--pdeathsig", "KILL", "--"]
        return [str(word) for word in (*enter, *tie, *words)]

    def run(
        self, *words: str | Path, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the host; it has to succeed if CHECK."""
        done = subprocess.run(
            self.command(*words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if check and done.returncode:
            said = (done.stderr or done.stdout).strip()
            line = " ".join(str(word) for word in words)
            raise HostError(f"{self.name}: {line}: {said}")
        return done

    def virsh(self, *words: str | Path) -> str:
        """What virsh says to WORDS, of this host's libvirtd."""
        return self.run("virsh", *words).stdout.strip()

    def domains(self) -> list[str]:
        """The domains that it has."""
        return self.virsh("list", "--all", "--name").split()

    def link(self, state: str) -> None:
        """Plug the cable in ("up") or out ("down")."""
        self.run("ip", "link", "set", LINK, state)

    def stop(self) -> None:
        """End all that runs on the host, as a power failure does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def copy_profiles(source: Path, target: Path) -> None:
    """Copy profiles, and add the empty files that installing them makes.

    libvirt 9.6 and newer have a directory in the place of some.
    """
    shutil.copytree(source, target)
    names = ["usr.sbin.libvirtd", "usr.lib.libvirt.virt-aa-helper"]
    rules = (target / "abstractions/libvirt-qemu").read_text(encoding="utf-8")
    if "<abstractions/libvirt-qemu.d>" not in rules:
        names += ["abstractions/libvirt-qemu", "abstractions/libvirt-lxc"]
    for name in names:
        local = target / "local" / name
        local.parent.mkdir(parents=True, exist_ok=True)
        local.touch()


def hosts_file() -> str:
    """The lines of /etc/hosts for both hosts."""
    return "".join(
        f"10.77.0.{number} {name}\n" for number, name in enumerate(NAMES, 1)
    )


def join(one: Host, other: Host) -> None:
    """Lay a cable between two hosts."""
    subprocess.run(
        ["ip", "link", "add", LINK, "netns", str(one.pid), "type", "veth"]
        + ["peer", "name", LINK, "netns", str(other.pid)],
        check=True,
    )
    for host in (one, other):
        host.run("ip", "address", "add", f"{host.address}/24", "dev", LINK)
        host.link("up")


def share_own(hosts: tuple[Host, Host], target: str | Path) -> Path:
    """Give both hosts one directory of their own, empty, at TARGET."""
    own = hosts[0].dir.parent / "own"
    own.mkdir()
    for host in hosts:
        host.run("mount", "--bind", own, target)
    return own


@contextlib.contextmanager
def two_hosts(
    usr: Path | None = None,
    profiles: Path | None = None,
    other_usr: Path | None = None,
) -> Iterator[tuple[Host, Host]]:
    """Start both hosts, and remove all of them in the end."""
    top = scratch()
    try:
        one = Host(NAMES[0], top, 1, usr, profiles)
        other = Host(NAMES[1], top, 2, other_usr)
        with one, other:
            join(one, other)
            yield one, other
    finally:
        shutil.rmtree(top, ignore_errors=True)


def impossible() -> str:
    """Why there can be no hosts here, or nothing."""
    if os.geteuid() != 0:
        return "only root can make the hosts' namespaces"
    probe = subprocess.run(
        ["unshare", *NAMESPACES, "--fork", "--mount-proc"]
        + ["ip", "link", "add", "type", "veth"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        return f"no namespaces or no veth here: {probe.stderr.strip()}"
    return ""
