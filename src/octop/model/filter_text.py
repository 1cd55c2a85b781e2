"""How a filter of tasks is written: the other direction of `octop.model.filters`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from octop.model.filter_values import (
    BY_NAME,
    DAYS,
    UNITS,
    Comparison,
    Condition,
    Day,
    Equal,
    Filter,
    Number,
    Test,
    Text,
    Value,
    is_number,
)


def render(filter: Filter) -> str:
    """Write a filter as one text that `parse` reads back as the same filter.

    Example:
        >>> render(Filter((Condition("queue", (Equal(Text(("a b", ""))),), negated=True),)))
        '-queue:"a b"*'
    """
    return " ".join(render_words(filter))


def render_words(filter: Filter) -> list[str]:
    """Write each condition of a filter as a word."""
    return [_word(each) for each in filter.conditions]


_BARE: Final = re.compile(r"[^\W\d][\w-]*")


def _word(condition: Condition) -> str:
    key = BY_NAME[condition.key]
    name = ".".join((key.name, *map(_bare_or_quoted, condition.path)))
    values = ",".join(_rendered(each) for each in condition.tests)
    return f"{'-' if condition.negated else ''}{name}:{values}"


def _rendered(test: Test) -> str:
    match test:
        case Equal():
            return _value(test.value)
        case Comparison():
            return f"{test.operator}{_value(test.value)}"
    return "..".join(_value(each) if each else "" for each in (test.low, test.high))


def _value(value: Value) -> str:
    match value:
        case Text():
            if value.pieces == ("",) or value.quoted:
                return quoted(value.pieces[0])
            return "*".join(each if is_number(Text((each,))) else _bare_or_quoted(each) for each in value.pieces)
        case Number():
            return f"{value.value:f}"
        case Day():
            if value.start is None:
                return next(name for name, days in DAYS.items() if days == value.days)
            return f"{value.start:%Y-%m-%d}{value.start.isoformat()[19:]}"
    if value.at is not None:
        return value.at.isoformat()
    return _offset(value.offset)


def _offset(offset: timedelta) -> str:
    if not offset:
        return "now"
    left, text = abs(offset), ""
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, UNITS[unit])
        text += f"{count}{unit}" if count else ""
    if left:
        text += f"{left / UNITS['ms']:.3f}".rstrip("0").rstrip(".") + "ms"
    return ("-" if offset < timedelta(0) else "+") + text


def quoted(text: str) -> str:
    """Return text in quotes, so that nothing in it has a meaning."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _bare_or_quoted(text: str) -> str:
    return text if not text or _BARE.fullmatch(text) else quoted(text)
