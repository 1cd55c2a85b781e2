"""`octop worker`: run tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from octop import __version__
from octop.cli.completing import queue_limits
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.moments import DURATION
from octop.cli.policy import LIMIT_MAX
from octop.model.errors import ConfigurationError
from octop.model.version import is_older

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound="Callable[..., Any]")


PROCESSES_MAX = 256


class QueueLimits(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2; 8.1 cannot subscript it
    """Queues with their limits: mail=5,reports=2 or mail."""

    name = "queues"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[tuple[str, int | None]]:
        """Return names and limits; no limit means --concurrency."""
        if isinstance(value, list):
            return value
        found: list[tuple[str, int | None]] = []
        for word in str(value).split(","):
            name, equals, limit = word.strip().rpartition("=") if "=" in word else (word.strip(), "", "")
            if not name or (equals and not limit.isdecimal()):
                self.fail(f"{word!r} is not NAME or NAME=LIMIT, as in mail=5,reports=2", param, ctx)
            if equals and not 1 <= int(limit) <= LIMIT_MAX:
                self.fail(
                    f"{word!r}: a limit is 1 to {LIMIT_MAX}; `octop queues pause {name}` stops a queue", param, ctx
                )
            found.append((name, int(limit) if equals else None))
        return found


class Processes(click.ParamType):  # type: ignore[type-arg]  # as above
    """A number of processes, or the least and the most of them: 4, 1-8."""

    name = "processes"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, int]:
        """Return the least, None where the number is fixed, and the most."""
        if isinstance(value, tuple):
            return value
        least, dash, most = str(value).strip().rpartition("-")
        if not most.isdecimal() or (dash and not least.isdecimal()):
            self.fail(f"{value!r} is neither a number of processes nor MIN-MAX, as in 1-8", param, ctx)
        if not (int(least) if dash else 1) <= int(most) <= PROCESSES_MAX or (dash and int(least) < 1) or int(most) < 1:
            self.fail(f"{value!r}: 1 to {PROCESSES_MAX} processes, the least before the most, as in 1-8", param, ctx)
        return int(least) if dash else None, int(most)


def merged_queues(given: tuple[list[tuple[str, int | None]], ...]) -> dict[str, int | None] | None:
    """Put the values of all -q together.

    Raises:
        ConfigurationError: A queue is named twice with different limits.
    """
    merged: dict[str, int | None] = {}
    for name, limit in (pair for words in given for pair in words):
        if name in merged and merged[name] != limit:
            message = f"the queue {name} is named twice, with the limits {merged[name]} and {limit}"
            raise ConfigurationError(message, hint="Name each queue once: -q mail=5,reports=2")
        merged[name] = limit
    return merged or None


def queue_options(function: F) -> F:
    """Give a command `-q` and `--concurrency`; `merged_queues` puts the values of all `-q` together."""
    for option in (
        click.option(
            "--concurrency", type=click.IntRange(1, LIMIT_MAX), help="Tasks at once from a queue that names no limit."
        ),
        click.option(
            "-q",
            "--queue",
            "queues",
            type=QueueLimits(),
            multiple=True,
            metavar="NAME=LIMIT,...",
            shell_complete=queue_limits,
            help="Serve these queues only, each with a limit per process; may be repeated."
            " Default: those of your task types.",
        ),
    ):
        function = option(function)
    return function


@click.command(short_help="Run tasks.")
@queue_options
@click.option(
    "--processes",
    type=Processes(),
    default="1",
    show_default=True,
    metavar="N|MIN-MAX",
    help="Worker processes; 1-8: as many as the backlog asks for.",
)
@click.option("--name", default="", help="A label for `octop workers`.")
@click.option("--drain", is_flag=True, help="Stop when no unfinished task is left.")
@click.option("--reload", is_flag=True, help="Restart when a Python file of the application changes.")
@click.option("--grace", type=DURATION, metavar="DURATION", help="How long a stopping worker waits for its tasks.")
@click.option("--poll-only", is_flag=True, help="No LISTEN: behind a pooler in transaction mode.")
@click.option(
    "--max-tasks-per-process",
    type=click.IntRange(1),
    metavar="N",
    help="Replace a worker process that has run N tasks (up to a tenth fewer), when all of them have ended.",
)
@click.option(
    "--max-memory-mb",
    type=click.IntRange(1),
    metavar="N",
    help="Replace a worker process that uses more than N MB of memory, when its tasks have ended.",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help="Answer GET /healthz and /readyz there: 200, or 503 while it can not do its work. 0: a free port.",
)
@click.option(
    "--health-host",
    metavar="HOST",
    help="Address of that port. Default: 127.0.0.1; for probes from outside of a container 0.0.0.0.",
)
@click.option(
    "--health-file",
    type=click.Path(dir_okay=False),
    help="Write this file each second while it can do its work, and remove it otherwise.",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Default: info; with -v debug."
)
@global_options(application=True)
@pass_invocation
def worker(
    invocation: Invocation,
    *,
    queues: tuple[list[tuple[str, int | None]], ...],
    concurrency: int | None,
    processes: tuple[int | None, int],
    name: str,
    drain: bool,
    reload: bool,
    grace: float | None,
    poll_only: bool,
    max_tasks_per_process: int | None,
    max_memory_mb: int | None,
    health_port: int | None,
    health_host: str | None,
    health_file: str | None,
    log_format: str,
    log_level: str | None,
) -> int:
    """Run the tasks of an application: octop worker -A shop.tasks:octop -q mail=5,reports=2.

    SIGTERM or Ctrl-C: it claims no more and lets running tasks end within the grace time; what is left goes back
    without using up a try. A second signal: at once. The current folder is on the import path. Without -A the
    application is that of octop.toml, or ./tasks.py. -v logs the end of each task, too.
    """
    from octop.worker import WorkerOptions, run  # noqa: PLC0415 - help need not load the worker

    application = invocation.application
    options = WorkerOptions(
        dsn=invocation.database_url,
        schema=invocation.settings.schema,
        application=application.spec,
        import_folder=application.import_folder,
        queues=merged_queues(queues),
        concurrency=concurrency,
        processes=processes[1],
        processes_min=processes[0],
        name=name,
        drain=drain,
        reload=reload,
        grace_seconds=grace,
        listen=not poll_only,
        log_format=log_format,
        log_level=(log_level or ("debug" if invocation.verbose else "info")).upper(),
        tell_tasks=invocation.verbose,
        max_tasks_per_process=max_tasks_per_process,
        max_memory_mb=max_memory_mb,
        health_port=health_port,
        health_host=health_host,
        health_file=health_file,
    )
    _check_schema(invocation)
    return run(options)


def _check_schema(invocation: Invocation) -> None:
    """Refuse a schema that is missing or older. One that is newer runs on: in a rolling upgrade the schema goes first."""
    from octop.engine.install import require, status  # noqa: PLC0415 - loads psycopg

    schema = invocation.settings.schema
    with invocation.connection() as connection:
        found = status(connection, schema)
        if not found.present or found.missing or found.changed or is_older(found.version, __version__):
            require(connection, schema)
        if not found.current:
            invocation.output.warn(
                f"the schema {schema} is that of Octop {found.version}; this package is {__version__}"
            )
