"""Connections for enqueuing: a few, opened when needed, kept for the next call, never shared by two processes or two
event loops.

Why not psycopg_pool: its asynchronous pool belongs to one event loop and its blocking one to one process, and both run
workers of their own. A library that is imported by web servers which fork, and by scripts that call ``asyncio.run``
twice, must survive both.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar
from weakref import finalize

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.pq import TransactionStatus

from octop.engine import private_database
from octop.engine.admission import admit
from octop.engine.call import Call, first_value, run, run_async, run_each, run_each_async
from octop.engine.connect import open_connection, open_connection_async
from octop.engine.failures import translated
from octop.engine.install import install, status
from octop.engine.joined import JoinedEnqueue
from octop.model.errors import DatabaseUnreachableError, OctopError
from octop.model.work import NewTask

R = TypeVar("R")
IDLE_SECONDS_MAX: Final = 300.0
APPLICATION_NAME: Final = "octop client"
SIZE_WITHOUT_SETTING: Final = 10


def pool_size() -> Call[int]:
    """Read the setting ``db.connection_pool_size``."""
    return Call(
        "select (value->>'value')::integer from octop_config where key = 'db.connection_pool_size'",
        {},
        lambda rows: int(first_value(rows) or SIZE_WITHOUT_SETTING),
    )


class _Idle:
    """Open connections that nobody uses, the last used on top; those idle for five minutes are closed."""

    def __init__(self) -> None:
        self._stack: list[tuple[float, Any]] = []

    def take(self) -> Any | None:
        """Return the last used connection, or None."""
        return self._stack.pop()[1] if self._stack else None

    def put(self, connection: Any) -> list[Any]:
        """Keep a connection; return those that have been idle for too long."""
        now = time.monotonic()
        self._stack.append((now, connection))
        fresh = [pair for pair in self._stack if pair[0] > now - IDLE_SECONDS_MAX]
        old = [pair[1] for pair in self._stack if pair[0] <= now - IDLE_SECONDS_MAX]
        self._stack = fresh
        return old

    def all(self) -> list[Any]:
        """Empty it and return what was in it."""
        found, self._stack = [pair[1] for pair in self._stack], []
        return found


def _reusable(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE


class Pools:
    """The connections of one application object in this process.

    Args:
        dsn: Where; None = the private development database, started and installed when it is first needed.
        schema: Where Octop is installed.
        size: Most connections at once per event loop, and for all threads together; more callers wait. None = the setting
            ``db.connection_pool_size``, read with the first connection.
        name: Shown in ``pg_stat_activity``.
        connect_timeout: Seconds, at least 2.
    """

    def __init__(
        self,
        dsn: str | None,
        schema: str,
        *,
        size: int | None = None,
        name: str = APPLICATION_NAME,
        connect_timeout: int = 10,
    ) -> None:
        """Open nothing yet."""
        self._dsn = dsn
        self._size = size
        self._manner: dict[str, Any] = {
            "application_name": name,
            "schema": schema,
            "connect_timeout": connect_timeout,
        }
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._sizing = threading.Lock()
        self._slots: threading.BoundedSemaphore | None = None
        self._idle = _Idle()
        self._loops: dict[asyncio.AbstractEventLoop, _LoopPool] = {}
        finalize(self, _close_all, self._idle, self._pid)  # also at the end of the process

    def _own(self) -> None:
        """Forget the parent's connections after a fork: they are the parent's, and to close one would end it there."""
        if self._pid != os.getpid():
            _left_to_parents.append((self._idle, self._loops))
            self._begin()

    def run(self, call: Call[R], again: Call[R] | None = None) -> R:
        """Run one call in a transaction of its own.

        Args:
            call: What to run.
            again: The form that may be sent a second time if the connection breaks; None = the error is the caller's.
        """
        __tracebackhide__ = True
        admit(self._dsn)
        try:
            with self.connection() as connection:
                return run(connection, call)
        except DatabaseUnreachableError:
            if again is None:
                raise
        self.close_idle()  # the server was restarted, or a firewall forgot us: the others are dead as well
        with self.connection() as connection:
            return run(connection, again)

    async def enqueue_async(self, task: NewTask, *, fresh: bool) -> tuple[str, bool]:
        """Enqueue one task, together with others that are enqueued in this event loop now; see ``JoinedEnqueue``."""
        __tracebackhide__ = True
        pool = self._open_loop_pool() or await self._loop_pool()
        return await pool.joined.enqueue(task, fresh=fresh)

    async def run_async(self, call: Call[R], again: Call[R] | None = None) -> R:
        """Run one call in a transaction of its own; see ``run``."""
        __tracebackhide__ = True
        return await (await self._loop_pool()).run(call, again)

    def run_all(self, calls: Iterable[Call[R]]) -> list[R]:
        """Run calls, made while they are run, in one transaction: all or nothing."""
        __tracebackhide__ = True
        admit(self._dsn)
        with self.connection() as connection, _translating(), connection.transaction():
            return run_each(connection, calls)

    async def run_all_async(self, calls: AsyncIterable[Call[R]]) -> list[R]:
        """Run calls, made while they are run, in one transaction: all or nothing."""
        __tracebackhide__ = True
        pool = await self._loop_pool()
        async with pool.connection() as connection:
            with _translating():
                async with connection.transaction():
                    return await run_each_async(connection, calls)

    @contextlib.contextmanager
    def connection(self) -> Iterator[Connection[Any]]:
        """Lend a blocking connection in autocommit."""
        self._own()
        with self._room():
            with self._lock:
                found: Connection[Any] | None = self._idle.take()
            if found is None or found.closed:
                found = open_connection(self.address(), **self._manner)
            try:
                yield found
            finally:
                self._give_back(found)

    @contextlib.asynccontextmanager
    async def connection_async(self) -> AsyncIterator[AsyncConnection[Any]]:
        """Lend a connection of this event loop, in autocommit."""
        async with (await self._loop_pool()).connection() as connection:
            yield connection

    def size(self) -> int:
        """Return how many connections may be open at once, asking the database the first time if nobody said it."""
        with self._sizing:
            if self._size is None:
                connection = open_connection(self.address(), **self._manner)
                try:
                    self._size = run(connection, pool_size())
                except OctopError:  # no right to read it, or no schema: the caller's own call will say so
                    self._size = SIZE_WITHOUT_SETTING
                self._give_back(connection)
            return self._size

    def _room(self) -> threading.BoundedSemaphore:
        size = self.size()
        with self._lock:
            if self._slots is None:
                self._slots = threading.BoundedSemaphore(size)
            return self._slots

    def _give_back(self, connection: Connection[Any]) -> None:
        if not _reusable(connection):
            connection.close()
            return
        with self._lock:
            old = self._idle.put(connection)
        for each in old:
            each.close()

    def close_idle(self) -> None:
        """Close what nobody uses now; the pools can still be used."""
        self._own()
        with self._lock:
            old = self._idle.all()
        for each in old:
            each.close()

    async def close_idle_async(self) -> None:
        """Close what nobody uses now in this event loop; the pools can still be used."""
        self._own()
        found = self._loops.get(asyncio.get_running_loop())
        if found is not None:
            await found.close_idle()

    def close(self) -> None:
        """Close what nobody uses now, also in event loops that do not run at this moment; one that runs closes its own."""
        self.close_idle()
        for loop in [each for each in list(self._loops) if not each.is_running()]:
            self._loops.pop(loop).abandon()

    def address(self) -> str:
        """Return the DSN; without one, start the private development database and install Octop there."""
        __tracebackhide__ = True
        admit(self._dsn)
        if self._dsn is None:
            with _private_lock:
                self._dsn = _private_url(self._manner["schema"])
        return self._dsn

    def _open_loop_pool(self) -> "_LoopPool | None":
        __tracebackhide__ = True
        admit(self._dsn)
        self._own()
        return self._loops.get(asyncio.get_running_loop())

    async def _loop_pool(self) -> "_LoopPool":
        __tracebackhide__ = True
        found = self._open_loop_pool()
        if found is None:
            loop = asyncio.get_running_loop()
            address = await asyncio.to_thread(self.address) if self._dsn is None else self._dsn
            for ended in [each for each in list(self._loops) if each.is_closed()]:
                self._loops.pop(ended).abandon()
            forget = partial(self._loops.pop, loop, None)
            size = await asyncio.to_thread(self.size) if self._size is None else self._size
            found = self._loops.setdefault(loop, _LoopPool(address, self._manner, size, forget))
            await found.start()
        return found


class _LoopPool:
    """Asynchronous connections of one event loop; closed when the loop ends."""

    def __init__(self, dsn: str, manner: Mapping[str, Any], size: int, forget: Callable[[], object]) -> None:
        self._forget = forget
        self._dsn = dsn
        self._manner = manner
        self._slots = asyncio.Semaphore(size)
        self._idle = _Idle()
        self._end: AsyncGenerator[None, None] | None = None
        self.joined = JoinedEnqueue(self.run, size)

    async def run(self, call: Call[R], again: Call[R] | None) -> R:
        """Run one call in a transaction of its own; after a broken connection its second form, once."""
        try:
            async with self.connection() as connection:
                return await run_async(connection, call)
        except DatabaseUnreachableError:
            if again is None:
                raise
        await self.close_idle()
        async with self.connection() as connection:
            return await run_async(connection, again)

    async def start(self) -> None:
        """Be closed with the loop: ``asyncio.run`` closes all asynchronous generators that were begun in it."""
        if self._end is None:
            self._end = self._closing()
            await anext(self._end)

    async def _closing(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._forget()
            await self.close_idle()

    def abandon(self) -> None:
        """Close the connections of a loop that was closed without its end: nothing can be awaited there any more."""
        for old in self._idle.all():
            old.pgconn.finish()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        """Lend a connection in autocommit."""
        async with self._slots:
            found: AsyncConnection[Any] | None = self._idle.take()
            if found is None or found.closed:
                found = await open_connection_async(self._dsn, **self._manner)
            try:
                yield found
            finally:
                if _reusable(found):
                    for old in self._idle.put(found):
                        await old.close()
                else:
                    await found.close()

    async def close_idle(self) -> None:
        """Close what nobody uses now."""
        for old in self._idle.all():
            await old.close()


def _close_all(idle: _Idle, pid: int) -> None:
    if pid == os.getpid():
        for connection in idle.all():
            connection.close()


@contextlib.contextmanager
def _translating() -> Iterator[None]:
    # BEGIN and COMMIT are psycopg's; what they raise must become an error of ours as well.
    try:
        yield
    except psycopg.Error as error:
        raise translated(error) from error


# After a fork the child keeps these for ever: a collected connection would warn, a closed one would end the parent's
# session.
_left_to_parents: Final[list[object]] = []
_private_lock: Final = threading.Lock()


def _private_url(schema: str) -> str:
    url = private_database.start().url
    with contextlib.closing(open_connection(url, application_name=APPLICATION_NAME)) as connection:
        current = status(connection, schema).current
    if not current:
        install(url, schema=schema)
    return url
