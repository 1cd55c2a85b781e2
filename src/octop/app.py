"""The application: registers functions as task types, enqueues their calls, runs a worker."""

import contextlib
import functools
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload
from uuid import UUID

from octop.bulk import Calls, Chunks, Enqueued, summed
from octop.handle import Handle
from octop.model.batch import BatchTask
from octop.model.context import Context
from octop.model.declared_schedules import DeclaredSchedules
from octop.model.definition import Registry, TaskDefinition, TaskOptions, define
from octop.model.errors import (
    ConfigurationError,
    InvalidNameError,
    InvalidTaskError,
    TaskExistsError,
    UnknownTaskTypeError,
)
from octop.model.hooks import Hooks
from octop.model.options import checked_name
from octop.model.schedule import DeclaredOptions
from octop.model.settings import Settings, load_settings
from octop.model.work import NewTask
from octop.task import OPTIONS, Caller, Options, PreparedCall, Task, checked_id, option_meant, plain_result

if TYPE_CHECKING:
    import asyncio

    from octop.alerts import Alerts
    from octop.engine.call import Call
    from octop.engine.pools import Pools
    from octop.holds import Holds
    from octop.queues import Queues
    from octop.schedules import Schedules

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
__tracebackhide__ = True  # a test that fails in here shows the line that called


class Decorate(Protocol):
    """What ``@octop.task(…)`` returns: it makes a Task of the function below it."""

    @overload
    def __call__(self, function: Callable[[list[BatchTask[A]]], T], /) -> Task[..., T, Any]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


class Octop:
    """An application: its task types, its database, its hooks.

    Args:
        dsn: Where the database is, a URL or key=value words. None = OCTOP_DSN, DATABASE_URL, libpq's variables,
            octop.toml, ``[tool.octop]`` in pyproject.toml, else the private development database.
        schema: Where Octop is installed there. None = OCTOP_SCHEMA, the files, else ``public``.
        name: Shown in messages; no two applications need to differ.
        pool_size: Most connections at once for enqueuing, per event loop and for all threads together, 1 to 1,000.
            None = the setting ``db.connection_pool_size``.

    Nothing is opened or read before it is needed.

    Examples:
        >>> octop = Octop()
        >>> @octop.task(queue="mail", max_retries=5, timeout=30)
        ... async def send_welcome(user_id: int) -> str:
        ...     return f"welcome {user_id}"
        >>> sorted(octop.registry)
        ['send_welcome']
    """

    def __init__(
        self,
        dsn: str | None = None,
        schema: str | None = None,
        name: str | None = None,
        *,
        pool_size: int | None = None,
    ) -> None:
        """Begin without task types."""
        if pool_size is not None and not 1 <= pool_size <= 1_000:
            message = f"pool_size is 1 to 1,000, not {pool_size!r}"
            raise ConfigurationError(message)
        self._dsn = dsn
        self._schema = schema
        self._pool_size = pool_size
        self.name = name or "octop"
        self.registry: Registry = {}
        self.hooks = Hooks()
        self.queue_declarations: dict[str, dict[str, object]] = {}
        self.declared_schedules = DeclaredSchedules()

    def __repr__(self) -> str:
        """Return the name and how many task types there are; never the DSN."""
        return f"<Octop {self.name!r} with {len(self.registry)} task types>"

    @functools.cached_property
    def settings(self) -> Settings:
        """Return which database and schema this application uses, and where that was said."""
        return load_settings(dsn=self._dsn, schema=self._schema)

    @functools.cached_property
    def _pools(self) -> "Pools":
        from octop.engine.pools import Pools  # noqa: PLC0415 - loads psycopg: only when a connection is needed

        return Pools(self.settings.dsn, self.settings.schema, size=self._pool_size)

    @property
    def queues(self) -> "Queues":
        """Return the queues of this application's database: set their limits, look at them."""
        from octop.queues import Queues  # noqa: PLC0415 - few applications set limits

        return Queues(self._pools)

    @property
    def holds(self) -> "Holds":
        """Return the holds of this application's database: hold queues, task types, tenants and lanes, and lift them."""
        from octop.holds import Holds  # noqa: PLC0415 - few applications hold anything

        return Holds(self._pools)

    @property
    def alerts(self) -> "Alerts":
        """Return the alerts of this application's database: read and acknowledge them."""
        from octop.alerts import Alerts  # noqa: PLC0415 - few applications acknowledge any

        return Alerts(self._pools)

    @property
    def schedules(self) -> "Schedules":
        """Return the schedules of this application's database: make, change, pause, run, backfill, look at them."""
        from octop.schedules import Schedules  # noqa: PLC0415 - few applications steer them from code

        return Schedules(self._pools, self.registry)

    # Registering

    @overload
    def task(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R, R]: ...
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    @overload
    def task(self, **options: Unpack[TaskOptions]) -> Decorate: ...
    def task(self, function: Any = None, **options: Any) -> Any:
        """Register a function as a task type: ``@octop.task`` or ``@octop.task(queue="mail")``. It stays a function.

        Args:
            function: ``def`` or ``async def``. Parameters may have any type that ``octop.model.codec`` knows; one
                annotated with ``octop.Context`` gets the running task.
            **options: Those below, by name.
            name: Stored in each task, 1 to 200 characters; default: the function's name.
            aliases: Older names under which tasks may still wait.
            run_in: ``loop`` (default for async), ``thread`` (default for def), ``process`` (can be killed).
            queue: Default: ``default``.
            lane_from: The payload field whose value names the lane, text or a whole number: ``lane_from="account_id"``;
                a dot leads inside. ``using(lane=…)`` goes before it. Default: no lane.
            priority: 0 (first) to 9 (last); default 5.
            max_retries: Further tries after the first, 0 to 1,000; None = the queue's or the configuration's.
            timeout: Limit of one attempt, seconds or a timedelta, more than 0 and at most 31 days. None = the queue's or
                the configuration's.
            retry: A RetryPolicy, or a list of delays in seconds.
            tags: At most 50 labels of each task.
            version: Of this code, 1 (default) to 1,000. Raise it when older code must not run the tasks that this code
                enqueues, as when an argument was renamed: during a roll-out workers with a lower one leave them to
                others. Tasks of lower versions are run as before.
            transactional: True = the function gets a connection, ``octop.current().connection``, inside a transaction that
                commits together with its success: what it does there happens once, or not at all. Default False.
            freeze_type_on_exhaustion: True = when a task of this type uses up its retries, the type is frozen with it: later tasks of
                the type wait until ``octop types thaw``, and an alert goes out. Default False.
            unique: Payload fields of which there may be one task of the type and tenant: ``unique=("user_id",)``; a dot
                leads inside. True = the whole payload. Default: not unique.
            unique_scope: ``pending`` (default: until its first start), ``live`` (until it has ended), or seconds or a
                timedelta, at most 366 days, from the enqueue on.
            on_conflict: ``keep`` (default), ``raise``, ``replace`` or ``move``; see ``using``.
            batch_size: The function gets a list of at most so many tasks, 1 to 10,000: ``def send(tasks: list[BatchTask[Mail]])``,
                where the fields of ``Mail`` are the arguments of one task. Async or in a thread.
            batch_wait: How long the first of them waits for others, 0 to 5 seconds; default 0.5.

        Returns:
            A Task.

        Raises:
            InvalidTaskError: The function can not be a task.
            InvalidNameError: A name is no name, or belongs to another function.
            InvalidOptionError: An option is out of bounds.
            TypeError: There is no such option.
        """
        if unknown := options.keys() - TaskOptions.__annotations__.keys():
            message = f"@octop.task has no option {min(unknown)!r}: it takes {', '.join(TaskOptions.__annotations__)}"
            raise TypeError(message)

        def decorate(function: Callable[..., Any]) -> Task[..., Any, Any]:
            definition = define(function.definition.function if isinstance(function, Task) else function, **options)
            self._register(definition)
            self.declared_schedules.registered(definition)
            return Task(self, definition)

        return decorate if function is None else decorate(function)

    def _register(self, definition: TaskDefinition) -> None:
        for name in (definition.name, *definition.aliases):
            known = self.registry.get(name)
            if known is not None and not (known.name == definition.name and definition.same_as(known)):
                place = f"{known.function.__module__}.{known.function.__qualname__}"
                message = f"the name {name!r} belongs to {place} already"
                raise InvalidNameError(message, hint='Give this one another: @octop.task(name="…").')
        for name in (definition.name, *definition.aliases):
            self.registry[name] = definition

    def schedule(self, rule: str, /, **options: Unpack[DeclaredOptions]) -> Callable[[F], F]:
        """Have a task made at each time of a rule: ``@octop.schedule("0 9 * * MON-FRI", timezone="Europe/Berlin")``.

        Stands above or below ``@octop.task``, several of them if each has a name. Workers declare it when they start;
        what somebody changes, pauses or drops by hand stays so (``octop schedules diff``).

        Args:
            rule: Cron of five or six fields, ``@daily``, ``@every 90s``, ``@at 2030-01-07T09:00:00+01:00`` or an RRULE.
            **options: Those below, by name.
            name: Default: that of the task type.
            timezone: Whose clocks count, as in ``Europe/Berlin``; default ``UTC``.
            args: Arguments of each call.
            kwargs: Likewise by name. In a text, ``{{slot}}``, ``{{slot.local}}``, ``{{slot.date}}``, ``{{slot.time}}``,
                ``{{slot.epoch}}``, ``{{previous}}``, ``{{next}}`` and ``{{schedule}}`` are filled in.
            tenant: Whose tasks; default: nobody's.
            queue: And ``lane``, ``priority`` (0 to 9), ``max_retries`` (0 to 1,000), ``timeout`` (seconds or a
                timedelta, at most 31 days) and ``tags`` (at most 50): of its tasks; default: as the task type says.
            meta: Riders of each task.
            starts_at: An aware datetime: no slot before it.
            ends_at: No slot after it.
            catch_up: What becomes of slots that nobody fired: ``last`` (default) = the last one, ``skip`` = that only
                if it is no later than ``late_after``, ``all`` = the newest ``catch_up_max``.
            catch_up_max: 1 to 10,000; default 100.
            overlap: While a task of an earlier slot has not ended, a slot is fired all the same (``allow``, default),
                skipped (``skip``), or waits (``queue``).
            jitter: Spread, 0 (default) to 1 day, seconds or a timedelta; the same for the same slot.
            late_after: Seconds or a timedelta, at most 365 days, after which a slot counts as late; default 60.
            expected: How long a task should take at most; longer is an alert. Default: none.
            deadline: How long after its slot a task should have succeeded; else an alert. Default: none.

        Returns:
            A decorator that returns what it decorates.

        Raises:
            InvalidOptionError: The rule or an option is out of bounds. What the rule means, the database judges.
            InvalidNameError: A name is none, or another schedule has it.
            InvalidTimeError: A moment is naive.
            InvalidTaskError: The arguments do not fit the function, or it is no task of this application.
            TypeError: There is no such option.

        Examples:
            >>> octop = Octop()
            >>> @octop.schedule("0 9 * * MON-FRI", timezone="Europe/Berlin", kwargs={"day": "{{slot.date}}"})
            ... @octop.task
            ... def report(day: str) -> None: ...
        """

        def decorate(function: F) -> F:
            if isinstance(function, Task):
                if self.registry.get(function.name) is not function.definition:
                    message = f"{function.name} is a task of another application"
                    raise InvalidTaskError(message, hint="Schedule it where it is registered.")
                self.declared_schedules.add(function.definition, rule, options)
            else:
                self.declared_schedules.wait_for_task(function, rule, options)
            return function

        return decorate

    def queue(self, name: str, **values: Any) -> None:
        """Declare limits of a queue, where the code is the place for them.

        Workers write them down when they start; the last declaration holds for all workers, and what an operator sets wins.

        Args:
            name: The queue, 1 to 200 characters.
            values: As for ``queues.set``; those of an earlier declaration that are not named are taken back.

        Raises:
            InvalidNameError: The name is empty or too long.
            InvalidOptionError: A rate is none. Other values are judged by the database, when a worker starts.
            TypeError: There is no value of that name.

        Examples:
            >>> Octop().queue("mail", global_limit=20, rate="100/m")
        """
        from octop.queues import queue_values  # noqa: PLC0415 - few applications set limits

        self.queue_declarations[checked_name(name, "a queue")] = queue_values(values)

    def on_enqueue(self, function: F) -> F:
        """Call ``function(task_type)`` for each task that is made, in the process that enqueues it; the dict that it
        returns is added to the task's ``meta``: a trace context, a request id. Not async.
        """
        self.hooks.enqueue.append(_hook(function))
        return function

    def on_worker_start(self, function: F) -> F:
        """Call a function, async or not, before a worker process claims its first task."""
        self.hooks.worker_start.append(_hook(function))
        return function

    def on_worker_stop(self, function: F) -> F:
        """Call a function, async or not, after the last task of a worker process; the last registered comes first."""
        self.hooks.worker_stop.append(_hook(function))
        return function

    def middleware(self, function: F) -> F:
        """Wrap each attempt: ``async def timed(context, call_next): return await call_next()``. The first is the
        outermost.
        """
        self.hooks.middleware.append(_hook(function))
        return function

    def on_success(self, function: F) -> F:
        """Call ``function(context, result)`` after each attempt that succeeded."""
        self.hooks.success.append(_hook(function))
        return function

    def on_failure(self, function: F) -> F:
        """Call ``function(context, error)`` after each attempt that failed in any way."""
        self.hooks.failure.append(_hook(function))
        return function

    def on_retry(self, function: F) -> F:
        """Call ``function(context, error)`` after a failure that will be tried again."""
        self.hooks.retry.append(_hook(function))
        return function

    def on_freeze(self, function: F) -> F:
        """Call ``function(context, error)`` after a failure that used up the last try."""
        self.hooks.freeze.append(_hook(function))
        return function

    def on_alert(self, function: F) -> F:
        """Call ``function(alert)`` for each alert (``octop.Alert``), async or not, in some worker, at least once.

        It has ten seconds, beside the tasks; if it raises, it is called again after 2, 4, 8 … 300 seconds, for a day.
        """
        self.hooks.alert.append(_hook(function))
        return function

    # Enqueuing

    def named(self, name: str) -> Caller[..., Any]:
        """Return a task type by its name: one of this application, checked as such, or one of another code base.

        Args:
            name: 1 to 200 characters.

        Raises:
            InvalidNameError: It is no name.
        """
        found = self.registry.get(checked := checked_name(name, "a task type's name"))
        return Caller(self, checked, Options()) if found is None else Task(self, found)

    async def enqueue(self, name: str, payload: Mapping[str, object] | None = None, **options: Any) -> Handle[Any]:
        """Enqueue a task by the name of its type, whose function may belong to another code base.

        Args:
            name: Of the task type.
            payload: Its arguments by name.
            **options: As for ``using``.

        Raises:
            InvalidTaskError: A subclass says what is wrong.
            TypeError: There is no such option.
        """
        return await self.submit(self._prepared("enqueue", name, payload, options))

    def enqueue_sync(self, name: str, payload: Mapping[str, object] | None = None, **options: Any) -> Handle[Any]:
        """Enqueue a task by the name of its type; see ``enqueue``."""
        return self.submit_sync(self._prepared("enqueue_sync", name, payload, options))

    def _prepared(
        self, act: str, name: str, payload: Mapping[str, object] | None, options: Mapping[str, Any]
    ) -> PreparedCall[Any]:
        caller = self.named(name)
        if wrong := next((each for each in options if each not in OPTIONS), None):
            known = self.registry.get(name)
            meant = "" if known is not None and known.takes(wrong) else option_meant(wrong)
            rule = f'Arguments of the task go into a dict: {act}("{name}", {{"{wrong}": …}})'
            message = f"{act}() has no option {wrong!r}{meant or '.'} {rule}"
            raise TypeError(message)
        return caller.using(**options).prepared((), _by_name(payload))

    @overload
    async def enqueue_many(
        self, calls: Calls, *, connection: object = None, return_ids: Literal[False] = False
    ) -> int: ...
    @overload
    async def enqueue_many(
        self, calls: Calls, *, connection: object = None, return_ids: Literal[True]
    ) -> list[UUID]: ...
    async def enqueue_many(
        self, calls: Calls, *, connection: object = None, return_ids: bool = False
    ) -> int | list[UUID]:
        """Enqueue any number of calls, all or nothing, thousands per statement.

        Args:
            calls: What ``task.call(…)`` returns, from any iterable or asynchronous iterable; it is read while it
                is sent, so that a generator of millions needs little memory.
            connection: A connection or session of yours: the tasks are part of its transaction, sent as one statement.
            return_ids: Return the ids in the order of the calls, not how many there were. Where another task holds a unique
                key it is that one's id, and it does not count; nothing is raised for it, also not by on_conflict="raise":
                a conflict never stops the others.

        Raises:
            InvalidTaskError: One of them is refused; the message says which; nothing was enqueued.
        """
        statements = Chunks(return_ids=return_ids, whole=connection is not None).statements_async(calls)
        if connection is None:
            return summed(await self._pools.run_all_async(statements), return_ids=return_ids)
        from octop.engine.foreign import run_foreign_async  # noqa: PLC0415 - loads psycopg

        schema = self.settings.schema
        answers = [await run_foreign_async(connection, each, schema=schema) async for each in statements]
        return summed(answers, return_ids=return_ids)

    @overload
    def enqueue_many_sync(
        self, calls: Iterable[PreparedCall[Any]], *, connection: object = None, return_ids: Literal[False] = False
    ) -> int: ...
    @overload
    def enqueue_many_sync(
        self, calls: Iterable[PreparedCall[Any]], *, connection: object = None, return_ids: Literal[True]
    ) -> list[UUID]: ...
    def enqueue_many_sync(
        self, calls: Iterable[PreparedCall[Any]], *, connection: object = None, return_ids: bool = False
    ) -> int | list[UUID]:
        """Enqueue any number of calls, all or nothing; see ``enqueue_many``."""
        statements = Chunks(return_ids=return_ids, whole=connection is not None).statements(calls)
        if connection is None:
            return summed(self._pools.run_all(statements), return_ids=return_ids)
        from octop.engine.foreign import run_foreign  # noqa: PLC0415 - loads psycopg

        schema = self.settings.schema
        return summed([run_foreign(connection, each, schema=schema) for each in statements], return_ids=return_ids)

    async def submit(self, prepared: PreparedCall[Any]) -> Handle[Any]:
        """Enqueue what ``task.call(…)`` returned; submit it once, for it has its id already.

        Args:
            prepared: The call.
        """
        if prepared.connection is None:
            id, created = await self._pools.enqueue_async(prepared.task, fresh=prepared.send())
        else:
            from octop.engine.foreign import run_foreign_async  # noqa: PLC0415 - loads psycopg

            call, _ = _one(prepared)
            id, created = (await run_foreign_async(prepared.connection, call, schema=self.settings.schema))[0]
        return self._handle_of(prepared, id, created)

    def submit_sync(self, prepared: PreparedCall[Any]) -> Handle[Any]:
        """Enqueue what ``task.call(…)`` returned; see ``submit``."""
        call, again = _one(prepared)
        if prepared.connection is None:
            id, created = self._pools.run(call, again)[0]
        else:
            from octop.engine.foreign import run_foreign  # noqa: PLC0415 - loads psycopg

            id, created = run_foreign(prepared.connection, call, schema=self.settings.schema)[0]
        return self._handle_of(prepared, id, created)

    def with_riders(self, task_type: str, meta: str | None) -> str | None:
        """Return the meta of a new task with what the enqueue hooks add to it."""
        return self.hooks.with_riders(task_type, meta) if self.hooks.enqueue else meta

    def _handle_of(self, prepared: PreparedCall[Any], id: str, created: bool) -> Handle[Any]:
        # An id that was made here and exists already was written by our own first try, whose answer was lost.
        mine = prepared.fresh and id == prepared.task.id
        if prepared.task.on_conflict == "raise" and id != prepared.task.id:
            raise exists(prepared.task, id)
        return Handle(id, self._pools, prepared.decode, created=created or mine)

    def handle(self, id: UUID | str, task_type: str | None = None) -> Handle[Any]:
        """Return the handle of a task that was enqueued earlier, or elsewhere.

        Args:
            id: The task's id.
            task_type: Its type, if the result is to come back as the type of the function's return annotation.

        Raises:
            InvalidOptionError: The id is no UUID.
            UnknownTaskTypeError: No such type is registered here.
        """
        definition: TaskDefinition | None = None
        if task_type is not None and (definition := self.registry.get(task_type)) is None:
            message = f"no task type {task_type!r} is registered here"
            raise UnknownTaskTypeError(message, hint="Import the module of its function, or leave task_type out.")
        return Handle(checked_id(id), self._pools, plain_result if definition is None else definition.decode_result)

    def close(self) -> None:
        """Close the idle connections of blocking calls. Those of an event loop are closed with it."""
        self._pools.close_idle()

    async def close_async(self) -> None:
        """Close the idle connections of this event loop, before its end."""
        await self._pools.close_idle_async()

    @contextlib.contextmanager
    def pointed_at(self, dsn: str, schema: str) -> Iterator[None]:
        """Use another database for the length of a `with`: for ``octop.testing``, which see. Tasks lead there too.

        Args:
            dsn: Where.
            schema: Where Octop is installed there.
        """
        names = ("_dsn", "_schema", "settings", "_pools")  # the last two are there once they were asked for
        mine = vars(self)
        before = {name: mine.pop(name) for name in names if name in mine}
        self._dsn, self._schema = dsn, schema
        try:
            yield
        finally:
            if "_pools" in mine:
                self._pools.close()
            for name in names:
                mine.pop(name, None)
            mine.update(before)

    # Running

    async def worker(self, *, stop: "asyncio.Event | None" = None, **options: Any) -> None:
        """Run one worker in this event loop until ``stop`` is set, it is cancelled, or nothing is left (``drain=True``).

        It beats from a thread and handles no signals: they are yours. Cancelled, it stops with grace; cancelled again,
        or after ``stop`` was set, it releases its tasks at once. For several processes, or to be restarted when code
        changes, use the command ``octop worker``.

        Args:
            stop: Set it to stop with grace.
            **options: Those of ``octop.worker.WorkerOptions`` but ``dsn`` and ``schema``, which are this application's:
                ``queues``, ``concurrency``, ``name``, ``drain``, ``grace_seconds``, ``listen``.

        Raises:
            ConfigurationError: An option is out of bounds.
            DatabaseUnreachableError: No database answers at the start.
            SchemaError: Octop is not installed there, or in another version.
        """
        import asyncio  # noqa: PLC0415 - a client needs no event loop of ours

        from octop import __version__  # noqa: PLC0415 - the package names this module
        from octop.worker import WorkerOptions, run_embedded  # noqa: PLC0415 - a client needs no worker

        dsn = await asyncio.to_thread(self._pools.address)
        chosen = WorkerOptions(dsn=dsn, schema=self.settings.schema, **options)
        await run_embedded(
            chosen,
            self.registry,
            self.hooks,
            stop=stop,
            version=__version__,
            queue_declarations=self.queue_declarations,
            declared_schedules=self.declared_schedules,
        )

    def run_worker(self, **options: Any) -> None:
        """Run one worker in this process until SIGTERM or SIGINT, or until nothing is left (``drain=True``).

        The first signal lets running tasks end within the grace time, a second one releases them at once.

        Args:
            **options: As for ``worker``.

        Raises:
            OctopError: As ``worker`` does.
            SystemExit: With 130 or 143, after a second signal (SIGINT, SIGTERM).
        """
        import asyncio  # noqa: PLC0415 - a client needs no event loop of ours
        import signal  # noqa: PLC0415 - likewise

        async def until_signals() -> int:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            work = loop.create_task(self.worker(stop=stop, **options))
            second = 0

            def signalled(number: int) -> None:
                nonlocal second
                if stop.is_set() and not second:
                    second = number
                    work.cancel()
                stop.set()

            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, signalled, int(number))
            await asyncio.wait([work])
            if second:
                return 128 + second
            work.result()
            return 0

        code = asyncio.run(until_signals())
        if code:
            raise SystemExit(code)


def exists(task: NewTask, id: str) -> TaskExistsError:
    """Return the error for a task whose unique key another one holds."""
    what = task.unique_key or (", ".join(task.unique_by or ()) or "payload")
    message = f"a task of type {task.task_type} with the same {what} exists already"
    return TaskExistsError(
        message, detail=f"task {id}", hint="Nothing was enqueued. Its handle: octop.handle(error.id)."
    )


def _hook(function: Any) -> Any:
    if not callable(function):
        message = f"a hook is a function, not {function!r}"
        raise ConfigurationError(message)
    return function


def _by_name(payload: Mapping[str, object] | None) -> dict[str, object]:
    given: object = {} if payload is None else payload
    if not isinstance(given, Mapping) or any(not isinstance(key, str) for key in given):
        message = f"the payload is a dict of arguments by name, not {payload!r}"
        raise InvalidTaskError(message)
    return dict(given)


def _one(prepared: PreparedCall[Any]) -> "tuple[Call[Enqueued], Call[Enqueued]]":
    """Return the call, and the form in which it may be repeated: the id tells whether the first one was committed."""
    from octop.engine.calls import octop_enqueue_many  # noqa: PLC0415 - loads psycopg
    from octop.engine.calls.tasks import repeatable  # noqa: PLC0415 - likewise

    call = octop_enqueue_many([prepared.task], fresh=prepared.send())
    return call, repeatable(call)
