"""The characters of a filter's words, and which of them still mean something after quotes and backslashes.

The first step of `octop.model.filters`, which knows what keys and values mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from octop.model.errors import InvalidFilterError


@dataclass(frozen=True, slots=True)
class Character:
    """One character of a word. A literal one has lost its meaning; an empty literal one is where quotes stood."""

    text: str
    literal: bool = False


Characters: TypeAlias = Sequence[Character]


def split_words(text: str) -> list[str]:
    """Split a text at the spaces that are neither quoted nor escaped; quotes and backslashes stay.

    Example:
        >>> split_words('queue:mail error:"not found"')
        ['queue:mail', 'error:"not found"']
    """
    words, word, quoted, escaped = [], "", False, False
    for character in text:
        if character.isspace() and not quoted and not escaped:
            words.append(word)
            word = ""
            continue
        quoted ^= character == '"' and not escaped
        escaped = character == "\\" and not escaped
        word += character
    return [each for each in (*words, word) if each]


def scan(word: str, text: str) -> list[Character]:
    """Read quotes and backslashes, and mark as literal what they hold.

    Args:
        word: As it was typed, for the error.
        text: What is left of it to read.

    Raises:
        InvalidFilterError: A quote is not closed, or a backslash is the last character.
    """
    found: list[Character] = []
    quoted = escaped = False
    for character in text:
        if escaped:
            found.append(Character(character, literal=True))
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
            found.append(Character("", literal=True))
        else:
            found.append(Character(character, literal=quoted))
    if quoted:
        raise refused(word, "a quote is not closed", 'A quote that is meant is written \\"')
    if escaped:
        raise refused(
            word, "it ends in a backslash that escapes nothing", "A backslash that is meant is written twice."
        )
    return found


def cut(characters: Characters, separator: str, most: int = -1) -> list[Characters]:
    """Split at a separator that still has its meaning, at most so many times."""
    parts: list[list[Character]] = [[]]
    index, length = 0, len(separator)
    while index < len(characters):
        here = characters[index : index + length]
        if len(parts) - 1 != most and [(each.text, each.literal) for each in here] == [(c, False) for c in separator]:
            parts.append([])
            index += length
        else:
            parts[-1].append(characters[index])
            index += 1
    return list(parts)


def plain(characters: Characters) -> str:
    """Return characters as text."""
    return "".join(each.text for each in characters)


def refused(word: str, why: str, hint: str = "") -> InvalidFilterError:
    """Return the error that says why a word is no condition; it can be shown on any terminal.

    Args:
        word: As it was typed.
        why: Without its beginning, as in "it is no UTF-8".
        hint: What to do; empty = where all keys are listed.
    """
    shown = word if len(word) <= 80 else word[:79] + "…"
    return InvalidFilterError(
        f"filter word {_shown(shown)}: {_shown(why, bare=True)}",
        hint=_shown(hint, bare=True) or "octop help filters lists all keys.",
    )


def _shown(text: str, *, bare: bool = False) -> str:
    # lone surrogates and control characters would break the terminal, or the very message
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)
    return safe if bare else f"'{safe}'"
