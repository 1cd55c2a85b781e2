"""The group that the commands of this folder join."""

from __future__ import annotations

import click

from octop.cli.groups import Group


@click.group(cls=Group, short_help="List, show, explain, retry, cancel, delete, export, wait.")
def tasks() -> None:
    """List, show, explain, retry, cancel, delete, export and wait for tasks."""
