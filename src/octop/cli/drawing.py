"""What live views have in common: a headline between parts, and a line of bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.rule import Rule
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

BARS: Final = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last values as bars, the highest one full.

    Example:
        >>> sparkline([0, 1, 2, 4], 4)
        '▁▂▄█'
    """
    shown = list(values)[-width:]
    top = max(shown, default=0) or 1
    return "".join(BARS[min(len(BARS) - 1, int(value / top * (len(BARS) - 0.01)))] for value in shown)


def headline(title: str, width: int, *, style: str = "bold") -> RenderableType:
    """Return the title of a part with a line behind it."""
    line = Table.grid()
    line.width = width
    line.add_row(Rule(Text(title, style=style), align="left", style="bright_black"))
    return line
