# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's machine with an Intel CPU: Bochs, started from a CD.

Bochs knows nothing of the file system it runs on, so that the machine gets a
copy of what COMMAND needs: an initramfs, on the CD beside the kernel.  Its
four serial lines are the kernel's log and COMMAND's stdout, stderr and status.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

BIOS = Path("/usr/share/bochs/BIOS-bochs-latest")
VGABIOS = Path("/usr/share/vgabios/vgabios.bin")
ISOLINUX = Path("/usr/lib/ISOLINUX/isolinux.bin")
LDLINUX = Path("/usr/lib/syslinux/modules/bios/ldlinux.c32")
# EPT with accessed and dirty bits, PML, unrestricted guest, VPID, VMCS shadowing,
# posted interrupts, and the scaling of the TSC.
MODEL = "corei7_skylake_x"
# With AVX-512, Bochs' sizes of what XSAVE saves are not what Linux makes of the
# features, and it warns of that.
EXCLUDED = ("avx512", "avx512dq", "avx512bw", "avx512cd")
MAX_CPUS = 8
MAX_MEMORY = 2048  # MiB
# Instructions in a second of the machine's time, which takes about a second
# where nothing else runs.  The TSC counts them; CPUID says that it is faster.
IPS = 100_000_000
CLOCK = f"tsc_early_khz={IPS // 1000}"
# Bochs enters no guest with posted interrupts unless their descriptor is at the
# start of a page; the architecture, and Linux, have it at any 64 bytes.
INTERRUPTS = "kvm_intel.enable_apicv=0"
# As fast as init.c has the other lines.  With 5,000 instructions for a character
# Bochs' lines stood still for seconds; these have 8,700.
CONSOLE = "console=ttyS0,115200"
# In the order of the machine's serial lines.
LINES = ("log", "out", "err", "status")


class Missing(Exception):
    """A sentence about what the machine cannot be made without."""


def check_installed() -> None:
    """Raises: Missing, if a package is not there."""
    needed = {
        BIOS: "bochsbios",
        VGABIOS: "vgabios",
        ISOLINUX: "isolinux",
        LDLINUX: "syslinux-common",
    }
    for path, package in needed.items():
        if not path.exists():
            raise Missing(
                f"there is no {path}, of the package {package}; scripts/deps "
                "installs it"
            )


def make_cd(image: Path, content: Path, append: str) -> None:
    """Write a CD that starts content/kernel with content/files."""
    shutil.copy(ISOLINUX, content / "isolinux.bin")
    shutil.copy(LDLINUX, content / "ldlinux.c32")
    (content / "isolinux.cfg").write_text(
        "default lab\nprompt 0\nlabel lab\n  kernel kernel\n"
        f"  initrd files\n  append {append}\n"
    )
    subprocess.run(
        ["xorriso", "-as", "mkisofs", "-quiet", "-o", image,
         "-b", "isolinux.bin", "-no-emul-boot", "-boot-load-size", "4",
         "-boot-info-table", content],
        capture_output=True,
        check=True,
    )


def configuration(
    cd: Path, log: Path, cpus: int, memory: int, pipes: dict[str, int]
) -> str:
    """Bochs' own file: what the machine is; memory is in MiB."""
    lines = [
        "display_library: nogui",
        f"romimage: file={BIOS}",
        f"vgaromimage: file={VGABIOS}",
        # Cores of one package: with packages of one core each, Linux warns that
        # its driver of the package's counters is lost.
        f"cpu: model={MODEL}, count=1:{cpus}:1, ips={IPS}, "
        "reset_on_triple_fault=0, ignore_bad_msrs=1, "
        f'exclude_features="{",".join(EXCLUDED)}"',
        f"memory: guest={memory}, host={memory}",
        "pci: enabled=1, chipset=i440fx",
        # Time counts instructions: figures repeat.
        "clock: sync=none, time0=1704067200",
        "ata0: enabled=1",
        f'ata0-master: type=cdrom, path="{cd}", status=inserted',
        "boot: cdrom",
        f"log: {log}",
        "panic: action=fatal",
        "error: action=ignore",
        "info: action=ignore",
        "debug: action=ignore",
    ]
    for number, name in enumerate(LINES, 1):
        lines.append(
            f"com{number}: enabled=1, mode=file, dev=/dev/fd/{pipes[name]}"
        )
    return "\n".join(lines) + "\n"
