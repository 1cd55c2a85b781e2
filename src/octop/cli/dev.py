"""`octop dev`: everything that one needs while writing tasks, in one command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.program import typed_name
from octop.cli.worker import merged_queues, queue_options

if TYPE_CHECKING:
    from octop.cli.output import Output

NEXT: Final = (
    ("enqueue TYPE name=value --wait", "run a task and see its result"),
    ("top", "watch queues, workers and failures"),
    ("types list", "which tasks there are"),
)


@click.command(short_help="Run your tasks while you write them: database, schema, worker.")
@queue_options
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

    application = invocation.application  # before anything is started for it
    settings, output = invocation.settings, invocation.output
    private = settings.dsn is None
    dsn = invocation.database_url
    with invocation.connection() as connection:
        before = status(connection, settings.schema)
    if not before.current:
        install(dsn, schema=settings.schema)
        output.say(f"octop dev: {'upgraded' if before.present else 'installed'} the schema {settings.schema}")
    _greet(output, dsn, application.spec, private=private)
    try:
        return run(
            WorkerOptions(
                dsn=dsn,
                schema=settings.schema,
                application=application.spec,
                import_folder=application.import_folder,
                queues=merged_queues(queues),
                concurrency=concurrency,
                name="dev",
                reload=True,
                log_level="DEBUG" if invocation.verbose else "INFO",
                tell_tasks=True,
            )
        )
    finally:
        if private:
            output.say(f"octop dev: the database runs on with your data; {typed_name()} db stop stops it")


def _greet(output: Output, dsn: str, application: str, *, private: bool) -> None:
    from octop.model.settings import masked_dsn  # noqa: PLC0415 - keeps help fast

    octop = typed_name()
    width = max(len(words) for words, _ in NEXT)
    lines = [f"  {octop} {words:<{width}}  {says}" for words, says in NEXT]
    look = f"{octop} {'db psql':<{width}}" if private else f"psql '{masked_dsn(dsn)}'"
    output.say(
        "\n".join(
            [
                f"octop dev: running {application}; the worker starts again when a Python file changes; Ctrl-C ends",
                f"octop dev: the database: {masked_dsn(dsn)}{' (no DSN: the private one)' if private else ''}",
                "In another terminal, in this folder:",
                *lines,
                f"  {look}  look into the tables",
                "",
            ]
        )
    )
