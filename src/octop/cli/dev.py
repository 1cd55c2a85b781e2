"""`octop dev`: everything that one needs while writing tasks, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.program import typed_name
from octop.cli.worker import LIMIT_MAX, QueueLimits, merged_queues
from octop.model.errors import ConfigurationError

if TYPE_CHECKING:
    from octop.cli.output import Output

TASKS: Final = "tasks"
"""The module that is taken when nothing names one: what `octop init` writes."""

NEXT: Final = (
    ("enqueue TYPE name=value --wait", "run a task and see its result"),
    ("top", "watch queues, workers and failures"),
    ("types list", "which tasks there are"),
)


@click.command(short_help="Run your tasks while you write them: database, schema, worker.")
@click.option(
    "-q",
    "--queue",
    "queues",
    type=QueueLimits(),
    multiple=True,
    metavar="NAME=LIMIT,...",
    help="Serve these queues only. Default: those of your task types.",
)
@click.option(
    "--concurrency", type=click.IntRange(1, LIMIT_MAX), help="Tasks at once from a queue that names no limit."
)
@global_options(application=True)
@pass_invocation
def dev(invocation: Invocation, queues: tuple[list[tuple[str, int | None]], ...], concurrency: int | None) -> int:
    """Start what is missing and run your tasks, restarting the worker when a Python file changes, until Ctrl-C.

    The database is the one that you named (--dsn, OCTOP_DSN, octop.toml …), else the private one. Its schema is installed
    or upgraded. Ctrl-C stops the worker. The database and its data stay, as after `octop db start`: `octop db stop` stops
    it, `octop db reset` deletes it. Without -A the application is that of octop.toml, or ./tasks.py.
    """
    from octop.engine.install import install, status  # noqa: PLC0415 - help need not load psycopg
    from octop.worker import WorkerOptions, run  # noqa: PLC0415 - as above

    application = _application(invocation)  # before anything is started for it
    settings, output = invocation.settings, invocation.output
    private = settings.dsn is None
    dsn = invocation.database_url
    with invocation.connection() as connection:
        before = status(connection, settings.schema)
    if not before.current:
        install(dsn, schema=settings.schema)
        output.say(f"octop dev: {'upgraded' if before.present else 'installed'} the schema {settings.schema}")
    _greet(output, dsn, application, private=private)
    try:
        return run(
            WorkerOptions(
                dsn=dsn,
                schema=settings.schema,
                application=application,
                queues=merged_queues(queues),
                concurrency=concurrency,
                name="dev",
                reload=True,
                log_level="DEBUG" if invocation.verbose else "INFO",
            )
        )
    finally:
        if private:
            output.say(f"octop dev: the database runs on with your data; {typed_name()} db stop stops it")


def _application(invocation: Invocation) -> str:
    if invocation.settings.app:
        return invocation.settings.app
    if Path(f"{TASKS}.py").is_file():
        return TASKS
    message = "which application? None was named, and there is no tasks.py here"
    raise ConfigurationError(
        message, hint="octop init writes one to begin with; or name yours: octop dev -A module:attribute"
    )


def _greet(output: Output, dsn: str, application: str, *, private: bool) -> None:
    from octop.model.settings import masked_dsn  # noqa: PLC0415 - keeps help fast

    octop = typed_name()
    width = max(len(words) for words, _ in NEXT)
    lines = [f"  {octop} {words:<{width}}  {says}" for words, says in NEXT]
    look = f"{octop} db psql" if private else f"psql '{masked_dsn(dsn)}'"
    output.say(
        "\n".join(
            [
                f"octop dev: running {application}; the worker starts again when a Python file changes; Ctrl-C ends",
                f"octop dev: the database: {masked_dsn(dsn)}",
                "In another terminal, in this folder:",
                *lines,
                f"  {look}",
                "",
            ]
        )
    )
