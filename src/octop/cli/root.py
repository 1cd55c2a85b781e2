"""The root of all commands: their names, and the modules that hold them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

import click

from octop import __version__
from octop.cli.groups import Group
from octop.cli.invocation import global_options

if TYPE_CHECKING:
    from collections.abc import Mapping

SECTIONS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
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
        "tasks": ("octop.cli.tasks:tasks", "List, show, explain, retry, cancel, delete, export, wait."),
        "failures": ("octop.cli.failures:failures", "Show what fails: alike errors together."),
        "top": ("octop.cli.top.command:top", "Watch queues, workers and tasks live, and act with keys."),
        "queues": ("octop.cli.queues:queues", "List, show, set, pause, resume, scale and reset queues."),
        "types": ("octop.cli.types:types", "List, show, set, freeze, thaw and reset task types."),
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

COMMANDS: Final = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class LazyGroup(Group):
    """A group that imports a command's module when the command is called, not when its name is listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table above, so that help imports none of them."""
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, help_text) for name, (_, help_text) in section.items()])


@click.group(
    cls=LazyGroup,
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
