"""The live view of the demo: one picture, drawn into a terminal of any size from 80 × 24 on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from octop.cli.drawing import headline, sparkline
from octop.cli.moments import spoken
from octop.cli.output import COLOURS, clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from octop.cli.demo.picture import KindState, Picture, WorkerState

ALWAYS_SHOWN: Final = ("pending", "running", "success")
WIDE: Final = 110
"""From this width on there is room for what a kind does beside how it stands."""

KIND_COLUMNS: Final = 2
STATUSES: Final = ("pending", "running", "failed", "blocked", "frozen", "success", "cancelled")


class View:
    """Draws the picture that it was given last; rich asks for it several times a second."""

    def __init__(self, picture: Picture) -> None:
        """Keep the picture; it changes under us."""
        self.picture = picture

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for the width of this terminal."""
        yield drawn(self.picture, options.max_width, console.height)


def drawn(picture: Picture, width: int, height: int = 24) -> RenderableType:
    """Return the whole view; a higher terminal shows more failures."""
    width = min(width, 140)
    head = Table.grid(expand=False)
    head.width = width
    head.add_column(justify="left", no_wrap=True, overflow="ellipsis", ratio=1)
    head.add_column(justify="right", no_wrap=True)
    head.add_row(
        Text.assemble(("Octop demo", "bold cyan"), f"  {picture.title}"),
        Text.assemble((f"{picture.seconds:.0f} s", "bold"), (f"  {picture.ends}", "bright_black")),
    )
    parts: list[RenderableType] = [head, _counts(picture), _rates(picture, width)]
    parts += [headline("kinds of tasks", width), _kinds(picture.kinds, width)]
    parts += [headline("workers", width), *(_worker(each, width) for each in picture.workers)]
    if not picture.workers:
        parts.append(Text("none lives: one is about to start …", style="bright_black"))
    parts.append(headline("latest failures", width))
    room = max(3, height - 11 - _kind_rows(picture.kinds) - max(1, len(picture.workers)))
    parts += [_failure(task_type, error, width) for task_type, error in picture.failures[:room]]
    if not picture.failures:
        parts.append(Text("none yet", style="bright_black"))
    if picture.psql:
        parts.append(Text(f"look for yourself: {picture.psql}", style="bright_black"))
    return Group(*parts)


def _counts(picture: Picture) -> Text:
    text = Text()
    for status in STATUSES:
        count = picture.counts.get(status, 0)
        if count or status in ALWAYS_SHOWN:
            text.append(f"{status} ", style="bright_black")
            text.append(f"{count:,} ", style=COLOURS[status] if count else "bright_black")
    return text


def _rates(picture: Picture, width: int) -> Text:
    rate = picture.rates[-1] if picture.rates else 0.0
    line = Text.assemble(
        ("finished ", "bright_black"), (f"{rate:>7,.0f}/s ", "bold green"), (" enqueue → start ", "bright_black")
    )
    line.append(spoken(picture.delay_median), style="bold")
    line.append("  ", style="")
    line.append(sparkline(picture.rates, max(8, width - line.cell_len)), style="green")
    return line


def _kind_rows(kinds: Sequence[KindState]) -> int:
    return -(-len(kinds) // KIND_COLUMNS)


def _kinds(kinds: Sequence[KindState], width: int) -> Table:
    table = Table.grid(padding=(0, 1))
    table.width = width
    for _ in range(KIND_COLUMNS):
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    rows = _kind_rows(kinds)
    for index in range(rows):
        table.add_row(*(_kind(each, wide=width >= WIDE) for each in kinds[index::rows]))
    return table


def _kind(kind: KindState, *, wide: bool) -> Text:
    if kind.okay is None:
        mark, style = "·", COLOURS.get(kind.status, "bright_black")
    else:
        mark, style = ("✓", "green") if kind.okay else ("✗", "bold red")
    text = Text.assemble((f"{mark} ", style), (f"{kind.name:<13}", "bold"))
    if wide or kind.status not in ("-", "pending"):
        text.append(f"{kind.status:<10}", style=COLOURS.get(kind.status, "bright_black"))
    return text.append(kind.note or kind.says, style="" if kind.note else "bright_black")


def _worker(worker: WorkerState, width: int) -> Text:
    line = Text.assemble((f"{clean(worker.name)} ", "bold"), (f"pid {worker.pid}  ", "bright_black"))
    for task_type, count, seconds in worker.running:
        line.append(f"{clean(task_type)}", style=COLOURS["running"])
        line.append(f" ×{count}" if count > 1 else "")
        line.append(f" {seconds:.1f} s   ", style="bright_black")
    if not worker.running:
        line.append("idle", style="bright_black")
    line.truncate(width, overflow="ellipsis")
    return line


def _failure(task_type: str, error: str, width: int) -> Text:
    line = Text.assemble((f"{clean(task_type)}  ", "yellow"), clean(error.partition("\n")[0]))
    line.truncate(width, overflow="ellipsis")
    return line
