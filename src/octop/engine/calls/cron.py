"""What cron expressions mean. The database reads them, so that it and every client say the same."""

from dataclasses import dataclass
from datetime import datetime

from octop.engine.call import Call, Rows, first_value


@dataclass(frozen=True, slots=True)
class CronTime:
    """One time of a cron expression.

    Attributes:
        at: The moment, in UTC.
        wall: What the clocks of the zone show then, as ISO 8601 text without an offset.
        offset_seconds: How far the zone is ahead of UTC then, in seconds.
    """

    at: datetime
    wall: str
    offset_seconds: int


def octop_cron_check(expression: str, timezone: str = "UTC") -> Call[None]:
    """Refuse what could not be a schedule; change nothing.

    Raises:
        InvalidCronError: The expression cannot be read: the message names the field, the value and what is allowed.
        NeverFiresError: No year has its days.
        UnknownTimeZoneError: The server knows no such zone.
    """
    return Call(
        "select octop_cron_check(%(expression)s::text, %(timezone)s::text)",
        {"expression": expression, "timezone": timezone},
        lambda _: None,
    )


def octop_cron_explain(expression: str) -> Call[str]:
    """Tell in English what a cron expression means.

    Raises:
        InvalidCronError: It cannot be read.
        NeverFiresError: No year has its days.
    """
    return Call(
        "select octop_cron_explain(%(expression)s::text)",
        {"expression": expression},
        lambda rows: str(first_value(rows)),
    )


def octop_cron_next(expression: str, timezone: str = "UTC", after: str | None = None) -> Call[datetime | None]:
    """Find the next time of a cron expression, later than a moment.

    Args:
        expression: Five or six fields, or a word with @; see docs/reference/cron.md.
        timezone: Name of a zone, whose clocks count.
        after: A moment as ISO 8601 text with an offset; None = the database's now.

    Returns:
        The moment; None = none until the end of the year 9999.

    Raises:
        InvalidScheduleError: As octop_cron_check.
    """
    return Call(
        "select to_char(octop_cron_next(%(expression)s::text, %(timezone)s::text,"
        " coalesce(%(after)s::text::timestamptz, _octop_now())) at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"+00:00\"')",
        {"expression": expression, "timezone": timezone, "after": after},
        lambda rows: None if (text := first_value(rows)) is None else datetime.fromisoformat(text),
    )


def octop_cron_next_n(
    expression: str, timezone: str = "UTC", after: str | None = None, n: int = 5
) -> Call[list[CronTime]]:
    """Find the next times of a cron expression, in order.

    Args:
        expression: As for octop_cron_next.
        timezone: Name of a zone, whose clocks count.
        after: A moment as ISO 8601 text with an offset; None = the database's now.
        n: How many, 1 to 1,000.

    Raises:
        InvalidCountError: n is out of bounds.
        InvalidScheduleError: As octop_cron_check.
    """
    return Call(
        "select to_char(t at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"+00:00\"'),"
        " to_char(t at time zone %(timezone)s::text, 'YYYY-MM-DD\"T\"HH24:MI:SS'),"
        " extract(epoch from (t at time zone %(timezone)s::text) - (t at time zone 'UTC'))::integer"
        " from octop_cron_next_n(%(expression)s::text, %(timezone)s::text,"
        " coalesce(%(after)s::text::timestamptz, _octop_now()), %(n)s::integer) t",
        {"expression": expression, "timezone": timezone, "after": after, "n": n},
        _times,
    )


def _times(rows: Rows) -> list[CronTime]:
    return [CronTime(datetime.fromisoformat(at), wall, offset) for at, wall, offset in rows]
