"""Draws one look into a terminal of any size from 60 × 16 on, or in full where there is no terminal."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.text import Text

from octop.cli.columns import Column, fitted
from octop.cli.drawing import headline, sparkline
from octop.cli.moments import spoken
from octop.cli.output import COLOURS, clean, shown
from octop.cli.top.screen import KEYS, PANES, Screen, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from octop.cli.top.reader import Reader
    from octop.cli.top.snapshot import Rates, Snapshot

MODULE: Final = re.compile(r"^(?:\w+\.)+(?=\w+(?::|$))")
STALE_SECONDS: Final = 4.0
"""A look that is older is said to be old."""

ROWS_WITHOUT_TERMINAL: Final = 20
AROUND_ROWS: Final = 4
"""Two lines above the parts, two below."""
PANE_ROWS: Final = 2
"""A part's title and the headings of its columns."""

COLUMNS: Final[Mapping[str, Sequence[Column]]] = {
    "queues": (
        Column("queue", width_min=12),
        Column("waiting", right=True, short="wait"),
        Column("due", right=True, rank=3),
        Column("running", right=True, short="run"),
        Column("blocked", right=True, short="blkd", rank=2),
        Column("oldest due", right=True, short="oldest", rank=1),
        Column("done/s", right=True),
        Column("limit", right=True, rank=4),
        Column("workers", right=True, short="wrk", rank=5),
        Column("paused", width_min=6),
    ),
    "workers": (
        Column("worker", width_min=12),
        Column("host", width_min=8, rank=2),
        Column("pid", right=True, rank=4),
        Column("queues", width_min=8, rank=5),
        Column("running", right=True, short="run"),
        Column("last beat", right=True, short="beat", rank=3),
        Column("up", right=True, rank=1),
        Column("state"),
    ),
    "running": (
        Column("type", width_min=10),
        Column("id", width_min=13),
        Column("queue", width_min=8, rank=3),
        Column("attempt", right=True, short="try", rank=2),
        Column("for", right=True),
        Column("worker", width_min=8, rank=1),
        Column("cancelled", width_min=3),
    ),
    "failures": (
        Column("type", width_min=10),
        Column("id", width_min=13, rank=3),
        Column("status"),
        Column("attempt", right=True, short="try", rank=2),
        Column("age", right=True, rank=1),
        Column("last error", short="error", width_min=10),
    ),
}
FOOT: Final = (
    ("↑↓", "select"),
    ("Tab", "next part"),
    ("p", "pause/resume"),
    ("r", "retry"),
    ("c", "cancel"),
    ("?", "help"),
    ("q", "quit"),
)
TITLES: Final = {"running": "running tasks", "failures": "latest failures"}
EMPTY: Final = {
    "queues": "no queue yet: a queue appears with its first task or worker",
    "workers": "none lives; start one: octop worker -A module:attribute",
    "running": "nothing runs",
    "failures": "nothing has failed",
}


class View:
    """Draws what the reader knows now; rich asks for it after each key and each look."""

    def __init__(self, reader: Reader, screen: Screen, place: str) -> None:
        """Keep what is drawn.

        Args:
            reader: Knows the latest look.
            screen: Knows what is selected.
            place: Which database, for the first line.
        """
        self._reader = reader
        self._screen = screen
        self._place = place

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for the size of this terminal."""
        reader, width, height = self._reader, options.max_width, console.height
        yield _head(self._place, self._trouble(), width)
        yield _rate(reader.snapshot, reader.rates, width)
        if self._screen.helping:
            yield _help()
            return
        room = allotted({pane: len(rows_of(pane, reader.snapshot)) for pane in PANES}, height)
        for pane in PANES:
            yield from _pane(pane, reader.snapshot, reader.rates, width, room[pane], self._screen)
        yield Text("")
        yield self._foot(width)

    def _trouble(self) -> str:
        reader = self._reader
        if reader.trouble:
            return f"trying again: {reader.trouble}"
        if reader.looked_at is not None and (age := time.monotonic() - reader.looked_at) > STALE_SECONDS:
            return f"no answer from the database for {spoken(age)}"
        return ""

    def _foot(self, width: int) -> Text:
        if self._screen.asked is not None:
            line = Text.assemble((f"{clean(self._screen.asked.asks)}?", "bold yellow"), ("  y yes  n no", "bold"))
        elif text := self._screen.note or self._reader.said:
            line = Text(clean(text), "bold")
        else:
            line = Text("  ").join(Text.assemble((keys, "bold"), (f" {says}", "bright_black")) for keys, says in FOOT)
        line.truncate(width, overflow="ellipsis")
        return line


def frame(place: str, snapshot: Snapshot, rates: Rates, width: int) -> RenderableType:
    """Return one look in full, for where there is no terminal."""
    parts: list[RenderableType] = [_head(place, "", width), _rate(snapshot, rates, width)]
    for pane in PANES:
        parts += _pane(pane, snapshot, rates, width, ROWS_WITHOUT_TERMINAL, None)
    return Group(*parts)


def allotted(needed: Mapping[str, int], height: int) -> dict[str, int]:
    """Share the lines of a terminal among the parts: each gets what it needs, or else a fair part of what is left.

    Example:
        >>> allotted({"queues": 1, "workers": 50, "running": 50, "failures": 0}, 24)
        {'queues': 1, 'workers': 5, 'running': 5, 'failures': 1}
    """
    left = max(len(needed), height - AROUND_ROWS - PANE_ROWS * len(needed))
    room: dict[str, int] = {}
    # the modest first: what they leave is for the others
    for nth, (pane, rows) in enumerate(sorted(needed.items(), key=lambda each: each[1])):
        room[pane] = max(1, min(rows, left // (len(needed) - nth)))
        left -= room[pane]
    return {pane: room[pane] for pane in needed}


def _head(place: str, trouble: str, width: int) -> Text:
    line = Text.assemble(("octop top", "bold cyan"), "  ")
    line.append(clean(trouble or place), style="bold red" if trouble else "")  # which database is no news then
    line.truncate(width, overflow="ellipsis")
    return line


def _rate(snapshot: Snapshot, rates: Rates, width: int) -> Text:
    line = Text()
    counts = {
        "waiting": ("pending", sum(row["waiting"] for row in snapshot.queues)),
        "running": ("running", sum(row["running"] for row in snapshot.queues)),
        "blocked": ("blocked", sum(row["blocked"] for row in snapshot.queues)),
    }
    for word, (status, count) in counts.items():
        line.append(f"{word} ", style="bright_black")
        line.append(f"{count:,}  ", style=COLOURS[status] if count else "bright_black")
    line.append("finished ", style="bright_black")
    line.append(f"{rates.all[-1]:,.1f}/s  " if rates.known else "-  ", style="bold green")
    room = width - line.cell_len
    if room > 0:
        line.append(sparkline(rates.all, room), style="green")
    line.truncate(width, overflow="ellipsis")
    return line


def _pane(
    pane: str, snapshot: Snapshot, rates: Rates, width: int, room: int, screen: Screen | None
) -> list[RenderableType]:
    rows = rows_of(pane, snapshot)
    here = screen is not None and screen.pane == pane
    title = f"{TITLES.get(pane, pane)} ({len(rows)})" if len(rows) > room else TITLES.get(pane, pane)
    parts: list[RenderableType] = [headline(title, width, style="bold cyan" if here else "bold")]
    if not rows:
        # on a terminal the parts keep their places when the first row comes
        return [*parts, Text(f"  {EMPTY[pane]}", "bright_black"), *([Text("")] if screen is not None else [])]
    place = screen.selected(pane, rows) if screen is not None and here else None
    first = 0 if place is None else max(0, min(place - room // 2, len(rows) - room))
    cells = [[clean(shown(cell)) for cell in _cells(pane, row, rates)] for row in rows]
    table = fitted(COLUMNS[pane], cells, width - 2)
    headings, *lines = table.lines()
    space = " " * table.gap
    parts.append(_cropped(Text(f"  {space.join(headings)}", "bright_black"), width))
    for number in range(first, min(first + room, len(rows))):
        line = Text("› " if number == place else "  ", "bold cyan")
        line.append_text(Text(space).join(Text(cell, COLOURS.get(cell.strip(), "")) for cell in lines[number]))
        if number == place:
            line.stylize("reverse", 2)
        parts.append(_cropped(line, width))
    return parts


def _cropped(line: Text, width: int) -> Text:
    line.rstrip()
    line.truncate(width, overflow="ellipsis")
    line.no_wrap = True
    return line


def _cells(pane: str, row: Mapping[str, Any], rates: Rates) -> list[object]:
    match pane:
        case "queues":
            paused = (row["pause_reason"] or "yes") if row["paused"] else "no"
            rate = rates.by_queue.get(row["name"], 0.0) if rates.known else None
            counts = [row["waiting"], row["due"], row["running"], row["blocked"]]
            oldest = spoken(row["oldest_due_seconds"])
            return [row["name"], *counts, oldest, rate, row["worker_limit"], row["workers"], paused]
        case "workers":
            name = row["name"] or str(row["id"])[:13]
            beat, up = spoken(row["silent_seconds"]), spoken(row["up_seconds"])
            return [name, row["host"], str(row["pid"] or "-"), row["queues"], row["running"], beat, up, row["state"]]
        case "running":
            worker = row["worker_name"] or f"{row['worker_host']}:{row['worker_pid']}"
            asked = "asked" if row["cancel_requested_at"] else None
            since = spoken(row["running_seconds"])
            return [row["task_type"], row["id"], row["queue"], row["attempt"], since, worker, asked]
    # where a class is defined is of no help here, and long; what follows its first line is for `octop tasks show`
    error = MODULE.sub("", (row["last_error"] or "").partition("\n")[0])
    return [row["task_type"], row["id"], row["status"], row["attempt"], spoken(row["age_seconds"]), error]


def _help() -> Text:
    lines = [Text.assemble((f"\n  {keys:<10}", "bold"), says) for keys, says in KEYS]
    return Text("").join(
        [
            Text("\nKeys. Acts are asked about first, and written to the audit: octop audit\n"),
            *lines,
            Text("\n\nAny key goes back.", "bright_black"),
        ]
    )
