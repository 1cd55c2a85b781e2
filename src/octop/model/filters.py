"""The one grammar of filters: `status:failed queue:mail type:send_* tag:vip payload.user.id:42 created:>-1h`.

A filter is a list of words; a task must satisfy all of them. A word is a key, a colon and a value::

    word   = [ "-" | "!" | "not:" ] key ":" value { "," value }
    key    = name | ("payload" | "result" | "meta") "." name { "." name }
    value  = text | number | moment | (">" | ">=" | "<" | "<=") value | [ value ] ".." [ value ]

In text `*` stands for any characters. Double quotes and backslashes take every meaning from what they hold. Pure: text in,
frozen values out (`octop.model.filter_values`), and nothing is raised but InvalidFilterError.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from octop.model.errors import InvalidFilterError
from octop.model.filter_characters import Characters, cut, plain, refused, scan, split_words
from octop.model.filter_text import quoted, render, render_words
from octop.model.filter_values import (
    BY_NAME,
    DAYS,
    KEYS,
    NUMBER,
    UNITS,
    Comparison,
    Condition,
    Day,
    Equal,
    Filter,
    Key,
    Moment,
    Number,
    Operator,
    Range,
    Test,
    Text,
    Value,
    is_number,
    statuses_like,
)
from octop.model.task import Status

__all__ = ["exactly", "parse", "parse_words", "render", "render_words", "since"]

WORD_CHARACTERS_MAX: Final = 2000
WORDS_MAX: Final = 100
WILDCARDS_MAX: Final = 20
OFFSET_MAX: Final = timedelta(days=36_525)
YEARS: Final = range(2000, 3000)
NEGATIONS: Final = ("-", "!", "not:")


def parse(text: str) -> Filter:
    """Read a filter that stands in one text, its words apart by spaces.

    Args:
        text: What a person typed into one field.

    Raises:
        InvalidFilterError: A word is no condition; it says which, why, and what is near.

    Example:
        >>> render(parse('status:failed  error:"not found" !type:send_*'))
        'status:failed error:"not found" -type:send_*'
    """
    return parse_words(split_words(text))


def parse_words(words: Iterable[str]) -> Filter:
    """Read a filter whose words a shell has split already: spaces inside a word belong to its value.

    Args:
        words: At most 100, of at most 2,000 characters each.

    Raises:
        InvalidFilterError: A word is no condition; it says which, why, and what is near.

    Example:
        >>> render(parse_words(["error:not found", "priority:0..3"]))
        'error:"not found" priority:0..3'
    """
    read = tuple(_condition(word) for word in words)
    if len(read) > WORDS_MAX:
        message = f"a filter has at most {WORDS_MAX} words, not {len(read)}"
        raise InvalidFilterError(message, hint="Values of one key are joined by commas: type:a,b,c")
    return Filter(read)


def exactly(key: str, *texts: str) -> Filter:
    """Return the filter that wants exactly this text of a key, or one of several: what options such as `--queue` say.

    Raises:
        InvalidFilterError: A text cannot stand in a filter.

    Example:
        >>> render(exactly("queue", "a*b", "c"))
        'queue:"a*b",c'
    """
    return parse_words([f"{key}:{','.join(map(quoted, texts))}"])


def since(seconds: float) -> Filter:
    """Return the filter for tasks registered within so many seconds: what `--since` says.

    Raises:
        InvalidFilterError: More than a hundred years.

    Example:
        >>> render(since(90))
        'created:>-1m30s'
    """
    if not 0 <= seconds <= OFFSET_MAX.total_seconds():
        message = "a filter looks back at most 100 years"
        raise InvalidFilterError(message, hint="Leave the limit of time out.")
    return Filter((Condition("created", (Comparison(">", Moment(None, -timedelta(seconds=seconds))),)),))


# --- conditions -------------------------------------------------------------------------------------------------------


def _condition(word: str) -> Condition:
    if len(word) > WORD_CHARACTERS_MAX:
        raise refused(word, f"it has {len(word)} characters, more than {WORD_CHARACTERS_MAX}")
    if "\0" in word:
        raise refused(word, "it holds NUL, which no text in PostgreSQL can")
    if any("\ud800" <= character <= "\udfff" for character in word):
        raise refused(word, "it is no UTF-8")
    sign = next((each for each in NEGATIONS if word.startswith(each)), "")
    rest = word.removeprefix(sign)
    if sign and rest.startswith(NEGATIONS):
        raise refused(word, "it is negated twice", "Write one - (or ! or not:) before the key.")
    halves = cut(scan(word, rest), ":", 1)
    if len(halves) < 2:
        raise refused(word, "there is no colon in it", _about_no_colon(rest))
    key, path = _key(word, halves[0])
    if not halves[1]:
        raise refused(word, "there is no value after the colon", _about_no_value(key))
    return Condition(key.name, tuple(_test(word, key, each) for each in cut(halves[1], ",")), path, bool(sign))


_OTHER_SIGN: Final = re.compile(r"([A-Za-z_]+(?:\.[\w.]+)?)(==?|!=|>=?|<=?)(.+)", re.DOTALL)
_ID: Final = re.compile(r"[0-9a-f]{8}[0-9a-f-]*", re.IGNORECASE)


def _about_no_colon(rest: str) -> str:
    if rest in set(Status):
        return f"Did you mean status:{rest}?"
    if _ID.fullmatch(rest):
        return f"Did you mean id:{rest}?"
    if other := _OTHER_SIGN.fullmatch(rest):
        name, sign, value = other.groups()
        sign = {"=": "", "==": "", "!=": "-"}.get(sign, sign)
        first, dot, path = name.partition(".")
        if key := BY_NAME.get(first):
            written = f"{key.name}{dot}{path}:{sign.strip('-')}{value}"
            return f"Did you mean {'-' if sign == '-' else ''}{written}?"
    example = BY_NAME[rest].examples[0] if rest in BY_NAME else "status:failed"
    return f"A word of a filter is key:value, as in {example}; octop help filters lists all keys."


def _about_no_value(key: Key) -> str:
    if key.kind in {"number", "moment"}:
        free = f"{key.name}:-1h.." if key.kind == "moment" else f"{key.name}:4.."
        return f"In a shell > and < need quotes, as in '{key.name}:>…'; a range needs none: {free}"
    return f'Empty text is written {key.name}:""' if key.kind == "text" else f"As in {key.examples[0]}"


def _key(word: str, characters: Characters) -> tuple[Key, tuple[str, ...]]:
    segments = cut(characters, ".")
    name, path = plain(segments[0]), tuple(plain(each) for each in segments[1:])
    key = BY_NAME.get(name)
    if key is None:
        near = difflib.get_close_matches(name.lower(), BY_NAME, n=1, cutoff=0.5)
        also = f"Did you mean {BY_NAME[near[0]].name}? " if near else ""
        raise refused(word, f"there is no key '{name[:80]}'", f"{also}Keys: {', '.join(each.name for each in KEYS)}")
    if key.kind == "document" and not (path and all(path)):
        raise refused(word, f"{key.name} needs a path: names with dots between them", f"As in {key.examples[0]}")
    if path and key.kind != "document":
        raise refused(word, f"there is nothing below {key.name}", "Only payload, result and meta have a path.")
    return key, path


def _test(word: str, key: Key, characters: Characters) -> Test:
    if not characters:
        raise refused(word, "a value is missing beside a comma", 'Empty text is written "", a comma that is meant \\,')
    match key.kind:
        case "status":
            return _status(word, characters)
        case "id":
            return _id(word, plain(characters))
        case "number":
            return _compared(word, characters, lambda text: _number(word, text, whole=True))
        case "moment":
            return _moment_test(word, characters)
        case "document":
            return _document(word, characters)
    return Equal(_text(word, characters))


def _text(word: str, characters: Characters) -> Text:
    pieces = [plain(each) for each in cut(characters, "*")]
    if len(pieces) > WILDCARDS_MAX + 1:
        raise refused(word, f"a value has at most {WILDCARDS_MAX} wildcards")
    if len(pieces) == 1:
        return Text((pieces[0],))
    return Text((pieces[0], *(each for each in pieces[1:-1] if each), pieces[-1]))  # a** is a*


def _status(word: str, characters: Characters) -> Test:
    test = Equal(_text(word, characters))
    if not any(statuses_like(test)):
        name = plain(characters)
        near = difflib.get_close_matches(name, list(Status), n=1, cutoff=0.5)
        also = f"Did you mean {near[0]}? " if near else ""
        raise refused(word, f"there is no status '{name[:80]}'", f"{also}Statuses: {', '.join(Status)}")
    return test


def _id(word: str, text: str) -> Test:
    digits = text.lower().replace("-", "").removesuffix("*")
    if not re.fullmatch(r"[0-9a-f]{1,32}", digits):
        raise refused(word, "an id begins with hexadecimal digits, at most 32", "As in id:0199aa3c")
    return Equal(Text((digits,)))


_OPERATORS: Final[tuple[Operator, ...]] = (">=", "<=", ">", "<")


def _compared(word: str, characters: Characters, read: Callable[[str], Value]) -> Test:
    operator, rest = _operator(characters)
    if operator:
        return Comparison(operator, read(plain(rest)))
    parts = [plain(each) for each in cut(characters, "..")]
    if len(parts) == 1:
        return Equal(read(parts[0]))
    if len(parts) > 2 or not any(parts):
        raise refused(word, "a range is low..high, and one side may be left out")
    low, high = (read(each) if each else None for each in parts)
    if isinstance(low, Number) and isinstance(high, Number) and low.value > high.value:
        raise refused(word, f"the range ends at {high.value:f}, before its beginning at {low.value:f}")
    return Range(low, high)


def _operator(characters: Characters) -> tuple[Operator | None, Characters]:
    signs = "".join(each.text if not each.literal else " " for each in characters[:2])
    operator = next((each for each in _OPERATORS if signs.startswith(each)), None)
    return operator, characters[len(operator or "") :]


def _number(word: str, text: str, *, whole: bool) -> Number:
    if not NUMBER.fullmatch(text) or (whole and "." in text):
        kind = "whole number" if whole else "number"
        also = "" if whole else "; quoted, it is text"
        raise refused(word, f"'{text[:80]}' is no {kind}", f"Numbers are written 3, >3, <=3, 1..3, 1.. or ..3{also}")
    return Number(Decimal(text))


def _document(word: str, characters: Characters) -> Test:
    parts = [plain(each) for each in cut(characters, "..")]
    ranged = len(parts) == 2 and any(parts) and all(NUMBER.fullmatch(each) for each in parts if each)
    if _operator(characters)[0] or (ranged and not any(each.literal for each in characters)):
        return _compared(word, characters, lambda text: _number(word, text, whole=False))
    text = _text(word, characters)
    return Equal(Text(text.pieces, quoted=is_number(text) and any(each.literal for each in characters)))


# --- moments ----------------------------------------------------------------------------------------------------------

_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|[smhdw])", re.ASCII)
_OFFSET: Final = re.compile(rf"[+-](?:{_PART.pattern})+", re.ASCII)
_DATE: Final = re.compile(r"(\d{4}-\d\d-\d\d)(Z|[+-]\d\d:\d\d)", re.ASCII)
_HINT: Final = "Moments: -1h, +2d, now, today, yesterday, tomorrow, 2030-01-31Z, 2030-01-31T09:00:00+08:00"


def _moment_test(word: str, characters: Characters) -> Test:
    test = _compared(word, characters, lambda text: _moment(word, text))
    if isinstance(test, Equal) and isinstance(test.value, Moment) and (test.value.at or not test.value.offset):
        shown = plain(characters)
        raise refused(
            word, "hardly a task has exactly this moment", f"Write '>{shown}', '<{shown}', {shown}.. or ..{shown}"
        )
    return test


def _moment(word: str, text: str) -> Moment | Day:
    if text == "now":
        return Moment(None)
    if text in DAYS:
        return Day(None, DAYS[text])
    if _OFFSET.fullmatch(text):
        offset = _sum_of(text)
        if offset > OFFSET_MAX:
            raise refused(word, f"'{text[:80]}' is more than 100 years away", _HINT)
        return Moment(None, -offset if text.startswith("-") else offset)
    if _PART.match(text):
        raise refused(word, f"'{text[:80]}' has no direction", f"Write -{text[:80]} (ago) or +{text[:80]} (from now)")
    return _absolute(word, text)


def _sum_of(text: str) -> timedelta:
    try:
        return sum((UNITS[unit] * float(number) for number, unit in _PART.findall(text)), timedelta(0))
    except OverflowError:
        return timedelta.max


def _absolute(word: str, text: str) -> Moment | Day:
    date = _DATE.fullmatch(text)
    try:
        at = datetime.fromisoformat(f"{date[1]}T00:00{date[2]}" if date else text)
    except ValueError:
        raise refused(word, f"'{text[:80]}' is no moment", _HINT) from None
    if at.tzinfo is None:
        zoned = f"{text}Z" if at.isoformat().startswith(f"{text}T") else f"{at.isoformat()}+00:00"
        raise refused(word, f"'{text[:80]}' names no zone", f"Add an offset, as in {zoned}")
    if at.year in range(2, 9999) and not date:
        at = at.astimezone(UTC)
    if at.year not in YEARS:
        raise refused(word, f"the year of '{text[:80]}' is not between 2000 and 3000", _HINT)
    return Day(at) if date else Moment(at)
