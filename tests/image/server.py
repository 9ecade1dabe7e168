# SPDX-License-Identifier: GPL-2.0-or-later
"""A server that QEMU emulates, with a stick in it, and who sits before it."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from qualify.result import Result, parse
from tests.lab.lab import BUILD_LIMIT, must
from tests.migration.guest import BUILT, ROOT
from tests.migration.qmp import Monitor

IMAGES = BUILT / "image"
IMAGE = IMAGES / "fast-dirty-tracking.iso"
FILES = IMAGES / "files.zst"
QEMU = "/usr/bin/qemu-system-x86_64"
OVMF = Path("/usr/share/OVMF")
# What GRUB says, of a server without menus; without a crash kernel on small ones.
WORDS = (
    "console=ttyS0,115200 console=tty0 rdinit=/init crashkernel=3G-:320M "
    "softlockup_panic=1 hung_task_panic=1"
)
# CPUs take turns.  If they run at once, this QEMU may translate an instruction of a
# static key while another CPU replaces it, and would run the old one forever.
ACCELERATOR = "tcg,thread=single"
# The stick's partition begins here: FAT16 has its label in the first sector.
LABEL, LABEL_AT = b"FDT-RESULT FAT16", 43
STICK_ID = "stick"

SECONDS = 3600.0  # a whole check takes a third of that if nothing else runs
POLL_SECONDS = 0.5


def build_image() -> None:
    """Make the image; it can take two kernels."""
    must([ROOT / "scripts/deps", "--image"])
    must([ROOT / "scripts/build-image"], 4 * BUILD_LIMIT)


def serial(log: Path) -> str:
    """What came on a serial line."""
    return log.read_text(errors="replace").replace("\r", "")


def direct(kernel: Path, words: str = "", files: Path = FILES) -> list[str]:
    """Options: start a kernel as PXE does."""
    return ["-kernel", str(kernel), "-initrd", str(files),
            "-append", f"{WORDS} {words}"]


def uefi(where: Path, code: str = "OVMF_CODE_4M.fd",
         variables: str = "OVMF_VARS_4M.fd") -> list[str]:
    """Options: firmware of this kind, whose settings are in a copy."""
    settings = where / "settings.fd"
    shutil.copy(OVMF / variables, settings)
    drive = "if=pflash,format=raw,file="
    return ["-drive", f"{drive}{OVMF}/{code},readonly=on",
            "-drive", f"{drive}{settings}"]


class Stick:
    """A copy of the image, and the files in its partition for results."""

    def __init__(self, where: Path, image: Path = IMAGE) -> None:
        self.path = where / "stick.img"
        shutil.copy(image, self.path)
        self.start = self.path.read_bytes().index(LABEL) - LABEL_AT

    @property
    def options(self) -> list[str]:
        """Of QEMU: in a USB port."""
        return [
            "-drive", f"if=none,id=disk,format=raw,file={self.path}",
            "-device", "qemu-xhci",
            "-device", f"usb-storage,drive=disk,id={STICK_ID}",
        ]

    def mtools(self, command: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program of mtools on the partition."""
        return subprocess.run(
            [command, "-i", f"{self.path}@@{self.start}", *words],
            capture_output=True, text=True, check=False,
        )

    def text(self, name: str) -> str:
        """A file of it."""
        done = self.mtools("mtype", f"::{name}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def result(self) -> Result:
        """The result that is there."""
        return parse(self.text("result.json"))

    def fill(self, where: Path, free: int) -> None:
        """Leave as many bytes free."""
        listed = self.mtools("mdir", "::").stdout
        room, = re.findall(r"([\d ]+) bytes free", listed)
        filling = where / "filling"
        filling.write_bytes(bytes(int(room.replace(" ", "")) - free))
        assert self.mtools("mcopy", str(filling), "::filling").returncode == 0


class Server:
    """The machine; leaving the context switches it off."""

    def __init__(
        self, where: Path, options: Sequence[str], memory: str = "4G",
        cpu: str = "max,la57=off", cpus: int = 1,
    ) -> None:
        self.log = where / "serial.log"
        self._serial = where / "serial"
        self._qmp = where / "qmp"
        self.monitor = Monitor("server", self._qmp)
        chardev = f"socket,id=s,path={self._serial},server=on,wait=off"
        self._command = [
            QEMU, "-nodefaults", "-no-user-config", "-no-reboot",
            "-machine", "q35,vmport=off", "-accel", ACCELERATOR, "-cpu", cpu,
            "-m", memory, "-smp", str(cpus), "-display", "none", "-vga", "std",
            "-chardev", f"{chardev},logfile={self.log}",
            "-serial", "chardev:s", "-qmp", f"unix:{self._qmp},server=on,wait=off",
            *options,
        ]

    def __enter__(self) -> Server:
        self._process = subprocess.Popen(self._command)
        self.monitor.connect(60.0, lambda: None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.monitor.close()
        self._process.kill()
        self._process.wait()

    @property
    def said(self) -> str:
        """All that came on the serial line."""
        return serial(self.log) if self.log.exists() else ""

    def wait(self, text: str, seconds: float = SECONDS) -> str:
        """Wait until it has said that; returns all that it has said."""
        deadline = time.monotonic() + seconds
        while text not in self.said:
            assert self._process.poll() is None, f"no '{text}': {self.said}"
            assert time.monotonic() < deadline, f"no '{text}': {self.said}"
            time.sleep(POLL_SECONDS)
        return self.said

    def wait_off(self, seconds: float = SECONDS) -> str:
        """Wait until it is switched off; returns all that it has said."""
        self._process.wait(seconds)
        return self.said

    def type(self, line: str) -> None:
        """Type a line at the serial line's shell, once there is one."""
        self.wait("bash-")
        with socket.socket(socket.AF_UNIX) as line_:
            line_.connect(str(self._serial))
            line_.sendall(line.encode() + b"\n")
            # It is gone with the connection, if that ends too soon.
            time.sleep(2)

    def pull(self) -> None:
        """Take the stick out."""
        self.monitor.execute("device_del", id=STICK_ID)
