# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine on a KVM that is broken or hostile, by hypothesis.

broken_kvm.c is one life of a virtual machine on such a KVM, and says what must
hold whatever KVM does.  Here are the cases; one that fails is made as short as
possible, and is printed.  Put into a file, it can be run alone:

    build/meson-asan/tests/unit/broken_kvm FILE
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("FDT_BUILD", ROOT / "build"))
PROGRAM = BUILD / "meson-asan" / "tests" / "unit" / "broken_kvm"
LIMIT = 60.0  # seconds; the program gives up by itself before that

AUTO, LOG, RING, WRPROT, SHARED, DIRTY_BITS = range(6)
MECHANISMS = st.integers(AUTO, DIRTY_BITS)
BITMAPS = (LOG, WRPROT, SHARED, DIRTY_BITS)

# As in struct kvm_dirty_gfn.
FLAG_DIRTY, FLAG_RESET = 1, 2

# In the order of request_of() in broken_kvm.c.
(CHECK_EXTENSION, ENABLE_CAP, GET_STATS_FD, SET_REGION, GET_BITMAP_FD, GET_LOG,
 CLEAR_LOG, RESET_RINGS, PROTECT_ALL, PROTECT_RANGE, COLLECT,
 SPLIT) = range(12)

EINTR, EAGAIN, ENOMEM = 3, 10, 11  # errno less 1, as errno_of() has it

CPU = st.integers(0, 1)
SLOT = st.integers(0, 3)
PAGE = st.integers(0, 1499)
COUNT = st.integers(1, 400)
# 15 is the last of the slot that each life begins with.
WORD = st.one_of(st.just(15), st.integers(0, 24))
BITS = st.one_of(st.just(2**64 - 1),
                 st.integers(0, 63).map(lambda bit: 1 << bit),
                 st.integers(0, 2**64 - 1))
ERRNO = st.one_of(st.sampled_from((EINTR, EAGAIN, ENOMEM)),
                  st.integers(0, 4094))
TIMES = st.one_of(st.integers(1, 3), st.just(-1))
U64 = st.one_of(PAGE, st.sampled_from((2**32, 2**63, 2**64 - 1)),
                st.integers(0, 2**64 - 1))
U32 = st.one_of(SLOT, st.sampled_from((2**16, 2**31, 2**32 - 1)),
                st.integers(0, 2**32 - 1))


def command(name: str, *arguments: st.SearchStrategy[int]
            ) -> st.SearchStrategy[str]:
    """Make lines of a case."""
    return st.tuples(*arguments).map(
        lambda numbers: " ".join([name, *map(str, numbers)]))


def together(*commands: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Make lines that seldom follow each other by chance."""
    return st.tuples(*commands).map("\n".join)


SYNC, CHECK = command("sync"), command("check")
WRITE = command("write", CPU, SLOT, PAGE, COUNT)
FLOOD = command("flood", CPU, SLOT, PAGE, COUNT)
LIFE = (
    WRITE, WRITE, SYNC, SYNC, command("harvest"), command("look"),
    command("ahead", st.integers(0, 1)), command("brake"),
    command("slot-sync", SLOT), command("clear", SLOT, PAGE),
    command("add", SLOT, PAGE, st.integers(0, 3)), command("remove", SLOT),
    command("log", SLOT, st.integers(0, 1)), command("vcpu", CPU),
    CHECK,
)
FAILURES = (
    command("fail", st.integers(CHECK_EXTENSION, SPLIT), ERRNO, TIMES),
    command("fail-late", st.integers(CHECK_EXTENSION, SPLIT), ERRNO, TIMES),
)
SPLITS = command("split", st.integers(0, 2),
                 st.integers(0, 64).map(lambda chunks: chunks << 20))
SWITCH = command("switch", MECHANISMS)
TEAR = command("tear", CPU, st.integers(0, 255), st.integers(0, 4095))
ENTRIES = (
    command("fill", CPU, U32, U64,
            st.sampled_from((FLAG_DIRTY, FLAG_DIRTY, FLAG_RESET,
                             FLAG_DIRTY | FLAG_RESET, 2**32 - 1))),
    TEAR, together(CHECK, WRITE, TEAR, SYNC, CHECK), FLOOD,
)
RESETS = (
    command("resets", st.one_of(st.integers(0, 600), st.integers(0, 2**31)),
            st.integers(1, 7), st.integers(0, 1)),
    command("stops", st.integers(0, 511), st.integers(1, 7)),
    command("fail", st.just(RESET_RINGS), ERRNO, TIMES),
    command("fail-late", st.just(RESET_RINGS), ERRNO, TIMES),
)
SCRIBBLE = command("scribble", CPU, st.integers(0, 255), U32, U64,
                   st.one_of(st.integers(0, 3), st.integers(0, 2**32 - 1)))
DIRTY = command("dirty", SLOT, WORD, BITS)
SUMMARY = command("summary", SLOT,
                  st.one_of(st.just(0), st.integers(0, 511)), BITS)
WORDS = (DIRTY, SUMMARY, together(DIRTY, SUMMARY, SYNC))
MAP_SIZE = st.one_of(st.sampled_from((0, 8, 4088, 4096, 8192)),
                     st.integers(0, 2**64 - 1))
MAP = command("map", MAP_SIZE, MAP_SIZE, MAP_SIZE, MAP_SIZE)
AMID = st.tuples(st.integers(1, 400), st.one_of(
    WRITE, FLOOD, ENTRIES[0], DIRTY, SUMMARY)).map(
        lambda pair: f"in {pair[0]} {pair[1]}")

HOST = st.tuples(
    command("rings", st.sampled_from((-1, 0, 1, 15, 16, 48, 2048, 4096, 16000,
                                      65536 * 16, 2**31 - 1)),
            st.sampled_from((1, 16, 576))),
    command("manual", st.sampled_from((0, 1, 3, 3, -1, 2, 7)),
            st.integers(0, 1)),
    command("patched", st.integers(0, 31), st.sampled_from((0, 0, 1, 2, 4, 16))
            ))
GOOD_HOST = ("rings 1048576 64", "manual 3 0", "patched 31 0")


def run(lines: list[str]) -> None:
    """Fail with the program's message if the case ended badly."""
    done = subprocess.run([PROGRAM], input="\n".join(lines) + "\n", text=True,
                          capture_output=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, (
        "\n".join(lines) + f"\n{done.stdout}{done.stderr}")


def lives(*commands: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    """Make a case of some of COMMANDS and of what happens to any guest."""
    return st.lists(st.one_of(*LIFE, *commands), min_size=1, max_size=40)


def on_bitmaps(mechanism: int, manual: int, life: list[str]) -> list[str]:
    """Return a case with a mechanism that has bitmaps."""
    return [GOOD_HOST[0], f"manual {manual} 0", GOOD_HOST[2],
            f"ask {mechanism} 0", "add 0 999 1", *life]


def on_rings(size: int, patched: int, life: list[str]) -> list[str]:
    """Return a case with rings."""
    return [*GOOD_HOST[:2], f"patched {patched} 0", f"ask {RING} {size}",
            "add 0 999 1", *life]


BITMAP_FAILURES = st.builds(
    on_bitmaps, st.sampled_from(BITMAPS), st.sampled_from((0, 1, 3)),
    lives(*FAILURES, *FAILURES, SWITCH, AMID, SPLITS))
BITMAP_LIES = st.builds(
    on_bitmaps, st.sampled_from(BITMAPS), st.sampled_from((0, 1, 3)),
    lives(*WORDS, *WORDS, MAP, SWITCH, *FAILURES, AMID, command("reaper")))
RING_SIZES = st.sampled_from((128, 256))
RING_FAILURES = st.builds(
    on_rings, RING_SIZES, st.sampled_from((0, 31)),
    lives(*RESETS, *FAILURES, *ENTRIES, AMID))
RING_LIES = st.builds(
    on_rings, RING_SIZES, st.sampled_from((0, 31)),
    lives(SCRIBBLE, SCRIBBLE, *RESETS, *ENTRIES, *FAILURES, AMID,
          command("reaper")))
HOSTS = st.builds(
    lambda host, failures, ask, life: [*host, *failures, ask, *life],
    HOST,
    st.lists(st.one_of(*FAILURES, command("stats", st.integers(0, 511), U64)),
             max_size=4),
    command("ask", MECHANISMS,
            st.sampled_from((0, 0, 1, 2, 3, 4, 64, 128, 1024, 65536,
                             2**31, 2**32 - 1))),
    lives(SWITCH, SPLITS))

KINDS = {
    "bitmap-failures": BITMAP_FAILURES, "bitmap-lies": BITMAP_LIES,
    "ring-failures": RING_FAILURES, "ring-lies": RING_LIES, "hosts": HOSTS,
}


@pytest.fixture(name="program", scope="session")
def fixture_program() -> None:
    """Build the program, with AddressSanitizer and UBSan."""
    subprocess.run([ROOT / "scripts" / "build-engine", "asan"], check=True)


def search(kind: str, examples: int, repeat: bool) -> None:
    """Run EXAMPLES cases of KIND; if REPEAT is set, the same each time."""
    @settings(max_examples=examples, deadline=None, database=None,
              derandomize=repeat, print_blob=False,
              phases=(Phase.generate, Phase.shrink),
              suppress_health_check=list(HealthCheck))
    @given(KINDS[kind])
    def holds(lines: list[str]) -> None:
        run(lines)

    holds()


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("kind", KINDS)
def test_broken_kvm(kind: str) -> None:
    """Run the same cases each time."""
    search(kind, 60, True)


@pytest.mark.soak
@pytest.mark.usefixtures("program")
@pytest.mark.parametrize("kind", KINDS)
def test_broken_kvm_soak(kind: str) -> None:
    """Run other cases each time, and many more."""
    search(kind, 10_000, False)
