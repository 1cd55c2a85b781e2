"""Columns of a table, and how they are fitted into a terminal: keys whole, the rest shorter, the least important away."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ELLIPSIS: Final = "…"
NOTHING: Final = "-"
MODULE: Final = re.compile(r"^(?:[^\W\d]\w*\.)+(?=[^\W\d]\w*(?::|$))")
"""Of a class at the beginning of an error."""
SHORT_ID: Final = 13
"""The millisecond of a task's id."""
GAP: Final = 1
"""Between two columns on a terminal that is too narrow for two."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: Its heading.
        right: Aligned to the right.
        short: Heading where there is little room.
        brief: Shortens a cell where there is little room: a moment to its time of day.
        tight: Shortens all cells where else a column that never leaves would be cut: ids to their beginnings.
        width_min: It may be cut down to so many characters; None = never cut, as ids and keys.
        rank: Columns leave in this order where there is little room; None = never.
    """

    name: str
    right: bool = False
    short: str = ""
    brief: Callable[[str], str] | None = None
    tight: Callable[[Sequence[str]], list[str]] | None = None
    width_min: int | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Fitted:
    """A table that fits: headings, cells and widths of the columns that are left, and what stands between them."""

    columns: Sequence[Column]
    headings: Sequence[str]
    cells: Sequence[Sequence[str]]
    widths: Sequence[int]
    gap: int

    def lines(self) -> list[list[str]]:
        """Return heading and rows, each cell cut and padded to its width."""
        return [
            [
                _padded(_cut(cell, width), width, right=column.right)
                for cell, width, column in zip(row, self.widths, self.columns, strict=True)
            ]
            for row in (self.headings, *self.cells)
        ]


def fitted(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> Fitted:
    """Fit a table into a terminal.

    What is wide enough stays as it is. Else, one after the other: one space between columns, short headings and cells;
    columns in which no row says anything leave, then those that matter least; then long cells are cut.

    Args:
        columns: All columns.
        cells: Rows of text.
        width: Characters in a line.
    """
    everything = range(len(columns))
    widths = [max(width_of(text) for text in (columns[i].name, *(row[i] for row in cells))) for i in everything]
    if sum(widths) + 2 * (len(columns) - 1) <= width:
        return Fitted(columns, [each.name for each in columns], cells, widths, 2)
    briefs = [each.brief or str for each in columns]
    cells = [[brief(cell) for brief, cell in zip(briefs, row, strict=True)] for row in cells]
    found, whole = _narrow(columns, cells, width)
    if cells and not whole and any(each.tight for each in columns):
        turned = [
            each.tight([*cell]) if each.tight else cell
            for each, cell in zip(columns, zip(*cells, strict=True), strict=True)
        ]
        found, _ = _narrow(columns, [list(row) for row in zip(*turned, strict=True)], width)
    return found


def _narrow(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> tuple[Fitted, bool]:
    """Fit what is brief already; tell whether all columns that never leave are whole."""
    everything = range(len(columns))
    contents = [max((width_of(row[i]) for row in cells), default=0) for i in everything]
    # A heading may not cost more room than what stands below it.
    headings = [_heading(column, content) for column, content in zip(columns, contents, strict=True)]
    widths = [max(width_of(heading), content) for heading, content in zip(headings, contents, strict=True)]
    smallest = [
        content if column.width_min is None else min(content, column.width_min)
        for column, content in zip(columns, widths, strict=True)
    ]

    kept = list(everything)
    for index in sorted(
        (i for i in everything if columns[i].rank is not None), key=lambda i: _leaves(columns, cells, i)
    ):
        if _room(smallest, kept) <= width:
            break
        kept.remove(index)
    left = max(0, width - _room(smallest, kept))
    final = []
    for index in kept:
        more = min(left, widths[index] - smallest[index])
        left -= more
        final.append(smallest[index] + more)
    whole = all(final[at] == widths[i] for at, i in enumerate(kept) if columns[i].rank is None)
    found = Fitted(
        [columns[i] for i in kept], [headings[i] for i in kept], [[row[i] for i in kept] for row in cells], final, GAP
    )
    return found, whole


def _room(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[i] for i in kept) + GAP * (len(kept) - 1)


def _leaves(columns: Sequence[Column], cells: Sequence[Sequence[str]], index: int) -> tuple[bool, int]:
    says = any(row[index] != NOTHING for row in cells)
    return says, columns[index].rank or 0


def _heading(column: Column, content: int) -> str:
    if width_of(column.name) <= content:
        return column.name
    return column.short or column.name


def width_of(text: str) -> int:
    """Return how many places of a terminal a text takes: two for each wide character, none for a combining one.

    Example:
        >>> [width_of(text) for text in ("mail", "邮件")]
        [4, 4]
    """
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def short_ids(ids: Sequence[str]) -> list[str]:
    """Return the beginnings of ids, long enough to tell them apart; commands take a beginning for the id.

    Example:
        >>> short_ids(["0199a3f0-1111-7000-8000-0123456789ab"])
        ['0199a3f0-1111']
    """
    length = SHORT_ID
    while len({each[:length] for each in ids}) < len(set(ids)):
        length += 1
    return [each[:length].rstrip("-") for each in ids]


def short_class(error: str) -> str:
    """Return an error without the module of its class, so that its message gets the room.

    Example:
        >>> [short_class(error) for error in ("shop.errors.CardDeclined: no", "ValueError: a.b: c", "no module a.b: c")]
        ['CardDeclined: no', 'ValueError: a.b: c', 'no module a.b: c']
    """
    return MODULE.sub("", error, count=1)


def _cut(text: str, width: int) -> str:
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1]
    return (text + ELLIPSIS)[:width]


def _padded(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - width_of(text))
    return space + text if right else text + space
