"""A TCP proxy between the workers and the database, which delays, cuts, and falls silent on demand.

Clients come by TCP on loopback; the database is a Unix socket. Whose connection it is says the start-up packet
(application_name), so that a fault may strike the heartbeat alone. Before several servers it has a port for each, and
faults strike the way to all of them: it is the network of one machine. Each fault counts what it has struck.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 65536
LINGER_NOT = struct.pack("ii", 1, 0)
"""SO_LINGER of 0 seconds: a close is a reset."""


class Struck:
    """How many connections, packets or answers a fault has struck by now."""

    def __init__(self) -> None:
        self.count = 0


class _Pair:
    """One client, and its connection to the server."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.purpose: str | None = None  # not before it has said so
        self.open = asyncio.Event()
        self.open.set()
        self.is_half_open = False

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

    def __init__(self, *socket_paths: Path) -> None:
        self._paths = socket_paths
        self._loop = asyncio.new_event_loop()
        self._pairs: set[_Pair] = set()
        self._holes: list[tuple[str, Struck]] = []
        self._delays: list[tuple[float, Struck]] = []
        self._losses: list[tuple[str, bytes, Struck]] = []
        self._ready = threading.Event()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self.ports: list[int] = []

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    @property
    def port(self) -> int:
        """Return the port of the first server, mostly the only one."""
        return self.ports[0]

    # --- faults -------------------------------------------------------------------------------------------------------

    def reset(self, purpose: str) -> int:
        """Cut all connections whose application_name begins so; return how many."""
        struck = Struck()
        self._now(self._reset, purpose, struck)
        return struck.count

    @contextlib.contextmanager
    def delay(self, seconds: float) -> Iterator[Struck]:
        """Hold back each packet for so long; packets are counted."""
        delay = (seconds, Struck())
        self._now(self._delays.append, delay)
        try:
            yield delay[1]
        finally:
            self._now(self._delays.remove, delay)

    @contextlib.contextmanager
    def hole(self, purpose: str, *, reset: bool) -> Iterator[Struck]:
        """Forward nothing, and leave the connections open. Afterwards cut them, or deliver late what was held back; connections are counted."""
        hole = (purpose, Struck())
        self._now(self._dig, hole)
        try:
            yield hole[1]
        finally:
            self._now(self._fill, hole, reset)

    @contextlib.contextmanager
    def half_open(self, purpose: str) -> Iterator[Struck]:
        """Forward nothing on the connections that are open now, and leave them open; those that come later work. Afterwards cut them."""
        struck = Struck()
        self._now(self._freeze, purpose, struck)
        try:
            yield struck
        finally:
            self._now(self._cut_frozen, purpose)

    @contextlib.contextmanager
    def loss(self, purpose: str, marker: bytes) -> Iterator[Struck]:
        """Forward each request that holds the marker, and cut the connection before its answer can come back; answers are counted."""
        loss = (purpose, marker, Struck())
        self._now(self._losses.append, loss)
        try:
            yield loss[2]
        finally:
            self._now(self._losses.remove, loss)

    def _now(self, act: Callable[..., object], *arguments: object) -> None:
        """Act in the proxy's thread, and wait until that is done: what is sent afterwards meets the fault."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(act, *arguments)
        self._loop.call_soon_threadsafe(done.set)
        done.wait()

    def _reset(self, purpose: str, struck: Struck) -> None:
        for pair in self._pairs_of(purpose):
            pair.reset()
            struck.count += 1

    def _dig(self, hole: tuple[str, Struck]) -> None:
        self._holes.append(hole)
        for pair in self._pairs_of(hole[0]):
            pair.open.clear()
            hole[1].count += 1

    def _fill(self, hole: tuple[str, Struck], reset: bool) -> None:
        self._holes.remove(hole)
        for pair in self._pairs_of(hole[0]):
            if not self._holes_of(pair):
                if reset:
                    pair.reset()
                elif not pair.is_half_open:
                    pair.open.set()

    def _freeze(self, purpose: str, struck: Struck) -> None:
        for pair in self._pairs_of(purpose):
            pair.is_half_open = True
            pair.open.clear()
            struck.count += 1

    def _cut_frozen(self, purpose: str) -> None:
        for pair in self._pairs_of(purpose):
            if pair.is_half_open:
                pair.reset()

    def _pairs_of(self, purpose: str) -> list[_Pair]:
        return [pair for pair in self._pairs if pair.purpose is not None and pair.purpose.startswith(purpose)]

    def _holes_of(self, pair: _Pair) -> list[Struck]:
        return [
            struck for purpose, struck in self._holes if pair.purpose is not None and pair.purpose.startswith(purpose)
        ]

    # --- forwarding ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for path in self._paths:
                server = await asyncio.start_server(functools.partial(self._accept, path), LOOPBACK, 0)
                self.ports.append(server.sockets[0].getsockname()[1])
                await stack.enter_async_context(server)
            self._ready.set()
            await self._over.wait()
        for pair in list(self._pairs):
            pair.reset()
        await asyncio.sleep(0.1)

    async def _accept(self, path: Path, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        pair = _Pair(client)
        self._pairs.add(pair)
        try:
            first = await reader.read(CHUNK_BYTES)
            pair.purpose = purpose_in(first)
            for struck in self._holes_of(pair):
                pair.open.clear()
                struck.count += 1
            await pair.open.wait()
            answers, pair.server = await asyncio.open_unix_connection(str(path))
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
        for purpose, marker, struck in self._losses:
            if pair.purpose is not None and pair.purpose.startswith(purpose) and marker in data:
                struck.count += 1
                return True
        return False

    def _part(self, pair: _Pair) -> None:
        for writer in (pair.client, pair.server):
            if writer is not None:
                writer.close()

    async def _pump(self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await pair.open.wait()
            if self._delays:
                for _, struck in self._delays:
                    struck.count += 1
                await asyncio.sleep(max(seconds for seconds, _ in self._delays))
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
