"""`octop tasks export`: everything that a filter asks for, row by row."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from octop.cli.filter_words import FILTER_WORD, FilterCommand, filter_of, filter_options
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.progress import progress
from octop.cli.tasks.group import tasks
from octop.engine import filtered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A spreadsheet takes a cell that begins like this for a formula, and runs it."""


@tasks.command(cls=FilterCommand)
@click.argument("words", metavar="[FILTER]...", nargs=-1, type=FILTER_WORD)
@filter_options()
@click.option("--limit", type=click.IntRange(1), help="At most so many, the latest.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv"]),
    default="jsonl",
    show_default=True,
    help="One JSON object per line, or a table.",
)
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Write here; the file appears when it is complete. Without, or with -: standard output.",
)
@global_options()
@pass_invocation
def export(
    invocation: Invocation,
    words: tuple[str, ...],
    status: str | None,
    queue: str | None,
    task_type: str | None,
    tenant: str | None,
    since: float | None,
    limit: int | None,
    form: str,
    path: Path | None,
) -> None:
    """Export the tasks that a filter asks for, with all columns, the latest first.

    Each task once, as it was when its page of 1,000 was read: tasks go on meanwhile. Moments are ISO 8601 with their
    zone. In CSV, payload and result are JSON; text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    path = None if path == Path("-") else path
    wanted = filter_of(words, status=status, queue=queue, task_type=task_type, tenant=tenant, since_seconds=since)
    with invocation.connection() as connection:
        selection = filtered.selected(connection, wanted)
        rows = filtered.stream_tasks(connection, selection, limit=limit, documents_as_text=form == "csv")
        with progress(invocation.output, "export") as more, _target(path) as target:
            count = (
                _write_csv(target, _counted(rows, more))
                if form == "csv"
                else _write_lines(target, _counted(rows, more))
            )
    if path is not None:
        invocation.output.say(f"{count:,} task{'' if count == 1 else 's'} in {path}")
    elif not count:
        invocation.output.say("No such task.")


@contextlib.contextmanager
def _target(path: Path | None) -> Iterator[TextIO]:
    """Open what is written to; a file is put in place when all of it is there, and its old content stays until then."""
    if path is None:
        yield sys.stdout
        return
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    except OSError as error:
        raise click.FileError(str(path), hint=error.strerror or str(error)) from error
    beside = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.chmod(0o666 & ~_umask())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _counted(rows: Iterable[str], more: Any) -> Iterator[str]:
    for row in rows:
        yield row
        more(1)


def _write_lines(target: TextIO, rows: Iterable[str]) -> int:
    count = 0
    for row in rows:
        target.write(row + "\n")
        count += 1
    return count


def _write_csv(target: TextIO, rows: Iterable[str]) -> int:
    writer: Any = None
    count = 0
    for row in rows:
        count += 1
        task = json.loads(row)
        if writer is None:
            names = sorted(task, key=lambda name: (_place(name), name))
            writer = csv.DictWriter(target, names, lineterminator="\r\n")
            writer.writeheader()
        writer.writerow({name: cell(value) for name, value in task.items()})
    return count


FIRST: Final = (
    *("id", "task_type", "status", "queue", "lane", "tenant", "priority", "created_at", "scheduled_at", "started_at"),
    *("completed_at", "attempt", "last_error", "payload", "result"),
)


def _place(name: str) -> int:
    return FIRST.index(name) if name in FIRST else len(FIRST)


def cell(value: object) -> object:
    """Return what stands in a cell: nothing for null, lists as JSON, and no text that begins a formula.

    Example:
        >>> [cell(value) for value in (None, -5, "=1+1", ["a"])]
        ['', -5, "'=1+1", '["a"]']
    """
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case list() | dict():
            return json.dumps(value, ensure_ascii=False)
        case str() if value.startswith(FORMULA):
            return f"'{value}"
    return value
