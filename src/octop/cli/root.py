"""The root of all commands: their names, and the modules that hold them."""

from __future__ import annotations

from typing import Final

import click

from octop import __version__
from octop.cli.groups import LazyGroup, Sections
from octop.cli.invocation import global_options

SECTIONS: Final[Sections] = {
    "Begin": {
        "init": ("octop.cli.init:init", "Write tasks.py, octop.toml and .ruff.toml to begin with."),
        "dev": ("octop.cli.dev:dev", "Run your tasks while you write them: database, schema, worker."),
        "demo": ("octop.cli.demo.command:demo", "See Octop work, on a PostgreSQL of its own."),
        "db": ("octop.cli.db:db", "The private development database."),
        "migrate": ("octop.cli.migrate:migrate", "Install or upgrade the schema."),
        "worker": ("octop.cli.worker:worker", "Run tasks."),
        "check": ("octop.cli.check.command:check", "Before a deployment: does this code fit what is queued?"),
        "enqueue": ("octop.cli.enqueue:enqueue", "Enqueue one task."),
    },
    "Look and act": {
        "tasks": ("octop.cli.tasks.group:tasks", "List, show, explain, retry, cancel, delete, export, wait."),
        "failures": ("octop.cli.failures:failures", "Show what fails: alike errors together."),
        "top": ("octop.cli.top.command:top", "Watch queues, workers and tasks live, and act with keys."),
        "queues": ("octop.cli.queues:queues", "List, show, set, pause, resume, scale and reset queues."),
        "lanes": ("octop.cli.lanes:lanes", "List the lanes of a queue."),
        "types": ("octop.cli.types:types", "List, show, set, freeze, thaw and reset task types."),
        "alerts": ("octop.cli.alerts:alerts", "List and acknowledge alerts."),
        "holds": ("octop.cli.holds:holds", "List, add and lift holds of queues, types, tenants and lanes."),
        "schedules": ("octop.cli.schedules.group:schedules", "List, show, add, set, run, pause, backfill schedules."),
        "workers": ("octop.cli.workers:workers", "List the workers that live, and what they run."),
        "config": ("octop.cli.config:config", "Read and change the settings that rule while it runs."),
        "audit": ("octop.cli.audit:audit", "List who did what."),
    },
    "For the DBA, and measuring": {
        "doctor": ("octop.cli.doctor.command:doctor", "Find what is wrong, and say how to cure it."),
        "sql": ("octop.cli.sql:sql", "Print scripts for psql; change nothing."),
        "bench": ("octop.cli.bench.command:bench", "Measure enqueue and drain rates."),
        "completion": ("octop.cli.completion:completion", "Print the script for completion in bash, zsh or fish."),
        "help": ("octop.cli.help:help_", "Show the help of a command, or a topic: filters."),
        "version": ("octop.cli.version:version", "Print the versions of package and Python."),
    },
}


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="New here? Type: octop demo",
)
@global_options(hidden=False)
@click.version_option(__version__, prog_name="octop", message="%(prog)s %(version)s")
def root() -> None:
    """Octop: a task scheduler that lives in PostgreSQL.

    The global options may stand before or after the command. DSN, schema and application also come from OCTOP_DSN,
    OCTOP_SCHEMA, OCTOP_APP, octop.toml or [tool.octop] in pyproject.toml.
    """
