# SPDX-License-Identifier: GPL-2.0-or-later
"""Tries this host, as docs/hardware.md tells.

usage: python -m qualify check|soak [--store DIR] ...
       python -m qualify measure [--first FILE | --second FILE] ...
       python -m qualify after --log FILE [--store DIR]
       python -m qualify codes --store DIR [--text]

"measure" is run on the stock kernel, which leaves its figures in a file, and
then on ours.  "after" is run when a kernel went down, and has its log.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from . import figures, steps
from .codes import LONGEST, show, texts
from .host import Host, Unfit, read
from .mechanism import NoAnswer, ask
from .result import MECHANISM, Invalid, Result, Trial, parse, wrapped
from .run import PAGE, RESULT, Store, after_death, keep_result, run_all

ROOT = Path(__file__).resolve().parent.parent
MEMORY = 1900  # MiB: this image's files, the tests' guests, and Linux
STEPS = {"check": steps.check, "soak": steps.soak}
# A guest that dirties as much as the published figures' (3 GiB), or less.
MEASURED_MIB, MEASURED_SHARE = 3072, 4

# Of KVM's parameters, those without which nothing can be with dirty bits.
WANTED_ON = ("kvm.dirty_tracking", "kvm.tdp_mmu", "kvm_intel.ept",
             "kvm_intel.eptad", "kvm_amd.npt")
START_OF_OURS = "start of our kernel"
MARK_LENGTH = 900  # a line of the kernel's log takes less than 1 KiB

# Exit statuses; Python's own is 1, when a program is wrong.
PASSED, FAILED, UNFIT = 0, 2, 3


def options(words: list[str]) -> argparse.Namespace:
    """What was asked for."""
    parse_words = argparse.ArgumentParser(prog="qualify", allow_abbrev=False)
    parse_words.add_argument("mode",
                             choices=(*STEPS, "measure", "after", "codes"))
    parse_words.add_argument("--selftests", type=Path, metavar="DIR",
                             default=ROOT / "selftests", help="KVM's and ours")
    parse_words.add_argument("--engine", type=Path, metavar="DIR",
                             default=ROOT / "engine", help="the engine's tests")
    parse_words.add_argument("--qemu", type=Path, metavar="FILE",
                             default=ROOT / "build/qemu/qemu-system-x86_64")
    parse_words.add_argument("--store", type=Path, metavar="DIR", default=[],
                             action="append",
                             help="where the result is kept; more than once")
    parse_words.add_argument("--commit", default="unknown", metavar="TEXT",
                             help="what of ours this is")
    parse_words.add_argument("--only", default="", metavar="TEXT",
                             help="of the tests, those with this in their names")
    parse_words.add_argument("--log", type=Path, metavar="FILE",
                             help="what the kernel said that went down")
    parse_words.add_argument("--mark", type=Path, metavar="FILE",
                             help="has all that is said, too: /dev/kmsg")
    parse_words.add_argument("--text", action="store_true",
                             help="codes as what a telephone would read")
    which = parse_words.add_mutually_exclusive_group()
    which.add_argument("--first", type=Path, metavar="FILE",
                       help="takes the figures of the stock kernel")
    which.add_argument("--second", type=Path, metavar="FILE",
                       help="has them")
    return parse_words.parse_args(words)


def kernel_log() -> str:
    """All that the kernel has said, with its times."""
    done = subprocess.run(["dmesg"], capture_output=True, text=True,
                          errors="replace", check=True)
    return done.stdout


def speaker(mark: Path | None) -> Callable[[str], None]:
    """What says a line to who looks, and to the kernel's log."""
    def say(text: str) -> None:
        print(f"qualify: {text}", flush=True)
        if mark:
            line = f"qualify: {text}"[:MARK_LENGTH]
            mark.write_text(f"{line}\n", encoding="utf-8")
    return say


def begin(given: argparse.Namespace, host: Host, mechanism: str,
          reason: str) -> Result:
    """A result of nothing yet."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Result(given.mode, given.only, given.commit, os.uname().release, now,
                  host.as_json(), mechanism, reason)


def judged(host: Host, mechanism: str) -> Trial:
    """Whether QEMU has taken the mechanism that it should take here.

    A parameter of KVM that is not as the kernel has it is somebody's wish.
    """
    name, kvm = MECHANISM, host.parameters
    if "kvm.dirty_tracking" not in kvm:
        return Trial(name, "fail", 0.0, "this kernel is not ours: KVM has no "
                     "parameter dirty_tracking")
    has = host.features["dirty-bits"]
    off = [key for key in WANTED_ON if kvm.get(key, "Y") in ("N", "0")]
    skipped = Trial(name, "skip", 0.0, f"{off[0]} is off") if off else None
    if skipped and "kvm.dirty_tracking" in off:
        return skipped
    due = "dirty-bits" if has and not off else "shared"
    if mechanism != due:
        return Trial(name, "fail", 0.0,
                     f"QEMU takes {mechanism}; here it should take {due}")
    # Where the CPU has none, KVM itself has switched some of them off.
    return skipped if skipped and has else Trial(name, "pass", 0.0)


def measure(given: argparse.Namespace, result: Result, store: Store,
            say: Callable[[str], None], known: Sequence[str]) -> bool:
    """Measure this kernel; the second one has both kernels' figures.

    Returns: whether our kernel has to go on.
    """
    mib = min(MEASURED_MIB, result.host["memory"] // MEASURED_SHARE)
    stock = given.first is not None
    goes_on = False
    wanted = steps.measure(tools_of(given), mib, "stock" if stock else "ours",
                           "log" if stock else result.mechanism)
    outputs = run_all(wanted, result, store, say, kernel_log, known)
    found = figures.measured("\n".join(outputs.values()))
    if stock:
        figures.save(given.first, found)
        goes_on = result.clean
        if goes_on:  # This is no result unless our kernel makes one of it.
            result.tests.append(Trial(START_OF_OURS, "died", 0.0))
    elif given.second:
        other = figures.load(given.second)
        result.figures = list(figures.side_by_side(other, found))
        if not result.figures:
            result.tests.append(Trial("figures", "fail", 0.0, "there is no "
                                      "figure that both kernels have"))
    keep_result(store, result)
    return goes_on


def is_first_half(path: Path) -> bool:
    """Whether the stock kernel has left that result for ours."""
    try:
        tests = parse(path.read_text(encoding="utf-8")).tests
    except (OSError, UnicodeDecodeError, Invalid):
        return False
    return bool(tests) and tests[-1].name == START_OF_OURS


def tools_of(given: argparse.Namespace) -> steps.Tools:
    return steps.Tools(given.selftests, given.engine)


def unknown(text: str, known: Iterable[steps.Step]) -> Trial:
    """A failure, since no test was chosen.

    A page has no room for the whole names.
    """
    begins = ", ".join(dict.fromkeys(step.name.split()[0] for step in known))
    sentence = (f'no test has "{text}" in its name; '
                f"the names begin with {begins}")
    return Trial(f"qualify.only={text}", "fail", 0.0,
                 "\n".join(wrapped([sentence])))


def try_all(given: argparse.Namespace, result: Result, store: Store,
            say: Callable[[str], None], log: Sequence[str]) -> None:
    """Check once, or soak round by round; LOG is as run_all() has KNOWN."""
    tools, cpus = tools_of(given), result.host["cpus"]
    rounds: Iterable[Iterable[steps.Step]] = (steps.check(tools, cpus),)
    if given.mode == "soak":
        rounds = (steps.soak(tools, cpus, number) for number in itertools.count(1))
    for number, one in enumerate(rounds, 1):
        known = list(one)
        wanted = [step for step in known if given.only in step.name]
        if number == 1 and not wanted:
            result.tests.append(unknown(given.only, known))
        run_all(wanted, result, store, say, kernel_log, log)
        if not wanted or not result.passed:
            break


def try_host(given: argparse.Namespace, store: Store,
             say: Callable[[str], None]) -> int:
    """Returns: the exit status."""
    if given.second:  # What follows replaces the first kernel's.
        store.set_aside(but=is_first_half)
    else:
        store.set_aside()
    store.keep(PAGE, "FAIL: it was begun, and no test was\n")
    # To ask QEMU starts KVM's first guest.
    known = kernel_log().splitlines()
    try:
        host = read(MEMORY)
        mechanism, reason = ask(given.qemu)
    except (Unfit, NoAnswer) as problem:
        store.keep(PAGE, f"FAIL: {problem}\n")
        say(str(problem))
        return UNFIT
    result = begin(given, host, mechanism, reason)
    if not given.first:
        result.tests.append(judged(host, mechanism))
    if given.mode == "measure":
        if measure(given, result, store, say, known):
            return PASSED
    else:
        try_all(given, result, store, say, known)
    print(result.page(), end="", flush=True)
    return PASSED if result.passed else FAILED


def show_codes(store: Store, say: Callable[[str], None], as_text: bool) -> int:
    """Draw the codes of a result, each until a key is hit, or print them."""
    try:
        result = parse(store.text(RESULT) or "")
    except Invalid:
        say(f"there is no {RESULT} to be shown")
        return FAILED
    if as_text:
        print("\n".join(texts(result, LONGEST)))
        return PASSED
    for text in texts(result, shutil.get_terminal_size().lines):
        show(text)
        sys.stdin.readline()
    return PASSED


def main(words: list[str]) -> int:
    """Returns: 0 if the host passed, 2 if not, 3 if it cannot be tried."""
    given = options(words)
    say = speaker(given.mark)
    store = Store(given.store, say)
    if given.mode == "codes":
        return show_codes(store, say, given.text)
    if given.mode == "after":
        log = given.log.read_text(encoding="utf-8", errors="replace")
        print(after_death(store, log), end="", flush=True)
        return FAILED
    return try_host(given, store, say)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
