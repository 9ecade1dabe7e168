# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab itself: its inputs and outputs, and that it misses no failure."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from .lab import (
    BUILD,
    BUILD_KERNEL,
    BUILT,
    COMPLAINED,
    LAB,
    LAB_FAILED,
    ROOT,
    TIMED_OUT,
    lab,
    must,
    mutant,
    mutation,
    running,
    selftests,
)

INTEL = ["--cpu", "intel"]

PROVOKE = "/sys/kernel/debug/provoke-crash/DIRECT"
# The provocation, the line in the log, and the lab's word for it.
PROVOKED = [
    ("WARNING", "WARNING: CPU: ", "complained"),
    ("BUG", "kernel BUG at ", "panicked"),
    ("EXCEPTION", "BUG: kernel NULL pointer dereference", "panicked"),
    ("PANIC", "Kernel panic - not syncing: dumptest", "panicked"),
]

# The lab without a machine: its emulator only writes.
ALONE = f"""
import sys
from pathlib import Path
sys.path.append({str(ROOT / "lab")!r})
import lab
lab.find_emulator = lambda options: Path("emulator").absolute()
lab.find_kernel = Path
sys.exit(lab.main(["--kernel", "/etc/hostname", *sys.argv[1:], "--", "true"]))
"""
EMULATOR = """\
#!/bin/sh
for word; do
    case $word in
    "file,id=$WRITES,path="*) seq 1000000 >"${word##*=}" ;;
    esac
done
"""
SMALL_DISK = ["unshare", "--mount", "sh", "-c",
              'mount -t tmpfs -o size=2m tmpfs build && exec "$@"', "sh"]
NO_SPACE = "No space left on device"

# These are the lab's own, and have only what COMMAND must find there.
HIDDEN = ["/tmp", "/var/tmp", "/run", "/dev/shm"]


def kept_in(directory: str, cwd: Path) -> list[str]:
    """The names in directory that lead to cwd, the checkout or the build."""
    return sorted(
        {
            path.relative_to(directory).parts[0]
            for path in (cwd, ROOT, BUILD.resolve())
            if Path(directory) in path.parents
        }
    )


def provoke(what: str) -> list[str]:
    """Have the kernel do something wrong, and say that all went well."""
    return ["sh", "-c", f"echo begun; echo {what} >{PROVOKE}; echo survived"]


class TestCommand:
    """The inputs and outputs of COMMAND."""

    def test_output_and_status(self) -> None:
        ended = lab("sh", "-c", "echo out; echo err >&2; exit 7")
        assert (ended.status, ended.stdout, ended.stderr) == (
            7,
            "out\n",
            "err\n",
        )

    def test_arguments_are_not_touched(self) -> None:
        words = ["a b", "it's", '"q"', "new\nline", "", "$HOME"]
        words += ["*", "--", "--cpus", "é"]
        ended = lab("printf", "<%s>", *words)
        assert ended.stdout == "".join(f"<{word}>" for word in words)
        assert ended.status == 0

    def test_bytes_are_not_touched(self) -> None:
        program = (
            "import sys; sys.stdout.buffer.write(bytes(range(256)) * 999)"
        )
        done = subprocess.run(
            [LAB, "--kernel", "stock", "--", "python3", "-c", program],
            stdout=subprocess.PIPE,
            check=True,
        )
        assert done.stdout == bytes(range(256)) * 999

    @pytest.mark.parametrize(
        ("command", "status"),
        [
            (["sh", "-c", "kill -9 $$"], 128 + signal.SIGKILL),
            (["sh", "-c", "kill -SEGV $$"], 128 + signal.SIGSEGV),
            (["/no/such/program"], 127),
            (["no-such-program"], 127),
            ([str(ROOT / "README.md")], 126),
            (["/etc"], 126),
        ],
    )
    def test_status_as_in_a_shell(
        self, command: list[str], status: int
    ) -> None:
        assert lab(*command).status == status

    def test_what_it_leaves_running_ends_with_it(self) -> None:
        # If the lab waited for it, it would end with TIMED_OUT.
        ended = lab("sh", "-c", "setsid sleep 1000 & echo begun")
        assert (ended.status, ended.stdout) == (0, "begun\n")

    def test_output_comes_as_it_is_written(self) -> None:
        with running("sh", "-c", "echo begun; sleep 1000") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            assert process.poll() is None

    def test_surroundings(self) -> None:
        """One boot for the surroundings that a program may expect."""
        script = """
            set -e
            pwd; id -u; echo $HOME; echo "$FDT_TEST"
            ! touch /etc/fdt-lab 2>/dev/null; test ! -e /etc/fdt-lab
            for dir in %s; do
                echo $(ls $dir); touch $dir/fdt-lab
            done
            mount | grep -q hugetlbfs.*1024M
            test -d /sys/kernel/debug/kvm
            test -d /sys/kernel/tracing/events/kvm
            test -e /sys/fs/cgroup/cgroup.controllers
            echo to-fd-2 >/dev/stderr
            python3 -c 'import socket; socket.create_server(("127.0.0.1", 0))'
        """ % " ".join(HIDDEN)
        cwd = ROOT / "tests"
        os.environ["FDT_TEST"] = "a b"
        try:
            ended = lab("sh", "-c", script, cwd=cwd)
        finally:
            del os.environ["FDT_TEST"]
        assert ended.status == 0, ended
        assert ended.stdout.splitlines() == [
            str(cwd),
            "0",
            "/tmp",
            "a b",
            *(" ".join(kept_in(directory, cwd)) for directory in HIDDEN),
        ]
        assert ended.stderr == "to-fd-2\n"

    def test_working_directory_below_tmp(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("here")
        ended = lab("sh", "-c", "cat file; touch new; ls /tmp", cwd=tmp_path)
        assert ended.stdout.startswith("here")
        assert not (tmp_path / "new").exists()
        assert ended.stdout.removeprefix("here").split() == kept_in(
            "/tmp", tmp_path
        )

    def test_share_can_be_written(self, share: Path) -> None:
        (share / "question").write_text("six times seven")
        ended = lab(
            "sh",
            "-c",
            'cd "$1" && cat question && echo 42 >answer && '
            "head -c 5000000 /dev/zero >big",
            "sh",
            share,
            options=["--share", str(share)],
        )
        assert (ended.status, ended.stdout) == (0, "six times seven"), ended
        assert (share / "answer").read_text() == "42\n"
        assert (share / "big").stat().st_size == 5000000

    def test_two_at_once(self) -> None:
        with running("sh", "-c", "echo one; sleep 1000") as one:
            assert one.stdout is not None
            assert one.stdout.readline() == "one\n"
            assert lab("echo", "two").stdout == "two\n"
            assert one.poll() is None


class TestMachine:
    """The properties of the machine."""

    def test_kvm_with_nested_paging(self) -> None:
        program = (
            "import fcntl, os; kvm = os.open('/dev/kvm', os.O_RDWR)\n"
            "print(fcntl.ioctl(kvm, 0xAE00), fcntl.ioctl(kvm, 0xAE01) > 0)\n"
            "for name in 'kvm/parameters/tdp_mmu', 'kvm_amd/parameters/npt':\n"
            "    print(open('/sys/module/' + name).read().strip())\n"
        )
        ended = lab("python3", "-c", program)
        assert ended.stdout.split() == ["12", "True", "Y", "Y"], ended

    @pytest.mark.parametrize(("cpus", "those"), [("1", "0"), ("3", "1-3")])
    def test_cpus(self, cpus: str, those: str) -> None:
        """KVM would not be safe on CPU 0, unless that is the only one."""
        program = (
            "import os; os.sched_setaffinity(0, range(64))\n"
            "for line in open('/proc/self/status'):\n"
            "    if line.startswith('Cpus_allowed_list'): print(line)\n"
        )
        ended = lab("python3", "-c", program, options=["--cpus", cpus])
        assert ended.stdout.split() == ["Cpus_allowed_list:", those], ended

    def test_command_line_and_memory(self) -> None:
        ended = lab(
            "sh",
            "-c",
            "cat /sys/module/kvm/parameters/tdp_mmu; head -n1 /proc/meminfo",
            options=["--append", "kvm.tdp_mmu=0", "--memory", "768M"],
        )
        tdp_mmu, _, kilobytes, _ = ended.stdout.split()
        assert tdp_mmu == "N"
        assert 600_000 < int(kilobytes) < 768 * 1024

    @pytest.mark.soak
    def test_time_that_counts_instructions_repeats(self) -> None:
        # Only the second loop counts: the first brings the code in over 9p.
        # The seed decides where Python finds names in its dictionaries.
        program = (
            "import time\n"
            "for turn in range(2):\n"
            "    begun = time.monotonic_ns()\n"
            "    for n in range(100000): pass\n"
            "print(time.monotonic_ns() - begun)"
        )
        command = ["env", "PYTHONHASHSEED=0", "python3", "-c", program]
        figures = [
            int(lab(*command, options=["--icount"]).stdout) for _ in range(2)
        ]
        assert max(figures) <= 1.01 * min(figures), figures


class TestComplaints:
    """If the kernel breaks, the command fails, whatever its status."""

    @pytest.mark.parametrize(("what", "line", "verb"), PROVOKED)
    def test_provoked(self, what: str, line: str, verb: str) -> None:
        ended = lab(*provoke(what))
        assert ended.status == COMPLAINED
        assert re.search(line, ended.stderr)
        assert f"the guest's kernel {verb} as shown above" in ended.sentence
        assert line in ended.log

    def test_warning_does_not_end_the_command(self) -> None:
        ended = lab("sh", "-c", f"echo WARNING >{PROVOKE}; echo on; exit 5")
        assert ended.stdout == "on\n"
        assert ended.status == COMPLAINED
        assert "(COMMAND ended with 5)" in ended.sentence

    def test_machine_that_resets(self) -> None:
        ended = lab("sh", "-c", "echo b >/proc/sysrq-trigger; sleep 100")
        assert ended.status == COMPLAINED
        assert "stopped before COMMAND ended" in ended.sentence

    def test_program_that_crashes_is_no_complaint(self) -> None:
        program = "import ctypes; ctypes.string_at(8)"
        ended = lab("python3", "-c", program)
        assert ended.status == 128 + signal.SIGSEGV
        assert ended.stderr == ""

    def test_hang(self) -> None:
        ended = lab("sh", "-c", "echo begun; exec sleep 1000", seconds=20)
        assert ended.status == TIMED_OUT
        assert ended.stdout == "begun\n"
        assert "the time limit of 20 s" in ended.sentence

    def test_kernel_that_hangs(self) -> None:
        for seconds in (8, 16, 32, 64):  # A busy machine takes long to start.
            ended = lab(*provoke("HARDLOCKUP"), seconds=seconds,
                        options=["--cpus", "1"])
            assert ended.status == TIMED_OUT
            if ended.stdout:
                break
        assert ended.stdout == "begun\n"

    @pytest.mark.soak
    @pytest.mark.parametrize(
        ("what", "line"),
        [
            # What of it comes first depends on the kernel.
            ("SPINLOCKUP", "lock held when returning to user|sleeping function"),
            ("WRITE_AFTER_FREE", "KASAN: "),
        ],
    )
    def test_found_by_the_debug_kernel(self, what: str, line: str) -> None:
        ended = lab(*provoke(what), kernel="debug")
        assert ended.status == COMPLAINED
        assert re.search(line, ended.stderr)

    @pytest.mark.soak
    def test_mutant_is_the_patched_kernel_and_one_change(
        self, tmp_path: Path
    ) -> None:
        """The mutant says so itself, and the patched kernel stays as it was."""
        program = (
            "import fcntl, os\n"
            "print(fcntl.ioctl(os.open('/dev/kvm', os.O_RDWR), 0xAE00))"
        )
        must([BUILD_KERNEL, "--quiet", "patched"])
        patch = mutation(
            "lab-selftest",
            "virt/kvm/kvm_main.c",
            "r = KVM_API_VERSION;",
            "r = 42;",
            tmp_path,
        )
        before = stamps("src/linux", "linux/patched")
        kernel = mutant(patch)
        assert stamps("src/linux", "linux/patched") == before
        command = ["python3", "-c", program]
        assert lab(*command, kernel=kernel).stdout == "42\n"
        assert lab(*command, kernel="patched").stdout == "12\n"


def stamps(*trees: str) -> dict[str, tuple[int, int]]:
    """Size and time of every file there: a write to a file shows."""
    found = {}
    for tree in trees:
        for directory, _, names in os.walk(BUILT / tree):
            for name in names:
                path = os.path.join(directory, name)
                status = os.lstat(path)
                found[path] = (status.st_size, status.st_mtime_ns)
    assert found
    return found


class TestEnd:
    """The lab leaves nothing behind, however it ends."""

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_signal_ends_the_machine(self, number: signal.Signals) -> None:
        with running("sh", "-c", "echo begun; sleep 1000") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            machines = children(process.pid)
            assert machines
            process.send_signal(number)
            assert process.wait(20) == 128 + number
            assert not any(map(alive, machines))

    def test_killed(self) -> None:
        with running("sh", "-c", "echo begun; sleep 1000") as process:
            assert process.stdout is not None
            process.stdout.readline()
            machines = children(process.pid)
            process.kill()
            process.wait(20)
            end = time.monotonic() + 20
            while any(map(alive, machines)) and time.monotonic() < end:
                time.sleep(0.1)
            assert not any(map(alive, machines))


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()]


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody waits for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class TestIntel:
    """The other machine, Bochs, keeps the same promises."""

    @pytest.mark.soak
    def test_kvm_with_ept(self) -> None:
        parameters = "/sys/module/kvm*/parameters"
        ended = lab(
            "sh",
            "-c",
            "grep -m 1 -o GenuineIntel /proc/cpuinfo; ls -C /dev/kvm; "
            f"cat {parameters}/ept {parameters}/eptad {parameters}/tdp_mmu "
            f"{parameters}/unrestricted_guest {parameters}/pml",
            options=INTEL,
        )
        assert ended.status == 0, ended.stderr
        assert ended.stdout.split() == [
            "GenuineIntel", "/dev/kvm", "Y", "Y", "Y", "Y", "Y",
        ]

    def test_output_and_status(self, tmp_path: Path) -> None:
        """A script that was taken runs, and its output keeps every byte."""
        cwd = tmp_path / "cwd"
        cwd.mkdir()
        script = tmp_path / "taken/script"
        script.parent.mkdir()
        script.write_text("#!/bin/bash\nprintf 'a\\nb\\r\\0\\377\\t'\n"
                          "echo to err >&2\nls -d \"$PWD\" >&2\nexit 37\n")
        script.chmod(0o755)
        done = subprocess.run(
            [LAB, *INTEL, "--take", script, "--", "bash", "-c",
             f"{script}; echo $?; no-such-program"],
            capture_output=True, cwd=cwd, check=False,
        )
        assert done.stdout == b"a\nb\r\0\377\t37\n"
        assert done.stderr.startswith(f"to err\n{cwd}\n".encode())
        assert done.returncode == 127

    @pytest.mark.soak
    @pytest.mark.parametrize(("what", "line", "verb"), PROVOKED[-2:])
    def test_provoked(self, what: str, line: str, verb: str) -> None:
        ended = lab(*provoke(what), options=INTEL)
        assert ended.status == COMPLAINED
        assert re.search(line, ended.stderr)
        assert f"the guest's kernel {verb} as shown above" in ended.sentence

    def test_warning_does_not_end_the_command(self) -> None:
        ended = lab(*provoke("WARNING"), options=INTEL)
        assert ended.stdout == "begun\nsurvived\n"
        assert ended.status == COMPLAINED
        assert "(COMMAND ended with 0)" in ended.sentence

    def test_machine_that_resets(self) -> None:
        ended = lab(
            "sh", "-c", "echo b >/proc/sysrq-trigger; sleep 100", options=INTEL
        )
        assert ended.status == COMPLAINED
        assert "stopped before COMMAND ended" in ended.sentence

    def test_hang(self) -> None:
        # A sleep would take no time: there is nothing to emulate.
        ended = lab(
            "sh", "-c", "echo begun; while :; do :; done", seconds=25,
            options=INTEL,
        )
        assert ended.status == TIMED_OUT
        assert ended.stdout == "begun\n"
        assert "the time limit of 25 s" in ended.sentence

    @pytest.mark.soak
    def test_interrupts_end_a_guest(self) -> None:
        """They also end a guest that has them off, as in the selftests."""
        race = selftests("patched") / "x86_64/write_protect_race_test"
        ended = lab(
            "sh",
            "-c",
            f"{race} -v 1 -t 2 >/dev/null & sleep 1; "
            "cat /sys/kernel/debug/kvm/irq_exits; wait $!",
            kernel="patched",
            options=[*INTEL, "--take", str(race)],
        )
        assert ended.status == 0, ended.stderr
        assert int(ended.stdout) > 20, "a second has 250 ticks"

    @pytest.mark.soak
    def test_two_cpus(self) -> None:
        ended = lab(
            "grep", "-c", "^processor", "/proc/cpuinfo",
            options=[*INTEL, "--cpus", "2"],
        )
        assert (ended.status, ended.stdout) == (0, "2\n"), ended.stderr


class TestRefusals:
    """The lab answers bad options with one sentence, and starts no machine."""

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ([], "there is no command"),
            (["--"], "there is no command"),
            (["--kernel", "stock", "true"], "there is no command"),
            (["--frobnicate", "--", "true"], "--frobnicate"),
            (["true", "--", "true"], "true"),
            (["--cpus", "0", "--", "true"], "--cpus 0"),
            (["--cpus", "64", "--", "true"], "--cpus 64"),
            (["--cpus", "two", "--", "true"], "--cpus two"),
            (["--icount", "--cpus", "2", "--", "true"], "--icount"),
            (["--kernel", "stock-keys", "--", "true"], "stock-keys with 2"),
            (["--memory", "64M", "--", "true"], "--memory 64M"),
            (["--memory", "2T", "--", "true"], "--memory 2T"),
            (["--timeout", "0", "--", "true"], "--timeout 0"),
            (["--share", "/no/such", "--", "true"], "--share /no/such"),
            (["--take", "/etc/hostname", "--", "true"], "--take /etc/host"),
            (["--wire", "socket", "--", "true"], "--wire socket"),
            (["--wire", "99", "--", "true"], "--wire 99"),
            (["--wire", "9" * 20, "--", "true"], f"--wire {'9' * 20}"),
            (["--ran", "1..2=x", "--", "true"], "--ran 1..2=x"),
            (["--ran", "0x1..0x2", "--", "true"], "--ran 0x1..0x2"),
            ([*INTEL, "--ran", "0x1..0x2=x", "--", "true"], "--ran with"),
            (["--cpu", "intel=2", "--", "true"], "--cpu intel=2"),
            ([*INTEL, "--take", "/no/such", "--", "true"], "--take /no/such"),
            ([*INTEL, "--share", "/etc", "--", "true"], "--share /etc"),
            ([*INTEL, "--icount", "--", "true"], "--icount"),
            ([*INTEL, "--cpus", "9", "--", "true"], "--cpus 9"),
            ([*INTEL, "--memory", "3G", "--", "true"], "--memory 3072M"),
            ([*INTEL, "--cpu-model", "max", "--", "true"], "--cpu-model max"),
            (["--kernel", "/no/such", "--", "true"], "/no/such"),
            (["--kernel", "/etc/hostname", "--", "true"], "not a kernel"),
            (["--kernel", "/etc", "--", "true"], "/etc"),
        ],
    )
    def test_bad_option(self, words: list[str], said: str) -> None:
        done = subprocess.run(
            [LAB, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == LAB_FAILED
        lines = done.stderr.splitlines()
        assert len(lines) == 1, done.stderr
        assert lines[0].startswith("lab: ") and ";" in lines[0]
        assert said in lines[0]
        assert done.stdout == ""

    def test_option_that_qemu_refuses(self) -> None:
        ended = lab("true", options=["--cpu-model", "abacus"])
        assert ended.status == LAB_FAILED
        assert "the emulator ended with status 1" in ended.sentence
        assert "abacus" in ended.sentence


class TestNoRoom:
    """The lab tells in one sentence what is full, and it is no COMMAND's."""

    @pytest.fixture(name="where")
    def fixture_where(self, tmp_path: Path) -> Path:
        """Where a lab of its own is called from."""
        (tmp_path / "bin").mkdir()
        (tmp_path / "build").mkdir()
        (tmp_path / "alone.py").write_text(ALONE)
        (tmp_path / "emulator").write_text(EMULATOR)
        (tmp_path / "emulator").chmod(0o755)
        return tmp_path

    def said(
        self, where: Path, options: str, writes: str = "",
        within: Sequence[str] = (),
    ) -> str:
        """What the lab says; writes is the line that the emulator writes to."""
        path = f"{where}/bin:{os.environ['PATH']}"
        done = subprocess.run(
            [*within, "sh", "-c",
             f"exec /usr/bin/python3 -B alone.py {options}"],
            cwd=where,
            env={**os.environ, "FDT_BUILD": str(where / "build"),
                 "PATH": path, "WRITES": writes},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert done.returncode == LAB_FAILED, done.stderr
        return done.stderr

    @pytest.mark.parametrize(("writes", "options", "name"), [
        ("out", ">/dev/full", "stdout"),
        ("log", "--log /dev/full", "/dev/full"),
    ])
    def test_output(
        self, where: Path, writes: str, options: str, name: str
    ) -> None:
        assert self.said(where, options, writes) == (
            f"lab: {name} cannot be written ({NO_SPACE}); there must be room "
            "for it\n"
        )

    def test_stderr(self, where: Path) -> None:
        """The status is all that can be told."""
        assert self.said(where, "2>/dev/full", "err") == ""

    @pytest.mark.parametrize(("writes", "options", "name"), [
        ("log", "", r"\d+-\d+-\d+\.log"),
        ("", "--cpu intel", r"run\.\w+/root/.+"),
    ])
    def test_disk_of_the_lab(
        self, where: Path, writes: str, options: str, name: str
    ) -> None:
        """It has room for init, but not for what comes next."""
        if os.geteuid() != 0:
            pytest.skip("only root can mount a small file system")
        said = self.said(where, options, writes, SMALL_DISK)
        assert re.fullmatch(
            f"lab: {where}/build/lab/{name} cannot be written "
            rf"\({NO_SPACE}\); there must be room for it\n", said
        ), said

    @pytest.mark.parametrize(("program", "said", "status"), [
        ("cpio", f"cpio: write error: {NO_SPACE}", 2),
        ("xorriso", "xorriso : FAILURE : Image size exceeds free space", 32),
    ])
    def test_program_that_makes_the_machine(
        self, where: Path, program: str, said: str, status: int
    ) -> None:
        path = where / "bin" / program
        path.write_text(f"#!/bin/sh\necho '{said}\n' >&2\nexit {status}\n")
        path.chmod(0o755)
        assert self.said(where, "--cpu intel") == (
            f"lab: {program} failed ({said}); the disk that has "
            f"{where}/build/lab may be full\n"
        )
