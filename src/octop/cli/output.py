"""What is printed, and where: data on stdout, messages on stderr, colour and frames on a terminal alone."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

    from octop.cli.columns import Column

COLOURS: Final[Mapping[str, str]] = {
    "pending": "cyan",
    "running": "bold blue",
    "failed": "yellow",
    "blocked": "magenta",
    "frozen": "bold red",
    "success": "green",
    "cancelled": "bright_black",
}
"""One colour per status, in every table and in the demo."""

CONTROL: Final = {number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160))}
"""Control characters in other people's text would move the cursor or break a line of a table."""


class Output:
    """Prints for one command.

    Attributes:
        as_json: Data as JSON.
        plain: No colour (`--no-color`, NO_COLOR).
        quiet: No messages other than errors.
        above_bar: Prints a message above the bar that is being drawn; None = there is none.
    """

    above_bar: Callable[[str], None] | None = None

    def __init__(self, *, as_json: bool, plain: bool, quiet: bool) -> None:
        """Keep how to print."""
        self.as_json = as_json
        self.plain = plain or bool(os.environ.get("NO_COLOR"))
        self.quiet = quiet

    def say(self, message: str) -> None:
        """Tell the person something; it is no data."""
        if not self.quiet:
            self._tell(masked(message))

    def warn(self, message: str) -> None:
        """Tell the person something that matters even when quiet was asked for."""
        self._tell(masked(f"octop: {message}"))

    def _tell(self, text: str) -> None:
        if self.above_bar is not None:
            self.above_bar(text)
        else:
            sys.stderr.write(text + "\n")

    def line(self, text: str) -> None:
        """Print one line of data as it is."""
        sys.stdout.write(text + "\n")

    def json(self, value: object) -> None:
        """Print data as JSON: indented on a terminal, one line otherwise."""
        indent = 2 if sys.stdout.isatty() else None
        sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False) + "\n")

    def done(self, value: Mapping[str, object], text: str) -> None:
        """Report an act: JSON when asked for, else one line."""
        if self.as_json:
            self.json(value)
        elif not self.quiet:
            self.line(clean(text))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[object]], *, empty: str = "") -> None:
        """Print rows under their headings: on a terminal fitted into its width, elsewhere in full.

        Args:
            columns: What each column is.
            rows: Values; None is shown as `-`.
            empty: Message (stderr) when there are no rows.
        """
        cells = [[clean(shown(value)) for value in row] for row in rows]
        if not cells and empty:
            self.say(empty)
            if sys.stdout.isatty():
                return
        if sys.stdout.isatty():
            self._framed(columns, cells)
        else:
            self._aligned(columns, cells)

    def pairs(self, pairs: Sequence[tuple[str, object]]) -> None:
        """Print names and values below each other; lines of a longer value stay below its first."""
        width = max(len(name) for name, _ in pairs)
        for name, value in pairs:
            lines = shown(value).splitlines() or [""]
            self.line(f"{name:<{width}}  {clean(lines[0])}".rstrip())
            for line in lines[1:]:
                self.line(f"{'':<{width}}  {clean(line)}".rstrip())

    def console(self, stream: TextIO | None = None) -> Console:
        """Return rich's console on a stream, stdout by default, that keeps the rules of this class."""
        from rich.console import Console  # noqa: PLC0415 - rich costs 60 ms, and pipes do not need it

        return Console(file=stream or sys.stdout, no_color=self.plain, highlight=False)

    def _framed(self, columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> None:
        from rich.text import Text  # noqa: PLC0415 - as above

        from octop.cli.columns import fitted  # noqa: PLC0415 - as above

        console = self.console()
        found = fitted(columns, cells, console.width)
        space = " " * found.gap
        for number, line in enumerate(found.lines()):
            text = Text(space).join(Text(cell, COLOURS.get(cell.strip(), "") if number else "bold") for cell in line)
            text.rstrip()
            console.print(text, no_wrap=True, crop=False, overflow="ignore", soft_wrap=True)
            if not number:
                console.print(Text(space.join("─" * width for width in found.widths), "bright_black"), soft_wrap=True)

    def _aligned(self, columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> None:
        everything = [[column.name for column in columns], *cells]
        widths = [max(len(row[index]) for row in everything) for index in range(len(columns))]
        for row in everything:
            parts = (
                f"{cell:>{width}}" if column.right else f"{cell:<{width}}"
                for cell, width, column in zip(row, widths, columns, strict=True)
            )
            self.line("  ".join(parts).rstrip())


def masked(text: str) -> str:
    """Return text without the passwords of connection strings in it."""
    from octop.model.settings import masked_dsn  # noqa: PLC0415 - costs 8 ms, and most commands say nothing

    return masked_dsn(text)


def shown(value: object) -> str:
    """Return a value as a person reads it: None as -, numbers with separators, lists with commas, objects as JSON."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}" if abs(value) < 1e15 else repr(value)
        case list() | tuple():
            return ", ".join(map(str, value)) or "-"
        case dict():
            return json.dumps(value, ensure_ascii=False)
    return str(value)


def number(count: int, noun: str) -> str:
    """Return a number with its noun.

    Example:
        >>> [number(count, "task") for count in (0, 1, 2000)]
        ['0 tasks', '1 task', '2,000 tasks']
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def clean(text: str) -> str:
    """Return text of others on one line, its control characters made visible."""
    return text.translate(CONTROL)
