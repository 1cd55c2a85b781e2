"""A payload from the words of a command line."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from octop.model.errors import InvalidPayloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

HINT = """Write a JSON object, '{"user_id": 42}', or user_id=42 name=Ann."""


def payload_from(words: Sequence[str]) -> str:
    """Return the payload as JSON text.

    Args:
        words: One JSON object; or `-` to read one from standard input; or `key=value` words, where a value that is JSON
            is taken as JSON (42, true, null, [1, 2], "42") and everything else as text.

    Raises:
        InvalidPayloadError: It is neither; or it holds NaN or an infinity; or a key comes twice.

    Example:
        >>> payload_from(["user_id=42", "name=Ann"])
        '{"user_id": 42, "name": "Ann"}'
    """
    if len(words) == 1 and (words[0] == "-" or words[0].lstrip().startswith(("{", "["))):
        return _object(sys.stdin.read() if words[0] == "-" else words[0])
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            message = f"{word!r} is neither JSON nor key=value"
            raise InvalidPayloadError(message, hint=HINT)
        if key in found:
            message = f"the key {key!r} comes twice"
            raise InvalidPayloadError(message, hint=HINT)
        found[key] = _value(value)
    return json.dumps(found, ensure_ascii=False)


def _object(text: str) -> str:
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        message = "the payload is nested too deeply"
        raise InvalidPayloadError(message, hint=HINT) from error
    except ValueError as error:
        message = f"the payload is not JSON: {error}"
        raise InvalidPayloadError(message, hint=HINT) from error
    if not isinstance(value, dict):
        message = f"the payload must be a JSON object, not {type(value).__name__}"
        raise InvalidPayloadError(message, hint=HINT)
    return text.strip()


def _value(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(constant: str) -> NoReturn:
    message = f"{constant} has no JSON form"
    raise InvalidPayloadError(message, hint=HINT)
