"""The door for hands: the command `octop`.

Data goes to stdout, messages to stderr. `entry` turns errors into exit codes, `root` names the commands and their
modules, which are imported when they are called: `octop --help` loads neither psycopg nor rich.
"""

import sys


def main() -> None:
    """Run the command with the arguments of this process and end the process with its exit code."""
    from octop.cli.entry import run  # noqa: PLC0415 - importing octop.cli (the demo's worker does) must not load click

    sys.exit(run(sys.argv[1:]))
