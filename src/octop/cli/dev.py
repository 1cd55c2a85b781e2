"""`octop dev`: everything that one needs while writing tasks, in one command."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.program import typed_name
from octop.cli.worker import merged_queues, queue_options

if TYPE_CHECKING:
    from collections.abc import Collection

    from octop.cli.output import Output
    from octop.worker.load import Loaded

NEXT: Final = (
    ("enqueue TYPE name=value --wait", "run a task and see its result"),
    ("top", "watch queues, workers and failures"),
    ("types list", "which tasks there are"),
)
LOOK: Final = "look into the tables"
PRIVATE: Final = " (no DSN: the private one)"
SHARED: Final = " (no DSN: the private one, which all your projects share)"
GRACE_SECONDS: Final = 2.0
"""New code is wanted now: a task that runs longer goes back, which uses up no try."""
NAME_CHARACTERS_MAX: Final = 100


@click.command(short_help="Run your tasks while you write them: database, schema, worker.")
@queue_options
@global_options(application=True)
@pass_invocation
def dev(invocation: Invocation, queues: tuple[list[tuple[str, int | None]], ...], concurrency: int | None) -> int:
    """Start what is missing and run your tasks, restarting the worker when a Python file changes, until Ctrl-C.

    The database is the one that you named (--dsn, OCTOP_DSN, octop.toml …), else the private one. Its schema is installed
    or upgraded. Ctrl-C stops the worker. The database and its data stay, as after `octop db start`: `octop db stop` stops
    it, `octop db reset` deletes it. Without -A the application is that of octop.toml, or ./tasks.py. At a restart or stop
    a running task has 2 s to end, then it goes back without using up a try.

    All your projects share the private database: `schema = "NAME"` in octop.toml parts one from the others.
    """
    from octop.engine import reads  # noqa: PLC0415 - help need not load psycopg
    from octop.engine.install import install, status  # noqa: PLC0415 - as above
    from octop.worker import WorkerOptions, run  # noqa: PLC0415 - as above
    from octop.worker.load import DEFAULT_QUEUE  # noqa: PLC0415 - as above

    application = invocation.application  # before anything is started for it
    settings, output = invocation.settings, invocation.output
    private = settings.dsn is None
    dsn = invocation.database_url
    with invocation.connection() as connection:
        before = status(connection, settings.schema)
    if not before.current:
        install(dsn, schema=settings.schema)
        output.say(f"octop dev: {'upgraded' if before.present else 'installed'} the schema {settings.schema}")
    others = [row for row in invocation.ask(reads.list_workers()) if row["state"] == "alive"] if before.present else []
    serves = merged_queues(queues)

    def greet(loaded: Loaded) -> None:
        _greet(invocation, dsn, loaded)
        _warn_of(others, serves or {*loaded.queues, DEFAULT_QUEUE}, output)

    folder = application.folder or Path.cwd()
    try:
        return run(
            WorkerOptions(
                dsn=dsn,
                schema=settings.schema,
                application=application.spec,
                import_folder=application.import_folder,
                queues=serves,
                concurrency=concurrency,
                name=f"dev {folder.name}".strip()[:NAME_CHARACTERS_MAX],
                reload=True,
                grace_seconds=GRACE_SECONDS,
                log_level="DEBUG" if invocation.verbose else "INFO",
                tell_tasks=True,
            ),
            greet,
        )
    finally:
        if private:
            output.say(f"octop dev: {_what_stays()}")


def _what_stays() -> str:
    from octop.engine import private_database  # noqa: PLC0415 - loads psycopg

    if private_database.status() is None:
        return f"the database was stopped meanwhile; {typed_name()} dev starts it again, with your data"
    return f"the database runs on with your data; {typed_name()} db stop stops it"


def _greet(invocation: Invocation, dsn: str, loaded: Loaded) -> None:
    from octop.cli.output import number  # noqa: PLC0415 - keeps help fast
    from octop.cli.place import exports, psql_options  # noqa: PLC0415 - as above
    from octop.model.settings import masked_dsn  # noqa: PLC0415 - as above

    settings, octop = invocation.settings, typed_name()
    private = settings.dsn is None
    options = psql_options(settings.schema)
    own = f", schema {settings.schema}" if options else ""
    place = (SHARED if not own else f"{PRIVATE}{own}") if private else own
    lines = [(f"{octop} {words}", says) for words, says in NEXT]
    if private:
        lines.append((f"{octop} db psql", LOOK))
    else:
        lines.append((f"{f'PGOPTIONS={quote(options)} ' if options else ''}psql {quote(masked_dsn(dsn))}", LOOK))
    first = exports(settings)
    width = max(len(words) for words, says in lines if says != LOOK or private)
    invocation.output.say(
        "\n".join(
            [
                f"octop dev: running {_shown(loaded)} ({number(loaded.task_types, 'task type')});"
                " the worker starts again when a Python file changes; Ctrl-C ends",
                f"octop dev: the database: {masked_dsn(dsn)}{place}",
                f"In another terminal, in this folder{_environment()}:",
                *([f"  {first}"] if first else []),
                *(f"  {words:<{width}}  {says}" for words, says in lines),
                "",
            ]
        )
    )


def _environment() -> str:
    """Return how a new shell finds this octop, where it is one of a virtual environment."""
    return f", after `. {quote(f'{sys.prefix}/bin/activate')}`" if sys.prefix != sys.base_prefix else ""


def _shown(loaded: Loaded) -> str:
    """Return the file of the task module as one finds it from here."""
    if loaded.file is None:
        return "an application without a file"
    file = Path(loaded.file)
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


def _warn_of(others: list[dict[str, Any]], serves: Collection[str], output: Output) -> None:
    """Say who else takes the tasks: with code of another folder they end otherwise, or not at all."""
    for other in others:
        if shared := sorted({*serves} & {*other["queues"]}):
            output.warn(
                f"another worker serves {', '.join(shared)} here, maybe with other code: {other['name'] or other['id']}"
                f' (on {other["host"]}, pid {other["pid"]}). To part two projects: schema = "NAME" in octop.toml, then octop dev again'
            )
