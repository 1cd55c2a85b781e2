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
# What a task and what came of it have in common. A question without them is about the process itself.
IDENTITY: Final = ("id", "attempt", "claim_id")


def identity_of(message: Message) -> Message:
    """Return the part of a question that its answer repeats: an answer to anything else is not believed."""
    return {name: message[name] for name in IDENTITY if name in message}


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


class Inbox(asyncio.StreamReader):
    """A stream that knows whether it holds what nobody has read."""

    _unread = 0

    @property
    def has_unread(self) -> bool:
        """Tell whether bytes have come that were not asked for."""
        return self._unread > 0

    def feed_data(self, data: Any) -> None:
        """Take in what came."""
        self._unread += len(data)
        super().feed_data(data)

    async def readexactly(self, n: int) -> bytes:
        """Hand out what came."""
        data = await super().readexactly(n)
        self._unread -= len(data)
        return data


async def opened(end: socket.socket) -> tuple[Inbox, asyncio.StreamWriter]:
    """Open one end for the loop."""
    loop = asyncio.get_running_loop()
    inbox = Inbox(limit=FRAME_BYTES_MAX, loop=loop)
    transport, protocol = await loop.create_connection(lambda: asyncio.StreamReaderProtocol(inbox, loop=loop), sock=end)
    return inbox, asyncio.StreamWriter(transport, protocol, inbox, loop)


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

    def close(self) -> None:
        """Let go of this end in this process; whoever else holds it keeps it. Waits for nothing: a fork calls it."""
        self._end.close()

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
