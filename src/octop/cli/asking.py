"""Questions to the person at the terminal, where there is one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from octop.cli.output import Output


def can_ask() -> bool:
    """Tell whether there is a person to be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(output: Output, question: str) -> None:
    """Ask once, on stderr.

    Raises:
        click.exceptions.Exit: The answer is no: code 1.
    """
    if not click.confirm(question, err=True):
        output.say("Nothing was done.")
        raise click.exceptions.Exit(1)
