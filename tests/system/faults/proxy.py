"""A TCP proxy between the workers and the database, which delays, cuts, and falls silent on demand.

Clients come by TCP on loopback; the database is a Unix socket. Whose connection it is says the start-up packet
(application_name), so that a fault may strike the heartbeat alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 65536
LINGER_NOT = struct.pack("ii", 1, 0)
"""SO_LINGER of 0 seconds: a close is a reset."""


class _Pair:
    """One client, and its connection to the server."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.purpose = ""
        self.open = asyncio.Event()
        self.open.set()

    def reset(self) -> None:
        made = self.client.get_extra_info("socket")
        if made is not None:
            with contextlib.suppress(OSError):
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        for writer in (self.client, self.server):
            if writer is not None:
                writer.transport.abort()
        self.open.set()


class Proxy:
    """A proxy in a thread of its own; `with` starts and ends it. All its faults may be asked for by any thread."""

    def __init__(self, socket_path: Path) -> None:
        self._path = socket_path
        self._loop = asyncio.new_event_loop()
        self._pairs: set[_Pair] = set()
        self._holes: list[str] = []
        self._delays: list[float] = []
        self._losses: list[tuple[str, bytes]] = []
        self._ready = threading.Event()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self.port = 0

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    # --- faults -------------------------------------------------------------------------------------------------------

    def reset(self, purpose: str) -> None:
        """Cut all connections whose application_name begins so."""
        self._loop.call_soon_threadsafe(self._reset, purpose)

    @contextlib.contextmanager
    def delay(self, seconds: float) -> Iterator[None]:
        """Hold back each packet for so long."""
        self._loop.call_soon_threadsafe(self._delays.append, seconds)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._delays.remove, seconds)

    @contextlib.contextmanager
    def hole(self, purpose: str, *, reset: bool) -> Iterator[None]:
        """Forward nothing, and leave the connections open. Afterwards cut them, or deliver late what was held back."""
        self._loop.call_soon_threadsafe(self._dig, purpose)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._fill, purpose, reset)

    @contextlib.contextmanager
    def loss(self, purpose: str, marker: bytes) -> Iterator[None]:
        """Forward each request that holds the marker, and cut the connection before its answer can come back."""
        loss = (purpose, marker)
        self._loop.call_soon_threadsafe(self._losses.append, loss)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._losses.remove, loss)

    def _reset(self, purpose: str) -> None:
        for pair in list(self._pairs):
            if pair.purpose.startswith(purpose):
                pair.reset()

    def _dig(self, purpose: str) -> None:
        self._holes.append(purpose)
        for pair in self._pairs:
            if pair.purpose.startswith(purpose):
                pair.open.clear()

    def _fill(self, purpose: str, reset: bool) -> None:
        self._holes.remove(purpose)
        for pair in list(self._pairs):
            if pair.purpose.startswith(purpose) and not self._is_in_hole(pair):
                if reset:
                    pair.reset()
                else:
                    pair.open.set()

    def _is_in_hole(self, pair: _Pair) -> bool:
        return any(pair.purpose.startswith(each) for each in self._holes)

    # --- forwarding ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        async with server:
            await self._over.wait()
        for pair in list(self._pairs):
            pair.reset()
        await asyncio.sleep(0.1)

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        pair = _Pair(client)
        self._pairs.add(pair)
        try:
            first = await reader.read(CHUNK_BYTES)
            pair.purpose = purpose_in(first)
            if self._is_in_hole(pair):
                pair.open.clear()
            await pair.open.wait()
            answers, pair.server = await asyncio.open_unix_connection(str(self._path))
            pair.server.write(first)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(pair, reader, pair.server))
                group.create_task(self._pump(pair, answers, client))
        except (OSError, ExceptionGroup):
            pass  # one of the two is gone; so goes the other
        finally:
            self._part(pair)
            self._pairs.discard(pair)

    def _loses_answer(self, pair: _Pair, data: bytes) -> bool:
        return any(pair.purpose.startswith(purpose) and marker in data for purpose, marker in self._losses)

    def _part(self, pair: _Pair) -> None:
        for writer in (pair.client, pair.server):
            if writer is not None:
                writer.close()

    async def _pump(self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await pair.open.wait()
            if self._delays:
                await asyncio.sleep(max(self._delays))
            writer.write(data)
            if writer is pair.server and self._loses_answer(pair, data):
                pair.reset()
                return
            await writer.drain()
        await pair.open.wait()
        writer.close()  # what one side has ended, ends for the other too


def purpose_in(packet: bytes) -> str:
    """Read application_name out of a start-up packet; a cancel request, or one without, has none."""
    words = packet[8:].split(b"\0")
    names = dict(zip(words[0::2], words[1::2], strict=False))
    return names.get(b"application_name", b"").decode(errors="replace")
