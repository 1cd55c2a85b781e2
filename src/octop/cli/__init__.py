"""The door for hands: the command `octop`.

Data goes to stdout, messages to stderr. `entry` turns errors into exit codes, `root` names the commands and their
modules, which are imported when they are called: `octop --help` loads neither psycopg nor rich.
"""

import contextlib
import signal
import sys


def main() -> None:
    """Run the command with the arguments of this process and end the process with its exit code."""
    try:
        from octop.cli.entry import run  # noqa: PLC0415 - importing octop.cli (the demo's worker does) must not load click

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while that was loaded, or while its end was told
        code = 128 + signal.SIGINT
    while signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # one more Ctrl-C would show where Python is while it ends
        with contextlib.suppress(KeyboardInterrupt):  # one that came just before
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)
