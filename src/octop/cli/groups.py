"""Groups of commands that help who typed nothing, or nearly the right name."""

from __future__ import annotations

import click


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
            also = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command {name!r}.{also}")
        return super().resolve_command(ctx, args)
