# SPDX-License-Identifier: GPL-2.0-or-later
"""query-dirty-tracking and "info dirty-tracking"."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from .cases import HELD, each_mechanism, migrate_identical
from .guest import PAGE, Writer
from .migrate import Options, info
from .qmp import QMPError
from .vm import (BEST_FIRST, DIRTY_BITS, KVM_CAP_WRITE_PROTECT_ALL_MEM,
                 KVM_WRITE_PROTECT_DISABLES_CPU_LOG, LOG, VM, Config, Mechanism,
                 Qemu, best, kvm_check, pair)

# The way each member must change while a writing guest is migrated.
FIXED, STATE, GROWS, TOTAL = "fixed", "state", "grows", "total"
LOG_MEMBERS = {
    "mechanism": FIXED,
    "chosen-by": FIXED,
    "reason": FIXED,
    "passed-over": FIXED,
    "ring-size": FIXED,
    "logged-slots": STATE,
    "pages": GROWS,
    "harvests": GROWS,
    "harvest-time": GROWS,
    "rearm-time": GROWS,
    "publish-time": GROWS,
    "bql-hold-time": GROWS,
    "ring-full-exits": TOTAL,
    "ring-full-time": TOTAL,
    "overflows": TOTAL,
    "reaps": TOTAL,
    "reap-interval": STATE,
    "eager-split": STATE,
    "rounds": STATE,
}
ROUND_MEMBERS = {"round", "pages", "harvest-time", "rearm-time",
                 "publish-time", "bql-hold-time", "ring-full-exits",
                 "ring-full-time", "overflows"}
DIRTY_BITS_MEMBERS = {**LOG_MEMBERS, "rearm-time": TOTAL}
RING_MEMBERS = ("ring-full-exits", "ring-full-time", "overflows", "reaps",
                "reap-interval")
# Only if the host's KVM counts the faults that arming pages costs the guest.
FAULT_MEMBERS = {"faults", "guest-time-lost"}

# Each member, its name in HMP, and whether HMP prints it without rings too.
HMP_LINES = (
    ("mechanism", r"mechanism: ([\w-]+) \(", True),
    ("reason", r"mechanism: [\w-]+ \((.*)\)", True),
    ("logged-slots", r"logged slots: (\d+)", True),
    ("pages", r"pages: (\d+) in ", True),
    ("harvests", r"pages: \d+ in (\d+) harvests", True),
    ("harvest-time", r"harvest time: ([\d.]+) ms", True),
    ("rearm-time", r"re-arm time: ([\d.]+) ms", True),
    ("publish-time", r"publish time: ([\d.]+) ms", True),
    ("bql-hold-time", r"BQL hold time of syncs: ([\d.]+) ms", True),
    ("ring-size", r"ring size: (\d+) entries per vCPU", False),
    ("ring-full-exits", r"ring-full exits: (\d+)", False),
    ("ring-full-time", r"vCPU time lost to full rings: ([\d.]+) ms", False),
    ("overflows", r"overflows: (\d+)", False),
    ("faults", r"write faults: about (\d+)", False),
    ("guest-time-lost",
     r"vCPU time lost to faults and full rings: ([\d.]+) ms", False),
    ("reaps", r"reaps: (\d+)", False),
    ("reap-interval", r"reap interval: ([\d.]+) ms", False),
)

# The members of a round that HMP prints, and their names there.
ROUND_TIMES = (
    ("harvest-time", "harvest"),
    ("rearm-time", "re-arm"),
    ("publish-time", "publish"),
    ("bql-hold-time", "BQL"),
    ("ring-full-time", "full rings"),
)

ROUNDS_KEPT = 32

FULL_TIMEOUT = 60.0
OVERFLOWED = "a dirty ring overflowed"

# The shortest and the longest interval of the reaper, in nanoseconds.
SHORTEST, LONGEST = 250_000, 1_000_000_000

# The reaper may look once more between the two queries.
UNSTEADY = ("reaps", "harvest-time", "reap-interval", "rearm-time",
            "publish-time")


def query(vm: VM) -> dict[str, Any]:
    """Return the answer of query-dirty-tracking."""
    answer: dict[str, Any] = vm.qmp("query-dirty-tracking")
    return answer


def faults_known(mechanism: Mechanism) -> bool:
    """Whether KVM has been asked for what makes it count faults.

    Rings do without where that would turn off the CPU's own log of writes.
    """
    protect = kvm_check(KVM_CAP_WRITE_PROTECT_ALL_MEM)
    if mechanism.ring and protect & KVM_WRITE_PROTECT_DISABLES_CPU_LOG:
        return False
    return bool(protect) and mechanism != LOG


def expected(mechanism: Mechanism) -> dict[str, str]:
    """The way each member must change."""
    members = DIRTY_BITS_MEMBERS if mechanism == DIRTY_BITS else LOG_MEMBERS
    if not mechanism.ring:
        members = {**members, **dict.fromkeys(RING_MEMBERS, FIXED)}
    kind = TOTAL if mechanism == DIRTY_BITS else GROWS
    return {**members, **{name: kind for name in FAULT_MEMBERS
                        if faults_known(mechanism)}}


def complete(mechanism: Mechanism) -> set[str]:
    """The members whose rounds make up their totals.

    After the last sync nobody writes.  But pages are re-armed, which finds
    some with dirty-bits, and the reaper looks at rings that are empty.
    """
    names = {"bql-hold-time", "ring-full-exits", "ring-full-time", "overflows"}
    if mechanism == DIRTY_BITS:
        return names
    if mechanism.ring:
        return names | {"pages"}
    return names | {"pages", "harvest-time", "publish-time"}


def assert_grown(members: dict[str, str], before: dict[str, Any],
                 after: dict[str, Any]) -> None:
    """Fail unless each member changed as its kind says."""
    assert set(before) == set(after) == set(members)
    for name, kind in members.items():
        if kind == FIXED:
            assert after[name] == before[name], name
        elif kind == GROWS:
            assert after[name] > before[name], name
        elif kind == TOTAL:
            assert after[name] >= before[name], name


def shown(value: Any, text: str) -> bool:
    """Whether TEXT is how HMP prints VALUE; times are in milliseconds."""
    if isinstance(value, str):
        return text == value
    number = value // 1000 / 1000 if "." in text else value
    return bool(float(text) == number)


def assert_hmp(vm: VM, mechanism: Mechanism) -> None:
    """Fail unless HMP prints the answer of QMP."""
    answer = query(vm)
    text = vm.hmp("info dirty-tracking")
    for name, pattern, always in HMP_LINES:
        match = re.search(pattern, text, re.MULTILINE)
        there = (faults_known(mechanism) if name in FAULT_MEMBERS else
                 always or bool(mechanism.ring))
        assert (match is not None) == there, (name, text)
        if match and name not in UNSTEADY:
            assert shown(answer[name], match[1]), (name, answer, text)


def shown_round(each: dict[str, Any]) -> str:
    """How HMP prints a round."""
    times = ", ".join(
        f"{what} {each[name] // 1000} us" for name, what in ROUND_TIMES)
    text = f"round {each['round']}: {each['pages']} pages, {times}"
    if "faults" in each:
        text += (f", {each['faults']} faults, "
                 f"guest time lost {each['guest-time-lost'] // 1000} us")
    return text


def assert_sums(mechanism: Mechanism, before: dict[str, Any],
                after: dict[str, Any]) -> None:
    """Fail unless the rounds make up the totals, as far as they have to."""
    maybe_none = {*RING_MEMBERS, *FAULT_MEMBERS}
    if mechanism == DIRTY_BITS:
        maybe_none.add("rearm-time")
    for name in set(after["rounds"][0]) - {"round"}:
        in_rounds = sum(each[name] for each in after["rounds"])
        total = after[name] - before[name]
        assert in_rounds <= total, name
        assert in_rounds == total or name not in complete(mechanism), name
        assert in_rounds > 0 or name in maybe_none, name


def assert_rounds(vm: VM, mechanism: Mechanism, count: int,
                  before: dict[str, Any], after: dict[str, Any]) -> None:
    """Fail unless the rounds are COUNT, and together make up the totals."""
    rounds = after["rounds"]
    assert [each["round"] for each in rounds] == \
        list(range(1, count + 1))[-ROUNDS_KEPT:]
    members = ROUND_MEMBERS | (FAULT_MEMBERS & set(before))
    assert all(set(each) == members for each in rounds)
    if count <= ROUNDS_KEPT:
        assert_sums(mechanism, before, after)
    for command in ("info dirty-tracking", "info migrate"):
        lines = vm.hmp(command).splitlines()
        assert [line for line in lines if line.startswith("round ")] == \
            [shown_round(each) for each in rounds], command


@each_mechanism
def test_telemetry(ours: Qemu, mechanism: Mechanism) -> None:
    """The figures name the mechanism and grow with its work."""
    config = Config(ours, ours.accel(mechanism), writer=Writer(cpus=2))
    with pair(config) as (src, dst):
        src.wait_writing()
        before = query(src)
        assert before["mechanism"] == mechanism.name
        assert before["passed-over"] == []
        assert before["chosen-by"] == "option"
        assert before["reason"]
        assert before["ring-size"] == (mechanism.ring or 0)
        assert before["rounds"] == []
        assert not any(before[name] for name in RING_MEMBERS)
        logged: list[int] = []
        result = migrate_identical(
            src, dst, held=lambda: logged.append(query(src)["logged-slots"]))
        assert logged[0] > before["logged-slots"]
        after = query(src)
        assert_rounds(src, mechanism, result.rounds, before, after)
        assert (after["overflows"] > 0) == (OVERFLOWED in src.messages())
        assert info(src)["dirty-tracking-rounds"] == after["rounds"]
        assert_grown(expected(mechanism), before, after)
        assert_hmp(src, mechanism)


def test_full_rings(ours: Qemu) -> None:
    """The figures tell of vCPUs that had to wait, and of each overflow.

    Only KVM makes overflows; QEMU warns of the first of them.
    """
    mechanism = Mechanism(1024)
    full = ("ring-full-exits", "ring-full-time", "reaps")
    config = Config(ours, ours.accel(mechanism), writer=Writer(cpus=2))
    with pair(config) as (src, dst):
        src.wait_writing()
        before = query(src)
        result = migrate_identical(src, dst, held=lambda: src.wait(
            lambda: all(query(src)[name] > 0 for name in full),
            FULL_TIMEOUT, "the rings were not full and reaped"))
        after = query(src)
        assert_rounds(src, mechanism, result.rounds, before, after)
        assert (after["overflows"] > 0) == (OVERFLOWED in src.messages())
        assert SHORTEST <= after["reap-interval"] <= LONGEST
        assert_hmp(src, mechanism)


@each_mechanism
def test_written_before(ours: Qemu, mechanism: Mechanism) -> None:
    """Pages that a guest wrote before its migration are sent once.

    Set-up has nothing to find, and does not even look where that would mean to
    look at all memory.
    """
    config = Config(ours, ours.accel(mechanism), writer=Writer())
    with pair(config) as (src, dst):
        src.wait_writing()
        src.qmp("stop")
        result = migrate_identical(src, dst, Options())
        assert result.pages == result.info["ram"]["total"] // PAGE
        if mechanism == DIRTY_BITS:
            assert query(src)["rounds"][0]["pages"] == 0


def test_pass_event(ours: Qemu) -> None:
    """The event of each pass has the cost of the round before it."""
    options = dataclasses.replace(HELD, capabilities=("events",))
    with pair(Config(ours, "kvm", writer=Writer())) as (src, dst):
        src.wait_writing()
        result = migrate_identical(src, dst, options)
        events = src.monitor.events("MIGRATION_PASS")
        assert [event["pass"] for event in events] == \
            list(range(1, result.rounds + 1))
        rounds = [event["dirty-tracking-round"] for event in events]
        assert rounds[-ROUNDS_KEPT:] == query(src)["rounds"]


def told(vm: VM) -> tuple[bool, ...]:
    """Whether each answer shows the members that upstream does not know."""
    state = info(vm)
    passes = vm.monitor.events("MIGRATION_PASS")
    assert passes
    return ("dirty-tracking-rounds" in state, "hot-pages" in state,
            "hot-pages-wait" in vm.qmp("query-migrate-parameters"),
            "dirty-tracking-round" in passes[0])


@pytest.mark.parametrize("hidden", [False, True], ids=["shown", "hidden"])
def test_unstable(ours: Qemu, hidden: bool) -> None:
    """A user who hides and rejects unstable parts has upstream's interface."""
    compat = ("-compat", "unstable-input=reject,unstable-output=hide")
    options = dataclasses.replace(HELD, capabilities=("events",))
    config = Config(ours, "kvm", extra=compat if hidden else ())
    with pair(config) as (src, dst):
        src.wait_writing()
        migrate_identical(src, dst, options)
        assert told(src) == (not hidden,) * 4
        if not hidden:
            return
        for command, arguments in (
                ("query-dirty-tracking", {}),
                ("set-dirty-tracking", {"mechanism": "log"}),
                ("migrate-set-parameters", {"hot_pages_wait": True})):
            with pytest.raises(QMPError, match="disabled by policy"):
                src.qmp(command, **arguments)
        assert "mechanism: " in src.hmp("info dirty-tracking")
        assert "round 1: " in src.hmp("info migrate")


def assert_passed_over(vm: VM, names: list[str]) -> None:
    """Fail unless QMP and HMP say of NAMES why they are not in use."""
    answer = query(vm)["passed-over"]
    text = vm.hmp("info dirty-tracking")
    assert [over["mechanism"] for over in answer] == names
    for over in answer:
        assert over["obstacle"] == "missing"
        assert "KVM_CAP_" in over["reason"]
        assert f"not {over['mechanism']}: {over['reason']}" in text


def test_default_is_told(ours: Qemu) -> None:
    """Without options the answer tells the chosen mechanism and the reason."""
    with VM("guest", Config(ours, "kvm")) as vm:
        answer = query(vm)
        assert answer["mechanism"] == best().name
        assert answer["chosen-by"] == "auto"
        assert "auto" in answer["reason"]
        better = BEST_FIRST[:BEST_FIRST.index(best())]
        assert_passed_over(vm, [each.name for each in reversed(better)])
    with VM("guest", Config(ours, "kvm,dirty-ring-size=4096")) as vm:
        assert query(vm)["mechanism"] == "ring"
        assert query(vm)["ring-size"] == 4096
        assert query(vm)["chosen-by"] == "ring-size"
        assert "dirty-ring-size" in query(vm)["reason"]


def test_without_kvm(ours: Qemu) -> None:
    """A guest that does not run under KVM has nothing to tell."""
    with VM("guest", Config(ours, "tcg")) as vm:
        assert "KVM" in vm.hmp("info dirty-tracking")
