"""A bar for work that takes its time: on a terminal alone, on stderr, away when the work is done."""

from __future__ import annotations

import contextlib
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from rich.progress import Progress

    from octop.cli.output import Output

DELAY_SECONDS: Final = 1.0
"""Work that is done sooner shows no bar: it would only flash."""


@contextlib.contextmanager
def progress(
    output: Output, what: str, total: int | None = None, *, data: TextIO | None = None
) -> Iterator[Callable[[int], None]]:
    """Show how far a piece of work has come, for the length of a `with`, when it takes longer than a second.

    Args:
        output: Its rules for colour and quiet hold.
        what: Words before the bar.
        total: How much there is; None = unknown, then it is counted. Nothing is shown for 0 or 1.
        data: Where the work writes meanwhile: no bar is drawn between the lines of a terminal.

    Yields:
        A function that is told how much more was done.
    """
    between_lines = data is not None and data.isatty()
    if output.quiet or between_lines or not sys.stderr.isatty() or (total is not None and total < 2):
        yield lambda _: None
        return
    since = time.monotonic()
    done = 0
    bar: Progress | None = None

    def more(count: int) -> None:
        nonlocal bar, done
        done += count
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done)
        elif time.monotonic() - since >= DELAY_SECONDS:
            bar = shown.enter_context(_bar(output, total))
            bar.add_task(what, total=total, completed=done)
            output.above_bar = partial(bar.console.print, markup=False, soft_wrap=True)

    try:
        with contextlib.ExitStack() as shown:
            yield more
    finally:
        output.above_bar = None


def _bar(output: Output, total: int | None) -> Progress:
    from rich.progress import (  # noqa: PLC0415 - rich costs 60 ms, and short work does not need it
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
    # rich would send what goes to stdout to its own console, which is the terminal: the data of `> file`, too.
    return Progress(
        *columns,
        console=output.console(sys.stderr),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
