"""Transactional tasks: what a task does on the connection that it is lent, and its success, are one transaction."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, Protocol

from octop.engine import calls
from octop.engine.call import Call, run_async
from octop.engine.pools import Pools
from octop.engine.task_transaction import NotBegunError, begun, begun_async
from octop.model.definition import TaskDefinition
from octop.model.errors import ConfigurationError, NotPermittedError, SchemaError
from octop.model.task import Claimed, Exchanged, Success
from octop.worker.ending import AttemptLostError

NAME: Final = "octop worker task"
CONNECT_SECONDS_MAX: Final = 4
COUNTED_HERE: Final = 1_000_000
"""The pools need no bound of their own: who has a place finds a connection."""


class NoPlaceError(Exception):
    """As many transactions as may be at once are open already."""


class Attempt(Protocol):
    """One attempt of a transactional task, as its transaction knows it."""

    def begins(self, connection: Any, cut: Callable[[], None]) -> None:
        """Take the connection; raises NotStartedError where nothing may start any more."""

    def call(self) -> Any:
        """Begin the function: the value of a ``def``, the coroutine of an ``async def``."""

    def written(self, value: Any) -> tuple[bool, str | None]:
        """Let go of the connection, and tell whether a value is a result that can be kept, and its JSON."""

    def claimed(self) -> Claimed:
        """Return the attempt, as it is known when the function has ended: the claim may have been given once more."""

    def commits(self) -> None:
        """Take note that nothing but the COMMIT is left."""


class Committed(NamedTuple):
    """A success that is in the database already.

    Attributes:
        value: What the function returned.
        text: Its JSON.
    """

    value: Any
    text: str | None


def dsn_of_tasks(environment: Mapping[str, str], dsn: str) -> str | None:
    """Return where, and as whom, tasks work in this process.

    Args:
        environment: ``OCTOP_TASK_DSN`` in it names another login than the worker's; empty = none at all, as for child processes.
        dsn: The worker's own.
    """
    own = environment.get("OCTOP_TASK_DSN")
    return dsn if own is None else own or None


class Transactions:
    """The connections that a worker lends to its transactional tasks.

    Attributes:
        places: Setting ``db.connection_pool_size``: transactions at once, until the first has begun.
        dsn: Where, and as whom, tasks work; None = nowhere.
        schema: Where Octop is installed.
        worker_id: Whose tasks these are.
    """

    def __init__(self, dsn: str | None, schema: str, worker_id: str) -> None:
        """Open nothing yet.

        Args:
            dsn: Where, and as whom, tasks work: the database of the worker, perhaps as another role; None = they have no connection.
            schema: Where Octop is installed.
            worker_id: Whose tasks these are.
        """
        self.places = 10
        self.dsn = dsn
        self.schema = schema
        self.worker_id = worker_id
        self._pools = Pools(dsn or "", schema, size=COUNTED_HERE, name=NAME, connect_timeout=CONNECT_SECONDS_MAX)
        self._free: asyncio.Semaphore | None = None

    async def check(self, definitions: Iterable[TaskDefinition], *, patient: bool) -> None:
        """Find out at the start of a worker whether its transactional tasks will have what they need.

        Args:
            definitions: Of all tasks.
            patient: A database that is away is no fault.

        Raises:
            ConfigurationError: They will not.
        """
        names = sorted({each.name for each in definitions if each.transactional})
        if not names:
            return
        if self.dsn is None:
            message = f"OCTOP_TASK_DSN is empty, so tasks get no database, and {names[0]} is transactional"
            raise ConfigurationError(
                message, hint="Name a login for tasks there, or unset it: then they get the worker's."
            )
        try:
            async with begun_async(self._pools) as transaction:
                # hands in nothing and asks for nothing: it finds out whether this login may, and finds Octop there
                await run_async(transaction.connection, calls.octop_exchange(self.worker_id, wanted={}, task_types=[]))
        except NotBegunError as error:
            if not patient or isinstance(error.error, ConfigurationError):
                message = f"transactional tasks, such as {names[0]}, get no connection: {error.error.message}"
                raise ConfigurationError(message, hint=error.error.hint) from error
        except (NotPermittedError, SchemaError) as error:
            message = (
                f"the login of transactional tasks, such as {names[0]}, can not write their success: {error.message}"
            )
            raise ConfigurationError(message, hint=error.hint) from error

    @asynccontextmanager
    async def place(self, seconds: float) -> AsyncIterator[Callable[[], None]]:
        """Wait for a place, of which there are as many as connections.

        Args:
            seconds: To wait at most.

        Yields:
            What lets it go before the end: its connection was cut.

        Raises:
            NoPlaceError: There was none.
        """
        if self._free is None:
            self._free = asyncio.Semaphore(self.places)
        free = self._free
        try:
            async with asyncio.timeout(seconds):
                await free.acquire()
        except TimeoutError:
            raise NoPlaceError from None
        held = [free]

        def let_go() -> None:
            if held:
                held.pop().release()

        try:
            yield let_go
        finally:
            let_go()

    def run(self, attempt: Attempt) -> Any:
        """Run a function in a transaction, in this thread. Only a success commits: whatever else it ends with is rolled back.

        Args:
            attempt: Which.

        Returns:
            Committed, or a value that is no result: then nothing was kept.

        Raises:
            NotBegunError: There is no connection; nothing has begun.
            NotStartedError: Nothing may start any more.
            AttemptLostError: It was no longer this worker's when it was to commit.
        """
        with begun(self._pools) as transaction:
            attempt.begins(transaction.connection, transaction.cut)
            value = attempt.call()
            is_kept, text = attempt.written(value)
            if not is_kept:
                return value
            transaction.succeed(self._success(attempt.claimed(), text), _accepted(attempt))
        return Committed(value, text)

    async def run_async(self, attempt: Attempt) -> Any:
        """Run a coroutine function in a transaction; see ``run``."""
        async with begun_async(self._pools) as transaction:
            attempt.begins(transaction.connection, transaction.cut)
            value = await attempt.call()
            is_kept, text = attempt.written(value)
            if not is_kept:
                return value
            await transaction.succeed(self._success(attempt.claimed(), text), _accepted(attempt))
        return Committed(value, text)

    async def close(self) -> None:
        """Close what is idle; what a thread still uses ends with the process."""
        await self._pools.close_idle_async()
        self.close_here()

    def close_here(self) -> None:
        """Close what threads have left idle; what belongs to an event loop ends with it."""
        self._pools.close_idle()

    def _success(self, claimed: Claimed, text: str | None) -> Call[Exchanged]:
        success = Success(claimed.fence, text)
        return calls.octop_exchange(self.worker_id, wanted={}, task_types=[], successes=[success])


def _accepted(attempt: Attempt) -> Callable[[Exchanged], None]:
    def accepted(answer: Exchanged) -> None:
        _check(answer)
        attempt.commits()

    return accepted


def _check(answer: Exchanged) -> None:
    """Refuse to commit what would not be this attempt's any more.

    Raises:
        AttemptLostError: The task was given to somebody else, cancelled or deleted.
    """
    if answer.settled:
        raise AttemptLostError
