# SPDX-License-Identifier: GPL-2.0-or-later
"""A VNC client that keeps its own copy of the screen.

The server sends only the parts that it believes have changed, so the copy goes
stale where QEMU overlooks a write to the frame buffer.
"""

from __future__ import annotations

import socket
import struct
import threading
from pathlib import Path

ENCODING_RAW = 0
ENCODING_DESKTOP_SIZE = -223
PIXEL = 4


class VNCError(Exception):
    """A server that does not speak as expected."""


class Screen:
    """The screen as the server has sent it so far."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._lock = threading.Lock()
        self.width, self.height = self._handshake()
        self._pixels = bytearray(self.width * self.height * PIXEL)
        self.updates = 0
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def pixels(self) -> bytes:
        """Return the rows of the screen, four bytes for each pixel."""
        with self._lock:
            return bytes(self._pixels)

    def close(self) -> None:
        """Hang up."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _unpack(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self._read(struct.calcsize(form)))

    def _handshake(self) -> tuple[int, int]:
        self._socket.sendall(self._read(12))
        (kinds,) = self._unpack(">B")
        if 1 not in self._read(kinds):
            raise VNCError("The VNC server asks for a password.")
        self._socket.sendall(b"\x01")
        if self._unpack(">I") != (0,):
            raise VNCError("The VNC server refused the connection.")
        self._socket.sendall(b"\x01")
        width, height, depth, *_ = self._unpack(">HHB15x")
        (name,) = self._unpack(">I")
        self._read(name)
        if depth != 8 * PIXEL:
            raise VNCError(f"The VNC server has {depth} bits per pixel.")
        self._socket.sendall(struct.pack(
            ">BxHii", 2, 2, ENCODING_RAW, ENCODING_DESKTOP_SIZE))
        return width, height

    def _follow(self) -> None:
        try:
            self._ask(incremental=0)
            while True:
                self._message()
                self._ask(incremental=1)
        except (EOFError, OSError):
            pass

    def _ask(self, incremental: int) -> None:
        self._socket.sendall(struct.pack(
            ">BBHHHH", 3, incremental, 0, 0, self.width, self.height))

    def _message(self) -> None:
        (kind,) = self._unpack(">B")
        if kind != 0:
            raise EOFError
        (count,) = self._unpack(">xH")
        for _ in range(count):
            self._rectangle()
        self.updates += 1

    def _rectangle(self) -> None:
        x, y, width, height, encoding = self._unpack(">HHHHi")
        if encoding == ENCODING_DESKTOP_SIZE:
            with self._lock:
                self.width, self.height = width, height
                self._pixels = bytearray(width * height * PIXEL)
            return
        data = self._read(width * height * PIXEL)
        with self._lock:
            for row in range(height):
                at = ((y + row) * self.width + x) * PIXEL
                self._pixels[at:at + width * PIXEL] = data[
                    row * width * PIXEL:(row + 1) * width * PIXEL]
