"""A task type as Python knows it: a name, a function, and how its arguments become a payload and come back.

Arguments are stored by name, and defaults are not stored: a parameter that is added, moved or given a new default
changes nothing for the tasks that wait, and a parameter that is gone is a clear error before the body runs.
"""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict

from octop.model.batch import Batch, BatchTask, checked_batch
from octop.model.codec import ANY, typed
from octop.model.context import Context
from octop.model.errors import (
    InvalidArgumentsError,
    InvalidOptionError,
    InvalidPayloadError,
    InvalidTaskError,
    PayloadTooLargeError,
)
from octop.model.json_text import RefusedError, from_text, to_text
from octop.model.lane import checked_lane_field, lane_of
from octop.model.options import (
    checked_flag,
    checked_name,
    checked_priority,
    checked_retries,
    checked_tags,
    checked_timeout,
    checked_version,
)
from octop.model.plan import POSITIONAL, Plan, by_name, planned, planned_batch
from octop.model.retry import RetryPolicy, checked_retry
from octop.model.signature import parameters_text, signature_text
from octop.model.unique import OnConflict, Unique, checked_fields, checked_rule, checked_scope
from octop.model.work import TaskTypePolicy

RunIn = Literal["loop", "thread", "process"]
# The largest value of task.payload_bytes_max: what is over it need not travel to the database to be refused.
PAYLOAD_CHARACTERS_MAX: Final = 67_108_864
Retry = RetryPolicy | Sequence[float | timedelta] | None
__tracebackhide__ = True  # a test that fails in here shows the line that called


class TaskOptions(TypedDict, total=False):
    """What ``@octop.task(…)`` may be told; see ``Octop.task`` for bounds and defaults."""

    name: str | None
    aliases: Sequence[str]
    run_in: RunIn | None
    queue: str | None
    lane_from: str | None
    priority: int | None
    max_retries: int | None
    timeout: float | timedelta | None
    retry: Retry
    tags: Sequence[str]
    version: int
    transactional: bool
    freeze_type_on_exhaustion: bool
    unique: Sequence[str] | bool
    unique_scope: Literal["pending", "live"] | float | timedelta | None
    on_conflict: OnConflict | None
    batch_size: int
    batch_wait: float | timedelta


@dataclass(slots=True, eq=False)
class TaskDefinition:
    """One registered task type.

    Attributes:
        name: Stored in each task.
        function: What runs.
        run_in: ``loop`` (async), ``thread`` or ``process``.
        policy: What the worker declares in ``octop_task_types``.
        aliases: Older names under which tasks may still wait.
        tags: Labels of each task, unless ``using(tags=…)`` says otherwise.
        transactional: Its success commits with what it did on ``octop.current().connection``.
        unique: What makes its tasks unique, unless ``using`` says otherwise.
        lane_from: The payload field that names the lane, unless ``using`` does; None = tasks without a lane.
        batch: Its function gets a list of tasks; None = one.
    """

    name: str
    function: Callable[..., Any]
    run_in: RunIn
    policy: TaskTypePolicy
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    transactional: bool = False
    unique: Unique = field(default_factory=Unique)
    lane_from: str | None = None
    batch: Batch | None = None
    _plan: Plan | None = field(default=None, repr=False)

    @property
    def is_async(self) -> bool:
        """Tell whether calling the function returns a coroutine."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def signature(self) -> str:
        """Return name and signature, as messages show it."""
        return f"{self.name}{signature_text(self._shape)}"

    @property
    def _shape(self) -> Callable[..., Any]:
        """Return what takes the arguments of one task."""
        return self.function if self.batch is None else self.plan.arguments or by_name

    @property
    def plan(self) -> Plan:
        """Return the plan of the signature; annotations are resolved at first use, when all modules are complete.

        Raises:
            InvalidTaskError: An annotation can not be resolved.
        """
        if self._plan is None:
            self._plan = (planned if self.batch is None else planned_batch)(self.function, self.name)
        return self._plan

    @property
    def awaits_annotations(self) -> bool:
        """Tell whether an annotation can not be resolved yet: its module is not complete."""
        try:
            return self.plan is None
        except InvalidTaskError:
            return True

    def takes(self, name: str) -> bool:
        """Tell whether a parameter of the function has this name."""
        return name in (self.plan.codecs if self.batch is not None else inspect.signature(self.function).parameters)

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object], unique_by: Sequence[str] | None = None) -> str:
        """Write the arguments of one call as the JSON text of a payload.

        Args:
            args: Positional arguments, without the context.
            kwargs: Arguments by name.
            unique_by: Fields that make the task unique, empty = all: of these, defaults are stored as well, so that to
                pass one and to leave it out is the same.

        Returns:
            A JSON object: only what was passed, by name.

        Raises:
            InvalidArgumentsError: They do not fit the signature, or a value is not of its annotated type: the message
                begins with its path.
            NotJsonError: A value has no JSON form; the message begins with the path.
            InvalidTimeError: A datetime without a zone.
            PayloadTooLargeError: More than 64 million characters; the limit in force is the database's to check.
        """
        return self._written(self._bound(args, kwargs, unique_by))

    def bind_in_lane(
        self, args: Sequence[object], kwargs: Mapping[str, object], unique_by: Sequence[str] | None = None
    ) -> tuple[str, str]:
        """Return payload and lane of one call, of a type whose lanes are named by a field; see ``bind``.

        Raises:
            InvalidArgumentsError: The field is not there, or what stands in it names no lane.
        """
        values = self._bound(args, kwargs, unique_by)
        return self._written(values), lane_of(values, self.lane_from or "", self.name)

    def _stored_defaults(self, plan: Plan, unique_by: Sequence[str] | None) -> set[str]:
        """Return the parameters whose defaults are stored too, because keys and lanes are made of what is stored."""
        names: set[str] = set()
        if unique_by is not None:
            names = {field.partition(".")[0] for field in unique_by} or set(plan.defaults)
        if self.lane_from is not None:
            names.add(self.lane_from.partition(".")[0])
        return names & plan.defaults.keys()

    def _bound(
        self, args: Sequence[object], kwargs: Mapping[str, object], unique_by: Sequence[str] | None
    ) -> dict[str, object]:
        plan = self._plan or self.plan
        simple = not args and plan.required <= kwargs.keys() <= plan.allowed
        values = dict(kwargs) if simple else self.named(args, kwargs)
        if unique_by is not None or self.lane_from is not None:
            stored = self._stored_defaults(plan, unique_by)
            values.update({name: plan.defaults[name] for name in stored if name not in values})
        return self._encoded(values)

    def encoded(self, values: dict[str, object]) -> str:
        """Write arguments by name as the JSON text of a payload; for the errors see ``bind``.

        Args:
            values: They are changed to their JSON forms in place.
        """
        return self._written(self._encoded(values))

    def _encoded(self, values: dict[str, object]) -> dict[str, object]:
        plan = self._plan or self.plan
        codecs = plan.codecs
        name = ""
        try:
            for name, value in values.items():
                codec = codecs.get(name) or plan.rest or ANY
                if type(value) not in codec.exact:
                    values[name] = codec.encode(value)
        except RefusedError as error:
            raise error.within(name).when_binding() from error.__cause__
        except RecursionError as error:
            reason = "nested too deeply, or a value that contains itself"
            raise RefusedError(reason).within(name).when_encoding() from error
        return values

    def _written(self, values: Mapping[str, object]) -> str:
        text = to_text(values)
        if len(text) > PAYLOAD_CHARACTERS_MAX:
            message = (
                f"the payload of {self.name} has {len(text):,} characters, more than any task.payload_bytes_max allows"
            )
            raise PayloadTooLargeError(message, hint="Store the data elsewhere, and pass a reference to it.")
        return text

    def named(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of one call by name.

        Args:
            args: Positional arguments, without the context.
            kwargs: Arguments by name.

        Raises:
            InvalidArgumentsError: They do not fit the signature.
        """
        plan = self._plan or self.plan
        if len(args) > len(plan.positional):
            most = len(plan.positional)
            self._refuse(f"takes at most {most} positional argument{'' if most == 1 else 's'}, not {len(args)}")
        values: dict[str, object] = dict(zip(plan.positional, args, strict=False))
        for name, value in kwargs.items():
            if name in values:
                self._refuse(f"got two values for {name!r}")
            if name not in plan.allowed and (
                plan.rest is None or name in plan.positional_only or name in plan.contexts
            ):
                self._refuse(f"has no parameter {name!r} that can be passed by name")
            values[name] = value
        if not plan.required <= values.keys():
            missing = [name for name in plan.codecs if name in plan.required and name not in values]
            self._refuse(f"needs {', '.join(map(repr, missing))}")
        return values

    def _refuse(self, what: str) -> typing.NoReturn:
        message = f"{self.signature} {what}"
        raise InvalidArgumentsError(message, hint="Nothing was enqueued. Correct the call.")

    def unbind(self, payload: str) -> dict[str, Any]:
        """Read a payload as the arguments of the function that is registered now.

        Args:
            payload: JSON text of an object.

        Returns:
            Values by name, typed by the annotations, without the context; hand them to ``call``.

        Raises:
            InvalidPayloadError: Not JSON that Python can read (too deep, 1e400), or no object.
            InvalidArgumentsError: A name is unknown or missing, or a value is not of its type; the body was not
                entered.
            InvalidTimeError: A moment without an offset.
        """
        plan = self._plan or self.plan
        found = from_text(payload)
        if not isinstance(found, dict):
            message = f"the payload of {self.name} is no JSON object"
            raise InvalidPayloadError(message)
        codecs = plan.codecs
        if plan.rest is None and not found.keys() <= codecs.keys():
            unknown = next(name for name in found if name not in codecs)
            message = f"unexpected argument {unknown!r}: {self.signature} has no such parameter"
            raise InvalidArgumentsError(message, hint=self._misfit(plan))
        if not plan.required <= found.keys():
            missing = [name for name in codecs if name in plan.required and name not in found]
            message = f"missing argument {missing[0]!r}: {self.signature} needs it"
            raise InvalidArgumentsError(message, hint=self._misfit(plan))
        name = ""
        try:
            for name, value in found.items():
                codec = codecs.get(name) or plan.rest or ANY
                if type(value) not in codec.exact:
                    found[name] = codec.decode(value)
        except RefusedError as error:
            raise error.within(name).when_decoding() from error.__cause__
        return found

    def _misfit(self, plan: Plan) -> str:
        takes = parameters_text(self._shape, plan.contexts)
        return f"The task was enqueued for another version of the function, or the call was wrong. It takes: {takes}."

    def one_of_batch(self, payload: str, context: Context) -> BatchTask[Any]:
        """Read a payload as one task of a batch.

        Raises:
            InvalidTaskError: As ``unbind`` does.
        """
        values = self.unbind(payload)
        make = self.plan.arguments or by_name
        return BatchTask(make(**values), context)

    def call(self, arguments: Mapping[str, Any], context: Context | None = None) -> Any:
        """Call the function with what ``unbind`` returned, and with the context where it is asked for.

        Args:
            arguments: Values by name.
            context: Given to the parameters annotated with Context.

        Returns:
            What the function returns: a coroutine if it is async.
        """
        plan = self._plan or self.plan
        if not plan.contexts and not plan.positional_only:
            return self.function(**arguments)
        values = {**arguments, **dict.fromkeys(plan.contexts, context)}
        leading: list[Any] = []
        for name in plan.positional_only:
            if name not in values:
                break  # it and those behind it have defaults
            leading.append(values.pop(name))
        return self.function(*leading, **values)

    def encode_result(self, value: object) -> str | None:
        """Write what the function returned as JSON text.

        Args:
            value: What it returned.

        Returns:
            JSON text, or None for None.

        Raises:
            NotJsonError: It has no JSON form.
            InvalidTimeError: A datetime without a zone.
        """
        if value is None:
            return None
        codec = (self._plan or self.plan).result
        try:
            return to_text(value if type(value) in codec.exact else codec.encode(value))
        except RefusedError as error:
            raise error.when_encoding() from error.__cause__
        except RecursionError as error:
            reason = "nested too deeply, or a value that contains itself"
            raise RefusedError(reason).when_encoding() from error

    def decode_result(self, text: str | None) -> Any:
        """Read a result as the type that the function's return annotation names.

        Args:
            text: JSON text, or None for null.

        Raises:
            InvalidArgumentsError: The stored result is not of this type.
        """
        return None if text is None else typed(from_text(text), self.plan.result)

    def same_as(self, other: "TaskDefinition") -> bool:
        """Tell whether this is the other one again: the same function, imported or reloaded a second time."""
        mine, theirs = self.function, other.function
        if mine is theirs:
            return True
        if mine.__qualname__ != theirs.__qualname__:
            return False
        if "<" in mine.__qualname__:  # a lambda or a local function: the qualified name does not tell which
            return mine.__code__ == theirs.__code__ and mine.__closure__ is None
        return mine.__module__ == theirs.__module__ or mine.__code__.co_filename == theirs.__code__.co_filename


Registry = dict[str, TaskDefinition]


def define(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    aliases: Sequence[str] = (),
    run_in: RunIn | None = None,
    queue: str | None = None,
    lane_from: str | None = None,
    priority: int | None = None,
    max_retries: int | None = None,
    timeout: float | timedelta | None = None,
    retry: Retry = None,
    tags: Sequence[str] = (),
    version: int = 1,
    transactional: bool = False,
    freeze_type_on_exhaustion: bool = False,
    unique: Sequence[str] | bool = False,
    unique_scope: Literal["pending", "live"] | float | timedelta | None = None,
    on_conflict: OnConflict | None = None,
    batch_size: int | None = None,
    batch_wait: float | timedelta | None = None,
) -> TaskDefinition:
    """Make a task type of a function; for the arguments see ``Octop.task``.

    Raises:
        InvalidTaskError: The function can not be a task: a generator, a method, with ``*args``, a lambda without a
            name.
        InvalidNameError: A name is empty, too long, or holds control characters.
        InvalidOptionError: Another option is out of bounds.
    """
    _check_function(function)
    if name is None and function.__name__ == "<lambda>":
        message = "a lambda has no name of its own"
        raise InvalidTaskError(message, hint="Give it one: octop.task(name='…')(lambda: …).")
    if isinstance(aliases, str):
        message = f"aliases is a list of names, not {aliases!r}"
        raise InvalidTaskError(message)
    final_name = checked_name(function.__name__ if name is None else name, "a task type's name")
    place = _place(function, run_in)
    policy = TaskTypePolicy(
        name=final_name,
        queue=None if queue is None else checked_name(queue, "a queue's name"),
        priority=None if priority is None else checked_priority(priority),
        max_retries=None if max_retries is None else checked_retries(max_retries),
        timeout_seconds=None if timeout is None else checked_timeout(timeout),
        retry_policy=checked_retry(retry),
        freeze_type_on_exhaustion=checked_flag(freeze_type_on_exhaustion, "freeze_type_on_exhaustion") or None,
        run_in=place,
        description=(inspect.getdoc(function) or "").partition("\n")[0][:200],
        version=checked_version(version),
    )
    older = tuple(checked_name(alias, "an alias") for alias in aliases)
    return TaskDefinition(
        final_name,
        function,
        place,
        policy,
        older,
        tuple(checked_tags(tags)),
        transactional=_transactional(function, transactional),
        unique=_unique(function, unique, unique_scope, on_conflict, batch=batch_size is not None),
        lane_from=None if lane_from is None else _lane_from(function, lane_from, batch=batch_size is not None),
        batch=_batch(function, final_name, batch_size, batch_wait, place, transactional=transactional),
    )


def _unique(function: Callable[..., Any], fields: object, scope: object, rule: object, *, batch: bool) -> Unique:
    found = Unique(
        checked_fields(fields),
        None if scope is None else checked_scope(scope),
        None if rule is None else checked_rule(rule),
    )
    if found.unique_by is None and (found.unique_scope or found.on_conflict):
        message = f"unique_scope and on_conflict of {function.__qualname__} say nothing without unique"
        raise InvalidOptionError(message, hint='Name its fields: unique=("user_id",), or True for all of them.')
    if not batch:
        _check_fields(function, "unique", found.unique_by or ())
    return found


def _lane_from(function: Callable[..., Any], said: object, *, batch: bool) -> str:
    field = checked_lane_field(said)
    if not batch:
        _check_fields(function, "lane_from", (field,))
    return field


def _check_fields(function: Callable[..., Any], option: str, fields: Sequence[str]) -> None:
    names = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in names.values()):
        return
    if unknown := [each for each in fields if each.partition(".")[0] not in names and each not in names]:
        message = f"{option} names {unknown[0]!r}, and {function.__qualname__} has no such parameter"
        raise InvalidOptionError(message, hint=f"It has: {', '.join(names) or 'none'}.")


def _check_function(function: object) -> None:
    what = getattr(function, "__qualname__", repr(function))
    if isinstance(function, staticmethod | classmethod):
        message = f"{what} is a {type(function).__name__} already"
        raise InvalidTaskError(
            message, hint="A task is a plain function; for a static method put @octop.task below @staticmethod."
        )
    if inspect.ismethod(function):
        message = f"{what} is a bound method: the object it is bound to can not be stored"
        raise InvalidTaskError(message, hint="Make it a function of the module, and pass what it needs as arguments.")
    if not inspect.isfunction(function):
        message = f"{what} is no function"
        raise InvalidTaskError(message, hint="A task is a function made with def or async def.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        message = f"{what} is a generator: it would return before its work begins"
        raise InvalidTaskError(message, hint="Loop inside the function, and return a list or nothing.")
    parameters = list(inspect.signature(function).parameters.values())
    owner = function.__qualname__.rpartition(".")[0]
    if parameters and owner and not owner.endswith("<locals>") and parameters[0].name in ("self", "cls"):
        message = f"{what} is a method: its {parameters[0].name!r} can not be stored"
        raise InvalidTaskError(message, hint="Make it a function of the module, and pass what it needs as arguments.")
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        message = f"{what} takes *args, which have no names to be stored by"
        raise InvalidTaskError(message, hint="Take a list: def f(items: list[int]).")


def _place(function: Callable[..., Any], run_in: object) -> RunIn:
    is_async = inspect.iscoroutinefunction(function)
    if run_in is None:
        return "loop" if is_async else "thread"
    if run_in == "process":
        return "process"
    if run_in == "loop" and is_async:
        return "loop"
    if run_in == "thread" and not is_async:
        return "thread"
    message = f"{function.__qualname__} can not run in {run_in!r}"
    raise InvalidTaskError(message, hint="async def runs in 'loop' or 'process', def in 'thread' or 'process'.")


def _transactional(function: Callable[..., Any], said: object) -> bool:
    if isinstance(said, bool):
        return said
    message = f"{function.__qualname__} can not be transactional={said!r}"
    raise InvalidTaskError(message, hint="True or False.")


def _batch(
    function: Callable[..., Any], name: str, size: object, wait: object, place: RunIn, *, transactional: bool
) -> Batch | None:
    found = checked_batch(name, size, wait, run_in=place, transactional=transactional)
    if found is not None:
        needed = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
        if len(needed) != 1 or needed[0].kind not in POSITIONAL:
            message = f"{name} gets a list of tasks, and so takes one argument, not {len(needed)}"
            raise InvalidTaskError(
                message, hint="Write def send(tasks: list[octop.BatchTask[Mail]]), Mail a dataclass of the arguments."
            )
    return found
