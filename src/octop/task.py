"""A registered function: still an ordinary function, and the ways to enqueue it."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Never, ParamSpec, Protocol, TypeVar
from uuid import UUID

from octop.handle import Handle
from octop.model import codec
from octop.model.definition import Retry, TaskDefinition
from octop.model.errors import InvalidOptionError, InvalidPayloadError
from octop.model.ids import new_id
from octop.model.json_text import from_text, to_text
from octop.model.options import (
    UNSET,
    Unset,
    checked_delay,
    checked_moment,
    checked_name,
    checked_priority,
    checked_retries,
    checked_tags,
    checked_timeout,
    checked_version,
)
from octop.model.retry import checked_retry
from octop.model.unique import OnConflict, checked_fields, checked_key, checked_rule, checked_scope
from octop.model.work import NewTask

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)
__tracebackhide__ = True  # a test that fails in here shows the line that called

OTHERS_NAMES = frozenset({"delay", "apply_async", "send", "kiq", "perform_async"})
"""What other libraries call an enqueue."""


class Enqueuer(Protocol):
    """What a task needs of the application it is registered in."""

    async def submit(self, prepared: "PreparedCall[Any]") -> Handle[Any]:
        """Enqueue a prepared call."""

    def submit_sync(self, prepared: "PreparedCall[Any]") -> Handle[Any]:
        """Enqueue a prepared call."""

    def with_riders(self, task_type: str, meta: str | None) -> str | None:
        """Add what the application's enqueue hooks want a task to carry."""


class Options(NamedTuple):
    """How a task is enqueued, already checked; the fields are those of NewTask. None = what type, queue or
    configuration say.
    """

    queue: str | None = None
    lane: str | None = None
    tenant: str = ""
    priority: int | None = None
    scheduled_at: str | None = None
    delay_seconds: float | None = None
    max_retries: int | None = None
    timeout_seconds: float | None = None
    retry_policy: str | None = None
    tags: tuple[str, ...] | None = None
    meta: str | None = None
    min_version: int | None = None
    id: str | None = None
    connection: object = None
    unique_by: tuple[str, ...] | None = None
    unique_key: str | None = None
    unique_scope: str | None = None
    on_conflict: OnConflict | None = None


@dataclass(slots=True, eq=False)
class PreparedCall(Generic[R_co]):
    """One call of a task, bound and checked, ready for ``enqueue_many``.

    Attributes:
        task: What is to be enqueued.
        connection: On which connection; None = the application's own.
        decode: Reads the result.
        fresh: The id was made here, not given by the user.
        sent: The call was handed to the database before.
    """

    task: NewTask
    connection: object
    decode: Callable[[str | None], Any]
    fresh: bool
    sent: bool = False

    def send(self) -> bool:
        """Note that it is sent; tell whether the database need not look for its id. Of a call that is sent twice it must."""
        new = self.fresh and not self.sent
        self.sent = True
        return new


class Caller(Generic[P, R_co]):
    """A task with options: what ``using`` returns.

    Args:
        app: Where to enqueue.
        definition: What to enqueue; a name where the function belongs to another code base.
        options: How.
    """

    __slots__ = ("_app", "_definition", "_lane_from", "_name", "_options", "_said")

    def __init__(self, app: Enqueuer, definition: TaskDefinition | str, options: Options) -> None:
        """Keep the three together."""
        self._app = app
        self._definition = None if isinstance(definition, str) else definition
        self._name = definition if isinstance(definition, str) else definition.name
        self._options = options
        self._said = _said(self._definition, options)
        self._lane_from = _lane_field(self._definition, options)

    if not TYPE_CHECKING:  # a checker knows by itself that there is no such name

        def __getattr__(self, name: str) -> object:
            """Say what Octop calls that which other libraries call so."""
            also = "; say enqueue_sync(…), or await enqueue(…)" if name in OTHERS_NAMES else ""
            message = f"a task has no {name}{also}"
            raise AttributeError(message, name=name, obj=self)

    def __repr__(self) -> str:
        """Return the task type and what differs from the defaults."""
        return f"<Caller of {self._name} with {self._options}>"

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Enqueue one call, in a transaction of its own; after ``using(connection=…)`` in yours.

        Args:
            *args: The function's arguments, without the context.
            **kwargs: Likewise by name.

        Returns:
            The way back to the task.

        Raises:
            InvalidArgumentsError: They do not fit the signature, or a value is not of its annotated type.
            NotJsonError: A value has no JSON form.
            PayloadTooLargeError: Together they are over ``task.payload_bytes_max``.
            DatabaseError: The database refused, or none answers.
        """
        return await self._app.submit(self.prepared(args, kwargs))

    def enqueue_sync(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Enqueue one call; see ``enqueue``. Inside an event loop it works, and blocks the loop for a round trip."""
        return self._app.submit_sync(self.prepared(args, kwargs))

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> PreparedCall[R_co]:
        """Bind one call for ``enqueue_many``; nothing is sent.

        Raises:
            InvalidTaskError: A subclass says what is wrong with the arguments.
        """
        return self.prepared(args, kwargs)

    def prepared(self, args: Sequence[object], kwargs: Mapping[str, object]) -> PreparedCall[R_co]:
        """Bind arguments that were collected elsewhere; see ``call``."""
        definition, options = self._definition, self._options
        lane = None
        if definition is None:
            payload, decode = _payload_by_name(args, kwargs), plain_result
        elif self._lane_from is not None:
            (payload, lane), decode = definition.bind_in_lane(args, kwargs, options.unique_by), definition.decode_result
        else:
            payload, decode = definition.bind(args, kwargs, options.unique_by), definition.decode_result
        new = NewTask._make((self._name, payload, options.id or new_id(), *self._said))
        if lane is not None:
            new = new._replace(lane=lane)
        if (meta := self._app.with_riders(self._name, options.meta)) is not options.meta:
            new = new._replace(meta=meta)
        return PreparedCall(new, options.connection, decode, options.id is None)

    def using(
        self,
        *,
        queue: str | None | Unset = UNSET,
        lane: str | None | Unset = UNSET,
        tenant: str | None | Unset = UNSET,
        priority: int | None | Unset = UNSET,
        delay: float | timedelta | None | Unset = UNSET,
        at: datetime | None | Unset = UNSET,
        max_retries: int | None | Unset = UNSET,
        timeout: float | timedelta | None | Unset = UNSET,
        retry: Retry | Unset = UNSET,
        tags: Sequence[str] | None | Unset = UNSET,
        meta: Mapping[str, object] | None | Unset = UNSET,
        min_version: int | None | Unset = UNSET,
        id: UUID | str | None | Unset = UNSET,
        connection: object = UNSET,
        unique: Sequence[str] | bool | None | Unset = UNSET,
        unique_key: str | None | Unset = UNSET,
        unique_scope: Literal["pending", "live"] | float | timedelta | None | Unset = UNSET,
        on_conflict: OnConflict | None | Unset = UNSET,
        **unknown: Never,
    ) -> "Caller[P, R_co]":
        """Return the same task with other options. What is not named stays; None goes back to what the task type says;
        0 is 0.

        Args:
            queue: 1 to 200 characters.
            lane: The lane inside the queue (a customer, an account), at most 200 characters; empty = none. It goes before
                the task type's ``lane_from``.
            tenant: Whose task it is, at most 200 characters.
            priority: 0 (first) to 9 (last).
            delay: Seconds or a timedelta from now on the database's clock, 0 or more. Replaces an ``at`` said earlier.
            at: An aware datetime: not before then. Replaces a ``delay`` said earlier.
            max_retries: Further tries after the first, 0 to 1,000; 0 = one start only.
            timeout: Time limit of one attempt, seconds or a timedelta, more than 0 and at most 31 days.
            retry: A RetryPolicy, or a list of delays in seconds.
            tags: At most 50 labels, in place of the task type's.
            meta: Riders such as a trace context: an object that the engine carries and never reads.
            min_version: Smallest version of the task type's code that may run it, 1 (any) to 1,000. None = the version of
                the code that enqueues.
            id: An id of your own. The same enqueue may then be repeated: a task that exists is found,
                ``handle.created`` is False.
            connection: A connection or session of yours: the task is part of its transaction. Not an asynchronous
                one for ``enqueue_sync``.
            unique: Payload fields of which there may be one task of the type and tenant: ``("user_id",)``; a dot leads
                inside. True = the whole payload; False = not unique.
            unique_key: A text in place of fields, 1 to 1,000 characters.
            unique_scope: ``pending`` (default: until its first start), ``live`` (until it has ended), or seconds or a
                timedelta, at most 366 days, from the enqueue on, whatever becomes of the task.
            on_conflict: ``keep`` (default: the handle is that of the task that exists), ``raise`` (TaskExistsError),
                ``replace`` (its payload; priority and time if these are given), ``move`` (its time: debounce).
            **unknown: Nothing more; here so that a misspelt name is told which one may be meant.

        Raises:
            InvalidOptionError: An option is out of bounds, or both delay and at are given.
            InvalidNameError: A name is empty, too long, or holds control characters.
            InvalidTimeError: ``at`` is naive or absurd.
            TypeError: There is no such option.
        """
        if unknown:
            raise self._misplaced(next(iter(unknown)))
        said = locals()
        given = {name: value for name in _CHECKS if (value := said[name]) is not UNSET}
        return Caller(self._app, self._definition or self._name, _changed(self._options, self._defaults(), given))

    def _misplaced(self, name: str) -> TypeError:
        if self._definition is not None and self._definition.takes(name):
            return TypeError(
                f"using() takes options, and {name!r} is an argument of {self._name}: pass it to enqueue_sync(…)"
            )
        return TypeError(f"using() has no option {name!r}{option_meant(name) or ': it takes ' + ', '.join(OPTIONS)}")

    def _defaults(self) -> Options:
        return Options() if self._definition is None else options_of(self._definition)


class Task(Caller[P, R_co], Generic[P, T_co, R_co]):
    """A registered function. Calling it runs it here and now, as if it had not been decorated.

    Examples:
        >>> from octop import Octop
        >>> octop = Octop()
        >>> @octop.task
        ... def double(number: int) -> int:
        ...     return 2 * number
        >>> double(21)
        42
    """

    __wrapped__: Callable[P, T_co]

    def __init__(self, app: Enqueuer, definition: TaskDefinition) -> None:
        """Look like the function from outside: name, docstring, signature."""
        super().__init__(app, definition, options_of(definition))
        self.definition = definition
        functools.update_wrapper(self, definition.function)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Call the function itself; nothing is enqueued."""
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        """Return the name of the task type."""
        return f"<Task {self.definition.name}>"

    def __reduce__(self) -> str:
        """Be found again by name where a process is handed this object."""
        return self.definition.function.__qualname__

    @property
    def name(self) -> str:
        """Return the name of the task type."""
        return self.definition.name


def _said(definition: TaskDefinition | None, options: Options) -> tuple[object, ...]:
    """Return the fields of a NewTask that are the same for each call: those behind task type, payload and id."""
    unique = options.unique_by is not None or options.unique_key is not None
    same = NewTask(
        "",
        "",
        "",
        options.queue,
        options.lane or "",
        options.tenant,
        options.priority,
        options.scheduled_at,
        options.delay_seconds,
        options.max_retries,
        options.timeout_seconds,
        options.retry_policy,
        options.tags,
        options.meta,
        declared_queue=None if definition is None else definition.policy.queue,
        declared_priority=None if definition is None else definition.policy.priority,
        min_version=options.min_version,
        unique_by=options.unique_by,
        unique_key=options.unique_key,
        unique_scope=options.unique_scope if unique else None,
        on_conflict=options.on_conflict if unique else None,
    )
    return same[3:]


def _lane_field(definition: TaskDefinition | None, options: Options) -> str | None:
    """Return the payload field that names the lane; None = none does, or the options do.

    Raises:
        InvalidOptionError: A conflict would replace the payload of a task that stays in the lane of the old one.
    """
    if definition is None or definition.lane_from is None or options.lane is not None:
        return None
    keyed_by_it = options.unique_by is not None and (not options.unique_by or definition.lane_from in options.unique_by)
    if options.on_conflict == "replace" and not keyed_by_it:
        message = f"on_conflict='replace' could give a task of {definition.name} a payload of another lane than its own"
        raise InvalidOptionError(
            message, hint=f"Name {definition.lane_from!r}, its lane_from, among the fields of unique."
        )
    return definition.lane_from


def options_of(definition: TaskDefinition) -> Options:
    """Return what a task type says about its tasks at the moment of the enqueue.

    Tags, and the version of the code whose arguments these are. Queue, priority, retries, time limit and policy are the
    type's row, which an operator may change; what the code says of queue and priority goes with the task for the time
    before any worker has declared the type.
    """
    return Options(
        tags=definition.tags or None,
        min_version=needed_version(definition.policy.version),
        **definition.unique._asdict(),
    )


def needed_version(version: int) -> int | None:
    """Return the version that a task needs; None for the first one, which everybody has."""
    return None if version == 1 else version


def _changed(options: Options, defaults: Options, given: dict[str, Any]) -> Options:
    if given.get("delay") is not None and given.get("at") is not None:
        message = "delay and at exclude each other"
        raise InvalidOptionError(message, hint="Give the wait, or the moment.")
    changes: dict[str, Any] = {}
    for name, value in given.items():
        field, check = _CHECKS[name]
        changes[field] = getattr(defaults, field) if value is None else check(value)
    if given.get("delay") is not None:
        changes["scheduled_at"] = None
    if given.get("at") is not None:
        changes["delay_seconds"] = None
    if given.get("unique_key") is not None:
        if given.get("unique"):
            message = "unique and unique_key exclude each other"
            raise InvalidOptionError(message, hint="Name payload fields, or give a text of your own.")
        changes["unique_by"] = None
    elif "unique" in given:
        changes["unique_key"] = None
    if given.get("unique_scope") is not None or given.get("on_conflict") is not None:
        changed = options._replace(**changes)
        if changed.unique_by is None and changed.unique_key is None:
            message = "unique_scope and on_conflict say nothing about a task that is not unique"
            raise InvalidOptionError(message, hint='Name its fields too: unique=("user_id",).')
    return options._replace(**changes)


def _checked_meta(value: object) -> str:
    if not isinstance(value, Mapping):
        message = f"meta is a dict, not {type(value).__name__}"
        raise InvalidOptionError(message)
    return codec.encode(dict(value))


def checked_id(value: object) -> str:
    """Return an id as text, or refuse it.

    Raises:
        InvalidOptionError: It is no UUID.
    """
    try:
        return str(value if isinstance(value, UUID) else UUID(str(value)))
    except ValueError as error:
        message = f"id is a UUID, not {value!r}"
        raise InvalidOptionError(message) from error


def _as_retry(value: object) -> str | None:
    policy = checked_retry(value)
    return None if policy is None else to_text(policy)


_CHECKS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "queue": ("queue", lambda value: checked_name(value, "a queue's name")),
    "lane": ("lane", lambda value: checked_name(value, "a lane", empty=True)),
    "tenant": ("tenant", lambda value: checked_name(value, "a tenant", empty=True)),
    "priority": ("priority", checked_priority),
    "delay": ("delay_seconds", checked_delay),
    "at": ("scheduled_at", checked_moment),
    "max_retries": ("max_retries", checked_retries),
    "timeout": ("timeout_seconds", checked_timeout),
    "retry": ("retry_policy", _as_retry),
    "tags": ("tags", lambda value: tuple(checked_tags(value))),
    "meta": ("meta", _checked_meta),
    "min_version": ("min_version", lambda value: needed_version(checked_version(value, "min_version"))),
    "id": ("id", checked_id),
    "unique": ("unique_by", checked_fields),
    "unique_key": ("unique_key", checked_key),
    "unique_scope": ("unique_scope", checked_scope),
    "on_conflict": ("on_conflict", checked_rule),
    "connection": ("connection", lambda value: value),
}


OPTIONS = tuple(_CHECKS)
"""What ``using`` takes, by name."""


def option_meant(name: str) -> str:
    """Return the end of a sentence about an option that does not exist: ``; did you mean delay?``, or nothing."""
    from difflib import get_close_matches  # noqa: PLC0415 - costs 3 ms, and most names are right

    near = get_close_matches(name, OPTIONS, n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


def _payload_by_name(args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """Return the payload of a task whose function is not here: one dict, or arguments by name."""
    payload: object = kwargs
    if args:
        if len(args) > 1 or kwargs or not isinstance(args[0], Mapping):
            message = "a task that is known by name only takes one dict, or arguments by name"
            raise InvalidPayloadError(message, hint='Write octop.named("send").enqueue(user_id=42).')
        payload = dict(args[0])
    return codec.encode(payload, dict[str, Any])


def plain_result(text: str | None) -> object:
    """Return the plain values of a result whose function is not known here."""
    return None if text is None else from_text(text)
