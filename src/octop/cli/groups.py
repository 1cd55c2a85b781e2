"""Groups of commands that help who typed nothing, or nearly the right name; and that load what is called, not what is listed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import click

Sections: TypeAlias = Mapping[str, Mapping[str, tuple[str, str]]]
"""Titles of a help; under each the names of commands, with the place of the command (`module:attribute`) and its short help."""

OTHERS_SAY: Final[Mapping[str, tuple[str, ...]]] = {
    "add": ("enqueue TYPE",),
    "errors": ("failures",),
    "inspect": ("tasks show ID", "top"),
    "install": ("migrate",),
    "kill": ("tasks cancel ID",),
    "logs": ("tasks show ID", "failures"),
    "ls": ("tasks list",),
    "monitor": ("top",),
    "ps": ("workers", "tasks list status:running"),
    "purge": ("tasks delete", "tasks cancel"),
    "rm": ("tasks delete", "tasks cancel"),
    "run": ("dev", "worker"),
    "send": ("enqueue TYPE",),
    "start": ("dev", "worker"),
    "stats": ("top", "queues list"),
    "status": ("top", "workers", "queues list"),
    "submit": ("enqueue TYPE",),
    "upgrade": ("migrate",),
}
"""What other programs call it; all else is searched for among the commands."""


class Group(click.Group):
    """A group that prints its help when it is called alone, and names the nearest command after a typing error."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help to stdout and end with 0 when nothing was typed: that is no error."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one may be meant."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing and name[:1].isalnum():
            from difflib import get_close_matches  # noqa: PLC0415 - costs 3 ms, and most names are right

            near = get_close_matches(name, self.list_commands(ctx), n=2)
            found = [*near, *([] if near else elsewhere(ctx.find_root(), name))]
            also = f" Did you mean {' or '.join(found)}?" if found else ""
            ctx.fail(f"No such command {name!r}.{also}")
        return super().resolve_command(ctx, args)


def elsewhere(root: click.Context, name: str) -> list[str]:
    """Return whole commands that somebody who typed this name may mean: those of other groups, and what other programs call so."""
    if name in OTHERS_SAY:
        return [f"`octop {words}`" for words in OTHERS_SAY[name]]
    group = root.command
    if not isinstance(group, click.Group):
        return []
    return [
        f"`octop {outer} {name}`"
        for outer in group.list_commands(root)
        if isinstance(inner := group.get_command(root, outer), click.Group) and name in inner.list_commands(root)
    ]


class LazyGroup(Group):
    """A group that imports a command's module when the command is called, not when its name is listed."""

    def __init__(self, *arguments: Any, sections: Sections, **options: Any) -> None:
        """Keep the table of the commands."""
        super().__init__(*arguments, **options)
        self.sections = sections
        self.places = {name: place for section in sections.values() for name, (place, _) in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self.places:
            return None
        module, _, attribute = self.places[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, so that help imports none of them."""
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, help_text) for name, (_, help_text) in section.items()])
