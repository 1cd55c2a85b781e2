"""`octop migrate`: install or upgrade the schema."""

from __future__ import annotations

import contextlib
from dataclasses import asdict

import click

from octop import __version__
from octop.cli.groups import Group
from octop.cli.invocation import Invocation, global_options, pass_invocation


@click.group(cls=Group, invoke_without_command=True, short_help="Install or upgrade the schema.")
@click.option("--role-prefix", default="octop_", show_default=True, help="Beginning of the names of the roles.")
@click.option(
    "--again", is_flag=True, help="Put functions, views, triggers and grants in place again, whoever changed them."
)
@global_options(reads=True)
@click.pass_context
def migrate(ctx: click.Context, role_prefix: str, again: bool) -> None:
    """Install Octop in the database, or upgrade it; again and from many processes at once is harmless.

    It needs a login that may create roles and objects. For a DBA who runs scripts with psql alone: octop sql install.
    """
    if ctx.invoked_subcommand is not None:
        return
    from octop.engine.connect import open_connection  # noqa: PLC0415 - loads psycopg, which help does not need
    from octop.engine.install import install  # noqa: PLC0415 - likewise
    from octop.engine.install import status as installed  # noqa: PLC0415 - likewise

    invocation = ctx.ensure_object(Invocation)
    url, schema = invocation.database_url, invocation.settings.schema
    with contextlib.closing(open_connection(url, application_name="octop migrate", schema=schema)) as connection:
        before = installed(connection, schema)
    found = install(url, schema=schema, role_prefix=role_prefix, again=again)
    if not before.present:
        did, text = "installed", f"Installed Octop {found.version} in the schema {schema}."
    elif before.current and again:
        did, text = "repeated", f"Put functions, views, triggers and grants of the schema {schema} in place again."
    elif before.current:
        did, text = "nothing", f"Nothing to do: the schema {schema} is that of Octop {found.version} already."
    else:
        was = f" from {before.version}" if before.version != found.version else ""
        did, text = "upgraded", f"Upgraded the schema {schema}{was} to Octop {found.version}."
    invocation.output.done({"did": did, **asdict(found)}, text)


@migrate.command()
@global_options(reads=True)
@pass_invocation
def status(invocation: Invocation) -> None:
    """Compare the schema with this package; change nothing. Exit code 5 when Octop is missing there or does not fit."""
    from octop.engine.install import require  # noqa: PLC0415 - loads psycopg, which help does not need
    from octop.engine.install import status as installed  # noqa: PLC0415 - likewise

    with invocation.connection() as connection:
        found = installed(connection, invocation.settings.schema)
        if invocation.as_json:
            invocation.output.json({**asdict(found), "current": found.current, "package": __version__})
        else:
            functions = "those of this package" if found.functions_current else "not those of this package"
            invocation.output.pairs(
                [
                    ("schema", found.schema),
                    ("installed by", found.version),
                    ("this package", __version__),
                    ("missing migrations", list(found.missing)),
                    ("changed migrations", list(found.changed)),
                    ("unknown migrations", list(found.newer)),
                    ("functions", functions if found.present else None),
                ]
            )
        require(connection, invocation.settings.schema)
