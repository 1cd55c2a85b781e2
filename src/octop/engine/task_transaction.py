"""The transaction that is lent to a task, so that its effects and its success commit together.

The pool's connection is never given away. A task gets an object of its own on the same session, which is taken back at the end of the
function: whatever it changed of that object ends with it, and what it left running can not reach the next transaction.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, Generic, NoReturn, TypeVar

import psycopg
from psycopg import AsyncConnection, Connection, pq
from psycopg.pq import TransactionStatus

from octop.engine.call import Call, run, run_async
from octop.engine.connect import AsyncEngineConnection, EngineConnection
from octop.engine.failures import translated
from octop.engine.listener import cut
from octop.engine.pools import Pools
from octop.model.errors import (
    DatabaseUnreachableError,
    OctopError,
    TransactionAbortedError,
    TransactionEndedError,
    TryAgainError,
)

R = TypeVar("R")
C = TypeVar("C", EngineConnection, AsyncEngineConnection)

CONNECT_SECONDS_MAX: Final = 4
LOCKED_SECONDS_MAX: Final = 30.0
"""How long to try while somebody else holds the task's row, such as a person who cancels it in an open transaction."""
PAUSE_SECONDS: Final = 0.05

# Of all our transactions only these last. When their worker loses its power, the server finds out within half a minute, not after the two
# hours of most systems: until then nobody else could have what they have locked.
BEGIN: Final = (
    "begin isolation level read committed; set local tcp_keepalives_idle = 10; set local tcp_keepalives_interval = 5; "
    'set local tcp_keepalives_count = 4; savepoint "octop_attempt"'
)
# The savepoint is there only if the transaction is still the one that we began. Deferred constraints are checked with the rights and the
# path that the task chose; from then on they are the login's own, for what follows is ours.
TAKE_BACK: Final = (
    'release savepoint "octop_attempt"; set constraints all immediate; set local session authorization default; '
    "set local role to default; set local search_path to default; set local statement_timeout to default; "
    "set local lock_timeout to default; set local idle_in_transaction_session_timeout to default; "
    'set local row_security to default; set local datestyle to default; savepoint "octop_success"'
)
AGAIN: Final = 'rollback to savepoint "octop_success"'
COMMIT: Final = "commit"
RESET: Final = "discard all"

UNKNOWN: Final = (
    "the connection broke while the task's transaction was being committed: whether it was is not known here"
)
UNKNOWN_HINT: Final = "The database knows: if it was committed, the task has succeeded; else this attempt has failed."
ENDED: Final = "the task ended its transaction itself: what it did then is not bound to its success"
ENDED_HINT: Final = "Leave COMMIT and ROLLBACK to the worker; for a part that may fail, use connection.transaction()."
ABORTED: Final = "a statement of the task failed in its transaction, and the task went on: nothing of it can be kept"
ABORTED_HINT: Final = "Let the error out, or put the statement into `with connection.transaction():`."
RUNNING: Final = "a statement of the task was still running when its function had ended"
ROLLED_BACK: Final = "the task raised psycopg.Rollback: nothing of it is kept, so it is no success"
REFUSED: Final = "{}() is forbidden in a transactional task: its worker commits, together with its success"
_NO_TRANSACTION: Final = frozenset({"3B001", "25P01"})
_GONE: Final = pq.PGconn.connect_start(b"nowhere")  # not even tried: no words of a DSN
"""What a connection that was taken back has instead of a session: it says that it is closed."""


class NotBegunError(Exception):
    """No transaction could be begun; nothing has happened.

    Attributes:
        error: Why.
    """

    def __init__(self, error: OctopError) -> None:
        """Keep the reason."""
        super().__init__(str(error))
        self.error = error


class TaskConnection(EngineConnection):
    """What a ``def`` is lent."""

    def commit(self) -> NoReturn:
        """Refuse."""
        raise psycopg.ProgrammingError(REFUSED.format("commit"))

    def rollback(self) -> NoReturn:
        """Refuse."""
        raise psycopg.ProgrammingError(REFUSED.format("rollback"))


class AsyncTaskConnection(AsyncEngineConnection):
    """What an ``async def`` is lent."""

    async def commit(self) -> NoReturn:
        """Refuse."""
        raise psycopg.ProgrammingError(REFUSED.format("commit"))

    async def rollback(self) -> NoReturn:
        """Refuse."""
        raise psycopg.ProgrammingError(REFUSED.format("rollback"))


class _Lent(Generic[C]):
    """A transaction that has begun.

    Attributes:
        connection: What the task works on.
        is_committed: Nothing can undo it any more.
    """

    def __init__(self, own: C, lent: C) -> None:
        """Lend the session of a connection.

        Args:
            own: The pool's.
            lent: Another object on the same session.
        """
        self._own: C = own
        self.connection: C = lent
        self.is_committed = False
        self._lock = threading.Lock()
        self._is_over = False
        lent.octop_schema = own.octop_schema
        lent.prepare_threshold = None

    def cut(self) -> None:
        """End it from any thread, whatever the task still does: its locks are free at once, and it can not commit any more."""
        with self._lock:
            if self._is_over:
                return  # its session may be lent to somebody else already
            try:
                cancel = self._own.pgconn.get_cancel()
            except psycopg.Error:
                return  # it is closed
            cut(self._own)
        # a statement that runs would not notice before it has ended
        threading.Thread(target=_cancel, args=(cancel,), name="octop-cancel", daemon=True).start()

    def end(self) -> None:
        """Take back what was lent, however it ended."""
        with self._lock:
            self._is_over = True
        self.connection.pgconn = _GONE

    def _take_back(self) -> None:
        self.connection.pgconn = _GONE
        self._own.pgconn.notice_handler = self._own.pgconn.notify_handler = None
        if self._own.pgconn.transaction_status == TransactionStatus.ACTIVE:
            raise TransactionAbortedError(RUNNING, hint="Wait for all that it does on its connection.")

    def _committed(self, status: str | None) -> None:
        if status != "COMMIT":  # PostgreSQL says so of a transaction that had failed, and raises nothing
            raise TransactionAbortedError(ABORTED, hint=ABORTED_HINT)
        self.is_committed = True

    def _refused(self, error: psycopg.Error) -> BaseException:
        if self._own.closed:
            return DatabaseUnreachableError(UNKNOWN, hint=UNKNOWN_HINT)
        return error


class TaskTransaction(_Lent[EngineConnection]):
    """A transaction that is lent to a ``def``."""

    def succeed(self, call: Call[R], check: Callable[[R], None]) -> None:
        """Commit, with one call as the last that happens in there.

        Args:
            call: Writes the success.
            check: Told of its answer, right before the COMMIT; what it raises undoes everything.

        Raises:
            TransactionEndedError: The transaction that was lent is over already.
            TransactionAbortedError: It has failed, and can keep nothing.
            DatabaseUnreachableError: The connection broke.
            psycopg.Error: What a deferred constraint says.
        """
        self._take_back()
        try:
            self._own.execute(TAKE_BACK)
        except psycopg.Error as error:
            raise _spoilt(error) from error
        check(self._answer(call))
        try:
            status = self._own.execute(COMMIT).statusmessage
        except psycopg.Error as error:
            raise self._refused(error) from error
        self._committed(status)

    def _answer(self, call: Call[R]) -> R:
        until = time.monotonic() + LOCKED_SECONDS_MAX
        while True:
            try:
                return run(self._own, call)
            except TryAgainError:
                if time.monotonic() > until:
                    raise
            self._own.execute(AGAIN)  # the task's work stays
            time.sleep(PAUSE_SECONDS)


class AsyncTaskTransaction(_Lent[AsyncEngineConnection]):
    """A transaction that is lent to an ``async def``."""

    async def succeed(self, call: Call[R], check: Callable[[R], None]) -> None:
        """Commit; see ``TaskTransaction.succeed``."""
        self._take_back()
        try:
            await self._own.execute(TAKE_BACK)
        except psycopg.Error as error:
            raise _spoilt(error) from error
        check(await self._answer(call))
        try:
            status = (await self._own.execute(COMMIT)).statusmessage
        except psycopg.Error as error:
            raise self._refused(error) from error
        self._committed(status)

    async def _answer(self, call: Call[R]) -> R:
        until = time.monotonic() + LOCKED_SECONDS_MAX
        while True:
            try:
                return await run_async(self._own, call)
            except TryAgainError:
                if time.monotonic() > until:
                    raise
            await self._own.execute(AGAIN)  # as above
            await asyncio.sleep(PAUSE_SECONDS)


@contextlib.contextmanager
def begun(pools: Pools) -> Iterator[TaskTransaction]:
    """Lend a transaction. Unless it has succeeded at the end of the ``with``, nothing of it is left.

    Its connection is kept for the next one only after a COMMIT of ours, and with a session as it was at first.

    Args:
        pools: Of connections for tasks.

    Raises:
        NotBegunError: There is none. What the body raises comes out as it is.
        TransactionAbortedError: The body raised ``psycopg.Rollback``.
    """
    with contextlib.ExitStack() as stack:
        try:
            own = _begin(pools, stack)
        except psycopg.Error as error:
            raise NotBegunError(translated(error)) from error
        except OctopError as error:
            raise NotBegunError(error) from error
        transaction = TaskTransaction(own, TaskConnection(own.pgconn))
        try:
            with _without_rollback():
                yield transaction
        finally:
            transaction.end()
            _reset(own) if transaction.is_committed else own.close()


@contextlib.asynccontextmanager
async def begun_async(pools: Pools) -> AsyncIterator[AsyncTaskTransaction]:
    """Lend a transaction of this event loop; see ``begun``."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                own = await _begin_async(pools, stack)
        except psycopg.Error as error:
            raise NotBegunError(translated(error)) from error
        except OctopError as error:
            raise NotBegunError(error) from error
        except TimeoutError as error:
            message = f"no connection within {CONNECT_SECONDS_MAX} s"
            raise NotBegunError(DatabaseUnreachableError(message)) from error
        transaction = AsyncTaskTransaction(own, AsyncTaskConnection(own.pgconn))
        try:
            with _without_rollback():
                yield transaction
        finally:
            transaction.end()
            await (_reset_async(own) if transaction.is_committed else own.close())


def _begin(pools: Pools, stack: contextlib.ExitStack) -> Any:
    connection: Connection[Any] = stack.enter_context(pools.connection())
    try:
        connection.execute(BEGIN)
    except psycopg.OperationalError:  # it died while nobody used it, and so have the others
        connection.close()
        stack.close()
        pools.close_idle()
        connection = stack.enter_context(pools.connection())
        connection.execute(BEGIN)
    return connection


async def _begin_async(pools: Pools, stack: contextlib.AsyncExitStack) -> Any:
    connection: AsyncConnection[Any] = await stack.enter_async_context(pools.connection_async())
    try:
        await connection.execute(BEGIN)
    except psycopg.OperationalError:  # as above
        await connection.close()
        await stack.aclose()
        await pools.close_idle_async()
        connection = await stack.enter_async_context(pools.connection_async())
        await connection.execute(BEGIN)
    return connection


def _reset(own: EngineConnection) -> None:
    """Give back what a session may hold beyond its transaction: role, settings, advisory locks, temporary tables."""
    try:
        own.execute(RESET)
    except psycopg.Error:
        own.close()


async def _reset_async(own: AsyncEngineConnection) -> None:
    try:
        await own.execute(RESET)
    except psycopg.Error:
        await own.close()
    except BaseException:
        await own.close()
        raise


@contextlib.contextmanager
def _without_rollback() -> Iterator[None]:
    try:
        yield
    except psycopg.Rollback as error:
        raise TransactionAbortedError(ROLLED_BACK, hint="Raise octop.Cancel, or octop.Retry.") from error


def _spoilt(error: psycopg.Error) -> BaseException:
    if error.sqlstate in _NO_TRANSACTION:
        return TransactionEndedError(ENDED, hint=ENDED_HINT)
    if error.sqlstate == "25P02":
        return TransactionAbortedError(ABORTED, hint=ABORTED_HINT)
    return error


def _cancel(cancel: Any) -> None:
    with contextlib.suppress(psycopg.Error):
        cancel.cancel()
