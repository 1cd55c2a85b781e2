"""Limits of queues: the options that set them, and how they are read and shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.moments import DURATION, shortened, spoken
from octop.cli.policy import TAKE_BACK, OrDefault, TakenBack
from octop.model.errors import InvalidOptionError
from octop.model.rates import rate_per_second, spoken_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

COUNT_MAX: Final = 1_000_000
_NOW: Final = (
    "global_limit",
    "lane_limit",
    "rate",
    "lane_rate",
    "ordered",
    "lane_weights",
    "ageing_seconds",
    "window_open",
    "windows_change_at",
)


class Rate(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2; 8.1 cannot subscript it
    """Starts in a span of time: 100/m."""

    name = "rate"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return starts per second."""
        try:
            return rate_per_second(str(value))
        except InvalidOptionError as error:
            self.fail(f"{error.message}: {error.hint}", param, ctx)


class Weight(click.ParamType):  # type: ignore[type-arg]  # as above
    """LANE=N."""

    name = "weight"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Return lane and weight."""
        lane, equals, number = str(value).rpartition("=")
        if not (equals and lane and number.isdecimal() and 1 <= int(number) <= 1000):
            self.fail(f"{value!r} is not LANE=N with N from 1 to 1000", param, ctx)
        return lane, int(number)


class JsonList(click.ParamType):  # type: ignore[type-arg]  # as above
    """A JSON list; PostgreSQL knows what may stand in it."""

    name = "json"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        """Return the list."""
        try:
            found = json.loads(str(value))
        except ValueError as error:
            self.fail(f"{value!r} is not JSON ({error})", param, ctx)
        if not isinstance(found, list):
            self.fail(f"{value!r} is not a JSON list", param, ctx)
        return found


def limit_options(function: Callable[P, R]) -> Callable[P, R]:
    """Give a command the options for the limits of a queue."""
    count, place = OrDefault(click.IntRange(1, COUNT_MAX)), OrDefault(click.IntRange(0, COUNT_MAX))
    rate = OrDefault(Rate())
    for option in reversed(
        [
            click.option(
                "--global-limit", type=place, metavar="N|default", help="Tasks at once on all workers together."
            ),
            click.option("--lane-limit", type=count, metavar="N|default", help="Tasks at once of each lane."),
            click.option("--rate", type=rate, metavar="N/UNIT|default", help="Starts on all workers: 100/m, 5/10s."),
            click.option("--burst", type=count, metavar="N|default", help="Starts at once of a queue that was idle."),
            click.option("--lane-rate", type=rate, metavar="N/UNIT|default", help="Starts of each lane, as --rate."),
            click.option(
                "--lane-burst", type=count, metavar="N|default", help="Starts at once of a lane that was idle."
            ),
            click.option(
                "--ordered/--unordered", default=None, help="Tasks of a lane one at a time, in the order of enqueue."
            ),
            click.option(
                "--weight",
                "weights",
                type=OrDefault(Weight()),
                multiple=True,
                metavar="LANE=N|default",
                help="Tasks that a lane gets each time its turn comes; may be repeated, and replaces all weights.",
            ),
            click.option(
                "--ageing",
                "ageing_seconds",
                type=OrDefault(DURATION),
                metavar="DURATION|default",
                help="Each such span of waiting is worth one step of priority.",
            ),
            click.option(
                "--windows",
                type=OrDefault(JsonList()),
                metavar="JSON|default",
                help='Limits by time of day: [{"from": "22:00", "until": "06:00", "global_limit": 50}].',
            ),
            click.option(
                "--watermark",
                "watermark_high",
                type=OrDefault(click.IntRange(1, 100 * COUNT_MAX)),
                metavar="N|default",
                help="Due tasks that wait, at which the queues that are not critical are held.",
            ),
            click.option(
                "--watermark-low",
                type=OrDefault(click.IntRange(0, 100 * COUNT_MAX)),
                metavar="N|default",
                help="At so many they go on; default: half of the watermark.",
            ),
            click.option(
                "--critical",
                type=OrDefault(click.BOOL),
                metavar="yes|no|default",
                help="no: it is held while another queue stands at its watermark.",
            ),
            *(
                click.option(
                    f"--keep-{status}",
                    f"keep_{status}_days",
                    type=OrDefault(click.IntRange(1, most)),
                    metavar="DAYS|default",
                    help=f"Its {status} tasks are kept so many days; default: history.{status}_days.",
                )
                for status, most in (("success", 400), ("cancelled", 400), ("frozen", 36_500))
            ),
        ]
    ):
        function = option(function)
    return function


def limits_given(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of ``limit_options`` that were given, by column.

    Raises:
        UsageError: Weights are both set and taken back.
    """
    found = {name: value for name, value in given.items() if value is not None and name != "weights"}
    weights = given["weights"]
    if TakenBack.YES in weights:
        if len(weights) > 1:
            message = f"--weight {TAKE_BACK[0]} stands alone: it takes back all weights"
            raise click.UsageError(message)
        found["lane_weights"] = TakenBack.YES
    elif weights:
        found["lane_weights"] = dict(weights)
    return found


def shown_limit(column: str, value: Any) -> str:
    """Return one limit for people."""
    if value is None:
        return "-"
    match column:
        case "rate" | "lane_rate":
            return spoken_rate(value)
        case "ageing_seconds":
            return spoken(float(value))
        case "ordered" | "critical":
            return "yes" if value else "no"
        case "lane_weights":
            return ", ".join(f"{lane}={weight}" for lane, weight in sorted(value.items()))
        case "windows":
            return "\n".join(map(_window, value))
    return str(value)


def _window(window: Mapping[str, Any]) -> str:
    days = f"days {','.join(map(str, window['days']))} " if "days" in window else ""
    limits = ", ".join(
        f"{key.replace('_', ' ')} {shown_limit(key, value)}"
        for key, value in window.items()
        if key not in {"days", "from", "until", "timezone"}
    )
    return f"{days}{window['from']} to {window['until']} {window.get('timezone', 'UTC')}: {limits}"


def used_told(row: Mapping[str, Any]) -> str:
    """Return what is used of the limits of a queue in this moment; ``-`` where there are none.

    Args:
        row: Of ``octop.engine.steering.queue``.
    """
    now = row["limits_now"]
    parts = []
    if now is not None:
        if now["global_limit"] is not None:
            parts.append(f"{now['running']} of {now['global_limit']} at once")
        if (busiest := row["busiest_lane"]) is not None:
            parts.append(f"{busiest['running']} of {now['lane_limit']} in the lane {busiest['lane']}")
        if now["rate"] is not None:
            next_at = f", the next at {shortened(now['next_token_at'])}" if now["next_token_at"] else ""
            parts.append(f"{now['tokens']} of {now['burst']} starts left{next_at}")
        if now["window_open"]:
            parts.append(f"a window is open until {shortened(now['windows_change_at'])}")
    if row["watermark_high"] is not None:
        parts.append(f"{row['due']} of {row['watermark_high']} due")
    return "; ".join(parts) or ("-" if now is None else f"{now['running']} running")


def limits_used(row: Mapping[str, Any]) -> str:
    """Return in one cell which limits of a queue hold now, an open window included, with what is used of them.

    Args:
        row: Of ``octop.engine.steering.list_queues``.

    Example:
        >>> from collections import defaultdict
        >>> now = defaultdict(lambda: None, global_limit=20, running=7, lane_limit=2, rate=100 / 60, tokens=0, burst=5)
        >>> limits_used({"worker_limit": 3, "limits_now": now, "watermark_high": None, "critical": None})
        'worker 3, global 7/20, lane 2, rate 100/m (0/5 left)'
    """
    now: Mapping[str, Any] = row["limits_now"] or dict.fromkeys(_NOW)
    parts = [
        None if row["worker_limit"] is None else f"worker {row['worker_limit']}",
        None if now["global_limit"] is None else f"global {now['running']}/{now['global_limit']}",
        None if now["lane_limit"] is None else f"lane {now['lane_limit']}",
        None if now["rate"] is None else f"rate {spoken_rate(now['rate'])} ({now['tokens']}/{now['burst']} left)",
        None if now["lane_rate"] is None else f"lane rate {spoken_rate(now['lane_rate'])}",
        "ordered" if now["ordered"] else None,
        "weights" if now["lane_weights"] else None,
        f"ageing {spoken(float(now['ageing_seconds']))}" if now["ageing_seconds"] else None,
        "window open" if now["window_open"] else "windows" if now["windows_change_at"] else None,
        None if row["watermark_high"] is None else f"watermark {row['due']}/{row['watermark_high']}",
        "not critical" if row["critical"] is False else None,
    ]
    return ", ".join(filter(None, parts))
