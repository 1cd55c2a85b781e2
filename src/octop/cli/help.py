"""`octop help`: the help of a command, or a topic that belongs to several."""

from __future__ import annotations

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.output import Output
from octop.model.filter_values import KEYS


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


@click.command(name="help", short_help="Show the help of a command, or a topic: filters.")
@click.argument("words", metavar="[TOPIC|COMMAND...]", nargs=-1)
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
    root = context.find_root()
    command, path = root.command, root
    for word in words:
        found = command.get_command(path, word) if isinstance(command, click.Group) else None
        if found is None:
            message = f"there is no command and no topic {' '.join(words)!r}. Topics: {', '.join(TOPICS)}"
            raise click.UsageError(message)
        path = click.Context(found, parent=path, info_name=word)
        command = found
    click.echo(command.get_help(path))
