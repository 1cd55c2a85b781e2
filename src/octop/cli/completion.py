"""`octop completion`: the script that lets a shell complete commands, options and values."""

from __future__ import annotations

import sys

import click

from octop.cli.invocation import Invocation, global_options, pass_invocation
from octop.cli.program import started_name

PLACES = {
    "bash": 'eval "$(octop completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(octop completion zsh)" in ~/.zshrc, after compinit',
    "fish": "octop completion fish > ~/.config/fish/completions/octop.fish",
}
"""Where each shell looks."""


@click.command(short_help="Print the script for completion in bash, zsh or fish.")
@click.argument("shell", type=click.Choice(list(PLACES)))
@global_options()
@pass_invocation
def completion(invocation: Invocation, shell: str) -> None:
    """Print the script that lets SHELL complete commands, options, and names of queues, task types and settings.

    \b
    bash: eval "$(octop completion bash)" in ~/.bashrc
    zsh:  eval "$(octop completion zsh)" in ~/.zshrc, after compinit
    fish: octop completion fish > ~/.config/fish/completions/octop.fish

    Started as octop-scheduler, it prints the script for that name. Names come from the database that the command would
    use, if it answers within a second; none is started for it.
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - needed here alone

    from octop.cli.entry import COMPLETION  # noqa: PLC0415 - it imports the root, which imports this
    from octop.cli.root import root  # noqa: PLC0415 - as above

    found = get_completion_class(shell)
    if found is None:  # the choice above names those that click knows
        raise click.UsageError(shell)
    name = started_name()
    script = found(root, {}, name, COMPLETION).source().rstrip()
    invocation.output.line(script)
    if sys.stdout.isatty():  # not where a shell reads it, at each start
        invocation.output.say(f"For good: {PLACES[shell].replace('octop', name)}")
