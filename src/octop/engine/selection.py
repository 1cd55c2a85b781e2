"""A filter as values for SQL: what `octop.engine.filtered` asks with. Pure; nothing of it becomes text of a statement.

Conditions on columns with an index, or that decide which partitions are read, are values of their own. All others are rows of
one JSON list: a field, and a regular expression, ranges of numbers or ranges of moments that hold or must not hold.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from octop.model.filter_values import (
    BY_NAME,
    Comparison,
    Condition,
    Day,
    Equal,
    Filter,
    Moment,
    Number,
    Test,
    Text,
    Value,
    is_number,
)
from octop.model.task import Status


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter with every moment fixed.

    Attributes:
        values: By the names that the statements use.
    """

    values: Mapping[str, object]

    def below(self, task_id: str | None) -> dict[str, object]:
        """Return the values for the tasks whose ids are smaller than one."""
        return {**self.values, "below": task_id}


def selection(filter: Filter, moment: datetime, *, made_by_now: bool = False) -> Selection:
    """Turn a filter into values for SQL; pure.

    Args:
        filter: Any.
        moment: What is now.
        made_by_now: No task that is made later is meant.
    """
    found = _Found(moment, made_by_now)
    for condition in filter.conditions:
        found.add(condition)
    return found.selection(filter.statuses())


EXACT: Final = frozenset({"queue", "type", "lane", "tenant"})
BOUNDED: Final = frozenset({"created", "scheduled", "completed"})
IDS: Final = ("0" * 32, "f" * 32)


@dataclass
class _Found:
    """Gathers values while the conditions of a filter are read."""

    moment: datetime
    made_by_now: bool
    exact: dict[str, frozenset[str]] = field(default_factory=dict)
    bounds: dict[str, datetime] = field(default_factory=dict)
    ids: tuple[str, str] = IDS
    others: list[dict[str, object]] = field(default_factory=list)

    def add(self, condition: Condition) -> None:
        kind = BY_NAME[condition.key].kind
        if kind == "status":
            return
        texts = _texts(condition)
        if condition.key in EXACT and not condition.negated and all(len(each.pieces) == 1 for each in texts):
            names = frozenset(each.pieces[0] for each in texts)
            self.exact[condition.key] = self.exact.get(condition.key, names) & names
            return
        if kind == "moment" and len(condition.tests) == 1 and not condition.negated and condition.key in BOUNDED:
            self._bound(condition.key, *_moments(condition.tests[0], self.moment))
            return
        if kind == "id" and not condition.negated:
            prefixes = [each.pieces[0] for each in texts]
            first, last = self.ids
            self.ids = (
                max(first, min(each.ljust(32, "0") for each in prefixes)),
                min(last, max(each.ljust(32, "f") for each in prefixes)),
            )
            if len(prefixes) == 1:
                return
        self.others.append(_other(condition, self.moment))

    def _bound(self, key: str, start: datetime | None, before: datetime | None) -> None:
        if start is not None:
            self.bounds[f"{key}_from"] = max(start, self.bounds.get(f"{key}_from", start))
        if before is not None:
            self.bounds[f"{key}_before"] = min(before, self.bounds.get(f"{key}_before", before))

    def selection(self, statuses: frozenset[Status]) -> Selection:
        first, last = self.ids
        values: dict[str, object] = {
            "statuses": sorted(statuses) if len(statuses) < len(Status) else None,
            "id_from": first if first != IDS[0] else None,
            "id_to": last if last != IDS[1] else None,
            "others": json.dumps(self.others, ensure_ascii=False) if self.others else None,
            "made_until": self.moment.isoformat() if self.made_by_now else None,
            "below": None,
        }
        values |= {key: sorted(self.exact[key]) if key in self.exact else None for key in EXACT}
        for key in BOUNDED:
            for side in ("from", "before"):
                at = self.bounds.get(f"{key}_{side}")
                values[f"{key}_{side}"] = None if at is None else at.isoformat()
        return Selection(values)


def _texts(condition: Condition) -> list[Text]:
    return [test.value for test in condition.tests if isinstance(test, Equal) and isinstance(test.value, Text)]


def _other(condition: Condition, moment: datetime) -> dict[str, object]:
    kind = BY_NAME[condition.key].kind
    other: dict[str, object] = {"field": condition.key, "negated": condition.negated}
    match kind:
        case "moment":
            other["moments"] = "{" + ",".join(_moment_range(each, moment) for each in condition.tests) + "}"
        case "number":
            other["numbers"] = _number_ranges(condition.tests)
        case "document":
            other["path"] = list(condition.path)
            numbers = [each for each in map(_as_number, condition.tests) if each is not None]
            if numbers:
                other["numbers"] = _number_ranges(numbers)
            if texts := _texts(condition):
                other["pattern"] = _pattern(texts)
        case "id":
            other["pattern"] = _pattern([Text((_hyphenated(each.pieces[0]), "")) for each in _texts(condition)])
        case "words":
            within = [Text(("", *(p for p in each.pieces if p), "")) for each in _texts(condition)]
            other["pattern"] = "(?i)" + _pattern(within)
        case _:
            other["pattern"] = _pattern(_texts(condition))
    return other


def _hyphenated(digits: str) -> str:
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(each for each in parts if each)


_SPECIAL: Final = re.compile(r"[\\.*+?(){}|^$\[\]]")


def _pattern(texts: Iterable[Text]) -> str:
    """Return a regular expression of PostgreSQL for one of several texts; nothing but the wildcards has a meaning in it."""
    alternatives = (".*".join(_SPECIAL.sub(r"\\\g<0>", piece) for piece in each.pieces) for each in texts)
    return f"^(?:{'|'.join(alternatives)})$"


# --- numbers and moments ----------------------------------------------------------------------------------------------


def _as_number(test: Test) -> Test | None:
    if isinstance(test, Equal) and isinstance(test.value, Text):
        return Equal(Number(Decimal(test.value.pieces[0]))) if is_number(test.value) else None
    return test


def _number_ranges(tests: Iterable[Test]) -> str:
    return "{" + ",".join(map(_number_range, tests)) + "}"


def _number_range(test: Test) -> str:
    match test:
        case Equal():
            return f"[{_number(test.value)},{_number(test.value)}]"
        case Comparison(operator=">" | ">=" as operator):
            return f"{'(' if operator == '>' else '['}{_number(test.value)},)"
        case Comparison(operator=operator):
            return f"(,{_number(test.value)}{')' if operator == '<' else ']'}"
    return f"[{_number(test.low)},{_number(test.high)}]"


def _number(value: Value | None) -> str:
    return f"{value.value:f}" if isinstance(value, Number) else ""


def _moment_range(test: Test, moment: datetime) -> str:
    start, before = _moments(test, moment)
    if start is not None and before is not None and start >= before:
        return "empty"
    return f"[{start.isoformat() if start else ''},{before.isoformat() if before else ''})"


_LEAST: Final = timedelta(microseconds=1)


def _moments(test: Test, moment: datetime) -> tuple[datetime | None, datetime | None]:
    """Return from when on and before when; a moment is a microsecond long, a day a day."""
    match test:
        case Equal(value=Moment() as value):
            at = _span(value, moment)[0]
            return min(at, moment), max(at, moment) + _LEAST
        case Equal():
            return _span(test.value, moment)
        case Comparison():
            start, before = _span(test.value, moment)
            return {">": (before, None), ">=": (start, None), "<": (None, start), "<=": (None, before)}[test.operator]
    return (
        None if test.low is None else _span(test.low, moment)[0],
        None if test.high is None else _span(test.high, moment)[1],
    )


def _span(value: Value, moment: datetime) -> tuple[datetime, datetime]:
    if isinstance(value, Day):
        start = value.start
        if start is None:
            start = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(value.days)
        return start, start + timedelta(1)
    at = value.at or moment + value.offset if isinstance(value, Moment) else moment
    return at, at + _LEAST
