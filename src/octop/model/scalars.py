"""JSON forms of single values: dates, UUIDs, decimals, bytes and the like.

=============  ==========================================  ==================================
type           JSON form                                   remark
=============  ==========================================  ==================================
datetime       ``"2030-01-01T09:00:00+08:00"``             naive ones are refused
date, time     ISO 8601
timedelta      seconds as a number
UUID, Decimal  text
bytes          base64
Path           text
Enum           its value
=============  ==========================================  ==================================
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from pathlib import PurePath
from typing import Final
from uuid import UUID

from octop.model.json_text import RefusedError

Convert = Callable[[object], object]
NO_EXACT: Final[frozenset[type]] = frozenset()


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of one annotation become plain JSON values and come back.

    Attributes:
        encode: From a value of the type, or from its JSON form, to plain; raises RefusedError.
        decode: From plain to a value of the type; raises RefusedError.
        exact: Values of exactly these classes pass both ways unchanged, so that both calls can be skipped.
    """

    encode: Convert
    decode: Convert
    exact: frozenset[type] = NO_EXACT


def refused(value: object, wanted: str) -> RefusedError:
    """Return the error for a value of the wrong class, with at most 60 characters of the value."""
    try:
        shown = ascii(value)
    except Exception as error:  # noqa: BLE001 - a __repr__ that raises must not hide what is wrong
        shown = f"<unprintable: {type(error).__name__}>"
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return RefusedError(f"{wanted} was expected, not {type(value).__name__} {shown}", wanted=wanted)


def formless(value: object, wanted: str) -> RefusedError:
    """Return the error for a value that no annotation could give a JSON form."""
    error = refused(value, wanted)
    error.wanted = ""
    return error


def _encode_bool(value: object) -> object:
    if isinstance(value, bool):
        return value
    raise refused(value, "a bool")


def _encode_int(value: object) -> object:
    if isinstance(value, int):
        return int(value)
    raise refused(value, "an int")


def _decode_int(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise refused(value, "an int")


def _encode_float(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if isinstance(value, float) else int(value)
    raise refused(value, "a float")


def _decode_float(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise refused(value, "a float") from error
    raise refused(value, "a float")


def _encode_str(value: object) -> object:
    if isinstance(value, str):
        return str.__str__(value)
    raise refused(value, "a str")


def _encode_none(value: object) -> object:
    if value is None:
        return None
    raise refused(value, "None")


def _parse_datetime(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.utcoffset() is None:
        reason = f"the moment {text} has no zone"
        raise RefusedError(reason, of_time=True)
    return moment


def _print_datetime(value: datetime) -> str:
    if value.utcoffset() is None:
        reason = f"the datetime {value.isoformat()} is naive: it means another instant on each machine"
        raise RefusedError(reason, of_time=True)
    return value.isoformat()


def _parse_date(text: str) -> date:
    if "T" in text or " " in text:
        raise ValueError(text)
    return date.fromisoformat(text)


def _print_date(value: date) -> str:
    if isinstance(value, datetime):
        raise refused(value, "a date")
    return value.isoformat()


def _parse_bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _print_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _parse_decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(text)
    return number


def _print_decimal(value: Decimal) -> str:
    if not value.is_finite():
        reason = f"{value} is not JSON"
        raise RefusedError(reason)
    return str(value)


_UNREADABLE: Final = (ValueError, InvalidOperation, binascii.Error, OverflowError)


def textual(kind: type, name: str, show: Callable[[object], str], parse: Callable[[str], object]) -> Codec:
    """Build the codec of a type whose JSON form is text; the text itself is taken as well, if it can be parsed.

    Args:
        kind: The class.
        name: How a message calls it, with its article.
        show: From a value to text.
        parse: From text to a value; ValueError = it can not be parsed.
    """

    def decode(plain: object) -> object:
        if isinstance(plain, str):
            try:
                return parse(plain)
            except _UNREADABLE as error:
                raise refused(plain, name) from error
        raise refused(plain, name)

    def encode(value: object) -> object:
        return show(value if isinstance(value, kind) else decode(value))

    return Codec(encode, decode)


def _decode_decimal(plain: object) -> object:
    if isinstance(plain, int | float) and not isinstance(plain, bool):
        return Decimal(str(plain))
    return _DECIMAL_TEXT.decode(plain)


def _encode_decimal(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    return _DECIMAL_TEXT.encode(value)


def _encode_timedelta(value: object) -> object:
    span = value if isinstance(value, timedelta) else _decode_timedelta(value)
    if not isinstance(span, timedelta) or timedelta(seconds=span.total_seconds()) != span:
        raise refused(value, "a timedelta of less than 285 years")
    seconds = span.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


def _decode_timedelta(plain: object) -> object:
    if isinstance(plain, int | float) and not isinstance(plain, bool):
        try:
            return timedelta(seconds=plain)
        except OverflowError as error:
            raise refused(plain, "seconds of a timedelta") from error
    raise refused(plain, "seconds of a timedelta")


def path_codec(kind: type[PurePath]) -> Codec:
    """Build the codec of a class of paths."""
    return textual(kind, "a path", str, kind)


def enum_codec(kind: type[Enum], plain_of: Convert) -> Codec:
    """Build the codec of an enumeration: its members' values are the JSON form.

    Args:
        kind: The enumeration.
        plain_of: Makes a member's value plain.
    """

    def decode(plain: object) -> object:
        try:
            return kind(plain)
        except ValueError as error:
            for member in kind:
                if plain_of(member.value) == plain:
                    return member
            raise refused(plain, f"a value of {kind.__qualname__}") from error

    def encode(value: object) -> object:
        member = value if isinstance(value, kind) else decode(value)
        return plain_of(member.value) if isinstance(member, Enum) else member

    return Codec(encode, decode)


def _typed(show: Callable[..., str]) -> Callable[[object], str]:
    # `textual` has checked the class before it calls; the printers say which one they take.
    return show


STR: Final = Codec(_encode_str, _encode_str, frozenset({str}))
INT: Final = Codec(_encode_int, _decode_int, frozenset({int}))
FLOAT: Final = Codec(_encode_float, _decode_float, frozenset({float}))
_DECIMAL_TEXT: Final = textual(Decimal, "a decimal", _typed(_print_decimal), _parse_decimal)

SCALARS: Final[dict[object, Codec]] = {
    bool: Codec(_encode_bool, _encode_bool, frozenset({bool})),
    int: INT,
    float: FLOAT,
    str: STR,
    type(None): Codec(_encode_none, _encode_none, frozenset({type(None)})),
    datetime: textual(datetime, "a datetime", _typed(_print_datetime), _parse_datetime),
    date: textual(date, "a date", _typed(_print_date), _parse_date),
    time: textual(time, "a time", _typed(time.isoformat), time.fromisoformat),
    timedelta: Codec(_encode_timedelta, _decode_timedelta),
    UUID: textual(UUID, "a UUID", str, UUID),
    Decimal: Codec(_encode_decimal, _decode_decimal),
    bytes: textual(bytes, "base64", _typed(_print_bytes), _parse_bytes),
}
