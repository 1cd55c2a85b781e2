"""The group of this folder's commands."""

from __future__ import annotations

from typing import Final

import click

from octop.cli.groups import LazyGroup, Sections

SECTIONS: Final[Sections] = {
    "Look": {
        "list": ("octop.cli.schedules.look:list_", "List the schedules, in words, with their next times."),
        "show": ("octop.cli.schedules.look:show", "Show all about one schedule."),
        "history": ("octop.cli.schedules.look:history", "List slots with their tasks and what became of them."),
        "next": ("octop.cli.schedules.expressions:next_", "Show the next times of a schedule or an expression."),
        "explain": ("octop.cli.schedules.expressions:explain", "Tell in English what an expression means."),
    },
    "Change": {
        "add": ("octop.cli.schedules.change:add", "Make a schedule."),
        "set": ("octop.cli.schedules.change:set_", "Change a schedule."),
        "drop": ("octop.cli.schedules.change:drop", "Drop a schedule; its tasks stay."),
    },
    "Act": {
        "run": ("octop.cli.schedules.acts:run_", "Make a task of a schedule now."),
        "pause": ("octop.cli.schedules.acts:pause", "Fire no slots of a schedule."),
        "resume": ("octop.cli.schedules.acts:resume", "Fire slots of a schedule again."),
        "backfill": ("octop.cli.schedules.acts:backfill", "Make the tasks of past slots that have none."),
    },
    "What the code declares": {
        "diff": ("octop.cli.schedules.code:diff", "Show where code and database differ; change nothing."),
        "apply": (
            "octop.cli.schedules.code:apply",
            "Declare the schedules of the code, as a worker does at its start.",
        ),
    },
}


@click.group(cls=LazyGroup, sections=SECTIONS, short_help="List, show, add, set, run, pause, backfill schedules.")
def schedules() -> None:
    """List, show, add, set, drop, run, pause, resume and backfill schedules: rules that make tasks.

    They are rows: any worker fires them, each slot once; without a worker, SELECT octop_tick(); does. What is changed here
    holds at once, also when the code is deployed again, and is written to the audit. Grammar: docs/reference/cron.md
    """
