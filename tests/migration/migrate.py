# SPDX-License-Identifier: GPL-2.0-or-later
"""Live migration between two VMs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from .guest import HOT_SPOT
from .vm import VM

UNLIMITED = 16 << 30
CRAWL = 1 << 20
ANY_DOWNTIME = 2000 * 1000  # milliseconds: the most that QEMU takes
HOLD_ROUNDS = 4  # which a migration with the hold option goes through at least
FAILED = ("failed", "cancelled", "postcopy-paused")


class MigrationError(Exception):
    """A migration that failed or took too long."""


@dataclass(frozen=True)
class Options:
    """How to migrate.

    With HOLD the migration starts with a downtime limit that it cannot meet,
    so that it stays in its rounds until release().
    """

    transport: str = "unix"
    bandwidth: int = UNLIMITED
    downtime_limit: int = 1000
    hold: bool = False
    multifd: int = 0
    postcopy: bool = False
    auto_converge: bool = False
    hot_pages_wait: Optional[bool] = None  # only ours has the parameter
    capabilities: tuple[str, ...] = ()
    timeout: float = 120.0

    def all_capabilities(self) -> list[str]:
        """Return the names of the capabilities to turn on."""
        names = list(self.capabilities)
        if self.multifd:
            names.append("multifd")
        if self.postcopy:
            names.append("postcopy-ram")
        if self.auto_converge:
            names.append("auto-converge")
        return names


@dataclass(frozen=True)
class Result:
    """QEMU's figures of a migration that completed."""

    status: str
    total_ms: int
    downtime_ms: int
    rounds: int
    transferred: int
    info: dict[str, Any] = field(repr=False, default_factory=dict)

    @property
    def pages(self) -> int:
        """The number of pages sent, zero pages included."""
        ram = self.info["ram"]
        return int(ram["normal"] + ram["duplicate"])


def _bandwidth(vm: VM, options: Options) -> int:
    """Return a bandwidth that keeps the migration in its rounds, if asked for.

    QEMU sends at once what the bandwidth allows for 100 ms.  A round that is
    no longer ends before the guest has written much, and the next is shorter.
    """
    if options.hold and vm.config.writer.pattern == HOT_SPOT:
        return options.bandwidth // 4
    return options.bandwidth


def has_capability(vm: VM, name: str) -> bool:
    """Whether this QEMU knows a capability of migrations."""
    return any(each["capability"] == name
               for each in vm.qmp("query-migrate-capabilities"))


def set_capabilities(vm: VM, *names: str, state: bool = True) -> None:
    """Turn capabilities of migrations on, or off."""
    vm.qmp("migrate-set-capabilities", capabilities=[
        {"capability": name, "state": state} for name in names])


def configure(vm: VM, options: Options) -> None:
    """Tell one side how to migrate."""
    set_capabilities(vm, *options.all_capabilities())
    parameters: dict[str, Any] = {
        "max_bandwidth": _bandwidth(vm, options),
        "downtime_limit": 1 if options.hold else options.downtime_limit}
    if options.multifd:
        parameters["multifd_channels"] = options.multifd
    if options.postcopy:
        parameters["max_postcopy_bandwidth"] = 0
    if options.hot_pages_wait is not None:
        parameters["hot_pages_wait"] = options.hot_pages_wait
    vm.qmp("migrate-set-parameters", **parameters)


def _listen(dst: VM, options: Options) -> str:
    if options.transport == "unix":
        uri = f"unix:{dst.dir / 'migrate'}"
        dst.qmp("migrate-incoming", uri=uri)
        return uri
    dst.qmp("migrate-incoming", uri="tcp:127.0.0.1:0")
    # Port 0 lets the kernel choose, so that parallel runs never collide.
    address = dst.qmp("query-migrate")["socket-address"][0]
    return f"tcp:{address['host']}:{address['port']}"


def start(src: VM, dst: VM, options: Options) -> None:
    """Begin to migrate SRC to DST."""
    configure(src, options)
    configure(dst, options)
    src.qmp("migrate", uri=_listen(dst, options))


def info(vm: VM) -> dict[str, Any]:
    """Return the answer of query-migrate."""
    answer: dict[str, Any] = vm.qmp("query-migrate")
    return answer


def rounds(state: dict[str, Any]) -> int:
    """Return how often the dirty bitmap was synchronised."""
    return int(state.get("ram", {}).get("dirty-sync-count", 0))


def wait(src: VM, dst: Optional[VM], timeout: float, what: str,
         done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Poll the migration of SRC until DONE, and return its state then."""
    deadline = time.monotonic() + timeout
    while True:
        state = info(src)
        if done(state):
            return state
        status = state.get("status", "none")
        if status in FAILED:
            raise MigrationError(_failure(state, dst))
        if status == "completed":
            raise MigrationError(f"The migration completed after "
                                 f"{rounds(state)} rounds, before it could "
                                 f"{what}.")
        if time.monotonic() > deadline:
            raise MigrationError(
                f"The migration did not {what} within {timeout:.0f} s: it is "
                f"{status} after {rounds(state)} rounds with "
                f"{state.get('ram', {}).get('remaining', 0)} bytes to go.")
        time.sleep(0.02)


def _failure(state: dict[str, Any], dst: Optional[VM]) -> str:
    reason = state.get("error-desc", "no reason given")
    told = dst.errors() if dst else ""
    return (f"The migration ended as {state['status']}: {reason}"
            + (f"; the destination says: {told}" if told else "") + ".")


def wait_rounds(src: VM, dst: Optional[VM], count: int,
                options: Options) -> None:
    """Wait until the migration of SRC has begun round COUNT, or is over.

    A QEMU that overlooks dirty pages may complete at any time.
    """
    wait(src, dst, options.timeout, f"reach round {count}",
         lambda state: (rounds(state) >= count
                        or state.get("status") == "completed"))


def throttle_least(src: VM) -> None:
    """Let auto-converge slow vCPUs down, but by 1% and no more."""
    src.qmp("migrate-set-parameters", cpu_throttle_initial=1,
            max_cpu_throttle=1)


def crawl(src: VM) -> None:
    """Keep the migration in its present round until release().

    Otherwise it may complete when the guest stops writing for a moment.
    """
    src.qmp("migrate-set-parameters", max_bandwidth=CRAWL)


def release(src: VM, options: Options) -> None:
    """Let a migration that was held in its rounds finish."""
    src.qmp("migrate-set-parameters", max_bandwidth=UNLIMITED,
            downtime_limit=options.downtime_limit)


def lift(src: VM) -> None:
    """Let a migration complete, however long the downtime."""
    src.qmp("migrate-set-parameters", downtime_limit=ANY_DOWNTIME)


def arrive(dst: VM, options: Options) -> None:
    """Wait until DST has loaded everything, and could run."""
    wait(dst, dst, options.timeout, "arrive",
         lambda state: state.get("status") == "completed")
    dst.wait(lambda: dst.qmp("query-status")["status"] != "inmigrate",
             options.timeout, "it did not leave its incoming state")


def finish(src: VM, dst: Optional[VM], options: Options) -> Result:
    """Wait for the end of a migration and return its figures.

    There is no DST if that is on another machine.
    """
    if options.postcopy:
        src.qmp("migrate-start-postcopy")
    state = wait(src, dst, options.timeout, "complete",
                 lambda state: state.get("status") == "completed")
    # The source is done a moment before the destination has loaded everything.
    if dst:
        arrive(dst, options)
    # QEMU 7.2 says "completed" a moment before it has computed the times.
    src.wait(lambda: info(src)["total-time"] > 0, options.timeout,
             "it did not say how long the migration took")
    state = info(src)
    return Result(
        status=state["status"], total_ms=int(state["total-time"]),
        downtime_ms=int(state.get("downtime", 0)), rounds=rounds(state),
        transferred=int(state["ram"]["transferred"]), info=state)


def cancel(src: VM, timeout: float = 60.0) -> None:
    """Cancel the migration of SRC and wait until it is over."""
    src.qmp("migrate_cancel")
    src.wait(lambda: info(src).get("status") in (*FAILED, "completed"),
             timeout, "the migration was not cancelled")
    status = info(src)["status"]
    if status != "cancelled":
        raise MigrationError(
            f"The migration is {status}, and was not cancelled.")


def migrate(src: VM, dst: VM, options: Options = Options(),
            held: Optional[Callable[[], None]] = None) -> Result:
    """Migrate SRC to DST.

    A migration with the hold option stays in its rounds for HOLD_ROUNDS of
    them and while HELD runs.
    """
    start(src, dst, options)
    if options.hold:
        wait_rounds(src, dst, HOLD_ROUNDS, options)
        if held:
            crawl(src)
            wait(src, dst, options.timeout, "be held",
                 lambda state: state.get("status") == "active")
            held()
        release(src, options)
    return finish(src, dst, options)
