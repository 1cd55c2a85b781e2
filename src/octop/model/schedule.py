"""A schedule as Python knows it: a rule, a task type, and what its tasks are given.

What is wrong in itself is refused where it is written. The rule and its zone are read by the database alone, so that every client means
the same by them.
"""

import json
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict

from octop.model import codec
from octop.model.definition import TaskDefinition
from octop.model.errors import InvalidOptionError, InvalidTimeError
from octop.model.json_text import from_text
from octop.model.lane import lane_of
from octop.model.options import (
    checked_delay,
    checked_moment,
    checked_name,
    checked_priority,
    checked_retries,
    checked_tags,
    checked_timeout,
    checked_whole,
)

CatchUp = Literal["skip", "last", "all"]
Overlap = Literal["allow", "skip", "queue"]
RULE_LENGTH_MAX: Final = 1_000
CATCH_UP_MAX: Final = 10_000
TEMPLATE: Final = "{{"
"""Begins what is filled in for each slot, as in ``{{slot.date}}``."""
__tracebackhide__ = True  # a test that fails in here shows the line that called


class ScheduleOptions(TypedDict, total=False):
    """What a schedule may be told beside its rule; see ``Octop.schedule`` for bounds and defaults."""

    timezone: str | None
    args: Sequence[object]
    kwargs: Mapping[str, object]
    tenant: str | None
    queue: str | None
    lane: str | None
    priority: int | None
    max_retries: int | None
    timeout: float | timedelta | None
    tags: Sequence[str] | None
    meta: Mapping[str, object] | None
    starts_at: datetime | None
    ends_at: datetime | None
    catch_up: CatchUp | None
    catch_up_max: int | None
    overlap: Overlap | None
    jitter: float | timedelta | None
    late_after: float | timedelta | None
    expected: float | timedelta | None
    deadline: float | timedelta | None


class DeclaredOptions(ScheduleOptions, total=False):
    """What ``@octop.schedule(…)`` may be told beside its rule."""

    name: str | None


@dataclass(frozen=True, slots=True)
class ScheduleDefinition:
    """One schedule that the code declares.

    Attributes:
        name: Unique together with the tenant.
        tenant: Whose tasks it makes.
        definition: The task type.
        settings: By column of ``octop_schedules``; what is not named has its default.
        args: Of each call.
        kwargs: Likewise by name. A text with ``{{`` in it is filled in for each slot.
    """

    name: str
    tenant: str
    definition: TaskDefinition
    settings: Mapping[str, object]
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)

    def payload(self) -> dict[str, object]:
        """Return the arguments of each call as they are stored, by name.

        Raises:
            InvalidTaskError: They do not fit the function.
        """
        return template_payload(self.definition, self.args, self.kwargs)

    def as_json(self) -> dict[str, object]:
        """Return it as ``octop_declare_schedules`` takes it."""
        payload = self.payload()
        return {
            "name": self.name,
            "tenant": self.tenant,
            "task_type": self.definition.name,
            **lane_setting(self.definition, payload),
            **self.settings,
            "payload": payload,
        }


def declared_schedule(definition: TaskDefinition, rule: object, options: Mapping[str, Any]) -> ScheduleDefinition:
    """Check what a decorator says, and return it.

    Args:
        definition: The task type.
        rule: Cron, ``@every 90s``, ``@at …`` or an RRULE.
        options: By name, as in DeclaredOptions.

    Raises:
        InvalidOptionError: The rule or an option is out of bounds.
        InvalidNameError: A name is none.
        InvalidTimeError: A moment is naive.
        InvalidTaskError: The arguments do not fit the function.
        TypeError: There is no such option.
    """
    said = dict(options)
    name = said.pop("name", None)
    tenant = said.pop("tenant", None)
    args, kwargs = said.pop("args", ()), said.pop("kwargs", {})
    if isinstance(args, str | bytes) or not isinstance(args, Sequence):
        message = f"args is a list of arguments, not {args!r}"
        raise InvalidOptionError(message)
    if not isinstance(kwargs, Mapping):
        message = f"kwargs is a dict of arguments by name, not {kwargs!r}"
        raise InvalidOptionError(message)
    found = ScheduleDefinition(
        checked_name(definition.name if name is None else name, "a schedule's name"),
        checked_name(tenant or "", "a tenant", empty=True),
        definition,
        {"rule": checked_rule(rule), **schedule_settings(said)},
        tuple(args),
        dict(kwargs),
    )
    if not definition.awaits_annotations:
        found.payload()
    return found


def schedule_settings(given: Mapping[str, Any]) -> dict[str, object]:
    """Return options of a schedule by the columns of ``octop_schedules``, checked. None stays None: the default.

    Args:
        given: By name, as in ScheduleOptions; also ``rule``, ``task_type`` and ``payload``.

    Raises:
        InvalidOptionError: One is out of bounds.
        InvalidTimeError: A moment is naive.
        TypeError: There is no such option.
    """
    if unknown := given.keys() - _CHECKS.keys():
        message = f"a schedule has no option {min(unknown)!r}{_meant(min(unknown))}"
        raise TypeError(message)
    found: dict[str, object] = {}
    for name, value in given.items():
        column, check = _CHECKS[name]
        found[column] = None if value is None else check(value)
    starts, ends = given.get("starts_at"), given.get("ends_at")
    if starts is not None and ends is not None and ends <= starts:
        message = f"ends_at={ends.isoformat()} is not later than starts_at={starts.isoformat()}"
        raise InvalidOptionError(message)
    return found


def template_payload(
    definition: TaskDefinition, args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """Bind arguments of which some are templates: those are taken as they are, whatever the annotation says.

    Args:
        definition: The task type.
        args: Positional arguments.
        kwargs: Arguments by name.

    Raises:
        InvalidTaskError: They do not fit the function.
    """
    values = definition.named(args, kwargs)
    templates = {name: value for name, value in values.items() if isinstance(value, str) and TEMPLATE in value}
    plain = {name: value for name, value in values.items() if name not in templates}
    encoded = typing.cast("dict[str, object]", from_text(definition.encoded(plain)))
    return {name: templates[name] if name in templates else encoded[name] for name in values}


def lane_setting(definition: TaskDefinition, payload: Mapping[str, object]) -> dict[str, object]:
    """Return the lane of a schedule's tasks where a field of their payload names it (``lane_from=``), else nothing.

    Args:
        definition: The task type.
        payload: Of each task.

    Raises:
        InvalidArgumentsError: The field is not there, or what stands in it names no lane.
        InvalidOptionError: It is filled in for each slot: a schedule has one lane.
    """
    if definition.lane_from is None:
        return {}
    lane = lane_of(payload, definition.lane_from, definition.name)
    if TEMPLATE in lane:
        message = f"the lane of {definition.name} is its field {definition.lane_from!r}, and {lane} is filled in for each slot"
        raise InvalidOptionError(message, hint="Say which lane the tasks of this schedule have: lane=….")
    return {"lane": lane}


def checked_rule(value: object) -> str:
    """Return a rule, or refuse what is none at all. What it means, the database says.

    Raises:
        InvalidOptionError: No text, empty, or over 1,000 characters.
    """
    if isinstance(value, str) and value.strip() and len(value) <= RULE_LENGTH_MAX:
        return value
    message = f"a rule is text of 1 to {RULE_LENGTH_MAX:,} characters, not {value!r}"
    raise InvalidOptionError(message, hint='Write "0 9 * * MON-FRI", "@daily" or "@every 90s".')


def _one_of(what: str, words: Sequence[str]) -> Any:
    def check(value: object) -> object:
        if value in words:
            return value
        message = f"{what} is {', '.join(words[:-1])} or {words[-1]}, not {value!r}"
        raise InvalidOptionError(message)

    return check


def _seconds(what: str, days_max: int, *, zero: bool = True) -> Any:
    def check(value: object) -> float:
        seconds = checked_delay(value, what, days_max=days_max)
        if seconds or zero:
            return seconds
        message = f"{what} is more than 0, not {value!r}"
        raise InvalidOptionError(message, hint="Leave it out, or pass None, for the default.")

    return check


def _moment(what: str) -> Any:
    def check(value: object) -> str:
        try:
            return checked_moment(value)
        except InvalidTimeError as error:
            raise InvalidTimeError(error.message.replace("at", what, 1), hint=error.hint) from None

    return check


def _object(what: str) -> Any:
    def check(value: object) -> object:
        if not isinstance(value, Mapping) or any(not isinstance(key, str) for key in value):
            message = f"{what} is a dict by name, not {value!r}"
            raise InvalidOptionError(message)
        return json.loads(codec.encode(dict(value)))

    return check


_CHECKS: Final[dict[str, tuple[str, Any]]] = {
    "rule": ("rule", checked_rule),
    "timezone": ("timezone", lambda value: checked_name(value, "timezone")),
    "task_type": ("task_type", lambda value: checked_name(value, "a task type's name")),
    "payload": ("payload", _object("payload")),
    "queue": ("queue", lambda value: checked_name(value, "a queue's name")),
    "lane": ("lane", lambda value: checked_name(value, "a lane", empty=True)),
    "priority": ("priority", checked_priority),
    "max_retries": ("max_retries", checked_retries),
    "timeout": ("timeout_seconds", checked_timeout),
    "tags": ("tags", checked_tags),
    "meta": ("meta", _object("meta")),
    "starts_at": ("starts_at", _moment("starts_at")),
    "ends_at": ("ends_at", _moment("ends_at")),
    "catch_up": ("catch_up", _one_of("catch_up", typing.get_args(CatchUp))),
    "catch_up_max": ("catch_up_max", lambda value: checked_whole(value, "catch_up_max", 1, CATCH_UP_MAX)),
    "overlap": ("overlap", _one_of("overlap", typing.get_args(Overlap))),
    "jitter": ("jitter_seconds", _seconds("jitter", 1)),
    "late_after": ("late_after_seconds", _seconds("late_after", 365, zero=False)),
    "expected": ("expected_seconds", _seconds("expected", 365, zero=False)),
    "deadline": ("deadline_seconds", _seconds("deadline", 365, zero=False)),
}


def _meant(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - costs 3 ms, and most names are right

    known = (*DeclaredOptions.__annotations__, "rule", "task_type", "payload")
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else f": it takes {', '.join(DeclaredOptions.__annotations__)}"
