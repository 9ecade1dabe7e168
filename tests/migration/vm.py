# SPDX-License-Identifier: GPL-2.0-or-later
"""A QEMU process that runs the writer guest."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import mmap
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Iterator, Optional, Sequence

from .guest import (BUILD, BUILT, CPU_PAGES, MIB, PAGE, Writer, built,
                    unpack_counters)
from .qmp import Monitor, MonitorLost

STOCK = Path("/usr/bin/qemu-system-x86_64")
OURS = BUILT / "qemu" / "qemu-system-x86_64"
# Debian's QEMUs that run on each release of it, with their versions.  "stock"
# has that of ours of the release; what is backported needs its libraries.
STOCKS = {"12": {"stock": "7.2", "backports": "10.0", "next": "11.1"},
           "13": {"stock": "10.0", "next": "11.1"}}
# By scripts/get-packages: QEMU of bookworm-backports, and of trixie-backports.
BACKPORTS = BUILD / "backports" / "usr"
NEXT = BUILD / "next"
DATA = {"backports": BACKPORTS / "share", "next": NEXT / "usr/share"}

KVM_GET_API_VERSION = 0xAE00
KVM_CHECK_EXTENSION = 0xAE03
KVM_API_VERSION = 12

# A patched host kernel has these in its linux/kvm_dirty_tracking.h.
KVM_CAP_WRITE_PROTECT_ALL_MEM = 0x46440001
KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT = 0x46440002
KVM_CAP_DIRTY_BITMAP_FD = 0x46440003
KVM_CAP_EAGER_PAGE_SPLIT = 0x46440004
KVM_CAP_DIRTY_BITS = 0x46440005
# In the answer about KVM_CAP_WRITE_PROTECT_ALL_MEM.
KVM_WRITE_PROTECT_DISABLES_CPU_LOG = 1 << 1

BOOT_TIMEOUT = 90.0

# SeaBIOS sets up a paravirtual clock if it finds one, and the kernel of the
# destination then writes into guest memory even before the guest runs.
CPU_MODEL = "qemu64,kvmclock=off"


class VMError(Exception):
    """A QEMU that failed to do its task."""


def kvm_usable() -> bool:
    """Whether /dev/kvm is there, may be used, and is KVM."""
    try:
        with open("/dev/kvm", "rb+", buffering=0) as kvm:
            return fcntl.ioctl(kvm, KVM_GET_API_VERSION) == KVM_API_VERSION
    except OSError:
        return False


def kvm_check(capability: int) -> int:
    """What the host's KVM says of CAPABILITY; 0 if there is no KVM."""
    if not kvm_usable():
        return 0
    with open("/dev/kvm", "rb+", buffering=0) as kvm:
        return fcntl.ioctl(kvm, KVM_CHECK_EXTENSION, capability)


def kvm_offers(*capabilities: int) -> bool:
    """Whether the host's KVM has all of CAPABILITIES."""
    return kvm_usable() and all(map(kvm_check, capabilities))


def scratch() -> Path:
    """Make a directory for one VM, in memory where there is such a place."""
    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="dirty-", dir=parent))


@dataclass(frozen=True)
class Mechanism:
    """How a QEMU is told to track dirty pages: with rings or with BITMAPS."""

    ring: Optional[int] = None
    bitmaps: str = "log"

    @property
    def name(self) -> str:
        """The name in query-dirty-tracking."""
        return "ring" if self.ring else self.bitmaps

    def __str__(self) -> str:
        return f"ring {self.ring}" if self.ring else self.bitmaps

    @property
    def offered(self) -> bool:
        """Whether the host has it; all hosts have rings and log."""
        return kvm_offers(*NEEDS.get(self.bitmaps, ()))


NEEDS = {"wrprot": (KVM_CAP_WRITE_PROTECT_ALL_MEM,
                    KVM_CAP_DIRTY_LOG_WITHOUT_WRITE_PROTECT)}
NEEDS["shared"] = (*NEEDS["wrprot"], KVM_CAP_DIRTY_BITMAP_FD)
NEEDS["dirty-bits"] = (*NEEDS["shared"], KVM_CAP_DIRTY_BITS)

LOG = Mechanism()
WRPROT = Mechanism(bitmaps="wrprot")
SHARED = Mechanism(bitmaps="shared")
DIRTY_BITS = Mechanism(bitmaps="dirty-bits")

# In the order that auto prefers.
BEST_FIRST = (DIRTY_BITS, SHARED, WRPROT, LOG)


def best() -> Mechanism:
    """Return the mechanism that auto takes on this host."""
    return next(each for each in BEST_FIRST if each.offered)


@dataclass(frozen=True)
class Qemu:
    """A QEMU binary, and whether it knows the dirty-tracking option.

    Its data are in DATA, unless it finds them by itself.
    """

    name: str
    path: Path
    patched: bool
    data: tuple[Path, ...] = ()

    def accel(self, mechanism: Mechanism) -> str:
        """Return the value of -accel that selects MECHANISM."""
        if not mechanism.ring:
            return (f"kvm,dirty-tracking={mechanism.bitmaps}"
                    if self.patched else "kvm")
        tracking = "dirty-tracking=ring," if self.patched else ""
        return f"kvm,{tracking}dirty-ring-size={mechanism.ring}"


def path_of(name: str) -> Path:
    """Return where the binary called NAME is; any other name is a path.

    Ours of Debian 13 is "ours-13".
    """
    whose, _, release = name.partition("-")
    if whose == "ours" and release in STOCKS:
        return built(release) / "qemu" / OURS.name
    return {"stock": STOCK, "ours": Path(os.environ.get("QEMU", OURS)),
            "backports": BACKPORTS / "bin" / STOCK.name,
            "next": NEXT / STOCK.name}.get(name, Path(name))


@functools.lru_cache(maxsize=None)
def qemu(name: str) -> Qemu:
    """Return the binary called NAME, as path_of() knows it, or a path."""
    data = ((DATA[name] / "seabios", DATA[name] / "qemu")
            if name in DATA else ())
    return _probed(Qemu(name, path_of(name), name == "ours", data))


def _probed(binary: Qemu) -> Qemu:
    """Return BINARY as it is, if it can be asked."""
    if not os.access(binary.path, os.X_OK):
        return binary
    return replace(binary, patched=_has_dirty_tracking(binary.path))


def _has_dirty_tracking(path: Path) -> bool:
    config = Config(Qemu(path.name, path, False), accel="tcg", machine="none",
                    boot=False)
    with VM("probe", config) as vm:
        properties = vm.qmp("qom-list-properties", typename="kvm-accel")
    return any(item["name"] == "dirty-tracking" for item in properties)


@dataclass(frozen=True)
class Config:
    """A VM as it is started; two VMs to migrate between have the same.

    The writer is the firmware, or with SEABIOS or a DISK what that boots.  In
    EXTRA, "{dir}" stands for the directory of the VM's files.
    """

    qemu: Qemu
    accel: str
    machine: str = "pc"
    mib: int = 64
    writer: Writer = Writer()
    smp: str = ""
    shared_ram: bool = False
    boot: bool = True
    seabios: bool = False
    disk: Optional[Path] = None
    extra: tuple[str, ...] = field(default=())


class VM:
    """One QEMU process; leaving the context ends it and all it made."""

    def __init__(self, name: str, config: Config,
                 incoming: bool = False, paused: bool = False) -> None:
        self.name = name
        self.config = config
        self.dir = scratch()
        self._incoming = incoming
        self._paused = paused or incoming
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._monitor = Monitor(name, self.dir / "qmp")
        self._ram: Optional[mmap.mmap] = None

    def __enter__(self) -> VM:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: Optional[type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.stop()

    def _start(self) -> None:
        if self.config.boot and self.config.disk is None:
            self._image.write_bytes(
                self.config.writer.image() if self.config.seabios
                else self.config.writer.firmware())
        with open(self.dir / "stderr", "wb") as stderr:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL,
                stdout=stderr, stderr=stderr)
        self._monitor.connect(BOOT_TIMEOUT, self.check)

    @property
    def _image(self) -> Path:
        return self.dir / "writer.img"

    def _command(self) -> list[str]:
        config = self.config
        command = [
            str(config.qemu.path), "-name", self.name, "-nodefaults",
            "-no-user-config", "-display", "none", "-accel", config.accel,
            "-machine", config.machine,
            "-qmp", f"unix:{self.dir / 'qmp'},server=on,wait=off"]
        for data in config.qemu.data:
            command += ["-L", str(data)]
        if config.boot:
            command += self._hardware()
        if self._incoming:
            command += ["-incoming", "defer"]
        if self._paused:
            command += ["-S"]
        return command + [word.replace("{dir}", str(self.dir))
                          for word in config.extra]

    def _hardware(self) -> list[str]:
        config = self.config
        hardware = ["-m", f"{config.mib}M", "-cpu", CPU_MODEL,
                    "-smp", config.smp or str(config.writer.cpus),
                    "-serial", f"file:{self.dir / 'serial'}"]
        if config.disk is not None:
            hardware += ["-drive", f"file={config.disk},format=qcow2"]
        elif config.seabios:
            hardware += ["-drive", f"file={self._image},format=raw"]
        else:
            hardware += ["-bios", str(self._image)]
        if config.shared_ram:
            hardware += [
                "-object", f"memory-backend-file,id=ram,size={config.mib}M,"
                f"mem-path={self.dir / 'ram'},share=on",
                "-machine", "memory-backend=ram"]
        return hardware

    def check(self) -> None:
        """Raise if the process has ended."""
        if self._process is None:
            raise VMError(f"{self.name}: QEMU is not started.")
        code = self._process.poll()
        if code is not None:
            raise VMError(f"{self.name}: QEMU ended with status {code}: "
                          f"{self.errors() or 'no message'}")

    def wait(self, done: Callable[[], bool], timeout: float,
             what: str) -> None:
        """Poll until DONE; after TIMEOUT seconds raise an error with WHAT."""
        deadline = time.monotonic() + timeout
        while True:
            self.check()
            if done():
                return
            if time.monotonic() > deadline:
                raise VMError(f"{self.name}: {what} within {timeout:.0f} s.")
            time.sleep(0.02)

    def _wait_end(self, timeout: float) -> None:
        try:
            if self._process is not None:
                self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            pass

    def messages(self) -> str:
        """Return the text that QEMU has written to its standard error."""
        log = self.dir / "stderr"
        return log.read_text(errors="replace").strip() if log.exists() else ""

    def errors(self) -> str:
        """Return the messages without those that only warn."""
        return " / ".join(line for line in self.messages().splitlines()
                          if "warning: " not in line)

    @property
    def pid(self) -> int:
        """The process id of QEMU."""
        if self._process is None:
            raise VMError(f"{self.name}: QEMU is not started.")
        return self._process.pid

    @property
    def monitor(self) -> Monitor:
        """The QMP connection, for commands that are not waited for."""
        return self._monitor

    def qmp(self, command: str, **arguments: Any) -> Any:
        """Run a QMP command; an underscore stands for a dash in names."""
        try:
            return self._monitor.execute(command, **arguments)
        except MonitorLost:
            # The cause is the end of QEMU, not the lost connection.
            self._wait_end(5.0)
            self.check()
            raise

    def hmp(self, line: str) -> str:
        """Run a command of the human monitor."""
        return str(self.qmp("human-monitor-command", command_line=line))

    def read_memory(self, address: int, size: int) -> bytes:
        """Return guest physical memory."""
        if self.config.shared_ram:
            return self._mapped()[address:address + size]
        path = self.dir / "memory"
        self.save_memory(address, size, path)
        try:
            return path.read_bytes()
        finally:
            path.unlink()

    def _mapped(self) -> mmap.mmap:
        if self._ram is None:
            with open(self.dir / "ram", "rb") as ram:
                self._ram = mmap.mmap(ram.fileno(), 0, prot=mmap.PROT_READ)
        return self._ram

    def save_memory(self, address: int, size: int, path: Path) -> None:
        """Write guest physical memory to the file PATH."""
        self.qmp("pmemsave", val=address, size=size, filename=str(path))

    def counters(self) -> list[int]:
        """Return how many page writes each vCPU has made."""
        cpus = self.config.writer.cpus
        return unpack_counters(
            self.read_memory(CPU_PAGES, PAGE * cpus), cpus)

    def rates(self, seconds: float) -> list[float]:
        """Return the page writes per second of each vCPU, measured now."""
        begin, first = time.monotonic(), self.counters()
        time.sleep(seconds)
        end, last = time.monotonic(), self.counters()
        return [(b - a) / (end - begin) for a, b in zip(first, last)]

    def run_times(self, seconds: float) -> list[float]:
        """Return for how many seconds each vCPU's thread runs, from now."""
        first = self._run_times()
        time.sleep(seconds)
        return [b - a for a, b in zip(first, self._run_times())]

    def _run_times(self) -> list[float]:
        ticks = []
        for cpu in self.qmp("query-cpus-fast"):
            stat = Path(f"/proc/{self.pid}/task/{cpu['thread-id']}/stat")
            # utime and stime of proc(5); the name before may have spaces.
            fields = stat.read_text().rpartition(")")[2].split()
            ticks.append(int(fields[11]) + int(fields[12]))
        return [each / os.sysconf("SC_CLK_TCK") for each in ticks]

    def _check_room(self, writer: Writer) -> None:
        """Raise if the writer counts writes to where there is no memory."""
        end = writer.base + writer.mib * MIB
        size = self.qmp("query-memory-size-summary")["base-memory"]
        if end > size:
            raise VMError(f"{self.name}: the guest writes up to {end // MIB} "
                          f"MiB, and has {size // MIB}.")

    def wait_writing(self, cpus: Sequence[int] = (), passes: int = 1) -> None:
        """Wait until each of CPUS has written its share PASSES times."""
        config = self.config.writer
        self._check_room(config)
        chosen = cpus or range(config.cpus)
        share = config.mib * MIB // PAGE // config.cpus * passes

        def written() -> bool:
            counters = self.counters()
            return all(counters[cpu] >= share for cpu in chosen)

        self.wait(written, BOOT_TIMEOUT, "the guest did not get going")

    def serial(self) -> str:
        """Return the text that the guest has printed."""
        log = self.dir / "serial"
        return log.read_text(errors="replace") if log.exists() else ""

    def stop(self) -> None:
        """End QEMU and remove its files."""
        self._monitor.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._ram is not None:
            self._ram.close()
            self._ram = None
        shutil.rmtree(self.dir, ignore_errors=True)

    def wait_exit(self, timeout: float) -> int:
        """Wait until QEMU ends by itself and return its status."""
        if self._process is None:
            raise VMError(f"{self.name}: QEMU is not started.")
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise VMError(f"{self.name}: QEMU did not end within "
                          f"{timeout:.0f} s.") from error


@contextlib.contextmanager
def pair(config: Config,
         peer: Optional[Config] = None) -> Iterator[tuple[VM, VM]]:
    """Start a VM, and one that waits to take over and then stays paused."""
    with VM("src", config) as src, \
            VM("dst", peer or config, incoming=True) as dst:
        yield src, dst
