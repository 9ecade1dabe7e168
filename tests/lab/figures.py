# SPDX-License-Identifier: GPL-2.0-or-later
"""The cost of dirty tracking, stock and patched, in instructions.

usage: python -m tests.lab.figures [--mebibytes N]

Runs dirty_tracking_perf_test with a clock that counts instructions, on both
kernels with static keys, as distributions build them, and prints a table: each
figure, the baseline and the ratio.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence

from .lab import BUILD_KERNEL, LAB, selftests

TEST = "x86_64/dirty_tracking_perf_test"
STOCK, PATCHED = "stock-keys", "patched-keys"

# Only at boot can pages of 1 GiB be reserved.
HUGE = ("--append", "hugepagesz=1G hugepages=2 hugepagesz=2M hugepages=640")

Figures = dict[str, int]


def measure(kernel: str, figures: Sequence[str], options: Sequence[str]) -> Figures:
    """Run the test on one kernel, and return its numbers by name."""
    print(f"figures: {', '.join(figures)} on the {kernel} kernel", file=sys.stderr)
    done = subprocess.run(
        [
            LAB,
            *("--kernel", kernel, "--icount", "--timeout", "1800"),
            *options,
            "--",
            selftests("patched") / TEST,
            *figures,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    # NAME NUMBER UNIT; a library may say more, as of its random seed.
    lines = re.findall(r"^(\S+) (\d+) \S+$", done.stdout, re.M)
    return {name: int(number) for name, number in lines}


def row(name: str, base: int, ours: int, slower: bool = False) -> str:
    """A line of the table; the ratio is the baseline's cost over ours."""
    ratio = ours / base if slower else base / ours
    return f"| {name} | {base:,} | {ours:,} | {ratio:,.3g} |"


def table(stock: Figures, patched: Figures, mebibytes: int) -> list[str]:
    """All figures, in Markdown."""
    memory = f"{mebibytes} MiB"
    lines = [
        "| figure | baseline | ours | ratio |",
        "|---|---|---|---|",
    ]
    for way in ("get", "clear"):
        base = stock[f"rearm.{way}"]
        for new in ("fetch", "shared"):
            lines.append(
                row(
                    f"harvest and re-arm {memory}, all dirty: {new} against "
                    f"stock's {way}",
                    base,
                    patched[f"rearm.{new}"],
                )
            )
    lines.append(
        row(
            f"turn on logging for {memory}",
            stock["enable.get"],
            patched["enable.shared"],
        )
    )
    lines.append(
        row(
            f"write {memory} again after a re-arm",
            stock["write-again.get"],
            patched["write-again.shared"],
        )
    )
    for way in ("get", "clear", "shared"):
        if f"migrate-fetch.{way}" in patched:
            lines.append(
                row(
                    f"fetch 64 MiB beside a writing vCPU: {way}",
                    stock["migrate-fetch.get"],
                    patched[f"migrate-fetch.{way}"],
                )
            )
    lines.append(
        row(
            f"1,000 dirty pages of 4 GiB, and of "
            f"{patched['sparse.large-size']} GiB",
            patched["sparse.small"],
            patched["sparse.large"],
            slower=True,
        )
    )
    base = patched["first-pass.4k.fault"]
    for size in ("2m", "1g"):
        for split in ("fault", "once", "chunks"):
            name = f"first-pass.{size}.{split}"
            if name in patched:
                lines.append(
                    row(
                        f"first pass of writes over 1 GiB, {size} pages, "
                        f"split by {split}, against 4k",
                        base,
                        patched[name],
                        slower=True,
                    )
                )
    for name in sorted(stock):
        if name.split(".")[0] in ("rearm", "write-again", "enable"):
            lines.append(
                row(
                    f"nothing enabled: {name}",
                    stock[name],
                    patched[name],
                    slower=True,
                )
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=3072)
    mebibytes = parser.parse_args().mebibytes
    size = ("-m", str(mebibytes))
    memory = ("--memory", f"{mebibytes + 1024}M")

    for kernel in (STOCK, PATCHED):
        subprocess.run([BUILD_KERNEL, kernel], check=True)
    both = []
    for kernel in (STOCK, PATCHED):
        numbers = measure(kernel, (*size, "rearm", "enable"), memory)
        numbers |= measure(
            kernel, ("-m", "64", "migrate"), ("--memory", "1G")
        )
        both.append(numbers)
    both[1] |= measure(PATCHED, ("sparse",), ("--memory", "4G"))
    both[1] |= measure(PATCHED, ("split",), ("--memory", "7G", *HUGE))

    print("\n".join(table(*both, mebibytes)))
    print()
    for name, value in sorted(both[1].items()):
        if name.split(".")[0] in ("log-and-split", "longest-ioctl", "page-tables"):
            print(f"{name} {value:,}")


if __name__ == "__main__":
    main()
