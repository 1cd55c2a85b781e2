"""A bar for work that takes its time: on a terminal alone, on stderr, away when the work is done."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from octop.cli.output import Output


@contextlib.contextmanager
def progress(output: Output, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show how far a piece of work has come, for the length of a `with`.

    Args:
        output: Its rules for colour and quiet hold.
        what: Words before the bar.
        total: How much there is; None = unknown, then it is counted.

    Yields:
        A function that is told how much more was done.
    """
    if output.quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import (  # noqa: PLC0415 - rich costs 60 ms, and pipes do not need it
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    text, count = TextColumn("{task.description}"), MofNCompleteColumn()
    columns = (
        (SpinnerColumn(), text, TextColumn("{task.completed:,.0f}"))
        if total is None
        else (text, BarColumn(), count, TimeRemainingColumn())
    )
    with Progress(*columns, console=output.console(sys.stderr), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)
