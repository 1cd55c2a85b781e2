"""What an operator may set for a queue or a task type: the options, and how their values are read and shown."""

from __future__ import annotations

import enum
import json
from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.asking import ask, can_ask
from octop.cli.moments import DURATION, MOMENT, shortened, spoken
from octop.cli.origin import told
from octop.engine.call import run
from octop.model.errors import NotPermittedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import ParamSpec, TypeVar

    from octop.cli.invocation import Invocation
    from octop.engine.call import Call
    from octop.engine.connect import EngineConnection

    P = ParamSpec("P")
    R = TypeVar("R")

HOLD_SECONDS_MAX: Final = 3650 * 86400.0
LIMIT_MAX: Final = 10_000
"""Tasks at once of one queue in one worker process."""

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


class SetCommand(click.Command):
    """A command whose options may be taken for key=value words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Say how a value is set, where it was written as key=value."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            names = {name for each in self.params for name in each.opts if isinstance(each, click.Option)}
            for word in words:
                key, equals, value = word.partition("=")
                option = f"--{key.replace('_', '-')}"
                if equals and value and option in names:
                    message = f"{word!r} is no option. Did you mean {option} {value}?"
                    raise click.UsageError(message, ctx) from None
            raise error


def yes_option(function: Callable[P, R]) -> Callable[P, R]:
    """Let a command act on a name that nobody knows without asking."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask, not even about a name that nobody knows.")(
        function
    )


def act_on_name(
    invocation: Invocation,
    name: str,
    call: Call[R],
    *,
    is_known: Call[bool],
    names: Call[list[str]],
    nobody: str,
    act: str | None,
) -> R:
    """Do it; when nobody knows the name, which may be a slip of the fingers, say so and ask first, where there is somebody to ask.

    Args:
        invocation: Whose database.
        name: Of a queue or task type.
        call: What to do.
        is_known: Tells whether somebody knows the name.
        names: Those that are known.
        nobody: What is odd if nobody does, as in "no worker has declared the task type".
        act: What is about to be done, for the question, as in "pause it"; None = do not ask.

    Raises:
        click.exceptions.Exit: The answer is no: code 1.
    """
    with invocation.connection() as connection:
        if not run(connection, is_known):
            known = run(connection, names)
            invocation.output.say(f"octop: {nobody} {name} yet{did_you_mean(name, known)}")
            if act is not None and can_ask():
                ask(invocation.output, f"{act.capitalize()} all the same?")
        return run(connection, call)


def reason_told(reason: str, kept: str | None, undo: str) -> str:
    """Return what became of a reason that was given for a hold that was there already; empty = none was given, or it is the same.

    Args:
        reason: The one given.
        kept: The one that stands.
        undo: The command that lifts the hold.
    """
    if not reason or reason == kept:
        return ""
    stays = f"the reason stays: {kept}" if kept else "it stays without a reason"
    return f" {stays[0].upper()}{stays[1:]}. For another one: {undo} first."


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
    "global_limit": "global limit",
    "lane_limit": "lane limit",
    "rate": "rate",
    "burst": "burst",
    "lane_rate": "lane rate",
    "lane_burst": "lane burst",
    "ordered": "ordered",
    "lane_weights": "lane weights",
    "ageing_seconds": "ageing",
    "windows": "windows",
    "watermark_high": "watermark",
    "watermark_low": "watermark low",
    "critical": "critical",
    "keep_success_days": "days of success",
    "keep_cancelled_days": "days of cancelled",
    "keep_frozen_days": "days of frozen",
    "freeze_type_on_exhaustion": "also freezes",
}


def shown_value(column: str, value: object) -> str:
    """Return one value for people."""
    match value:
        case None:
            return "-"
        case int() | float() if column == "timeout_seconds":
            return spoken(float(value))
        case bool():
            return "yes" if value else "no"
        case dict():
            return json.dumps(value, ensure_ascii=False)
    return str(value)


def said(name: str, values: Mapping[str, Any], changed: Mapping[str, Any]) -> str:
    """Return one sentence that says what holds now for a queue or a task type."""
    parts = [f"{WORDS[column]} is {shown_value(column, values[column])} now" for column in changed]
    return f"{name}: {', '.join(parts)}."


def reset_told(name: str, again: str, *, changed: bool, forgotten: bool) -> str:
    """Return one sentence that says what became of a queue or a task type whose values were taken back.

    Args:
        name: As in "Queue mail".
        again: What holds now, as in "what the application declared holds".
        changed: Was anything set?
        forgotten: Is its row gone?
    """
    if forgotten:
        return f"{name} is forgotten: nothing uses it."
    return f"{name}: {again} again." if changed else f"{name}: nothing was set."


def values_told(row: Mapping[str, Any], columns: Sequence[str]) -> list[tuple[str, str]]:
    """Return the values of a queue or a task type with who set each, as lines of `show`; `origins` is in the row."""
    return [(WORDS[column], told(shown_value(column, row[column]), row["origins"][column])) for column in columns]


def hold_told(role: str | None, at: str | None, reason: str | None, ends_at: str | None = None) -> str:
    """Return who paused or froze something, when, until when and why; `no` when nobody did."""
    if at is None:
        return "no"
    until = f" until {shortened(ends_at)}" if ends_at else ""
    return f"by {role}, {shortened(at)}{until}{f': {reason}' if reason else ''}"


def end_options(function: Any) -> Any:
    """Take when a hold ends by itself: `ends_in` (seconds) and `ends_at`, of which at most one is given."""
    function = click.option(
        "--until", "ends_at", type=MOMENT, metavar="MOMENT", help="It ends by itself then: 2030-01-31T09:00Z."
    )(function)
    return click.option(
        "--for", "ends_in", type=DURATION, metavar="TIME", help="It ends by itself after so long: 90m, 2h, 1d."
    )(function)


def check_end(ends_in: float | None, ends_at: str | None) -> None:
    """Refuse two ends at once, and one that is no time at all.

    Raises:
        click.UsageError: They are given both, or the time is 0.
    """
    if ends_in is not None and ends_at is not None:
        message = "--for and --until both say when it ends: give one"
        raise click.UsageError(message)
    if ends_in is not None and not 0 < ends_in <= HOLD_SECONDS_MAX:
        message = "--for is more than 0 and at most 3650d"
        raise click.UsageError(message)


def worker_told(worker: Mapping[str, Any], more: str = "") -> str:
    """Return one worker in a line of `show`."""
    return f"{worker['name'] or worker['id']} ({worker['host']}, pid {worker['pid']}, {worker['state']}{more})"


def nearest(name: str, known: Iterable[str], where: str) -> str:
    """Return the hint for who named something that is not there.

    Args:
        name: What was named.
        known: What there is.
        where: The command that lists all.
    """
    near = near_name(name, known)
    return f"{f'Did you mean {near}? ' if near else ''}{where} shows all."


def near_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like another, if one is."""
    from difflib import get_close_matches  # noqa: PLC0415 - costs 3 ms, and most names are right

    return next(iter(get_close_matches(name, list(known), n=1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about a name that nobody knows: what may have been meant; empty when nothing is like it."""
    near = near_name(name, known)
    return f"; did you mean {near}?" if near else ""


def doubt_about_type(connection: EngineConnection, task_type: str) -> str:
    """Return a sentence when workers have declared task types, but never this one; empty otherwise, and without the right to see."""
    from octop.engine import names, steering  # noqa: PLC0415 - keeps help fast

    try:
        known = run(connection, names.task_type_names())
        if not known or run(connection, steering.task_type_is_declared(task_type)):
            return ""
    except NotPermittedError:
        return ""
    return f"no worker has ever declared the task type {task_type}{did_you_mean(task_type, known)}"
