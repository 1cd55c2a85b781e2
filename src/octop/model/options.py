"""Bounds of what a task may be given: the same in the decorator, in ``using`` and in SQL.

0, None and unset are three things.
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from octop.model.errors import InvalidNameError, InvalidOptionError, InvalidTimeError

NAME_LENGTH_MAX: Final = 200
TIMEOUT_DAYS_MAX: Final = 31
DELAY_DAYS_MAX: Final = 36_500
RETRIES_MAX: Final = 1_000
VERSION_MAX: Final = 1_000
TAGS_MAX: Final = 50
_SECONDS_OF: Final = {"at": "delay", "ends_at": "ends_in"}
"""Of a moment, what takes the same as a time from now."""
__tracebackhide__ = True  # a test that fails in here shows the line that called


class Unset(Enum):
    """The type of UNSET: nothing was said, which is neither None nor 0."""

    UNSET = "unset"

    def __repr__(self) -> str:
        """Return what a signature shows."""
        return "UNSET"


UNSET: Final = Unset.UNSET


def checked_name(value: object, what: str, *, empty: bool = False) -> str:
    """Return a name, or refuse it.

    Args:
        value: What the user gave.
        what: What it names, for the message.
        empty: True = it may be empty (lane, tenant).

    Raises:
        InvalidNameError: Not text, empty, over 200 characters, or with control characters or lone surrogates.
    """
    if not isinstance(value, str):
        message = f"{what} is text, not {type(value).__name__} {value!r}"
        raise InvalidNameError(message)
    if len(value) > NAME_LENGTH_MAX or not (value or empty):
        message = f"{what} has {0 if empty else 1} to {NAME_LENGTH_MAX} characters, not {len(value)}"
        raise InvalidNameError(message)
    if value.isascii() and value.isprintable():
        return str.__str__(value)
    if any(
        character < " " or "\x7f" <= character <= "\x9f" or "\ud800" <= character <= "\udfff" for character in value
    ):
        message = f"{what} {value!a} holds control characters or a lone surrogate"
        raise InvalidNameError(message)
    return str.__str__(value)


def checked_whole(value: object, what: str, low: int, high: int) -> int:
    """Return a whole number within bounds, or refuse it.

    Raises:
        InvalidOptionError: Not an int, or out of bounds.
    """
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return int(value)
    message = f"{what} is a whole number from {low} to {high:,}, not {value!r}"
    raise InvalidOptionError(message)


def checked_priority(value: object) -> int:
    """Return a priority from 0 (first) to 9 (last), or refuse it."""
    return checked_whole(value, "priority", 0, 9)


def checked_retries(value: object) -> int:
    """Return a number of further tries from 0 to 1,000, or refuse it."""
    return checked_whole(value, "max_retries", 0, RETRIES_MAX)


def checked_flag(value: object, what: str) -> bool:
    """Return True or False, or refuse what is neither."""
    if not isinstance(value, bool):
        message = f"{what} is True or False, not {value!r}"
        raise InvalidOptionError(message)
    return value


def checked_version(value: object, what: str = "version") -> int:
    """Return the version of a task type's code, 1 to 1,000, or refuse it."""
    return checked_whole(value, what, 1, VERSION_MAX)


def _seconds_of(value: object, what: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    message = f"{what} is seconds or a timedelta, not {value!r}"
    raise InvalidOptionError(message)


def checked_timeout(value: object) -> float:
    """Return a time limit in seconds, more than 0 and at most 31 days, or refuse it.

    Raises:
        InvalidOptionError: Not seconds or a timedelta, or out of bounds; 0 is not "none".
    """
    seconds = _seconds_of(value, "timeout")
    if 0 < seconds <= TIMEOUT_DAYS_MAX * 86_400:
        return seconds
    message = f"timeout is more than 0 and at most {TIMEOUT_DAYS_MAX} days, not {value!r}"
    raise InvalidOptionError(
        message, hint="Leave it out, or pass None, for the default of the queue or the configuration."
    )


def checked_delay(value: object, what: str = "delay", *, days_max: int = DELAY_DAYS_MAX) -> float:
    """Return a wait in seconds, at least 0, or refuse it.

    Raises:
        InvalidOptionError: Not seconds or a timedelta, negative, or too long.
    """
    seconds = _seconds_of(value, what)
    if 0 <= seconds <= days_max * 86_400:
        return seconds
    message = f"{what} is from 0 to {days_max:,} days, not {value!r}"
    raise InvalidOptionError(message)


def checked_moment(value: object, what: str = "at") -> str:
    """Return an aware moment as ISO 8601 text with offset, or refuse it.

    Raises:
        InvalidTimeError: Not a datetime, naive, or outside of the years 2000 to 2999.
    """
    if not isinstance(value, datetime):
        message = f"{what} is an aware datetime, not {type(value).__name__} {value!r}"
        raise InvalidTimeError(message, hint=f"For a wait in seconds use {_SECONDS_OF[what]}.")
    if value.utcoffset() is None:
        message = f"{what}={value.isoformat()} is naive: it means another instant on each machine"
        raise InvalidTimeError(message, hint="Give it a zone: datetime(…, tzinfo=UTC) or .astimezone().")
    if not 2000 < value.year < 2999:
        message = f"{what}={value.isoformat()} is absurd: a moment lies between 2001 and 2998"
        raise InvalidTimeError(message)
    return value.isoformat()


def checked_tags(value: object) -> list[str]:
    """Return at most 50 tags, each a name, or refuse them.

    Raises:
        InvalidOptionError: Not a list of text, or too many.
        InvalidNameError: One of them is no name.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | set | frozenset) or len(value) > TAGS_MAX:
        message = f"tags is a list of at most {TAGS_MAX} texts, not {value!r}"
        raise InvalidOptionError(message)
    return [checked_name(tag, "a tag") for tag in value]
