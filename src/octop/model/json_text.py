"""JSON as PostgreSQL can keep it: the border between Python's values and text.

``json.dumps`` writes NaN, NUL and lone surrogates, which jsonb refuses; jsonb takes 1e400 and 5,000 levels, which
``json.loads`` turns into infinity and RecursionError. Both are refused here, with the path of the bad value.
"""

import json
import math
from collections.abc import Callable
from typing import Final, NoReturn

from octop.model.errors import InvalidArgumentsError, InvalidPayloadError, InvalidTimeError, NotJsonError

DEPTH_MAX: Final = 200


class RefusedError(Exception):
    """A value is refused somewhere inside a larger one; the path grows while the error climbs out of the containers.

    Attributes:
        reason: Why, as the end of a sentence that begins with the path.
        steps: Keys and indexes from the inside out.
        of_time: True = the value is a moment without a zone.
        wanted: What the annotation wants in its place (``an int``); empty = no value like this has a JSON form.
    """

    def __init__(self, reason: str, *, of_time: bool = False, wanted: str = "") -> None:
        """Begin with the reason; containers add their steps."""
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str | int] = []
        self.of_time = of_time
        self.wanted = wanted

    def within(self, step: str | int) -> "RefusedError":
        """Add the key or index under which the refused value stands."""
        self.steps.append(step)
        return self

    @property
    def message(self) -> str:
        """Return path and reason: ``$.user.tags[3]: NaN is not JSON``."""
        return f"{path_of(list(reversed(self.steps)))}: {self.reason}"

    def when_encoding(self) -> InvalidTimeError | NotJsonError:
        """Return the public error for a value that was to be written."""
        if self.of_time:
            return InvalidTimeError(self.message, hint="Give it a zone: datetime(…, tzinfo=UTC) or .astimezone().")
        return NotJsonError(
            self.message, hint="Pass plain values, or annotate the parameter with a type that has a JSON form."
        )

    def when_binding(self) -> InvalidTimeError | NotJsonError | InvalidArgumentsError:
        """Return the public error for an argument of a call."""
        if self.wanted and not self.of_time:
            return InvalidArgumentsError(self.message, hint=f"Pass {self.wanted}. Nothing was enqueued.")
        return self.when_encoding()

    def when_decoding(self) -> InvalidTimeError | InvalidArgumentsError:
        """Return the public error for a value that was read from a row."""
        if self.of_time:
            return InvalidTimeError(self.message, hint="Write moments with an offset, as in 2030-01-01T09:00:00+08:00.")
        hint = "The payload does not fit the function that is registered now."
        if self.wanted == "a str" and len(self.steps) == 1:
            name = self.steps[0]
            hint += f" On a command line digits are a number; text keeps double quotes: {name}='\"42\"'."
        return InvalidArgumentsError(self.message, hint=hint)


def path_of(steps: list[str | int]) -> str:
    """Write steps as a JSON path: ``$.user.tags[3]``, ``$["odd key"]``.

    Args:
        steps: Keys and indexes from the outside in.
    """
    parts = ["$"]
    for step in steps:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif step.isidentifier():
            parts.append(f".{step}")
        else:
            parts.append(f"[{ascii(step[:100])}]")
    return "".join(parts)


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _encoding() -> Callable[[object], str]:
    make = getattr(json.encoder, "c_make_encoder", None)
    string = getattr(json.encoder, "c_encode_basestring", None)
    if make is None or string is None:
        return _ENCODER.encode
    # What JSONEncoder.encode makes anew for each call (2 µs of 5). Without its table of seen containers a value inside
    # itself ends in RecursionError, which is caught.
    pieces = make(None, _ENCODER.default, string, None, ":", ",", False, False, False)
    return lambda plain: "".join(pieces(plain, 0))


_encode: Final = _encoding()


def to_text(plain: object) -> str:
    """Write a plain value (what ``octop.model.codec`` makes of any value) as compact JSON.

    The usual value costs one pass in C: strings are checked in the text; only a suspicious text is searched for the
    path.

    Args:
        plain: None, bool, int, float, str, lists and dicts with str keys.

    Returns:
        JSON text that jsonb takes.

    Raises:
        NotJsonError: NaN, infinity, NUL, a lone surrogate, more than 200 levels, a value inside itself, an integer of
            over 4,300 digits.
    """
    try:
        text = _encode(plain)
    except (ValueError, TypeError, RecursionError) as error:
        _search(plain)
        message = f"$: {error}"
        raise NotJsonError(message) from error
    if "\\u0000" in text or text.count("[") + text.count("{") > DEPTH_MAX:
        _search(plain)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            _search(plain)
            raise
    return text


def _search(plain: object) -> None:
    """Walk over a suspicious value without recursion and raise for the first thing that jsonb would refuse."""
    stack: list[tuple[object, list[str | int]]] = [(plain, [])]
    while stack:
        value, steps = stack.pop()
        if len(steps) > DEPTH_MAX:
            _refuse(f"more than {DEPTH_MAX} levels of nesting, or a value that contains itself", steps[:4])
        if isinstance(value, str):
            _check_string(value, steps, "text")
        elif isinstance(value, float) and not math.isfinite(value):
            _refuse(f"{value} is not JSON", steps)
        elif isinstance(value, int):
            try:
                str(value)
            except ValueError:
                _refuse("an integer of more than 4,300 digits", steps)
        elif isinstance(value, dict):
            for key in value:
                _check_string(key, [*steps, key], "key")
            stack.extend((inner, [*steps, key]) for key, inner in reversed(value.items()))
        elif isinstance(value, list | tuple):
            stack.extend((inner, [*steps, index]) for index, inner in reversed(list(enumerate(value))))


def _check_string(value: str, steps: list[str | int], what: str) -> None:
    if "\0" in value:
        _refuse(f"{what} with a NUL character, which PostgreSQL cannot keep", steps)
    if any("\ud800" <= character <= "\udfff" for character in value):
        _refuse(f"{what} with a lone surrogate, which is not Unicode text", steps)


def _refuse(reason: str, steps: list[str | int]) -> NoReturn:
    refused = RefusedError(reason)
    refused.steps = steps[::-1]
    raise refused.when_encoding()


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        message = f"the number {text[:40]} is too large for a float"
        raise InvalidPayloadError(message, hint="Store it as a string, and annotate the parameter with Decimal.")
    return number


def _no_constant(text: str) -> NoReturn:
    message = f"{text} is not JSON"
    raise InvalidPayloadError(message)


_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)
_scan: Final[Callable[[str, int], tuple[object, int]]] = _DECODER.scan_once  # type: ignore[attr-defined]  # typeshed leaves it out


def from_text(text: str) -> object:
    """Read JSON text that came from a row.

    Args:
        text: What PostgreSQL printed, or what a person typed.

    Returns:
        Plain values.

    Raises:
        InvalidPayloadError: It is not JSON, nested too deeply, or holds a number that Python cannot keep (1e400).
    """
    try:
        # What decode() does beside this is to look for spaces at both ends: half of its time, and jsonb prints none.
        try:
            value, end = _scan(text, 0)
        except StopIteration:
            return _DECODER.decode(text)
        return value if end == len(text) else _DECODER.decode(text)
    except RecursionError as error:
        message = "the JSON is nested too deeply to be read"
        raise InvalidPayloadError(message) from error
    except ValueError as error:
        message = f"this is not JSON that Python can read: {error}"
        raise InvalidPayloadError(message) from error
