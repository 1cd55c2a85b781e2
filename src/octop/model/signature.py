"""How a function's signature is shown in messages: as it stands in the source."""

import functools
import inspect
from collections.abc import Callable, Container
from typing import Any


@functools.cache
def signature_text(function: Callable[..., Any]) -> str:
    """Return parameters and result: ``(user_id: int, at: date | None = None) -> str``."""
    found = inspect.signature(function)
    parameters = [each.replace(annotation=_unquoted(each.annotation)) for each in found.parameters.values()]
    return str(found.replace(parameters=parameters, return_annotation=_unquoted(found.return_annotation)))


def parameters_text(function: Callable[..., Any], without: Container[str]) -> str:
    """Return what a function takes: ``user_id: int, name: str = 'Ann'``, or ``nothing``.

    Args:
        function: Which.
        without: Names of parameters that a caller does not give.
    """
    words = []
    for each in inspect.signature(function).parameters.values():
        if each.name in without:
            continue
        word = each.name if each.kind is not each.VAR_KEYWORD else f"**{each.name}"
        if each.annotation is not each.empty:
            word += f": {inspect.formatannotation(_unquoted(each.annotation))}"
        words.append(word if each.default is each.empty else f"{word} = {each.default!r}")
    return ", ".join(words) or "nothing"


class _Word:
    """An annotation that Python keeps as text, as all of a module with ``from __future__ import annotations``."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _unquoted(annotation: object) -> object:
    return _Word(annotation) if isinstance(annotation, str) else annotation
