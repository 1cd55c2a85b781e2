"""`octop bench`: measures, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from octop.cli.columns import Column
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.output import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from octop.cli.bench.measure import Rate
    from octop.cli.output import Output


@click.command(short_help="Measure enqueue and drain rates.")
@click.option(
    "--tasks", "count", type=click.IntRange(1000, 10_000_000), default=100_000, show_default=True, help="How many."
)
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes of the worker.")
@global_options(reads=True)
@pass_invocation
def bench(invocation: Invocation, count: int, processes: int) -> None:
    """Measure how fast tasks that do nothing go in and out, with history kept and nothing switched off.

    On a throw-away PostgreSQL (whose disk is not waited for); with --dsn in a schema of its own on that server, dropped
    afterwards. The drain of a real worker is compared with the same exchanges called by a loop inside the database.
    """
    from octop.engine.connect import open_connection  # noqa: PLC0415 - help need not load psycopg

    output = invocation.output
    with contextlib.ExitStack() as stack:
        dsn, schema = stack.enter_context(_place(invocation))
        # The application of the bench reads them, like any other; its module is loaded by the import below.
        environment = {"OCTOP_DSN": dsn, "OCTOP_SCHEMA": schema}
        os.environ.update(environment)
        from octop.cli.bench import measure  # noqa: PLC0415 - as above

        connection = stack.enter_context(
            contextlib.closing(open_connection(dsn, application_name="octop bench", schema=schema))
        )
        measure.look_into(connection, schema)
        folder = Path(tempfile.mkdtemp(prefix="octop-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        server = connection.info.parameter_status("server_version")
        output.say(f"octop bench: PostgreSQL {server}, {number(os.cpu_count() or 1, 'core')}, {number(count, 'task')}")
        rates: dict[str, Rate] = {}
        with _progress(output, "enqueue_many", count) as tell:
            rates["enqueue_many"] = measure.enqueue_many(count, tell)
        with _progress(output, "drain by a worker", count) as tell:
            log = folder / "worker.log"
            rates["drain"] = measure.drain(connection, processes, environment, log, tell)
        with _progress(output, "enqueue one by one", None) as tell:
            rates["enqueue_one_by_one"] = measure.enqueue_one_by_one(tell)
        with _progress(output, "enqueue, awaited together", None):
            rates["enqueue_awaited_together"] = measure.enqueue_together(min(count, 5_000))
        left = count - rates["enqueue_one_by_one"].tasks - rates["enqueue_awaited_together"].tasks
        with _progress(output, "drain inside the database", None):
            if left > 0:
                measure.enqueue_many(left, lambda _: None)
            rates["inside"] = measure.inside(connection)
    _report(output, rates, {"postgres": server, "cores": os.cpu_count(), "tasks": count, "processes": processes})


@contextlib.contextmanager
def _place(invocation: Invocation) -> Iterator[tuple[str, str]]:
    """Give a database and a schema with Octop in it, and take them away afterwards."""
    from octop.engine import private_database, script  # noqa: PLC0415 - help need not load psycopg
    from octop.engine.connect import open_connection  # noqa: PLC0415 - as above
    from octop.engine.install import install  # noqa: PLC0415 - as above

    if invocation.dsn is None:
        invocation.output.say("octop bench: on a private, throw-away PostgreSQL (its disk is not waited for)")
        with private_database.temporary() as database:
            install(database.url)
            yield database.url, "public"
        return
    schema = f"octop_bench_{secrets.token_hex(4)}"
    invocation.output.say(
        f"octop bench: in a schema of its own, {schema}, dropped afterwards; "
        "the roles octop_* are made if they are missing, and stay"
    )
    try:
        install(invocation.dsn, schema=schema)
        yield invocation.dsn, schema
    finally:
        with contextlib.closing(open_connection(invocation.dsn, application_name="octop bench")) as connection:
            connection.execute(f"drop schema if exists {script.quoted(schema)} cascade".encode())
            invocation.output.say(f"octop bench: dropped the schema {schema}")


@contextlib.contextmanager
def _progress(output: Output, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show how far a measurement is: a bar on a terminal, a line otherwise."""
    if not sys.stderr.isatty() or output.quiet:
        output.say(f"octop bench: {what} …")
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - rich costs 60 ms

    columns = (TextColumn("{task.description:<26}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=output.console(sys.stderr), transient=True, redirect_stdout=False, redirect_stderr=False
    ) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda done: progress.update(bar, completed=done)


LABELS = {
    "enqueue_many": "enqueue_many, from one process",
    "enqueue_one_by_one": "enqueue, one transaction after the other",
    "enqueue_awaited_together": "enqueue, awaited concurrently",
    "drain": "drain by a real worker",
    "inside": "the same exchanges inside the database",
}


def _report(output: Output, rates: dict[str, Rate], about: dict[str, Any]) -> None:
    ratio = rates["drain"].per_second / rates["inside"].per_second
    if output.as_json:
        found = {f"{name}_per_second": round(rate.per_second) for name, rate in rates.items()}
        output.json({**about, **found, "drain_to_inside": round(ratio, 3)})
        return
    rows = [(LABELS[name], rates[name]) for name in LABELS]
    output.table(
        [Column("what"), *(Column(name, right=True) for name in ("tasks", "seconds", "tasks/s"))],
        [[label, rate.tasks, f"{rate.seconds:.2f}", round(rate.per_second)] for label, rate in rows],
    )
    output.line(
        f"drain / inside: {ratio:.2f}  ({about['processes']} worker process{'es' if about['processes'] > 1 else ''})"
    )
