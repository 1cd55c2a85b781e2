"""The group of this folder's commands."""

from __future__ import annotations

from typing import Final

import click

from octop.cli.groups import LazyGroup, Sections

SECTIONS: Final[Sections] = {
    "Look": {
        "list": ("octop.cli.tasks.list:list_", "List the tasks that a filter asks for, the latest first."),
        "show": ("octop.cli.tasks.show:show", "Show one task, its attempts with tracebacks, and what is next."),
        "why": ("octop.cli.tasks.show:why", "Say why a task does not run, or what happens to it next."),
        "wait": ("octop.cli.tasks.wait:wait", "Wait until tasks have ended."),
        "export": ("octop.cli.tasks.export:export", "Export the tasks that a filter asks for, with all columns."),
    },
    "Act": {
        "retry": ("octop.cli.tasks.acts:retry", "Run tasks again."),
        "cancel": ("octop.cli.tasks.acts:cancel", "Cancel tasks."),
        "delete": ("octop.cli.tasks.acts:delete", "Delete frozen tasks for good."),
    },
}


@click.group(cls=LazyGroup, sections=SECTIONS, short_help="List, show, explain, retry, cancel, delete, export, wait.")
def tasks() -> None:
    """List, show, explain, retry, cancel, delete, export and wait for tasks."""
