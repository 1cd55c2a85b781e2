"""What makes a task unique, as the decorator, ``using`` and the command say it. Which task is unique is decided in SQL."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from octop.model.errors import InvalidOptionError
from octop.model.options import checked_delay

OnConflict = Literal["keep", "raise", "replace", "move"]
RULES: Final[tuple[OnConflict, ...]] = ("keep", "raise", "replace", "move")
SCOPES: Final = ("pending", "live")
KEY_LENGTH_MAX: Final = 1_000
WINDOW_DAYS_MAX: Final = 366
__tracebackhide__ = True  # a test that fails in here shows the line that called


class Unique(NamedTuple):
    """What a task type says about uniqueness, checked; the fields are those of NewTask. None = not unique, or the default."""

    unique_by: tuple[str, ...] | None = None
    unique_scope: str | None = None
    on_conflict: OnConflict | None = None


def checked_fields(value: object) -> tuple[str, ...] | None:
    """Return the payload fields of ``unique=``: True = all of them (empty), False = none (None).

    Raises:
        InvalidOptionError: Neither a bool nor names, or none.
    """
    if isinstance(value, bool):
        return () if value else None
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | set | frozenset) or not value:
        message = f"unique is a list of payload fields, or True for all of them, not {value!r}"
        raise InvalidOptionError(message, hint='Write unique=("user_id",). For a text of your own: unique_key="…".')
    if not all(isinstance(name, str) and name for name in value):
        message = f"a payload field is a name, not one of {value!r}"
        raise InvalidOptionError(message, hint='A field inside another one is written "address.city".')
    return tuple(value)


def checked_key(value: object) -> str:
    """Return a unique key of 1 to 1,000 characters, or refuse it."""
    if isinstance(value, str) and 1 <= len(value) <= KEY_LENGTH_MAX:
        return value
    message = f"unique_key is text of 1 to {KEY_LENGTH_MAX:,} characters, not {value!r:.200}"
    raise InvalidOptionError(message)


def checked_scope(value: object) -> str:
    """Return a scope as PostgreSQL reads it: pending, live, or an interval.

    Raises:
        InvalidOptionError: Another word, or a time that is not above 0 and at most 366 days.
    """
    if value in SCOPES:
        return str(value)
    if isinstance(value, str):
        message = f"unique_scope is 'pending', 'live', seconds or a timedelta, not {value!r}"
        raise InvalidOptionError(message)
    seconds = checked_delay(value, "unique_scope", days_max=WINDOW_DAYS_MAX)
    if seconds < 0.001:
        message = f"unique_scope as a time is at least a millisecond, not {value!r}"
        raise InvalidOptionError(message)
    return f"{seconds:.6f} seconds"


def checked_rule(value: object) -> OnConflict:
    """Return what to do on a conflict: keep, raise, replace or move; or refuse it."""
    for rule in RULES:
        if value == rule:
            return rule
    message = f"on_conflict is one of {', '.join(RULES)}, not {value!r}"
    raise InvalidOptionError(message)
