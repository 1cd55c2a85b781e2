"""Durations and moments, as people type and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

import click

SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


class DurationParam(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2; 8.1 cannot subscript it
    """A length of time: 90 (seconds), 500ms, 1.5h, 1h30m, 2d."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        if isinstance(value, (int, float)):
            return float(value)
        text = str(value).strip().lower()
        if re.fullmatch(r"\d+(?:\.\d+)?", text):
            return float(text)
        if re.fullmatch(rf"(?:{PART.pattern}\s*)+", text):
            return sum(float(number) * SECONDS[unit] for number, unit in PART.findall(text))
        day = "; from a day on: created:yesterday, created:2030-01-31.." if param and param.name == "since" else ""
        message = f"{value!r} is not a length of time: write 90 (seconds), 500ms, 5m, 1h30m or 2d{day}"
        return self.fail(message, param, ctx)


class MomentParam(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2; 8.1 cannot subscript it
    """A moment with its zone: 2030-01-31T09:00:00+08:00, 2030-01-31 01:00Z."""

    name = "moment"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return ISO 8601 text with an offset."""
        try:
            moment = datetime.fromisoformat(str(value).strip())
        except ValueError:
            self.fail(f"{value!r} is not a moment: write 2030-01-31T09:00:00+08:00", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} names no zone: add an offset, as in {moment.isoformat()}+00:00 or …Z", param, ctx)
        return moment.isoformat()


DURATION: Final = DurationParam()
MOMENT: Final = MomentParam()


def spoken(seconds: float | None) -> str:
    """Return a length of time in at most two units, or - for None.

    Example:
        >>> [spoken(each) for each in (0.0021, 0.25, 12.34, 30, 90, 3700, 200000)]
        ['2.1 ms', '250 ms', '12.3 s', '30 s', '1m 30s', '1h 1m', '2d 7h']
    """
    if seconds is None:
        return "-"
    if seconds < 0:
        return f"-{spoken(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = int(seconds)
    for unit, below, size in (("m", "s", 60), ("h", "m", 3600), ("d", "h", 86400)):
        if whole < size * (60 if unit == "m" else 24) or unit == "d":
            rest = whole % size // (size // (24 if unit == "d" else 60))
            return f"{whole // size}{unit} {rest}{below}" if rest else f"{whole // size}{unit}"
    return f"{whole} s"


def shortened(moment: str | None) -> str:
    """Return a moment of the database in UTC, without its fractions of a second, or - for None.

    In UTC, whatever zone client, session and database live in: two people who look at one task read the same.

    Example:
        >>> shortened("2030-01-31T17:00:00.123456+08:00")
        '2030-01-31 09:00:00+00:00'
    """
    if not moment:
        return "-"
    return datetime.fromisoformat(moment).astimezone(UTC).replace(microsecond=0).isoformat(" ")


def brief(moment: str) -> str:
    """Return a moment of `shortened` in less room: today's as its time, this year's with the day, another's as its day.

    Example:
        >>> brief("2000-01-31 09:00:00+00:00")
        '2000-01-31'
    """
    today = datetime.now(UTC).date().isoformat()  # noqa: TID251 - decides only how much of it is printed
    if moment[:10] == today:
        return moment[11:19]
    return moment[5:16] if moment[:4] == today[:4] else moment[:10]


def between(earlier: str | None, later: str | None) -> float | None:
    """Return the seconds from one moment of the database to another, or None when one is missing."""
    if not earlier or not later:
        return None
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
