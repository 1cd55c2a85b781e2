"""Write `docs/reference/commands.md` from the commands themselves. A test compares.

python tools/commands_page.py
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from octop.cli.root import SECTIONS, root

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "commands.md"

UNWRAPPED: Final = "\b\n"

HEAD = """# Commands

This page is generated from the commands by `tools/commands_page.py`; `octop COMMAND --help` says the same. Data goes to standard output, messages go to standard error.

A DURATION is seconds or words of `d`, `h`, `m`, `s`, `ms`: `90`, `5m`, `1h30m`. A MOMENT is ISO 8601 with an offset: `2030-01-31T09:00:00+08:00`.

## For every command

They may stand before or after the command's name. `--json` means something only where data is printed.

"""

TAIL = """
## Exit codes

| code | meaning |
|---|---|
| 0 | done |
| 1 | failed |
| 2 | wrong usage, or a wrong setting |
| 3 | not found |
| 4 | no database answers |
| 5 | the schema is missing, or of another version |
| 6 | the role lacks a right |
| 7 | timed out |
| 8 | not possible in this status |
| 129, 130, 143 | ended by SIGHUP, SIGINT, SIGTERM (`octop worker`: by a second one) |

## Completion

`eval "$(octop completion bash)"`; also `zsh` and `fish`.
"""


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command below a group with its full name, groups before what is in them."""
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


def arguments(command: click.Command) -> str:
    """Return the arguments as the usage line shows them."""
    words = [
        param.metavar or (param.name or "").upper() for param in command.params if isinstance(param, click.Argument)
    ]
    return "".join(f" {word}" for word in words)


def option(found: click.Option) -> str:
    """Return one line of a list."""
    names = ", ".join(f"`{name}`" for name in (*found.opts, *found.secondary_opts))
    if not found.is_flag and not found.count:
        kind = found.type
        value = (
            "|".join(map(str, kind.choices)) if isinstance(kind, click.Choice) else found.metavar or kind.name.upper()
        )
        value = {"INTEGER RANGE": "N", "INTEGER": "N", "FLOAT RANGE": "N", "FLOAT": "N"}.get(value, value)
        names += f" `{value}`"
    meaning = (found.help or "").strip()
    if isinstance(found.type, click.IntRange):
        most = found.type.max
        meaning += f" At least {found.type.min}." if most is None else f" {found.type.min} to {most}."
    if found.show_default and found.default not in (None, ""):
        meaning += f" Default: {found.default}."
    return f"- {names}: {meaning.strip()}\n" if meaning else f"- {names}\n"


def options(command: click.Command) -> str:
    """Return the options of a command's own; those of every command stand in a list of their own."""
    common = {each.name for each in root.params} if command is not root else set()
    found = [each for each in command.params if isinstance(each, click.Option) and each.name not in common]
    return "".join(option(each) for each in found)


def told(help_text: str) -> str:
    """Return a help text as Markdown: what click does not wrap, after a line with \\b, is a fenced block."""
    paragraphs = inspect.cleandoc(help_text).split("\n\n")
    return "\n\n".join(
        f"```text\n{each.removeprefix(UNWRAPPED)}\n```" if each.startswith(UNWRAPPED) else each for each in paragraphs
    )


def entry(name: str, command: click.Command) -> str:
    """Return what the page says about one command."""
    help_text = told(command.help or "")
    listed = options(command)
    usage = f"{name}{arguments(command)}"
    if isinstance(command, click.Group):
        usage += " [COMMAND]" if command.invoke_without_command else " COMMAND"
    level = "#" * min(4, name.count(" ") + 2)
    return f"{level} `{usage}`\n\n{help_text}\n\n" + (f"{listed}\n" if listed else "")


def page() -> str:
    """Return the whole page."""
    found = dict(commands(root, "octop"))
    parts = [HEAD, options(root), "\n"]
    for title, section in SECTIONS.items():
        parts.append(f"## {title}\n\n")
        for name in section:
            parts += [entry(path, each) for path, each in found.items() if path.split()[1] == name]
    return "".join(parts).rstrip("\n") + "\n" + TAIL


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
