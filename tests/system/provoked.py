"""Which kinds of findings of `octop check` and `octop doctor` are provoked: each test says it, and must then see them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping

PROVOKED: set[str] = set()
"""Ids that a test provokes; complete as soon as all modules of tests are imported."""

_SEEN: set[str] = set()


def saw(ids: Iterable[str]) -> None:
    """Take down what a command found in this test."""
    _SEEN.update(ids)


def provokes(
    *ids: str, by: Mapping[str, Mapping[str, Iterable[str]]] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Say which kinds of findings a test provokes; it fails unless each of them was seen.

    Args:
        ids: Of the kinds.
        by: Further ids by the name and the value of a parameter of the test.
    """
    of = by or {}
    PROVOKED.update(ids, *(each for values in of.values() for each in values.values()))

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**arguments: str) -> None:
            _SEEN.clear()
            test(**arguments)
            wanted = {*ids, *(each for name, values in of.items() for each in values[arguments[name]])}
            assert wanted <= _SEEN, f"said to be provoked, and not seen: {wanted - _SEEN}"

        return run

    return mark
