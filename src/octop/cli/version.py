"""`octop version`: what to write into a bug report."""

from __future__ import annotations

import platform

import click

from octop import __version__
from octop.cli.invocation import Invocation, global_options, pass_invocation


@click.command(short_help="Print the versions of package and Python.")
@global_options(reads=True)
@pass_invocation
def version(invocation: Invocation) -> None:
    """Print the versions of package and Python.

    The schema's version: octop migrate status.
    """
    values = {"octop": __version__, "python": platform.python_version(), "platform": platform.platform()}
    if invocation.as_json:
        invocation.output.json(values)
    else:
        invocation.output.pairs(list(values.items()))
