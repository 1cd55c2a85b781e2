"""`octop sql`: scripts for a DBA who runs them with psql alone."""

from __future__ import annotations

import sys

import click

from octop import __version__
from octop.cli.groups import Group
from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.engine import cron_script, script

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


@sql.command("pg_cron")
@click.option("--database", metavar="NAME", help="Where Octop is, if that is not the database of pg_cron itself.")
@click.option(
    "--role", metavar="NAME", help="As whom the jobs run, with the least rights; a superuser runs the script then."
)
@click.option(
    "--seconds", type=click.IntRange(1, 59), default=5, show_default=True, help="Between two ticks (pg_cron 1.5 on)."
)
@click.option("--grants", is_flag=True, help="Print only what --role must be granted, in the database of Octop.")
@click.option("--remove", is_flag=True, help="Print what takes the jobs away.")
@global_options()
@pass_invocation
def pg_cron(
    invocation: Invocation, database: str | None, role: str | None, seconds: int, grants: bool, remove: bool
) -> None:
    """Print the jobs of pg_cron that fire schedules and clean up history, also while no worker lives.

    octop sql pg_cron | psql -d postgres

    They call octop_tick and octop_upkeep, which anybody may call instead: SELECT octop_tick(); SELECT octop_upkeep(); Where
    pg_cron is installed is said by its setting cron.database_name. Jobs of the same names are replaced.
    """
    if grants and (role is None or remove):
        message = "--grants prints the grants of --role, and nothing with --remove"
        raise click.UsageError(message)
    for what, name in (("--database", database), ("--role", role)):
        if name is not None and not (0 < len(name.encode()) <= 63 and name.isprintable()):
            message = f"{what} is a name of 1 to 63 bytes, not {name!r}"
            raise click.UsageError(message)
    jobs = cron_script.CronJobs(script.Place(invocation.settings.schema), database, role, seconds)
    if grants:
        text = cron_script.grants_script(jobs)
    elif remove:
        text = cron_script.removal_script(jobs, __version__)
    else:
        text = cron_script.pg_cron_script(jobs, __version__)
    sys.stdout.write(text)
