"""`octop db`: the private database for development."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from octop.cli.groups import Group
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.output import number
from octop.cli.place import psql_options
from octop.model.errors import DatabaseError, PrivateDatabaseError
from octop.model.settings import masked_dsn

if TYPE_CHECKING:
    from octop.engine.private_database import PrivateDatabase


@click.group(cls=Group, short_help="The private development database.")
def db() -> None:
    """Manage the private PostgreSQL that Octop uses where no DSN is given.

    It listens on a Unix socket that only you can open; its data is kept until `octop db reset`.
    """


def _described(running: PrivateDatabase | None) -> dict[str, object]:
    from octop.engine import private_database  # noqa: PLC0415 - help has no use for what starts a server

    if running is None:
        return {"running": False, "directory": str(private_database.default_directory())}
    return {
        "running": True,
        "directory": str(running.data_directory.parent),
        "url": masked_dsn(running.url),
        "server_pid": running.server_pid,
        "binaries": str(running.bin_directory),
    }


@db.command()
@global_options(reads=True)
@pass_invocation
def start(invocation: Invocation) -> None:
    """Start it, or find it running."""
    from octop.engine import private_database  # noqa: PLC0415 - as in _described

    described = _described(private_database.start())
    invocation.output.done(described, f"The private database runs: {described['url']}")
    invocation.output.say("Next: octop migrate")


@db.command()
@global_options(reads=True)
@pass_invocation
def stop(invocation: Invocation) -> None:
    """Stop it; its data stays. Says how many workers were connected: they wait until it is started again."""
    from octop.engine import private_database  # noqa: PLC0415 - as in _described

    workers = 0 if (running := private_database.status()) is None else _connected(running.url)
    stopped = private_database.stop()
    text = "Stopped." if stopped else "It was not running."
    if workers:
        was, it = ("was", "it waits") if workers == 1 else ("were", "they wait")
        text += f" {number(workers, 'worker')} {was} connected; {it} until octop db start."
    invocation.output.done({"stopped": stopped, "workers": workers}, text)


def _connected(url: str) -> int:
    """Count the workers of all schemas; one that cannot be asked has none that anybody need hear of."""
    from octop.engine import reads  # noqa: PLC0415 - keeps help fast
    from octop.engine.call import run  # noqa: PLC0415 - as above
    from octop.engine.connect import open_connection  # noqa: PLC0415 - loads psycopg

    try:
        with contextlib.closing(open_connection(url, application_name="octop db stop")) as connection:
            return run(connection, reads.connected_workers())
    except DatabaseError:
        return 0


@db.command()
@global_options(reads=True)
@pass_invocation
def status(invocation: Invocation) -> None:
    """Say whether it runs, and where its data is."""
    from octop.engine import private_database  # noqa: PLC0415 - as in _described

    described = _described(private_database.status())
    if invocation.as_json:
        invocation.output.json(described)
    else:
        # A process id is a name, not a quantity: no separators.
        invocation.output.pairs(
            [(name, str(value) if name == "server_pid" else value) for name, value in described.items()]
        )


@db.command()
@click.option("--show-password", is_flag=True, help="Do not mask the password (there is one with TCP alone).")
@global_options(reads=True)
@pass_invocation
def url(invocation: Invocation, show_password: bool) -> None:
    """Print its DSN, starting it if need be: psql "$(octop db url)". It finds the tables of the schema that you set."""
    from octop.engine import private_database  # noqa: PLC0415 - as in _described

    found = private_database.start().url
    if options := psql_options(invocation.settings.schema):
        found += f"&options={quote(options, safe='')}"
    found = found if show_password else masked_dsn(found)
    if invocation.as_json:
        invocation.output.json({"url": found})
    else:
        invocation.output.line(found)


@db.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@pass_invocation
def psql(invocation: Invocation, arguments: tuple[str, ...]) -> None:
    """Open psql in it, starting it if need be: octop db psql -c '\\dt'. It finds the tables of the schema that you set."""
    from octop.engine import private_database  # noqa: PLC0415 - as in _described

    running = private_database.start()
    beside = running.bin_directory / "psql"
    program = str(beside) if beside.exists() else shutil.which("psql")
    if program is None:
        message = "psql is not installed on this machine"
        raise PrivateDatabaseError(
            message, hint="Install it (Debian: postgresql-client), or connect with: octop db url"
        )
    settings = invocation.settings
    if settings.dsn is not None:
        named = settings.origins["dsn"]
        direct = 'psql "$OCTOP_DSN"' if named == "OCTOP_DSN" else "psql"
        invocation.output.warn(
            f"this is the private database; {'--dsn' if named == 'argument' else named} names another: {direct}"
        )
    sys.stdout.flush()
    options = " ".join(filter(None, (os.environ.get("PGOPTIONS"), psql_options(settings.schema))))
    environment = {**os.environ, "PGOPTIONS": options} if options else dict(os.environ)
    os.execve(program, [program, "--dbname", running.url, *arguments], environment)


@db.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@global_options(reads=True)
@pass_invocation
def reset(invocation: Invocation, yes: bool) -> None:
    """Stop it and delete its data. On a terminal it asks first; elsewhere it needs --yes."""
    from octop.engine import private_database  # noqa: PLC0415 - as in _described

    directory = private_database.default_directory()
    if not yes:
        if not sys.stdin.isatty():
            message = "this deletes all data of the private database: say --yes"
            raise click.UsageError(message)
        if not click.confirm(f"Delete all data in {directory}?", err=True):
            invocation.output.say("Nothing was done.")
            raise click.exceptions.Exit(1)
    deleted = private_database.reset()
    text = f"Deleted the data in {directory}." if deleted else f"There was no data in {directory}."
    invocation.output.done({"deleted": str(directory) if deleted else None}, text)
