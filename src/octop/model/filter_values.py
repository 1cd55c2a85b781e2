"""What a filter of tasks is made of: conditions on keys, as frozen values. `octop.model.filters` reads and writes them.

What is relative to now stays so here: the engine asks the database for its time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, Literal, TypeAlias

from octop.model.task import Status

# --- values -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """Text with wildcards.

    Attributes:
        pieces: What stands between the wildcards: `("send_", "")` is `send_*`; one piece = exactly this text.
        quoted: It was quoted, so that it is no number even where it looks like one.
    """

    pieces: tuple[str, ...]
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Number:
    """A number, exact."""

    value: Decimal


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment: an aware one, or an offset from the database's now."""

    at: datetime | None
    offset: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Day:
    """A whole day: so many days from today (UTC, as history is kept), or a date in a zone."""

    start: datetime | None
    days: int = 0


Value: TypeAlias = Text | Number | Moment | Day
Operator: TypeAlias = Literal[">", ">=", "<", "<="]


@dataclass(frozen=True, slots=True)
class Equal:
    """The value itself; a day as a whole; from a relative moment to now, or from now to it."""

    value: Value


@dataclass(frozen=True, slots=True)
class Comparison:
    """Later or earlier, more or less than a value."""

    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class Range:
    """From one value to another, both included; None = open on that side."""

    low: Value | None
    high: Value | None


Test: TypeAlias = Equal | Comparison | Range


@dataclass(frozen=True, slots=True)
class Condition:
    """One word of a filter.

    Attributes:
        key: Name of a `Key`.
        tests: One of them must hold.
        path: Below payload, result or meta.
        negated: None of them may hold.
    """

    key: str
    tests: tuple[Test, ...]
    path: tuple[str, ...] = ()
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions that must all hold; none = every task."""

    conditions: tuple[Condition, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether there is any condition."""
        return bool(self.conditions)

    def __and__(self, other: Filter) -> Filter:
        """Return the filter that asks for both."""
        return Filter(self.conditions + other.conditions)

    def names(self, key: str) -> bool:
        """Tell whether a word that is not negated has this key."""
        return any(each.key == key and not each.negated for each in self.conditions)

    def statuses(self) -> frozenset[Status]:
        """Return the statuses that its words leave; all of them when none speaks of the status.

        Example:
            >>> sorted(Filter((Condition("status", (Equal(Text(("f", ""))),)),)).statuses())
            [<Status.FAILED: 'failed'>, <Status.FROZEN: 'frozen'>]
        """
        left = frozenset(Status)
        for each in self.conditions:
            if each.key == "status":
                meant = frozenset(status for test in each.tests for status in statuses_like(test))
                left = left - meant if each.negated else left & meant
        return left


# --- keys -------------------------------------------------------------------------------------------------------------

Kind: TypeAlias = Literal["status", "text", "words", "id", "number", "moment", "document"]


@dataclass(frozen=True, slots=True)
class Key:
    """What may stand before the colon.

    Attributes:
        name: As it is written.
        kind: Which values it takes.
        meaning: For help and reference.
        examples: Words that parse.
        aliases: Other spellings: the columns' names.
    """

    name: str
    kind: Kind
    meaning: str
    examples: tuple[str, ...]
    aliases: tuple[str, ...] = ()


KEYS: Final = (
    Key("status", "status", "pending, running, failed, blocked, frozen, success or cancelled", ("status:failed,frozen",)),
    Key("queue", "text", "queue where it waits", ("queue:mail", "queue:mail_*")),
    Key("type", "text", "task type", ("type:send_*",), ("task_type",)),
    Key("lane", "text", 'lane inside its queue; `lane:""` = none', ("lane:customer-7",)),
    Key("tenant", "text", 'tenant; `tenant:""` = none', ("tenant:acme",)),
    Key("tag", "text", "one of its tags; `tag:*` = any", ("tag:vip", "-tag:test"), ("tags",)),
    Key(
        "worker", "text", "name, host or id of the worker that runs it or ran it last; none while it waits",
        ("worker:web-*",), ("worker_id",),
    ),
    Key("id", "id", "its id begins with these digits", ("id:0199aa3c",)),
    Key(
        "error", "words", "its last error holds this text, in large or small letters; `error:*` = any",
        ('error:"connection refused"', "error:time*out"), ("last_error",),
    ),
    Key("priority", "number", "0 runs first, 9 last", ("priority:0..3",)),
    Key("attempt", "number", "how often it was started", ("attempt:>3",)),
    Key("retries", "number", "tries used up beyond the first", ("retries:1..",), ("retry_count",)),
    Key("created", "moment", "when it was registered", ("created:>-1h", "created:today"), ("created_at",)),
    Key("scheduled", "moment", "when it may start next", ("scheduled:+2d", "scheduled:<2030-01-31T09:00:00+08:00"), ("scheduled_at",)),
    Key("due", "moment", "when it was first due; empty until its first start", ("due:<-10m",), ("due_at",)),
    Key("started", "moment", "when its current or last attempt started", ("started:-30m..-10m",), ("started_at",)),
    Key("completed", "moment", "when it ended with success or was cancelled", ("completed:yesterday",), ("completed_at",)),
    Key("payload", "document", "a value inside its payload, by path", ("payload.user.id:42", 'payload."odd.name":x*')),
    Key("result", "document", "a value inside its result, by path", ("result.rows:>1000",)),
    Key("meta", "document", "a value inside its riders, by path", ("meta.request_id:7f3a*",)),
)  # fmt: skip
"""All keys, in the order of the reference page, which is made from this table."""

BY_NAME: Final = {name: key for key in KEYS for name in (key.name, *key.aliases)}
"""Keys by each of their spellings."""


NUMBER: Final = re.compile(r"[+-]?\d{1,18}(?:\.\d{1,18})?", re.ASCII)
UNITS: Final = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
DAYS: Final = {"yesterday": -1, "today": 0, "tomorrow": 1}


def is_number(text: Text) -> bool:
    """Tell whether text without wildcards may also be a number."""
    return len(text.pieces) == 1 and not text.quoted and bool(NUMBER.fullmatch(text.pieces[0]))


def statuses_like(test: Test) -> Iterator[Status]:
    """Yield the statuses that a test of the key `status` means."""
    if isinstance(test, Equal) and isinstance(test.value, Text):
        pattern = ".*".join(map(re.escape, test.value.pieces))
        yield from (each for each in Status if re.fullmatch(pattern, each.value, re.DOTALL))
