"""`octop help`: the help of a command, or a topic that belongs to several."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.output import Output
from octop.cli.policy import did_you_mean
from octop.model.filter_values import KEYS

if TYPE_CHECKING:
    from collections.abc import Sequence


def _filters(output: Output) -> None:
    output.line("A filter is a list of words, key:value; a task must satisfy all of them.\n")
    width = max(len(key.name) for key in KEYS) + 1
    for key in KEYS:
        name = f"{key.name}{'.' if key.kind == 'document' else ''}"
        meaning = key.meaning.replace("`", "")
        output.line(f"  {name:<{width}}  {meaning}\n  {'':<{width}}  {'   '.join(key.examples)}")
    output.line(VALUES)


VALUES = """
Values
  a,b            one of several            "a b:c,d*"   quoted: nothing in it has a meaning
  send_*         * = any characters        \\*           the next character has no meaning
  >3 >=3 <3 <=3  numbers and moments       3..5 3.. ..5 ranges, both ends included
  -1h30m +2d     from now: w d h m s ms    now today yesterday tomorrow (UTC days)
  2030-01-31Z    a day in its zone         2030-01-31T09:00:00+08:00
  created:-1h    between then and now      scheduled:+2d    between now and then

Not
  -key:value     also !key:value and not:key:value; a task without the value satisfies it too

In a shell, quote words with > < * or spaces: 'attempt:>3'. Ranges need no quotes: attempt:4..
The other spellings of keys are the columns of octop_tasks: task_type, created_at, last_error …"""

TOPICS = {"filters": _filters}


def _walked(root: click.Context, words: Sequence[str]) -> tuple[click.Context, str | None]:
    """Follow the names of commands; return the last that was found, and the first word that names none."""
    path = root
    for word in words:
        group = path.command
        found = group.get_command(path, word) if isinstance(group, click.Group) else None
        if found is None:
            return path, word
        path = click.Context(found, parent=path, info_name=word)
    return path, None


def _next_words(path: click.Context) -> list[str]:
    """Return what may come next."""
    names = path.command.list_commands(path) if isinstance(path.command, click.Group) else []
    return [*names, *(TOPICS if path.parent is None else ())]


def _completed(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    path, stranger = _walked(ctx.find_root(), ctx.params.get(param.name or "") or ())
    return [] if stranger else [each for each in _next_words(path) if each.startswith(incomplete)]


@click.command(name="help", short_help="Show the help of a command, or a topic: filters.")
@click.argument("words", metavar="[TOPIC|COMMAND...]", nargs=-1, shell_complete=_completed)
@global_options()
@pass_invocation
@click.pass_context
def help_(context: click.Context, invocation: Invocation, words: tuple[str, ...]) -> None:
    """Show a topic, or the help of a command.

    The one topic is `filters`: the words that `tasks list`, `retry`, `cancel`, `delete`, `export` and `failures` take.
    """
    if len(words) == 1 and words[0] in TOPICS:
        TOPICS[words[0]](invocation.output)
        return
    path, stranger = _walked(context.find_root(), words)
    if stranger is not None:
        also = did_you_mean(stranger, _next_words(path)) or "."
        message = f"there is no command and no topic {' '.join(words)!r}{also} Topics: {', '.join(TOPICS)}"
        raise click.UsageError(message)
    click.echo(path.command.get_help(path))
