"""`octop tasks export`: everything that a filter asks for, row by row."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from octop.cli.filter_words import FilterCommand, takes_filter
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.output import number
from octop.cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from octop.model.filter_values import Filter

FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A spreadsheet takes a cell that begins like this for a formula, and runs it."""


@click.command(cls=FilterCommand, short_help="Export the tasks that a filter asks for, with all columns.")
@takes_filter()
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
    type=click.Path(dir_okay=False, readable=False, writable=True, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Write here; a file appears when it is complete. Without, or with -: standard output.",
)
@global_options()
@pass_invocation
def export(
    invocation: Invocation,
    wanted: Filter,
    limit: int | None,
    form: str,
    path: Path | None,
) -> None:
    """Export the tasks that a filter asks for, with all columns, the latest first.

    Each task once, as it was when its page of 1,000 was read: tasks go on meanwhile. Moments are ISO 8601 with their
    zone. In CSV, payload and result are JSON; text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    from octop.engine import filtered  # noqa: PLC0415 - loads all that filters need; help needs none of it

    path = None if path == Path("-") else path
    with invocation.connection() as connection:
        selection = filtered.selected(connection, wanted)
        rows = filtered.stream_tasks(connection, selection, limit=limit, documents_as_text=form == "csv")
        with _target(path) as target, progress(invocation.output, "export", data=target) as more:
            count = (
                _write_csv(target, _counted(rows, more))
                if form == "csv"
                else _write_lines(target, _counted(rows, more))
            )
    if path is not None:
        invocation.output.say(f"{number(count, 'task')} in {path}")
    elif not count:
        invocation.output.say("No such task.")


@contextlib.contextmanager
def _target(path: Path | None) -> Iterator[TextIO]:
    """Open what is written to: a file as a whole, all else (a FIFO, /dev/null, /dev/stdout) as it is."""
    if path is None:
        yield sys.stdout
        return
    try:
        found = path.stat()
    except FileNotFoundError:
        found = None
    except OSError as error:
        raise _no_target(path, error) from error
    if found is not None and _is_stdout(found):
        yield sys.stdout  # also where the shell appends it to a file: that file must be no other one afterwards
    elif found is not None and not stat.S_ISREG(found.st_mode):
        try:
            stream = path.open("w", encoding="utf-8", newline="")
        except OSError as error:
            raise _no_target(path, error) from error
        with stream:
            yield stream
    else:
        with _whole_file(path, found) as file:
            yield file


def _is_stdout(found: os.stat_result) -> bool:
    try:
        return os.path.samestat(found, os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # it is closed, or no file of the system
        return False


@contextlib.contextmanager
def _whole_file(path: Path, found: os.stat_result | None) -> Iterator[TextIO]:
    """Put a file in place when all of it is there; what was there stays until then, and its mode, owner and links after it."""
    place = path.resolve()  # a link goes on pointing: what it points to gets the data
    try:
        handle, name = tempfile.mkstemp(prefix=".octop-export-", dir=place.parent)
    except OSError as error:
        raise _no_target(path, error) from error
    beside = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if found is not None:
            with contextlib.suppress(PermissionError):
                os.chown(beside, found.st_uid, found.st_gid)
        beside.chmod(0o666 & ~_umask() if found is None else stat.S_IMODE(found.st_mode))
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)


def _no_target(path: Path, error: OSError) -> click.FileError:
    return click.FileError(str(path), hint=error.strerror or str(error))


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
