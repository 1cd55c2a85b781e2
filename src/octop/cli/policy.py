"""What an operator may set for a queue or a task type: the options, and how their values are read and shown."""

from __future__ import annotations

import enum
import json
from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.moments import DURATION, spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

TIMEOUT_SECONDS_MAX: Final = 2_678_400
TAKE_BACK: Final = ("default", "null", "none")
NO_QUEUE: Final = ("null", "none")
"""Not `default`: a queue has that name."""


class TakenBack(enum.Enum):
    """The word `default`: take back what was set, so that the application's value, or none, holds again."""

    YES = "default"


class OrDefault(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2; 8.1 cannot subscript it
    """A value, or a word that takes it back."""

    def __init__(self, inner: click.ParamType, words: tuple[str, ...] = TAKE_BACK) -> None:  # type: ignore[type-arg]  # as above
        """Keep how the value itself is read, and which words are none."""
        self.inner = inner
        self.words = words
        self.name = inner.name

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Return the value, or `TakenBack.YES`."""
        if isinstance(value, TakenBack) or str(value).strip().lower() in self.words:
            return TakenBack.YES
        return self.inner.convert(value, param, ctx)


class TimeLimit(click.ParamType):  # type: ignore[type-arg]  # as above
    """A length of time above 0 and at most 31 days."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        seconds = DURATION.convert(value, param, ctx)
        if not 0 < seconds <= TIMEOUT_SECONDS_MAX:
            self.fail(f"{value!r} is not above 0 and at most 31 days", param, ctx)
        return seconds


class RetryPolicy(click.ParamType):  # type: ignore[type-arg]  # as above
    """A JSON object such as {"base": 1, "growth": 2, "cap": 30}; PostgreSQL knows what may stand in it."""

    name = "json"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return JSON text."""
        try:
            found = json.loads(str(value))
        except ValueError as error:
            self.fail(f"{value!r} is not JSON ({error})", param, ctx)
        if not isinstance(found, dict):
            self.fail(f'{value!r} is not a JSON object such as {{"base": 1, "growth": 2, "cap": 30}}', param, ctx)
        return str(value)


class RetryDelays(click.ParamType):  # type: ignore[type-arg]  # as above
    """Delays with commas between them: 1s,10s,5m."""

    name = "delays"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the retry policy as JSON text."""
        delays = [DURATION.convert(word, param, ctx) for word in str(value).split(",")]
        return json.dumps({"delays": delays})


def policy_options(function: Callable[P, R]) -> Callable[P, R]:
    """Give a command the options that queues and task types have in common."""
    for option in reversed(
        [
            click.option(
                "--max-retries",
                type=OrDefault(click.IntRange(0, 1000)),
                metavar="N|default",
                help="Further tries after the first.",
            ),
            click.option(
                "--timeout",
                "timeout_seconds",
                type=OrDefault(TimeLimit()),
                metavar="DURATION|default",
                help="Time limit of one attempt: 90, 5m, 1h30m.",
            ),
            click.option(
                "--retry-policy",
                type=OrDefault(RetryPolicy()),
                metavar="JSON|default",
                help='Delays that grow: {"base": 1, "growth": 2, "cap": 30, "jitter": 0.25}.',
            ),
            click.option(
                "--retry-delays",
                type=OrDefault(RetryDelays()),
                metavar="D,D,...|default",
                help="Delays one by one, the last one again and again: 1s,10s,5m.",
            ),
        ]
    ):
        function = option(function)
    return function


def changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is to be set, by column; None = taken back.

    Args:
        given: The options by their names; None = not given.

    Raises:
        UsageError: Nothing was given, or both `--retry-policy` and `--retry-delays`.
    """
    found = {name: value for name, value in given.items() if value is not None}
    if not found:
        message = "nothing to set: name at least one option"
        raise click.UsageError(message)
    if "retry_delays" in found:
        if "retry_policy" in found:
            message = "--retry-policy and --retry-delays exclude each other: both say when to try again"
            raise click.UsageError(message)
        found["retry_policy"] = found.pop("retry_delays")
    return {name: None if value is TakenBack.YES else value for name, value in found.items()}


WORDS: Final[Mapping[str, str]] = {
    "worker_limit": "limit",
    "queue": "queue",
    "priority": "priority",
    "max_retries": "max retries",
    "timeout_seconds": "time limit",
    "retry_policy": "retry policy",
}


def shown_value(column: str, value: object) -> str:
    """Return one value for people."""
    match value:
        case None:
            return "-"
        case int() | float() if column == "timeout_seconds":
            return spoken(float(value))
        case dict():
            return json.dumps(value, ensure_ascii=False)
    return str(value)


def said(name: str, values: Mapping[str, Any], changed: Mapping[str, Any]) -> str:
    """Return one sentence that says what holds now for a queue or a task type."""
    parts = [f"{WORDS[column]} is {shown_value(column, values[column])} now" for column in changed]
    return f"{name}: {', '.join(parts)}."
