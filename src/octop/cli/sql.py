"""`octop sql`: scripts for a DBA who runs them with psql alone."""

from __future__ import annotations

import sys

import click

from octop import __version__
from octop.cli.groups import Group
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.engine import script

ROLE_PREFIX = click.option(
    "--role-prefix", default="octop_", show_default=True, help="Beginning of the names of the roles."
)


def _place(invocation: Invocation, role_prefix: str) -> script.Place:
    return script.Place(invocation.settings.schema, role_prefix)


@click.group(cls=Group, short_help="Print scripts for psql; change nothing.")
def sql() -> None:
    """Print one script to stdout that a DBA runs with psql alone. Nothing is changed, no database is asked.

    octop sql install | psql -d mydb
    """


@sql.command()
@ROLE_PREFIX
@global_options()
@pass_invocation
def install(invocation: Invocation, role_prefix: str) -> None:
    """Print what installs Octop into a schema of its own, or among other things."""
    sys.stdout.write(script.install_script(_place(invocation, role_prefix), __version__))


@sql.command()
@ROLE_PREFIX
@global_options()
@pass_invocation
def upgrade(invocation: Invocation, role_prefix: str) -> None:
    """Print what brings an installed schema to this version; migrations that it has already are skipped."""
    sys.stdout.write(script.install_script(_place(invocation, role_prefix), __version__, upgrade=True))


@sql.command()
@ROLE_PREFIX
@global_options()
@pass_invocation
def grants(invocation: Invocation, role_prefix: str) -> None:
    """Print what each role is granted."""
    sys.stdout.write(script.grants_script(_place(invocation, role_prefix)))


@sql.command()
@ROLE_PREFIX
@click.option("--roles", is_flag=True, help="Drop the roles too; refused while another schema or database needs them.")
@click.option("--force", is_flag=True, help="Also while workers live: their next call fails.")
@global_options()
@pass_invocation
def uninstall(invocation: Invocation, role_prefix: str, roles: bool, force: bool) -> None:
    """Print what removes Octop, with all tasks and their history: exactly what the installer made, all or nothing.

    The script refuses to run while workers live, and where something of yours stands on an object of Octop's. The schema
    goes if nothing else is in it. Back up first: pg_dump -n SCHEMA
    """
    place = _place(invocation, role_prefix)
    sys.stdout.write(script.uninstall_script(place, __version__, force=force, roles=roles))
