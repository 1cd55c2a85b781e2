"""Messages between processes: a length and JSON over a socket pair. Never pickle: a task's answer must not run code in its worker."""

import asyncio
import json
import select
import socket
import struct
import threading
from typing import Any, Final

FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
_LENGTH: Final = struct.Struct(">I")

Message = dict[str, Any]


def encoded(message: Message) -> bytes:
    """Return the message as it goes over the socket."""
    body = json.dumps(message, ensure_ascii=True).encode()
    return _LENGTH.pack(len(body)) + body


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """Read one message; None at the end of the stream, and when what comes is not one of ours."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > FRAME_BYTES_MAX:
            return None
        message = json.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError, ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


class Channel:
    """The blocking end of a socket pair, for a process or thread without an event loop. Sending is safe from any thread."""

    def __init__(self, end: socket.socket) -> None:
        """Take over one end."""
        self._end = end
        self._end.setblocking(True)
        self._sending = threading.Lock()

    @classmethod
    def from_descriptor(cls, descriptor: int) -> "Channel":
        """Take over the end that was inherited under this number."""
        return cls(socket.socket(fileno=descriptor))

    def send(self, message: Message) -> bool:
        """Send one message; False when nobody is there any more."""
        try:
            with self._sending:
                self._end.sendall(encoded(message))
        except OSError:
            return False
        return True

    def offer(self, message: Message) -> bool:
        """Send one small message unless that would mean waiting for a reader; False when it was not sent."""
        poll = select.poll()
        try:
            poll.register(self._end, select.POLLOUT)
            writable = bool(poll.poll(0))
        except (OSError, ValueError):
            return False
        return writable and self.send(message)

    def receive(self) -> Message | None:
        """Wait for one message; None when the other end is gone."""
        head = self._exactly(_LENGTH.size)
        if head is None:
            return None
        (length,) = _LENGTH.unpack(head)
        body = self._exactly(length)
        if body is None:
            return None
        message = json.loads(body)
        return message if isinstance(message, dict) else None

    def _exactly(self, count: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self._end.recv(min(count - len(parts), 1 << 20))
            except OSError:
                return None
            if not part:
                return None
            parts += part
        return bytes(parts)
