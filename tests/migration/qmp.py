# SPDX-License-Identifier: GPL-2.0-or-later
"""A blocking front to the asynchronous qemu.qmp library.

One thread runs the event loop for all monitors, so that a test may start a
command, look at the guest while QEMU is still busy with it, and collect the
answer later.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
import threading
import time
from pathlib import Path
from typing import Any, Callable, Coroutine

from qemu.qmp import QMPClient
from qemu.qmp.qmp_client import ExecuteError

COMMAND_TIMEOUT = 120.0

# The library logs each lost connection, and ending a QEMU loses one.
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)


class QMPError(Exception):
    """A monitor that cannot be reached, or a command that failed."""


@functools.lru_cache(maxsize=None)
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="qmp", daemon=True).start()
    return loop


def _submit(work: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
    return asyncio.run_coroutine_threadsafe(work, _loop())


class MonitorLost(QMPError):
    """A monitor whose QEMU hung up."""


class Monitor:
    """One QMP connection."""

    def __init__(self, name: str, socket: Path) -> None:
        self._name = name
        self._socket = socket
        self._client = QMPClient(name)

    def connect(self, timeout: float, alive: Callable[[], None]) -> None:
        """Connect as soon as QEMU listens; ALIVE raises if it never will."""
        deadline = time.monotonic() + timeout
        while True:
            alive()
            try:
                self._attempt(deadline - time.monotonic())
                return
            except Exception as error:
                if time.monotonic() > deadline:
                    raise QMPError(f"{self._name}: the monitor did not answer "
                                   f"within {timeout:.0f} s.") from error
            time.sleep(0.02)

    def _attempt(self, timeout: float) -> None:
        if not self._socket.exists():
            raise FileNotFoundError(str(self._socket))
        self._client = QMPClient(self._name)
        _submit(self._client.connect(str(self._socket))).result(
            max(timeout, 1.0))

    def start(self, command: str,
              **arguments: Any) -> concurrent.futures.Future[Any]:
        """Send COMMAND and return at once with the future of its answer."""
        names = {key.replace("_", "-"): value
                 for key, value in arguments.items()}
        return _submit(self._client.execute(command, names))

    def execute(self, command: str, **arguments: Any) -> Any:
        """Run COMMAND and return its answer."""
        return self.finish(self.start(command, **arguments), command)

    def finish(self, future: concurrent.futures.Future[Any], command: str,
               timeout: float = COMMAND_TIMEOUT) -> Any:
        """Return the answer of a command that start() sent."""
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError as error:
            raise QMPError(f"{self._name}: {command} did not return within "
                           f"{timeout:.0f} s.") from error
        except ExecuteError as error:
            raise QMPError(
                f"{self._name}: {command} failed: {error}") from error
        except Exception as error:
            raise MonitorLost(f"{self._name}: the monitor was lost during "
                              f"{command}: {error}") from error

    def send_fd(self, name: str, fd: int) -> None:
        """Give QEMU the open file FD, which its URI fd:NAME then means."""
        async def send() -> None:
            self._client.send_fd_scm(fd)

        _submit(send()).result()
        self.execute("getfd", fdname=name)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Take the events that came, and return the data of NAME events."""
        async def take() -> list[Any]:
            return self._client.events.clear()

        return [dict(event["data"]) for event in _submit(take()).result()
                if event["event"] == name]

    def event_times(self, name: str) -> list[float]:
        """Return when the events called NAME came that were not taken yet.

        QEMU's clock is that of time.time().
        """
        async def look() -> list[Any]:
            return list(self._client.events.history)

        return [event["timestamp"]["seconds"]
                + event["timestamp"]["microseconds"] / 1e6
                for event in _submit(look()).result()
                if event["event"] == name]

    def close(self) -> None:
        """Drop the connection, whatever its state."""
        try:
            _submit(self._client.disconnect()).result(5.0)
        except Exception:  # the peer is often dead
            pass
