# SPDX-License-Identifier: GPL-2.0-or-later
"""Run one command on a kernel of ours, in an emulated machine.

The machine is QEMU's software CPU, which has AMD's SVM with nested paging: no
/dev/kvm is needed, no root and no network.  That CPU is kind: it forgets what
it knows of page tables all the time.  The hostile one, of our own, keeps
whatever AMD's manual lets a CPU keep.  Its root is this machine's file
system, read-only; /tmp, /var/tmp, /run and /dev/shm are empty and its own
(but your working directory and this checkout are there, wherever they are).
The machine with Intel's CPU, VT-x with EPT, is Bochs.  It has a copy of
COMMAND, of what --take names and of a shell, and nothing else.
COMMAND runs as root in the directory the lab was called from, with the
caller's environment but HOME=/tmp.  Its stdout and stderr come out as it
writes them, and its exit status is the lab's, unless the kernel complained.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import debian_qemu
import initramfs
import intel
from complaints import first_report

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.path.abspath(os.environ.get("FDT_BUILD", ROOT / "build")))
LAB = BUILD / "lab"
INIT_SOURCE = ROOT / "lab/init.c"
OWN_QEMU = BUILD / "lab-cpu/qemu-system-x86_64"
BOCHS = BUILD / "bochs/bochs"
# By name, the fragments of each kernel's configuration.
KINDS = {
    kind: fragments
    for kind, *fragments in map(
        str.split, (ROOT / "lab/kernels").read_text().splitlines()
    )
    if kind != "#"
}
SUFFIXES = {"M": 1, "G": 1024}
MIN_MEMORY = 128  # MiB; with less the debug kernel does not boot
MAX_CPUS = 63  # CONFIG_NR_CPUS, and one of them is not COMMAND's
LOGS_KEPT = 200

COMPLAINED = 123  # the guest's kernel panicked, warned or died
TIMED_OUT = 124
LAB_FAILED = 125  # the lab itself, before or beside COMMAND

# What write() says where there is no room.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

EPILOG = f"""\
exit status:
  that of COMMAND, which is
    126      if it cannot be run, 127 if it is not there
    128+N    if signal N ended it
  {COMPLAINED}  the kernel panicked, warned or went down; its report is shown
  {TIMED_OUT}  the time limit ended the machine
  {LAB_FAILED}  the lab could not do what was asked; COMMAND may not have run
One sentence on stderr says which of the last three it was, and names the file
with the whole log of the kernel, below build/lab.
"""

# Emulated CPUs share the real ones with whatever else runs: what would be a
# stall on hardware is only a busy machine here.
COMMAND_LINE = (
    "panic=-1 mitigations=off tsc=reliable no_timer_check "
    "watchdog_thresh=60 sysctl.kernel.hung_task_timeout_secs=240 "
    "rcupdate.rcu_cpu_stall_timeout=150"
)
QEMU_COMMAND_LINE = (
    "console=ttyS0 loglevel=7 root=host0 rootfstype=9p ro "
    "rootflags=trans=virtio,version=9p2000.L,cache=loose,msize=512000"
)
# The kernel waits for each character, so that the log has warnings only.  Bochs would
# begin again from the CD if it were reset; a triple fault ends it.
INTEL_COMMAND_LINE = (
    f"{intel.CONSOLE} {intel.CLOCK} {intel.INTERRUPTS} "
    "loglevel=5 reboot=t rdinit=/init"
)

# To calibrate the local APIC's timer takes the kernel 0.2 s of a busy loop, and
# the emulator as long as all else that is done at boot; it has another timer.
ICOUNT_COMMAND_LINE = ["norandmaps", "nolapic_timer"]


# What the machine has of its own, over the file system it is given.
HIDDEN = tuple(Path(name) for name in ("/tmp", "/var/tmp", "/run", "/dev"))


class Failure(Exception):
    """A sentence for the user, and the exit status that goes with it."""

    def __init__(self, sentence: str, status: int = LAB_FAILED) -> None:
        super().__init__(sentence)
        self.status = status


class Parser(argparse.ArgumentParser):
    """One that complains in one line."""

    def error(self, message: str) -> NoReturn:
        raise Failure(f"{message}; scripts/lab --help lists what is allowed")


def memory(text: str) -> int:
    """A number of MiB out of 512M, 2G or the like."""
    match = re.fullmatch(r"(\d+)([MG]?)", text)
    if not match or int(match[1]) * SUFFIXES[match[2] or "M"] < MIN_MEMORY:
        raise Failure(
            f"--memory {text} is not allowed; it must be {MIN_MEMORY}M or "
            "more, as in 512M or 2G"
        )
    return int(match[1]) * SUFFIXES[match[2] or "M"]


def count(option: str, text: str, most: int) -> int:
    """A whole number of at least 1."""
    if not re.fullmatch(r"\d{1,9}", text) or not 1 <= int(text) <= most:
        raise Failure(
            f"{option} {text} is not allowed; it must be a whole number "
            f"from 1 to {most}"
        )
    return int(text)


def cpu_model(cpu: str, model: str | None) -> str:
    """QEMU's -cpu, or Bochs' model."""
    if cpu == "kind":
        return model or "max,la57=off"
    if cpu == "intel" and not model:
        return intel.MODEL
    if cpu == "intel":
        raise Failure(
            f"--cpu-model {model} with --cpu intel is not allowed; that has "
            "one model only"
        )
    match = re.fullmatch(r"hostile(?:=(\d{1,18})((?:,[^,=]+=[^,=]+)*))?", cpu)
    if not match:
        raise Failure(
            f"--cpu {cpu} is not allowed; it must be kind, intel or "
            "hostile[=SEED[,PROPERTY=VALUE]...], with a whole number for SEED"
        )
    if model:
        raise Failure(
            f"--cpu-model {model} with --cpu {cpu} is not allowed; properties "
            "of the hostile CPU follow its seed"
        )
    return f"hostile,la57=off,seed={match[1] or 1}{match[2] or ''}"


def parser() -> Parser:
    """The options."""
    parse = Parser(
        prog="lab",
        usage="lab [OPTION]... -- COMMAND [ARG]...",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parse.add_argument(
        "--kernel",
        default="patched",
        metavar="KERNEL",
        help="stock, patched (the default) or debug, which are built if "
        "need be; stock-keys or patched-keys, for one CPU; patched-apparmor; "
        "or the path of a bzImage",
    )
    parse.add_argument(
        "--cpus",
        metavar="N",
        help="how many COMMAND has; the default is 2, with --icount or "
        "--cpu intel 1",
    )
    parse.add_argument(
        "--memory", default="2G", metavar="SIZE", help="the default is 2G"
    )
    parse.add_argument(
        "--cpu",
        default="kind",
        metavar="CPU",
        help="kind (the default); hostile[=SEED[,PROPERTY=VALUE]...], which "
        "is built if need be, with 1 for the seed by default; or intel, which "
        "is, too",
    )
    parse.add_argument(
        "--cpu-model",
        metavar="MODEL",
        help="QEMU's -cpu for the kind one; the default is max,la57=off",
    )
    parse.add_argument(
        "--icount",
        action="store_true",
        help="one CPU, whose time is the number of instructions it ran: "
        "figures repeat",
    )
    parse.add_argument(
        "--timeout",
        default="600",
        metavar="SECONDS",
        help="end the machine after that long; the default is 600",
    )
    parse.add_argument(
        "--log",
        metavar="FILE",
        help="copy the kernel's log there when all is over, with what the "
        "hostile CPU counted",
    )
    parse.add_argument(
        "--ran",
        metavar="START..END=FILE",
        help="write to FILE which of the instructions at these addresses were "
        "run, as QEMU translates them",
    )
    parse.add_argument(
        "--append",
        action="append",
        default=[],
        metavar="WORDS",
        help="more for the kernel's command line, as in kvm.tdp_mmu=0",
    )
    parse.add_argument(
        "--share",
        action="append",
        default=[],
        metavar="DIR",
        help="let the lab write to this directory, at the same path",
    )
    parse.add_argument(
        "--wire",
        metavar="FD",
        help="an open socket that COMMAND reaches by the virtio port "
        "lab.wire; one of a socketpair connects two labs",
    )
    parse.add_argument(
        "--take",
        action="append",
        default=[],
        metavar="PATH",
        help="a file or directory that --cpu intel has a copy of, with the "
        "libraries it needs",
    )
    return parse


def open_socket(text: str | None) -> socket.socket | None:
    """The socket of --wire, which the lab was started with."""
    if text is None:
        return None
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return socket.socket(fileno=int(text))
    raise Failure(
        f"--wire {text} is not allowed; it must be the number of an open "
        "socket"
    )


def translated(text: str | None) -> list[str]:
    """QEMU's options for --ran."""
    if text is None:
        return []
    match = re.fullmatch(r"(0x[0-9a-f]{1,16}\.\.0x[0-9a-f]{1,16})=(.+)", text)
    if not match:
        raise Failure(
            f"--ran {text} is not allowed; it must be START..END=FILE, with "
            "addresses as in 0xffffffff81000000"
        )
    return ["-d", "in_asm", "-dfilter", match[1], "-D", match[2]]


class Options:
    """What was asked for, checked."""

    def __init__(self, words: Sequence[str]) -> None:
        mine = list(words)
        if "--" in mine:
            cut = mine.index("--")
            mine, command = mine[:cut], mine[cut + 1 :]
        else:
            command = []
        if {"-h", "--help"} & set(mine):
            parser().print_help()
            sys.exit(0)
        if not command:
            raise Failure("there is no command; it must follow a --")
        given = parser().parse_args(mine)
        self.command = command
        self.kernel: str = given.kernel
        self.icount: bool = given.icount
        self.hostile = given.cpu.partition("=")[0] == "hostile"
        self.intel = given.cpu == "intel"
        one = self.icount or self.intel
        self.cpus = count("--cpus", given.cpus or ("1" if one else "2"), MAX_CPUS)
        self.cpu_model = cpu_model(given.cpu, given.cpu_model)
        # COMMAND is kept off CPU 0, unless there is no other: all CPUs of
        # Debian's QEMU write to its flags.
        kind = not self.hostile and not self.intel
        self.spare = 1 if self.cpus > 1 and kind else 0
        if self.icount and self.cpus != 1:
            raise Failure(
                f"--icount with --cpus {self.cpus} is not allowed; it counts "
                "the instructions of one CPU only"
            )
        if "keys" in KINDS.get(self.kernel, ()) and self.cpus != 1:
            raise Failure(
                f"--kernel {self.kernel} with {self.cpus} CPUs is not "
                "allowed; its static keys take --cpus 1 or --icount"
            )
        self.memory = memory(given.memory)
        self.timeout = count("--timeout", given.timeout, 10**6)
        self.append: list[str] = given.append
        self.log_copy: str | None = given.log
        self.ran = translated(given.ran)
        self.shares = [os.path.abspath(name) for name in given.share]
        for share in self.shares:
            if not os.path.isdir(share):
                raise Failure(
                    f"--share {share} is not a directory; it must be one "
                    "that exists"
                )
        self.wire = open_socket(given.wire)
        self.takes = [Path(os.path.abspath(name)) for name in given.take]
        for path in self.takes:
            if not os.access(path, os.R_OK):
                raise Failure(
                    f"--take {path} cannot be read; it must be a file or a "
                    "directory"
                )
        self.check_machine()

    def check_machine(self) -> None:
        """Each machine has options that the other has no use for."""
        if self.takes and not self.intel:
            raise Failure(
                f"--take {self.takes[0]} is not allowed without --cpu intel; "
                "other machines have all of this one's files"
            )
        if not self.intel:
            return
        if self.ran:
            raise Failure(
                "--ran with --cpu intel is not allowed; it is QEMU that "
                "says what was run"
            )
        if self.icount:
            raise Failure(
                "--icount with --cpu intel is not allowed; the time of that "
                "machine counts instructions anyway"
            )
        if self.shares:
            raise Failure(
                f"--share {self.shares[0]} with --cpu intel is not allowed; "
                "that machine can only write to its stdout and stderr"
            )
        if self.wire:
            raise Failure(
                f"--wire {self.wire.fileno()} with --cpu intel is not "
                "allowed; that machine has no virtio"
            )
        if self.cpus > intel.MAX_CPUS:
            raise Failure(
                f"--cpus {self.cpus} with --cpu intel is not allowed; it must "
                f"be a whole number from 1 to {intel.MAX_CPUS}"
            )
        if self.memory > intel.MAX_MEMORY:
            raise Failure(
                f"--memory {self.memory}M with --cpu intel is not allowed; "
                f"it must be at most {intel.MAX_MEMORY}M"
            )


def build(what: str, script: str, *arguments: str) -> None:
    """Bring something of ours up to date."""
    done = subprocess.run(
        [ROOT / "scripts" / script, "--quiet", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        check=False,
    )
    if done.returncode:
        raise Failure(f"{what} cannot be built; what is wrong is said above")


def built() -> Path:
    """Where what depends on the release of Debian (RELEASE) is built."""
    if not os.environ.get("RELEASE"):
        return BUILD
    done = subprocess.run(
        [ROOT / "scripts/lib/release-dir"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failure("there is no such release; what is wrong is said above")
    return Path(done.stdout.strip())


def find_kernel(name: str) -> Path:
    """The bzImage, brought up to date if it is one of ours."""
    if name in KINDS:
        build(f"the kernel {name}", "build-kernel", name)
        return built() / "linux" / name / "bzImage"
    try:
        with open(name, "rb") as file:
            head = file.read(0x206)
    except OSError as error:
        raise Failure(
            f"the kernel {name} cannot be read ({error.strerror}); allowed "
            f"are {', '.join(KINDS)} and the path of a bzImage"
        ) from None
    if head[0x202:] != b"HdrS":
        raise Failure(
            f"{name} is not a kernel; allowed are {', '.join(KINDS)} and the "
            "path of a bzImage"
        )
    return Path(name)


def find_emulator(options: Options) -> Path:
    """Debian's; ours for another CPU, or if Debian's is not steady."""
    if options.intel:
        try:
            intel.check_installed()
        except intel.Missing as missing:
            raise Failure(str(missing)) from None
        build("the Intel CPU", "build-bochs")
        return BOCHS
    debian = debian_qemu.PATH
    if not os.access(debian, os.X_OK):
        raise Failure(f"there is no {debian}; scripts/deps installs it")
    if options.hostile or not debian_qemu.is_steady(debian):
        build("the lab's QEMU", "build-lab-cpu")
        return OWN_QEMU
    return debian


def init_program() -> Path:
    """The first process, compiled once for each version of its source."""
    source = INIT_SOURCE.read_bytes()
    program = LAB / f"init-{hashlib.sha256(source).hexdigest()[:16]}"
    if not program.exists():
        fresh = program.with_name(f".{program.name}.{os.getpid()}")
        done = subprocess.run(
            ["gcc", "-O2", "-static", "-o", fresh, INIT_SOURCE],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Failure(
                f"gcc cannot compile {INIT_SOURCE} "
                f"({done.stderr.strip().splitlines()[-1]}); scripts/deps "
                "installs what it needs"
            )
        fresh.rename(program)
    return program


def environment() -> Iterator[bytes]:
    """The caller's environment, without what names places of the caller's."""
    for name, value in os.environb.items():
        if name not in (b"HOME", b"TMPDIR"):
            yield name + b"=" + value
    yield b"HOME=/tmp"


def kept(options: Options) -> list[str]:
    """The directories COMMAND must find although their place is hidden."""
    wanted = {Path.cwd(), ROOT, BUILD.resolve()}
    if options.intel:
        wanted = {Path.cwd(), *(path.parent for path in options.takes)}
    below = {
        path
        for path in wanted
        if any(hidden in path.parents for hidden in HIDDEN)
    }
    # One that is inside of another comes with that.
    return sorted(
        str(path) for path in below if not below & set(path.parents)
    )


def job(options: Options) -> bytes:
    """What init.c reads."""
    cpus = f"{options.spare}-{options.cpus}" if options.spare else ""
    ports = b"serial" if options.intel else b"virtio"
    strings = [ports, cpus.encode(), str(len(options.shares)).encode()]
    for number, share in enumerate(options.shares):
        strings += [f"share{number}".encode(), os.fsencode(share)]
    keep = [os.fsencode(name) for name in kept(options)]
    strings += [str(len(keep)).encode(), *keep, os.fsencode(os.getcwd())]
    strings.append(str(len(options.command)).encode())
    strings += [os.fsencode(word) for word in options.command]
    strings += environment()
    return b"".join(string + b"\0" for string in strings)


def quoted(path: Path) -> str:
    """A path on the kernel's command line, which knows only one quote."""
    if '"' in str(path):
        raise Failure(
            f'{path} has a " in its name; the build directory\'s path must '
            "be without"
        )
    return f'"{path}"'


def qemu_command(
    qemu: Path,
    options: Options,
    kernel: Path,
    init: Path,
    pipes: dict[str, int],
) -> list[str]:
    """QEMU's command line; pipes are the ends it writes to."""
    more = ICOUNT_COMMAND_LINE if options.icount else []
    append = " ".join(
        [COMMAND_LINE, QEMU_COMMAND_LINE, *more, f"init={quoted(init)}",
         *options.append]
    )
    words = [str(qemu), "-no-user-config", "-nodefaults", "-no-reboot"]
    words += ["-display", "none", "-nic", "none", "-monitor", "none"]
    words += ["-machine", "q35,vmport=off", "-cpu", options.cpu_model]
    smp = options.spare + options.cpus
    words += ["-smp", str(smp), "-m", f"{options.memory}M"]
    if options.icount:
        words += ["-accel", "tcg", "-icount", "shift=0,sleep=off"]
        words += ["-seed", "1", "-rtc", "clock=vm,base=2024-01-01"]
    else:
        words += ["-accel", "tcg,thread=multi"]
    words += ["-kernel", str(kernel), "-append", append, *options.ran]
    words += ["-virtfs"]
    words += [
        "local,path=/,mount_tag=host0,readonly=on,"
        "security_model=none,multidevs=remap"
    ]
    for number, share in enumerate(options.shares):
        path = share.replace(",", ",,")
        words += ["-virtfs"]
        words += [
            f"local,path={path},mount_tag=share{number},"
            "security_model=none,multidevs=remap"
        ]
    for name, fd in pipes.items():
        words += ["-chardev", f"file,id={name},path=/dev/fd/{fd}"]
    words += ["-serial", "chardev:log", "-device", "virtio-serial-pci"]
    if options.wire:
        # First, so that it is there as soon as init has its own.
        words += ["-chardev", f"socket,id=wire,fd={options.wire.fileno()}"]
        words += ["-device", "virtserialport,chardev=wire,name=lab.wire"]
    for name in ("out", "err", "status"):
        words += ["-device"]
        words += [f"virtserialport,chardev={name},name=lab.{name}"]
    return words


def intel_command(
    bochs: Path,
    work: Path,
    options: Options,
    kernel: Path,
    pipes: dict[str, int],
) -> list[str]:
    """Make the machine in work, and return Bochs' command line.

    Init and job are in work already.
    """
    root, content = work / "root", work / "cd"
    root.mkdir()
    content.mkdir()
    shutil.copy(work / "init", root / "init")
    shutil.copy(work / "job", root / "job")
    shutil.copy(kernel, content / "kernel")
    files = initramfs.wanted(options.command[0], options.takes)
    initramfs.make_initramfs(content / "files", root, files, Path.cwd())
    append = " ".join([COMMAND_LINE, INTEL_COMMAND_LINE, *options.append])
    intel.make_cd(work / "cd.iso", content, append)
    (work / "bochsrc").write_text(
        intel.configuration(
            work / "cd.iso",
            work / "log",
            options.cpus,
            options.memory,
            pipes,
        )
    )
    shutil.rmtree(root)
    shutil.rmtree(content)
    return [str(bochs), "-q", "-f", str(work / "bochsrc")]


@contextlib.contextmanager
def writing(name: str) -> Iterator[None]:
    """An error of write() has no name of a file; give it one."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or name
        raise


def write_all(fd: int, data: bytes, name: str) -> None:
    """Pass data on; a reader that has left does not end the machine."""
    with contextlib.suppress(BrokenPipeError), writing(name):
        while data:
            data = data[os.write(fd, data) :]


def tell(text: str) -> None:
    """Say it on stderr; if that is full, the exit status has to do."""
    with contextlib.suppress(OSError):
        write_all(2, f"{text}\n".encode(errors="backslashreplace"), "stderr")


class Machine:
    """One run of the emulator, and all that came out of it."""

    def __init__(
        self, options: Options, emulator: Path, kernel: Path
    ) -> None:
        self.options = options
        self.emulator = emulator
        self.kernel = kernel
        self.log_path = self.choose_log()
        self.log = bytearray()
        self.status = b""
        self.timed_out = False
        self.emulator_status = 0
        self.emulator_said = ""

    def choose_log(self) -> Path:
        """A new name; the oldest logs go."""
        logs = sorted(LAB.glob("*.log"), key=lambda path: path.name)
        for old in logs[:-LOGS_KEPT]:
            old.unlink(missing_ok=True)
        now = time.strftime("%Y%m%d-%H%M%S")
        return LAB / f"{now}-{os.getpid()}.log"

    def run(self) -> None:
        """Boot, pass the output on, and wait for the end."""
        with contextlib.ExitStack() as stack:
            work = Path(
                stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="run.", dir=LAB)
                )
            )
            init = work / "init"
            try:
                os.link(init_program(), init)
            except OSError:
                shutil.copy(init_program(), init)
            (work / "job").write_bytes(job(self.options))
            work.chmod(0o755)
            readers: dict[str, int] = {}
            writers: dict[str, int] = {}
            for name in ("out", "err", "status", "log"):
                readers[name], writers[name] = os.pipe()
                stack.callback(os.close, readers[name])
            error = stack.enter_context((work / "error").open("w+"))
            if self.options.intel:
                command = intel_command(
                    self.emulator, work, self.options, self.kernel, writers
                )
            else:
                command = qemu_command(
                    self.emulator, self.options, self.kernel, init, writers
                )
            wire = self.options.wire
            passed = [*writers.values(), *([wire.fileno()] if wire else [])]
            # An end of the lab, of whatever kind, is one of the machine.
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=error,
                stderr=error,
                pass_fds=passed,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            for fd in writers.values():
                os.close(fd)
            # The other end has to see when the machine is gone.
            if wire:
                wire.close()
            self.attend(process, readers)
            self.emulator_status = process.wait()
            error.seek(0)
            self.emulator_said = error.read().strip()
        self.keep_counters()

    def keep_counters(self) -> None:
        """The log has what the hostile CPU says of itself at its end."""
        counted = [
            f"{line}\n"
            for line in self.emulator_said.splitlines()
            if line.startswith("hostile: ")
        ]
        with writing(str(self.log_path)), self.log_path.open("a") as log:
            log.writelines(counted)
        if self.options.log_copy:
            with writing(self.options.log_copy):
                shutil.copyfile(self.log_path, self.options.log_copy)

    def attend(
        self, process: subprocess.Popen[bytes], readers: dict[str, int]
    ) -> None:
        """Read all that QEMU writes until it closes everything."""
        end = time.monotonic() + self.options.timeout
        with contextlib.ExitStack() as stack:
            select = stack.enter_context(selectors.DefaultSelector())
            log = stack.enter_context(self.log_path.open("wb", buffering=0))
            for name, fd in readers.items():
                select.register(fd, selectors.EVENT_READ, name)
            while select.get_map():
                left = end - time.monotonic()
                if left <= 0 and not self.timed_out:
                    self.timed_out = True
                    process.kill()
                for key, _ in select.select(max(left, 1)):
                    data = os.read(key.fd, 65536)
                    if not data:
                        select.unregister(key.fd)
                    elif key.data == "out":
                        write_all(1, data, "stdout")
                    elif key.data == "err":
                        write_all(2, data, "stderr")
                    elif key.data == "status":
                        self.status += data
                    else:
                        write_all(log.fileno(), data, str(self.log_path))
                        self.log += data

    def verdict(self) -> int:
        """COMMAND's exit status, or why there is none that counts."""
        where = f"the whole log is {self.log_path}"
        report = first_report(self.log.decode(errors="replace"))
        said = self.status.decode(errors="replace").strip()
        if report:
            tell("\n".join(report))
            panic = any("Kernel panic" in line for line in report)
            panic = panic or b"Kernel panic" in self.log
            what = "panicked" if panic else "complained"
            ended = re.match(r"exit (\d+)", said)
            but = f" (COMMAND ended with {ended[1]})" if ended else ""
            raise Failure(
                f"the guest's kernel {what} as shown above{but}; {where}",
                COMPLAINED,
            )
        if self.timed_out:
            raise Failure(
                f"the time limit of {self.options.timeout} s ended the "
                f"machine; --timeout SECONDS allows more, {where}",
                TIMED_OUT,
            )
        match = re.fullmatch(r"exit (\d+)", said)
        if match:
            return int(match[1])
        if said.startswith("error "):
            raise Failure(
                f"the guest {said.removeprefix('error ')}; it must be there "
                f"in the lab too (/tmp, /var/tmp, /run and /dev are the lab's "
                f"own), {where}"
            )
        # Bochs never ends with 0.
        if self.emulator_status and not (self.options.intel and self.log):
            reason = self.emulator_said.splitlines() or ["it said nothing"]
            raise Failure(
                f"the emulator ended with status {self.emulator_status} "
                f"({reason[-1]}); {where}"
            )
        raise Failure(
            f"the machine stopped before COMMAND ended; {where}", COMPLAINED
        )


def stop(number: int, _frame: object) -> NoReturn:
    """End by a signal, through all that has to be tidied up."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def cannot_use(error: OSError) -> str:
    """What the lab has no access to, or no room for."""
    if error.errno in FULL:
        # Of a copy, the second one is what was written.
        what = error.filename2 or error.filename or f"a file in {LAB}"
        return (
            f"{what} cannot be written ({error.strerror}); there must be "
            "room for it"
        )
    what = error.filename or "the working directory"
    return (
        f"{what} cannot be used ({error.strerror}); it must be there, and "
        "the caller must have the right to"
    )


def has_failed(error: subprocess.CalledProcessError) -> str:
    """Which program could not make its part of the machine."""
    said = error.stderr.decode(errors="replace").strip().splitlines()
    return (
        f"{error.cmd[0]} failed ({(said or ['it said nothing'])[-1]}); the "
        f"disk that has {LAB} may be full"
    )


def main(words: Sequence[str]) -> int:
    """Returns: the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        options = Options(words)
        emulator = find_emulator(options)
        kernel = find_kernel(options.kernel)
        LAB.mkdir(parents=True, exist_ok=True)
        machine = Machine(options, emulator, kernel)
        machine.run()
        return machine.verdict()
    except Failure as failure:
        tell(f"lab: {failure}")
        return failure.status
    except subprocess.CalledProcessError as error:
        tell(f"lab: {has_failed(error)}")
    except OSError as error:
        tell(f"lab: {cannot_use(error)}")
    return LAB_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
