"""One test's database: what an application does in it, and what a test may ask."""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from octop.app import Octop
from octop.task import Task
from octop.testing import active
from octop.testing.bent_clock import Clock
from octop.testing.draining import SECONDS_MAX, TASKS_MAX, drain_application, run_here
from octop.testing.listed import EnqueuedTask, Wanted, listed, refuse_enqueued, require_enqueued
from octop.testing.override import Override
from octop.testing.ran import Drained

if TYPE_CHECKING:
    from octop.engine.call import Call
    from octop.engine.connect import EngineConnection

R = TypeVar("R")


class Database:
    """A database that belongs to one test. Made by ``Server.database`` and by the fixture ``octop_database``.

    Args:
        dsn: URL of the database.
        name: Its name.
        schema: Where Octop is installed in it.

    Attributes:
        dsn: URL; for SQLAlchemy with ``postgresql+psycopg`` (or another driver) in front.
        name: Its name.
        schema: Where Octop is installed in it.
        clock: The engine's clock in this database.
    """

    def __init__(self, dsn: str, name: str, schema: str) -> None:
        """Connect when the first question is asked."""
        self.dsn = dsn
        self.name = name
        self.schema = schema
        self.clock = Clock(lambda: self)
        self._clock_is_replaced = False

    def __repr__(self) -> str:
        """Return the name; the DSN may hold a password."""
        return f"<Database {self.name}>"

    def override(self, *applications: Octop) -> Override:
        """Point applications at this database for the length of a ``with`` or ``async with``.

        It works for objects that exist already, such as the ``octop = Octop()`` of your module: its tasks, those that
        were imported from there too, and everything enqueued through them lead here. Afterwards all is as it was, and
        the connections are closed. It nests.

        Args:
            *applications: One or several.
        """
        return Override(self, applications)

    def drain(
        self,
        app: Octop | None = None,
        *,
        with_scheduled: bool = False,
        until: datetime | timedelta | None = None,
        raise_failures: bool = True,
        max_tasks: int = TASKS_MAX,
        seconds: float = SECONDS_MAX,
        concurrency: int = 1,
    ) -> Drained:
        """Run all tasks that are due, in this process, on the real engine, until none is left that can start now.

        What they enqueue runs as well. Functions of ``run_in="process"`` run in a thread here, so that what a test
        patched holds for them too.

        Args:
            app: Whose tasks; None = the application that was pointed at this database last.
            with_scheduled: Then move the clock to the next due time, and on, until nothing waits any more: what was
                enqueued with a delay and each retry run too. The clock stands at the last of these moments afterwards.
            until: The same up to this moment (an aware datetime, or a timedelta from now), at which the clock stands
                afterwards.
            raise_failures: Raise at the end what tasks failed with: the task's own exception with its traceback, an
                ExceptionGroup if there are several. A task that succeeded in a later try has not failed, and one that
                raised ``Retry`` and waits for it neither.
            max_tasks: Attempts at most, so that tasks that enqueue each other for ever are found out.
            seconds: Time for all of it, of the real clock.
            concurrency: Tasks at once. With 1 they run one after the other: those of a queue in the order in which a
                worker would claim them, queues in turn.

        Returns:
            What ran, in the order of the starts.

        Raises:
            DrainLimitError: After max_tasks or seconds something is left to do; the message says what.
            ConfigurationError: Called inside a running event loop (await ``drain_async``), or no application is known.
        """
        __tracebackhide__ = True
        drained = run_here(
            self.drain_async(
                app,
                with_scheduled=with_scheduled,
                until=until,
                raise_failures=False,
                max_tasks=max_tasks,
                seconds=seconds,
                concurrency=concurrency,
            )
        )
        if raise_failures:  # here, not in the loop: its frames are nobody's business
            drained.raise_failures()
        return drained

    async def drain_async(
        self,
        app: Octop | None = None,
        *,
        with_scheduled: bool = False,
        until: datetime | timedelta | None = None,
        raise_failures: bool = True,
        max_tasks: int = TASKS_MAX,
        seconds: float = SECONDS_MAX,
        concurrency: int = 1,
    ) -> Drained:
        """Run all tasks that are due in this event loop; see ``drain``."""
        __tracebackhide__ = True
        if isinstance(until, timedelta):
            until = self.clock.now() + until
        drained = await drain_application(
            active.application(self) if app is None else app,
            dsn=self.dsn,
            schema=self.schema,
            clock=self.clock if with_scheduled or until is not None else None,
            until=until,
            max_tasks=max_tasks,
            seconds=seconds,
            concurrency=concurrency,
        )
        if raise_failures:
            drained.raise_failures()
        return drained

    def fire_schedules(self, app: Octop | None = None) -> int:
        """Declare the schedules of an application, as a worker does when it starts, and fire what is due by this database's clock.

        A schedule that is declared now has its first slot after now: call it once, move the clock, and call it again.

        Args:
            app: Whose; None = the application that was pointed at this database last.

        Returns:
            How many tasks were made; ``drain`` runs them.

        Raises:
            InvalidScheduleError: A rule cannot be read.
            InvalidTaskError: The arguments of a schedule do not fit its function.
        """
        from octop.engine import calls  # noqa: PLC0415 - loads psycopg

        application = active.application(self) if app is None else app
        self.run(calls.octop_declare_schedules(application.declared_schedules.as_json()))
        fired = 0
        while (told := self.run(calls.octop_tick())).next_seconds == 0 and told.fired + told.skipped:
            fired += told.fired
        return fired + told.fired

    def enqueued(
        self, task: Task[..., Any, Any] | str | None = None, *, queue: str | None = None
    ) -> list[EnqueuedTask]:
        """List the tasks that are not finished and not frozen, in the order of enqueue.

        Args:
            task: Only of this type.
            queue: Only of this queue.
        """
        return [each for each in listed(self) if Wanted.of(task, queue=queue).fits(each)]

    def assert_enqueued(
        self,
        task: Task[..., Any, Any] | str,
        *,
        payload: Mapping[str, object] | None = None,
        args: Sequence[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        queue: str | None = None,
        lane: str | None = None,
        tenant: str | None = None,
        priority: int | None = None,
        tags: Sequence[str] | None = None,
        within: float | timedelta | None = None,
        count: int | None = None,
    ) -> list[EnqueuedTask]:
        """Fail unless such a task waits or runs; the message shows the nearest miss and what is there.

        Args:
            task: The decorated function, or the name of a task type.
            payload: These arguments by name, among others perhaps.
            args: Exactly the call with these positional arguments,
            kwargs: and these by name.
            queue: In this queue.
            lane: In this lane.
            tenant: Of this tenant.
            priority: With this priority.
            tags: With these labels, among others perhaps.
            within: Due at most this long (seconds or a timedelta) after now on the database's clock.
            count: Exactly so many; None = at least one.

        Returns:
            Those that fit.

        Raises:
            AssertionError: There is none, or another number.
            InvalidArgumentsError: The task could not even be called like that.
        """
        __tracebackhide__ = True
        wanted = Wanted.of(
            task,
            payload=payload,
            args=args,
            kwargs=kwargs,
            queue=queue,
            lane=lane,
            tenant=tenant,
            priority=priority,
            tags=tags,
            within=within,
        )
        return require_enqueued(listed(self), wanted, count)

    def assert_not_enqueued(
        self,
        task: Task[..., Any, Any] | str,
        *,
        payload: Mapping[str, object] | None = None,
        args: Sequence[object] | None = None,
        kwargs: Mapping[str, object] | None = None,
        queue: str | None = None,
    ) -> None:
        """Fail if such a task waits or runs; for the arguments see ``assert_enqueued``.

        Raises:
            AssertionError: There is one; the message shows it.
        """
        __tracebackhide__ = True
        refuse_enqueued(listed(self), Wanted.of(task, payload=payload, args=args, kwargs=kwargs, queue=queue))

    def run(self, call: "Call[R]") -> R:
        """Run one call of the engine on this database."""
        from octop.engine.call import run  # noqa: PLC0415 - loads psycopg

        return run(self._connection, call)

    def replace_clock(self) -> None:
        """Put the clock that can be moved in the place of the real one, if it is not there yet."""
        from octop.engine import throwaway  # noqa: PLC0415 - loads psycopg

        if not self._clock_is_replaced:
            throwaway.require_throwaway(self.name)
            self.run(throwaway.install_clock())
            self._clock_is_replaced = True

    def close(self) -> None:
        """Close the connection by which it is asked; the next question opens another."""
        with contextlib.suppress(KeyError):
            vars(self).pop("_connection").close()

    @cached_property
    def _connection(self) -> "EngineConnection":
        from octop.engine.connect import open_connection  # noqa: PLC0415 - loads psycopg

        return open_connection(self.dsn, application_name="octop testing", schema=self.schema)
