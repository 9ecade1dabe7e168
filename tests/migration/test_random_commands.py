# SPDX-License-Identifier: GPL-2.0-or-later
"""Commands in random order, while migrations are cancelled and fail.

QEMU never ends or hangs, each answer is a success or one clear error, and the
guest goes on at the source after each migration that was cancelled or failed.
In the end a migration may complete, and memory is then the same.  hypothesis
makes the orders, and makes one that fails as short as possible.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any, Callable, Optional

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from qemu.qmp.qmp_client import ExecuteError

from .cases import BY_FAULTS, COLLECTED, assert_identical_in, migrate_identical
from .guest import HOTPLUG_PORT, MIB, Writer
from .migrate import Options, info, start
from .qmp import QMPError
from .test_hotplug import DIMM_SIZE, DIMM_START, IDLE_CORE, device, with_cores
from .vm import DIRTY_BITS, LOG, VM, Config, Mechanism, Qemu

ANSWER_TIMEOUT = 60.0  # seconds
RUN_TIMEOUT = 60.0
END_TIMEOUT = 60.0
OPTIONS = Options(bandwidth=8 * MIB, downtime_limit=1,
                  capabilities=("pause-before-switchover",))

# Besides GenericError, of device_del.
CLASSES = ("GenericError", "DeviceNotFound")

NAMES = ("auto", "log", "ring", "wrprot", "shared", "dirty-bits")
ENDED = ("none", "cancelled", "failed")

# QEMU refuses each with one sentence, whatever else goes on.
HOSTILE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("set-dirty-tracking", {}),
    ("set-dirty-tracking", {"mechanism": None}),
    ("set-dirty-tracking", {"mechanism": 1}),
    ("set-dirty-tracking", {"mechanism": ["log"]}),
    ("set-dirty-tracking", {"mechanism": {"name": "log"}}),
    ("set-dirty-tracking", {"mechanism": ""}),
    ("set-dirty-tracking", {"mechanism": "LOG"}),
    ("set-dirty-tracking", {"mechanism": "log\0"}),
    ("set-dirty-tracking", {"mechanism": "%s%n"}),
    ("set-dirty-tracking", {"mechanism": "x" * 100_000}),
    ("set-dirty-tracking", {"mechanism": "log", "more": 1}),
    ("query-dirty-tracking", {"mechanism": "log"}),
    ("migrate-set-parameters", {"hot_pages_wait": "yes"}),
    ("migrate-set-parameters", {"hot_pages_wait": 1}),
    ("migrate-set-parameters", {"hot_pages_wait": None}),
    ("migrate-set-parameters", {"hot_pages_wait": True, "downtime_limit": -1}),
    ("migrate-set-parameters", {"hot_pages_wait": True,
                                "downtime_limit": 1 << 64}),
    ("migrate-set-parameters", {"hot_pages_waits": True}),
    ("calc-dirty-rate", {"calc_time": -1, "mode": "dirty-bitmap"}),
    ("calc-dirty-rate", {"calc_time": 1 << 62, "mode": "dirty-bitmap"}),
    ("calc-dirty-rate", {"calc_time": 1, "mode": "dirty-bits"}),
    ("set-vcpu-dirty-limit", {"dirty_rate": "much"}),
    ("set-vcpu-dirty-limit", {"dirty_rate": 1, "cpu_index": 1 << 20}),
)


def clear_error(error: QMPError) -> None:
    """Fail unless ERROR is an answer of QEMU's that helps the user."""
    cause = error.__cause__
    assert isinstance(cause, ExecuteError), str(error)
    assert cause.error_class in CLASSES, str(error)
    text = str(cause)
    assert text.strip() == text and len(text.splitlines()) == 1, repr(text)
    assert len(text) > 10, repr(text)


class Life:
    """A guest at its source, and now and then a destination."""

    def __init__(self, src: VM, stack: contextlib.ExitStack) -> None:
        self.src = src
        self._stack = stack
        self._dst: Optional[VM] = None
        self._stopped = False

    def ask(self, command: str, **arguments: Any) -> Optional[Any]:
        """Return what the source answers, or None for a clear error."""
        monitor = self.src.monitor
        try:
            return monitor.finish(monitor.start(command, **arguments),
                                  command, ANSWER_TIMEOUT)
        except QMPError as error:
            self.src.check()
            clear_error(error)
            return None

    def status(self) -> str:
        """Return the status of the migration."""
        return str(info(self.src).get("status", "none"))

    def one(self, request: tuple[str, dict[str, Any]]) -> None:
        """Send a command with its arguments."""
        command, arguments = request
        self.ask(command, **arguments)

    def hostile(self, number: int) -> None:
        """Send a command that does not exist."""
        command, arguments = HOSTILE[number]
        assert self.ask(command, **arguments) is None, (command, arguments)

    def hmp(self, line: str) -> None:
        """Send a command of the human monitor."""
        assert self.ask("human-monitor-command", command_line=line)

    def migrate(self, _: int) -> None:
        """Begin to migrate to a new destination, if nothing is under way."""
        if self.status() not in ENDED:
            self.ask("migrate", uri="unix:/nowhere")
            return
        self.kill(0)
        self._dst = self._stack.enter_context(
            VM("dst", destination(self.src), incoming=True))
        try:
            start(self.src, self._dst, OPTIONS)
        except QMPError as error:
            clear_error(error)

    def has_ended(self) -> bool:
        """Whether there is no migration; one that waits for us is cancelled.

        At its switchover a migration does not notice that its peer has ended.
        """
        status = self.status()
        if status == "pre-switchover":
            self.ask("migrate_cancel")
        return status in ENDED

    def end(self, how: Callable[[], Any]) -> None:
        """End the migration; the guest goes on, unless it was stopped."""
        how()
        self.src.wait(self.has_ended, END_TIMEOUT, "the migration did not end")
        if not self._stopped:
            self.goes_on()

    def cancel(self, _: int) -> None:
        """Cancel the migration, if any."""
        self.end(lambda: self.ask("migrate_cancel"))

    def kill(self, _: int) -> None:
        """End the destination, whatever it is doing."""
        if self._dst is not None:
            self.end(self._dst.stop)
            self._dst = None

    def goes_on(self) -> None:
        """Fail unless the guest writes."""
        before = self.src.counters()
        self.src.wait(lambda: self.src.counters() != before, RUN_TIMEOUT,
                      "the guest does not go on")

    def stop(self, _: int) -> None:
        """Pause the guest."""
        self.ask("stop")
        self._stopped = True

    def cont(self, _: int) -> None:
        """Let the guest go on, unless it waits for its switchover."""
        if self.status() != "pre-switchover":
            self.ask("cont")
            self._stopped = False

    def plug_core(self, _: int) -> None:
        """Add a vCPU."""
        self.ask("device_add", **device(IDLE_CORE))

    def unplug_core(self, _: int) -> None:
        """Ask the guest to let go of the vCPU."""
        self.ask("device_del", id=f"core{IDLE_CORE}")

    def plug_dimm(self, _: int) -> None:
        """Add a DIMM, which this guest does not use."""
        self.ask("object-add", qom_type="memory-backend-ram", id="more",
                 size=DIMM_SIZE)
        self.ask("device_add", driver="pc-dimm", id="dimm", memdev="more")

    def pause(self, milliseconds: int) -> None:
        """Let the guest and the migration do something."""
        time.sleep(milliseconds / 1000)

    def complete(self) -> None:
        """Migrate at last; all of memory has to arrive."""
        self.cancel(0)
        self.kill(0)
        self.ask("cancel-vcpu-dirty-limit")
        # Its thread may still have to notice that the last one has failed.
        self.src.wait(lambda: self.ask(
            "migrate-set-capabilities", capabilities=[
                {"capability": "pause-before-switchover", "state": False}]
            ) is not None, END_TIMEOUT, "the last migration did not end")
        self.cont(0)
        self.goes_on()
        with VM("dst", destination(self.src), incoming=True) as dst:
            migrate_identical(self.src, dst, Options(hold=True))
            if has_dimm(self.src):
                assert_identical_in(self.src, dst, DIMM_START, DIMM_SIZE)


def has_dimm(vm: VM) -> bool:
    """Whether VM has the DIMM."""
    return bool(vm.qmp("query-memory-devices"))


def destination(src: VM) -> Config:
    """Return a VM with the plugged devices, to take over the guest of SRC."""
    config = src.config
    if any(cpu["qom-path"].endswith(f"core{IDLE_CORE}")
           for cpu in src.qmp("query-cpus-fast")):
        config = with_cores(config, IDLE_CORE)
    if has_dimm(src):
        config = dataclasses.replace(config, extra=(
            *config.extra,
            "-object", f"memory-backend-ram,id=more,size={DIMM_SIZE}",
            "-device", "pc-dimm,id=dimm,memdev=more"))
    return config


Step = tuple[Callable[..., None], Any]


def step(what: Callable[..., None], *choices: Any) -> st.SearchStrategy[Step]:
    """Make steps of WHAT with one of CHOICES."""
    return st.tuples(st.just(what), st.sampled_from(choices or (0,)))


def asked(command: str, *choices: dict[str, Any]) -> st.SearchStrategy[Step]:
    """Make steps that ask COMMAND with one of CHOICES."""
    return step(Life.one, *((command, each) for each in choices or ({},)))


MIGRATION = (
    step(Life.migrate), step(Life.migrate), step(Life.cancel),
    step(Life.kill), step(Life.pause, 5, 50, 300),
    asked("migrate-set-parameters",
          *({"hot_pages_wait": wait} for wait in (True, False)),
          *({"max_bandwidth": mib * MIB} for mib in (1, 8, 200)),
          *({"downtime_limit": limit} for limit in (0, 1, 300, 2000))),
)
OURS = (
    asked("set-dirty-tracking", *({"mechanism": name} for name in NAMES)),
    asked("query-dirty-tracking"), asked("query-migrate"),
    step(Life.hmp, "info dirty-tracking", "info migrate"),
    step(Life.hostile, *range(len(HOSTILE))),
)
OTHERS = (
    step(Life.stop), step(Life.cont), step(Life.cont), asked("system_reset"),
    step(Life.plug_core), step(Life.unplug_core), step(Life.plug_dimm),
    asked("calc-dirty-rate", *(
        {"calc_time": 1, "mode": mode}
        for mode in ("page-sampling", "dirty-bitmap", "dirty-ring"))),
    asked("query-dirty-rate"),
    asked("set-vcpu-dirty-limit", {"dirty_rate": 1}, {"dirty_rate": 100},
          {"dirty_rate": 5, "cpu_index": 1}),
    asked("cancel-vcpu-dirty-limit"), asked("query-vcpu-dirty-limit"),
)
STEPS = st.lists(st.one_of(*MIGRATION, *OURS, *OTHERS), min_size=5,
                 max_size=30)


def switch(mechanism: str) -> Step:
    """A step that asks for another mechanism."""
    return Life.one, ("set-dirty-tracking", {"mechanism": mechanism})


# What random lives have by chance only.
LIFE: list[Step] = [
    (Life.migrate, 0), (Life.pause, 300), switch("log"), (Life.kill, 0),
    switch("log"), (Life.migrate, 0), (Life.pause, 300), (Life.cancel, 0),
    (Life.one, ("calc-dirty-rate", {"calc_time": 1, "mode": "dirty-bitmap"})),
    (Life.pause, 50), switch("shared"), (Life.plug_core, 0),
    (Life.one, ("set-vcpu-dirty-limit", {"dirty_rate": 100})),
    (Life.migrate, 0), (Life.one, ("system_reset", {})), (Life.stop, 0),
    (Life.kill, 0), (Life.cont, 0), switch("wrprot"), switch("auto"),
]
MECHANISMS = (None, LOG, Mechanism(1024), Mechanism(4096), *BY_FAULTS,
              *COLLECTED)


def guest(ours: Qemu, mechanism: Optional[Mechanism], dimms: bool) -> Config:
    """Return a guest that can have a DIMM plugged, or else a vCPU.

    A guest with a plugged vCPU that can have DIMMs cannot be migrated: stock
    QEMU 7.2 does not understand what it sends about both.
    """
    accel = ours.accel(mechanism) if mechanism else "kvm"
    if dimms:
        return Config(ours, accel, writer=Writer(mib=16, cpus=2),
                      extra=("-m", "64M,slots=1,maxmem=1G"))
    return Config(ours, accel, smp="2,maxcpus=4,sockets=1,cores=4",
                  writer=Writer(mib=16, cpus=2, hotplug=HOTPLUG_PORT["pc"]))


def told(steps: list[Step]) -> str:
    """Return the steps in readable form."""
    return ", ".join(f"{what.__name__} {argument}"
                     for what, argument in steps)


def live(config: Config, steps: list[Step]) -> None:
    """Have a guest live through STEPS, and fail if it does not."""
    with contextlib.ExitStack() as stack:
        src = stack.enter_context(VM("src", config))
        src.wait_writing()
        life = Life(src, stack)
        for what, argument in steps:
            what(life, argument)
            src.check()
        life.complete()


def search(ours: Qemu, mechanisms: tuple[Optional[Mechanism], ...],
           examples: int, repeat: bool) -> None:
    """Live EXAMPLES lives; if REPEAT is set, the same each time."""
    @settings(max_examples=examples, deadline=None, database=None,
              derandomize=repeat, print_blob=False,
              phases=(Phase.generate, Phase.shrink),
              suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(mechanisms), st.booleans(), STEPS)
    def holds(mechanism: Optional[Mechanism], dimms: bool,
              steps: list[Step]) -> None:
        config = guest(ours, mechanism, dimms)
        try:
            live(config, steps)
        except Exception as error:
            raise AssertionError(
                f"{config.accel}, DIMMs {dimms}: {told(steps)}: {error}"
            ) from error

    holds()


def test_hostile_commands(ours: Qemu) -> None:
    """The guest goes on after all of them."""
    with contextlib.ExitStack() as stack:
        src = stack.enter_context(VM("src", guest(ours, None, False)))
        src.wait_writing()
        life = Life(src, stack)
        for number in range(len(HOSTILE)):
            life.hostile(number)
        life.goes_on()


def test_known_life(ours: Qemu) -> None:
    """Run one that has all that a host without our kernel takes."""
    live(guest(ours, LOG, False), LIFE)


def test_random_commands(ours: Qemu) -> None:
    """Run the same lives each time."""
    search(ours, MECHANISMS, 5, True)


@pytest.mark.skipif(not COLLECTED, reason="KVM has no dirty bits to collect")
def test_random_commands_with_dirty_bits(ours: Qemu) -> None:
    """Run two lives: where there are dirty bits all is slow."""
    live(guest(ours, DIRTY_BITS, False), LIFE)
    search(ours, COLLECTED, 1, True)


@pytest.mark.soak
def test_random_commands_soak(ours: Qemu) -> None:
    """Run other lives each time, and many more."""
    search(ours, MECHANISMS, 600, False)
